"""Hidden peers behind real routers: how soon they hear each other, by which way, and a flood of the forwarder.

    python benchmarks/routers.py                           a table of all pairs of routers, three runs each
    python benchmarks/routers.py --flood                   a forwarder under 10,000 datagrams a second

Needs Linux with nftables, and the right to make network namespaces. No packet leaves them.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from tests.support.routers import PORT, Internet, NotPermittedError, RoutedPeer

KEPT: dict[str, Any] = {}
DROPS: dict[str, Any] = {"drops_new": True}
RANDOM: dict[str, Any] = {"ports": "random"}
ISOLATES: dict[str, Any] = {"isolates": True}
CASES: dict[str, tuple[dict[str, Any], ...]] = {
    "two that keep ports": (KEPT, KEPT),
    "two that keep ports and drop new connections": (DROPS, DROPS),
    "one with random ports, one that keeps them": (RANDOM, KEPT),
    "two with random ports": (RANDOM, RANDOM),
    "one for both": (KEPT,),
    "one for both that isolates them": (ISOLATES,),
}
LINES: dict[str, dict[str, Any]] = {
    "bridge": {},
    "router": {"routed": True},
    "50 ms": {"delay": 0.05},
}
SOURCES = 200
RATE = 10_000
SENDER = f"""
import os, socket, sys, time
target = (sys.argv[1], {PORT})
sockets = []
for number in range({SOURCES}):
    sockets.append(socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
    sockets[-1].bind((f"198.51.100.{{50 + number}}", 0))
began, sent = time.monotonic(), 0
while True:
    due = int((time.monotonic() - began) * {RATE})
    while sent < due:
        sockets[sent % {SOURCES}].sendto(b"\\xb5" + os.urandom(60), target)
        sent += 1
    time.sleep(0.002)
"""


def start(network: Internet, routers: tuple[dict[str, Any], ...]) -> tuple[RoutedPeer, RoutedPeer, RoutedPeer]:
    """Start a public peer and two hidden ones."""
    known = network.public("public")
    for number, options in enumerate(routers):
        network.router(f"router{number}", **options)
    for number, name in enumerate(("one", "other")):
        network.behind(f"router{number % len(routers)}", name)
    public = network.peer("public")
    assert public.key_id
    return public, network.peer("one", known=known), network.peer("other", known=known)


def meeting(routers: tuple[dict[str, Any], ...], line: dict[str, Any]) -> tuple[float, str]:
    """Return after how many seconds both hidden peers have heard each other, and how they reach each other."""
    network = Internet(**line)
    try:
        _, one, other = start(network, routers)
        seconds = max(one.first_heard(other), other.first_heard(one))
        way = one.way(other)
        return seconds, "not" if way is None else way["reached"]
    finally:
        network.close()


def table(runs: int) -> None:
    """Print how soon hidden peers hear each other."""
    print("| routers | between them | heard after, s | reached |\n|---|---|---|---|")
    for name, routers in CASES.items():
        for between, line in LINES.items():
            found = [meeting(routers, line) for _ in range(runs)]
            seconds = sorted(each for each, _ in found)
            ways = ", ".join(sorted({way for _, way in found}))
            span = f"{statistics.median(seconds):.1f} ({seconds[0]:.1f} to {seconds[-1]:.1f})"
            print(f"| {name} | {between} | {span} | {ways} |", flush=True)


def rates(public: RoutedPeer, hidden: tuple[RoutedPeer, ...], seconds: float) -> tuple[float, float, float]:
    """Return rounds of the public peer, heads between it and the hidden ones, and forwarded bytes: each per second."""

    def count() -> tuple[float, float, float]:
        own = sum(one.heard(public) + public.heard(one) for one in hidden)
        return public.seen["iteration"], own, public.seen["counters"]["bytes_forwarded"]

    began, before = time.monotonic(), count()
    time.sleep(seconds)
    elapsed = time.monotonic() - began
    rounds, own, forwarded = (after - earlier for after, earlier in zip(count(), before, strict=True))
    return rounds / elapsed, own / elapsed, forwarded / elapsed


def flood(seconds: float) -> None:
    """Print what a flood does to a forwarder."""
    network = Internet()
    try:
        public, one, other = start(network, (RANDOM, RANDOM))
        one.first_heard(other)
        other.first_heard(one)
        network.public("attacker")
        for number in range(SOURCES):
            subprocess.run(
                network.inside(f"ip address add 198.51.100.{50 + number}/24 dev eth0".split(), "attacker"), check=True
            )
        print("| | rounds/s | own heads/s | forwarded, KB/s |\n|---|---|---|---|")
        for name in ("quiet", "flooded", "quiet again"):
            sender = None
            if name == "flooded":
                words = [sys.executable, "-c", SENDER, network.addresses["public"]]
                sender = subprocess.Popen(network.inside(words, "attacker"))
            time.sleep(3)
            rounds, own, forwarded = rates(public, (one, other), seconds)
            if sender is not None:
                sender.kill()
                sender.wait()
            print(f"| {name} | {rounds:.2f} | {own:.2f} | {forwarded / 1000:.1f} |", flush=True)
        print(public.seen["refused"])
    finally:
        network.close()


def main() -> None:
    """Run what the command line asks for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=3, help="of each pair of routers (3)")
    parser.add_argument("--flood", action="store_true", help="flood a forwarder instead")
    parser.add_argument("--seconds", type=float, default=20.0, help="of each part of the flood (20)")
    options = parser.parse_args()
    try:
        flood(options.seconds) if options.flood else table(options.runs)
    except NotPermittedError as error:
        raise SystemExit(f"routers: {error}") from error


if __name__ == "__main__":
    main()
