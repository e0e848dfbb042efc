"""A small internet of network namespaces: public peers, and hidden ones behind routers that nftables makes.

Everything is in namespaces of its own, which go when their anchor process ends; no packet leaves them.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import pytest

from tests.support.fault_peers import write_digits

PORT = 7700
LONG = 180.0
"""Seconds after which something that one waits for will not happen any more."""

Ports = Literal["kept", "random"]
_TOOLS = ("unshare", "nsenter", "ip", "nft", "mount")
_BRISTLE = (sys.executable, "-c", "from bristle.cli import main; main()")
_ROOT = Path(__file__).parents[2]


class NotPermittedError(Exception):
    """Namespaces cannot be made here."""


class Internet:
    """A bridge or a router that stands for the internet, 198.51.100.0/24, and what is connected to it.

    Parameters
    ----------
    delay : float
        Seconds that a datagram between two public addresses is on its way.
    routed : bool
        Whether a router is between all public addresses, as in most of the real internet, instead of a bridge.

    Raises
    ------
    NotPermittedError
        If the machine does not allow that.
    """

    def __init__(self, *, delay: float = 0.0, routed: bool = False) -> None:
        missing = [tool for tool in _TOOLS if shutil.which(tool) is None]
        if missing:
            raise NotPermittedError(f"there is no `{missing[0]}` here")
        self.peers: list[RoutedPeer] = []
        self.services: list[subprocess.Popen[bytes]] = []
        self._slow_line: subprocess.Popen[bytes] | None = None
        self.addresses: dict[str, str] = {}
        self._behind: dict[str, int] = {}
        self._isolating: set[str] = set()
        ready = "mount -t tmpfs none /run && mkdir /run/netns && ip link set lo up && echo ready && exec cat"
        self._anchor = subprocess.Popen(
            ["unshare", "-rmn", "sh", "-c", ready],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert self._anchor.stdout is not None
        assert self._anchor.stderr is not None
        if self._anchor.stdout.readline() != "ready\n":
            said = self._anchor.stderr.read().strip()
            self.close()
            raise NotPermittedError(f"network namespaces cannot be made here: {said}")
        try:
            self._routed = routed
            if routed:
                self._do("sysctl -qw net.ipv4.ip_forward=1")
            elif delay:
                words = [sys.executable, "-m", "tests.support.slow_line", str(delay)]
                self._slow_line = subprocess.Popen(self.inside(words), env=self.environment())
            else:
                self._do("ip link add internet type bridge forward_delay 0")
                self._do("ip link set internet up")
            self.router("trial", drops_new=True)
        except subprocess.CalledProcessError as error:
            self.close()
            raise NotPermittedError(f"routers cannot be made here: {error.stderr.strip()}") from None

    def inside(self, words: Sequence[str], at: str | None = None) -> list[str]:
        """Return the command that runs another one in here, on a machine."""
        enter = ["nsenter", "-t", str(self._anchor.pid), "-U", "-m", "-n", "--preserve-credentials"]
        return [*enter, *(["ip", "netns", "exec", at] if at else []), *words]

    def _do(self, command: str, at: str | None = None, *, said: str | None = None) -> None:
        words = self.inside(command.split(), at)
        subprocess.run(words, input=said, check=True, capture_output=True, text=True)

    def _machine(self, name: str, address: str, bridge: str, at: str | None = None) -> None:
        """Add a machine to a bridge, which is on the machine `at`."""
        self._do(f"ip netns add {name}")
        self._do("ip link set lo up", name)
        self._do(f"ip link add to-{name} type veth peer name eth0 netns {name}", at)
        if at is not None or not (self._routed or self._slow_line):
            self._do(f"ip link set to-{name} master {bridge}", at)
        self._do(f"ip link set to-{name} up", at)
        self._do("ip link set eth0 up", name)
        if at is not None or not self._routed:
            self._do(f"ip address add {address}/24 dev eth0", name)
            return
        self._do(f"ip address add {address}/32 dev eth0", name)
        self._do("ip route add 198.51.100.254 dev eth0", name)
        self._do("ip route add default via 198.51.100.254", name)
        self._do(f"ip address add 198.51.100.254/32 dev to-{name}")
        self._do(f"ip route add {address} dev to-{name}")

    def public(self, name: str) -> str:
        """Add a machine with a public address; return that."""
        address = self.addresses[name] = f"198.51.100.{len(self.addresses) + 1}"
        self._machine(name, address, "internet")
        return address

    def router(self, name: str, *, ports: Ports = "kept", drops_new: bool = False, isolates: bool = False) -> str:
        """Add a router that hides what is behind it; return its public address.

        Parameters
        ----------
        name : str
            Its name.
        ports : str
            Whether it keeps the port of a machine behind it, or takes a random one for every destination.
        drops_new : bool
            Whether it drops, instead of refusing, what nobody behind it has asked for.
        isolates : bool
            Whether the machines behind it cannot reach each other.
        """
        address = self.public(name)
        self._do("sysctl -qw net.ipv4.ip_forward=1", name)
        self._do("ip link add lan type bridge forward_delay 0", name)
        self._do("ip address add 192.168.1.1/24 dev lan", name)
        self._do("ip link set lan up", name)
        kind = "masquerade fully-random" if ports == "random" else "masquerade"
        rules = _chain("ip", "out", "nat", "postrouting", 100, f"oifname eth0 {kind}")
        if drops_new:
            rules += _chain("inet", "guard", "filter", "input", 0, "iifname eth0 ct state new drop")
            rules += _chain("inet", "guard", "filter", "forward", 0, "iifname eth0 ct state new drop")
        self._do("nft -f -", name, said=rules)
        self._behind[name] = 1
        if isolates:
            self._isolating.add(name)
        return address

    def behind(self, router: str, name: str) -> str:
        """Add a machine behind a router; return its address there. The first one has the same behind every router."""
        self._behind[router] += 1
        address = f"192.168.1.{self._behind[router]}"
        self._machine(name, address, "lan", router)
        self._do("ip route add default via 192.168.1.1", name)
        if router in self._isolating:
            self._do(f"ip link set dev to-{name} type bridge_slave isolated on", router)
        return address

    def peer(self, name: str, *, known: str | None = None, **options: Any) -> RoutedPeer:
        """Start a peer on a machine, which knows another one by its address."""
        words = [sys.executable, "-m", "tests.support.routed_peer", json.dumps({"known": known, **options})]
        process = subprocess.Popen(
            self.inside(words, name),
            env=self.environment(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.peers.append(RoutedPeer(name, process))
        return self.peers[-1]

    def service(self, name: str, folder: Path, *, known: str | None = None) -> RoutedService:
        """Start `bristle peer` on a machine, with a few digits."""
        data = write_digits(folder.with_suffix(".npz"), each=20, test=50)
        words = (
            f"peer --application routers --folder {folder} --data {data} --listen 0.0.0.0:{PORT} --http 8080".split()
        )
        words += ["--rule", "bristle"]
        words += ["--interval", "0.5", "--log-format", "json", *(["--known", f"{known}:{PORT}"] if known else [])]
        process = subprocess.Popen(self.inside([*_BRISTLE, *words], name), env=self.environment())
        self.services.append(process)
        return RoutedService(self, name, folder, process)

    @staticmethod
    def environment() -> dict[str, str]:
        """Return the environment of a process in here: this machine's files are seen as they are."""
        paths = [str(_ROOT), *filter(None, [os.environ.get("PYTHONPATH", "")])]
        return {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(paths)}

    def close(self) -> None:
        """End everything."""
        for peer in self.peers:
            peer.kill()
        for process in self.services:
            process.kill()
            process.wait()
        if self._slow_line is not None:
            self._slow_line.kill()
            self._slow_line.wait()
        for stream in (self._anchor.stdin, self._anchor.stdout, self._anchor.stderr):
            if stream is not None:
                stream.close()
        self._anchor.kill()
        self._anchor.wait()


