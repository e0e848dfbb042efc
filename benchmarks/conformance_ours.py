"""How Bristle takes what hostile peers send: over real sockets, from an identity of its group, and in every rule."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

import conformance_cases as cases
import repository  # noqa: F401
from bristle import Context, Evaluation, rules
from bristle.p2p import Overlay
from bristle.rules.decision import Reason
from bristle.wire import Group, Identity
from bristle.wire import messages as wire
from bristle.wire.manifest import encode_manifest
from bristle.wire.messages import Address
from tests.support.manifests import manifest_of

GROUP = Group(application="conformance", backbone="none", classes=tuple("0123456789"), features=cases.FEATURES)
PIECE = 1100


def observe(folder: Path) -> dict[str, str]:
    """Return what was seen, for each case."""
    over_network = asyncio.run(_over_network(folder / "executed"))
    seen = {}
    for case in cases.CASES:
        in_rules = f"; in rules: {_in_rules(case)}" if case in cases.NUMBERS else ""
        seen[case] = over_network[case] + in_rules
    return seen


def _in_rules(case: str) -> str:
    """Give honest and hostile heads to every rule, as an application would that got them elsewhere."""
    heads = cases.honest_heads()
    own = heads[0]
    received, mask, reasons = rules.stack(own, [*heads[1:], *[cases.hostile_head(case)] * cases.HOSTILE])
    why = {Reason(int(code)).name.lower().replace("_", " ") for code in reasons[-cases.HOSTILE :]}
    rng = np.random.default_rng(1)
    evaluation = Evaluation(rng.normal(size=(40, cases.FEATURES)).astype(np.float32), np.repeat([0, 1, 2, 3], 10))
    claims = np.ones((len(received), cases.CLASSES), np.bool_)

    def decide(name: str) -> Any:
        context = Context(iteration=3, total=10, previous=own)
        rule = rules.create(name)
        return rule(own, received, mask=mask, evaluation=evaluation, claims=claims, context=context, rng=rng).head

    verdicts = {name: cases.judged(partial(decide, name)) for name in rules.names(shares="heads")}
    return f"refused ({', '.join(sorted(why))}), {cases.summary(verdicts)}"


class _Liar:
    """A member of the group that says what it likes: the real protocol, with other bytes in it."""

    def __init__(self, overlay: Overlay, victim: Overlay) -> None:
        self.overlay = overlay
        self.node = overlay.node
        self._victim = victim

    def say(self, message: wire.Message | bytes) -> None:
        (link,) = (link for link in self.node.membership.links.values() if link.key_id == self._victim.identity.key_id)
        self.node.send_message(link, message if isinstance(message, bytes) else wire.encode(message))

    def send(self, body: bytes, **changes: Any) -> None:
        """Sign and send a body in the place of a head's."""
        author, sequence = self.overlay.identity.key, self.node.outbox.next_sequence
        self.node.outbox.next_sequence += 1
        manifest = manifest_of(body, GROUP, author, sequence, **changes)
        self.say(wire.SignedManifest(1, PIECE, encode_manifest(manifest, self.overlay.identity)))
        for index in range(-(-len(body) // PIECE)):
            self.say(wire.Piece(manifest.sequence, 1, index, body[PIECE * index : PIECE * (index + 1)]))


def _planes(head: np.ndarray[Any, Any]) -> bytes:
    """Return a head's body as the wire has it, whatever its values."""
    flat = np.ascontiguousarray(head).reshape(-1, 1)
    return flat.view(np.uint8).T.tobytes()


async def _over_network(flag: Path) -> dict[str, str]:
    seen: dict[str, str] = {}
    for case in cases.CASES:
        async with _pair() as (victim, liar, third):
            before = dict(victim.counters.refused)
            what = _attack(case, liar, third, flag)
            await what()
            heads = await _settled(victim, before)
            refused = {reason for reason, count in victim.counters.refused.items() if count > before.get(reason, 0)}
            if flag.exists():
                seen[case] = "executes the pickle"
            elif case == "pickle bomb":
                body = "are read as numbers" if heads else "are refused"
                why = ", ".join(sorted(refused))
                seen[case] = f"never executed; as a message refused: {why}; in a body, its bytes {body}"
            elif case == "replay":
                seen[case] = f"refused: {', '.join(sorted(refused))}; taken {heads} time"
            elif heads:
                seen[case] = "arrives"
            else:
                seen[case] = f"refused: {', '.join(sorted(refused)) or 'nothing said'}"
    return seen


def _attack(case: str, liar: _Liar, third: Identity, flag: Path) -> Callable[[], Awaitable[None]]:
    async def numbers() -> None:
        liar.send(_planes(cases.hostile_head(case)))

    async def pickled() -> None:
        liar.say(cases.bomb(flag))
        liar.send(cases.bomb(flag).ljust(4 * cases.CLASSES * cases.FEATURES, b"\0"))

    async def replayed() -> None:
        sent: list[tuple[Address, bytes]] = []
        transmit = liar.node.transmit

        def keep(to: Address, datagram: bytes) -> None:
            sent.append((to, datagram))
            transmit(to, datagram)

        liar.node.transmit = keep
        liar.overlay.share(cases.honest_heads()[1], iteration=1)
        await asyncio.wait_for(liar.overlay.sent(), 20)
        for to, datagram in sent:
            transmit(to, datagram)

    async def forged() -> None:
        liar.send(_planes(cases.honest_heads()[1]), author=third.key)

    return {"pickle bomb": pickled, "replay": replayed, "forged sender": forged}.get(case, numbers)


async def _settled(victim: Overlay, before: dict[str, int]) -> int:
    """Return how many heads arrive, once something was refused or has arrived and a while has passed."""
    heads = 0
    for _ in range(200):
        await asyncio.sleep(0.05)
        heads += len(victim.take())
        if heads or dict(victim.counters.refused) != before:
            break
    await asyncio.sleep(0.3)
    return heads + len(victim.take())


@asynccontextmanager
async def _pair() -> AsyncIterator[tuple[Overlay, _Liar, Identity]]:
    """Start a victim and a liar on loopback, neighbours of each other; a third identity is nobody's."""
    victim = Overlay(identity=Identity.generate(), group=GROUP)
    await victim.start()
    liar = Overlay(identity=Identity.generate(), group=GROUP, known=[victim.address])
    await liar.start()
    try:
        async with asyncio.timeout(60):
            while not (victim.neighbours() and liar.neighbours()):
                await asyncio.sleep(0.02)
        await asyncio.sleep(0.3)
        yield victim, _Liar(liar, victim), Identity.generate()
    finally:
        await liar.stop()
        await victim.stop()
