"""A switch that delays every frame, between all interfaces of this network namespace whose names begin with `to-`.

Two calls that cross each other are a matter of the time that each is on its way, which a bridge has none of.
"""

from __future__ import annotations

import asyncio
import socket
import sys

_ALL_PROTOCOLS = 0x0003
_PACKET_LEVEL, _OFFLOAD_HEADER = 263, 15
_OFFLOAD_BYTES = 10
"""Before each frame: what of it the hardware, which is none here, would have to fill in, such as checksums."""

_LOOK_EVERY = 0.02


class SlowLine:
    """The switch.

    Parameters
    ----------
    delay : float
        Seconds that a frame is on its way.
    """

    def __init__(self, delay: float) -> None:
        self._delay = delay
        self._ports: dict[str, socket.socket] = {}
        self._place: dict[bytes, str] = {}

    async def run(self) -> None:
        """Switch until the process ends, with the interfaces that come."""
        while True:
            for _, name in socket.if_nameindex():
                if name.startswith("to-") and name not in self._ports:
                    self._connect(name)
            await asyncio.sleep(_LOOK_EVERY)

    def _connect(self, name: str) -> None:
        port = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(_ALL_PROTOCOLS))
        port.setsockopt(_PACKET_LEVEL, _OFFLOAD_HEADER, 1)
        port.bind((name, 0))
        port.setblocking(False)
        self._ports[name] = port
        asyncio.get_running_loop().add_reader(port, self._read, name, port)

    def _read(self, name: str, port: socket.socket) -> None:
        try:
            frame, (_, _, kind, *_) = port.recvfrom(70_000)
        except OSError:  # The interface is not up yet.
            return
        if kind == socket.PACKET_OUTGOING:
            return
        to, source = frame[_OFFLOAD_BYTES : _OFFLOAD_BYTES + 6], frame[_OFFLOAD_BYTES + 6 : _OFFLOAD_BYTES + 12]
        self._place[source] = name
        asyncio.get_running_loop().call_later(self._delay, self._pass_on, frame, to, name)

    def _pass_on(self, frame: bytes, to: bytes, name: str) -> None:
        known = self._place.get(to)
        for other in [known] if known is not None else [one for one in self._ports if one != name]:
            try:
                self._ports[other].send(frame)
            except OSError:  # Not up yet, or its queue is full: lost, as on any line.
                continue


if __name__ == "__main__":
    asyncio.run(SlowLine(float(sys.argv[1])).run())