def _chain(family: str, table: str, kind: str, hook: str, priority: int, rule: str) -> str:
    chain = f"chain {hook} {{\ntype {kind} hook {hook} priority {priority}\n{rule}\n}}"
    return f"table {family} {table} {{\n{chain}\n}}\n"


@dataclass
class RoutedPeer:
    """A peer in a process of its own, which says ten times a second what it sees.

    Parameters
    ----------
    name : str
        Its machine's name.
    process : Popen
        The process.
    """

    name: str
    process: subprocess.Popen[str]
    seen: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.seen = json.loads(line)

    @property
    def key_id(self) -> str:
        """Its key id."""
        return str(self.when(lambda seen: seen.get("key_id"), "has started"))

    def when(self, condition: Callable[[dict[str, Any]], Any], what: str) -> Any:
        """Wait until something holds of what it sees; return that."""
        deadline = time.monotonic() + LONG
        while not (found := condition(self.seen)):
            if self.process.poll() is not None:
                raise RuntimeError(f"{what}: {self.name} has ended")
            if time.monotonic() > deadline:
                raise RuntimeError(f"{what}: not within {LONG:.0f} s; {self.name} sees {self.seen}")
            time.sleep(0.02)
        return found

    def way(self, other: RoutedPeer) -> dict[str, Any] | None:
        """Return how it reaches another one now; None if it does not."""
        found: dict[str, Any] | None = self.seen.get("neighbours", {}).get(other.key_id)
        return found

    def heard(self, other: RoutedPeer) -> int:
        """Return how many heads of another one it has received."""
        return int(self.seen.get("heard", {}).get(other.key_id, 0))

    def first_heard(self, other: RoutedPeer) -> float:
        """Wait for the first head of another one; return after how many seconds it came."""
        key_id = other.key_id
        return float(self.when(lambda seen: seen.get("first", {}).get(key_id), f"hears {other.name}"))

    def goes_on_hearing(self, other: RoutedPeer, heads: int = 5) -> None:
        """Wait for some more heads of another one."""
        key_id, goal = other.key_id, self.heard(other) + heads
        self.when(lambda seen: seen.get("heard", {}).get(key_id, 0) >= goal, f"goes on hearing {other.name}")

    def kill(self) -> None:
        """End it without a word to anybody."""
        self.process.kill()
        self.process.wait()
        self._reader.join()
        assert self.process.stdout is not None
        self.process.stdout.close()


