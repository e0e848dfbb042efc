"""Lines between real peers that can be cut, and that lose datagrams: a relay in a thread of its own."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, TypeVar

from bristle.commands.demo.relay import Impairment, Relay
from bristle.wire.messages import Address

Found = TypeVar("Found")
LONG = 300.0
"""Seconds after which something that one waits for will not happen any more."""


class Lines:
    """Lines between all pairs of some members.

    Parameters
    ----------
    members : int
        How many there are.
    loss : float
        Share of datagrams that are lost.
    seed : int
        Of which.
    """

    def __init__(self, members: int, *, loss: float = 0.0, seed: int = 0) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self.relay = self._do(lambda: Relay(members, Impairment(loss=loss), seed=seed))

    def wait(self, work: Coroutine[Any, Any, Found]) -> Found:
        """Let something be done in the relay's thread; return what comes of it."""
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(timeout=LONG)

    def _do(self, work: Callable[[], Found]) -> Found:
        async def do() -> Found:
            return work()

        return self.wait(do())

    def addresses(self, member: int) -> list[Address]:
        """Return where a member finds the others."""
        return self._do(lambda: self.relay.known(member))

    def known(self, member: int) -> list[str]:
        """Return the same as `--known` takes it."""
        return ["{}:{}".format(*address) for address in self.addresses(member)]

    def cut(self, *sides: Sequence[int]) -> None:
        """Part the members; without sides they are together again."""
        self._do(lambda: self.relay.cut(*sides))

    def close(self) -> None:
        """Pass nothing on any more."""
        self._do(self.relay.close)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()