@dataclass
class RoutedService:
    """A `bristle peer` on a machine.

    Parameters
    ----------
    network : Internet
        Where it is.
    name : str
        Its machine's name.
    folder : Path
        Its folder.
    process : Popen
        The process.
    """

    network: Internet
    name: str
    folder: Path
    process: subprocess.Popen[bytes]

    def status_text(self, *words: str) -> str:
        """Return what `bristle status` prints there."""
        done = subprocess.run(
            self.network.inside([*_BRISTLE, "status", str(self.folder), *words], self.name),
            env={**self.network.environment(), "COLUMNS": "200"},
            capture_output=True,
            text=True,
            check=False,
        )
        return done.stdout

    def status(self) -> dict[str, Any]:
        """Return its status."""
        said = self.status_text("--json", "-")
        return dict(json.loads(said)) if said else {"neighbours": [], "counters": {}}

    def status_when(self, condition: Callable[[dict[str, Any]], Any], what: str) -> None:
        """Wait until something holds of its status."""
        deadline = time.monotonic() + LONG
        while not condition(status := self.status()):
            if self.process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"{what}: {self.name} does not; its status is {status}")

    @property
    def key_id(self) -> str:
        """Its key id."""
        return str(self.status()["key_id"])


@pytest.fixture
def internet() -> Iterator[Callable[..., Internet]]:
    """Make a small internet: internet(delay=...); skip where the machine allows no namespaces."""
    made: list[Internet] = []

    def make(**options: Any) -> Internet:
        try:
            made.append(Internet(**options))
        except NotPermittedError as error:
            pytest.skip(str(error))
        return made[-1]

    yield make
    for network in made:
        network.close()
