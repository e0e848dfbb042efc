"""The live page of the demo: the latest events of its peers, assembled when somebody is watching."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from bristle.commands.dashboard import Feed
from bristle.commands.demo import Demo, Row
from bristle.commands.demo.tally import Standing, Tally
from bristle.report.snapshot import Judgement, Member, MemberKind, Phrases, RunState, Snapshot, room_for
from bristle.rules.decision import Reason

DIGITS = tuple(map(str, range(10)))


class DemoBoard:
    """Follows the demo for a page, and for its report.

    Parameters
    ----------
    demo : Demo
        The demo.
    feed : Feed, optional
        Where to publish snapshots.
    """

    def __init__(self, demo: Demo, feed: Feed | None) -> None:
        self.demo, self.feed = demo, feed
        self.tally: Tally | None = None
        self.oracle: float | None = None
        self.compared: Sequence[Row] = ()
        room = room_for(len(DIGITS))
        attackers = min(demo.attackers, max(room // 4, room - demo.peers))
        peers = min(demo.peers, room - attackers)
        self._shown = [*range(peers), *range(demo.peers, demo.peers + attackers)]
        self._place = {member: at for at, member in enumerate(self._shown)}

    def follow(self, tally: Tally, *, ends: Mapping[str, float], compared: Sequence[Row]) -> None:
        """Start showing a tally, beside the baselines."""
        self.tally, self.oracle, self.compared = tally, ends.get("oracle"), compared

    def look(self) -> None:
        """Publish a snapshot if somebody is watching."""
        if self.feed is not None and self.feed.wanted:
            self.show(RunState.RUNNING)

    def show(self, state: RunState) -> None:
        """Publish a snapshot."""
        if self.feed is not None:
            self.feed.publish(lambda: self.snapshot(state))

    def snapshot(self, state: RunState) -> Snapshot:
        """Return a snapshot."""
        demo, tally = self.demo, self.tally
        attackers = f"{demo.attackers} attackers ({demo.attack})" if demo.attackers else "no attackers"
        lost = f", {demo.impairment.loss:.0%} of datagrams lost" if demo.impairment else ""
        at, total, phrases = 0, demo.iterations, Phrases()
        if demo.evidence:
            at, total = 0 if tally is None else tally.known, demo.members - 1
        elif tally is not None:
            at = int(tally.rounds)
        judgements = [self._judgement(member, phrases) for member in self._shown]
        return Snapshot(
            title="A real network on this machine",
            subtitle=f"{demo.peers} peers with {demo.classes_per_peer} of 10 digits each, {attackers}, rule: "
            f"{demo.rule}{lost}",
            rule=demo.rule,
            state=state,
            iteration=at,
            total=total,
            unit="statements known" if demo.evidence else "iteration",
            classes=DIGITS,
            members=tuple(self._member(member) for member in self._shown),
            judgements=tuple(found for found in judgements if found is not None),
            phrases=tuple(phrases) if demo.evidence else (),
            history=[] if tally is None else tally.history,
            band="Mean of the benign peers on 10,000 test images; the band goes from the worst peer to the best. "
            "Other rules were simulated on the same samples.",
            oracle=self.oracle,
            references=self._references(),
            left_out=demo.members - len(self._shown),
        )

    def _standing(self, member: int) -> Standing | None:
        return None if self.tally is None or member >= self.demo.peers else self.tally.peers[member]

    def _member(self, member: int) -> Member:
        demo = self.demo
        if member >= demo.peers:
            number, held = member - demo.peers + 1, tuple(range(len(DIGITS)))
            return Member(name=f"attacker {number}", kind=MemberKind.MALICIOUS, holds=held)
        holds = tuple(sorted((member + step) % 10 for step in range(demo.classes_per_peer)))
        known = Member(name=f"peer {member}", kind=MemberKind.BENIGN, holds=holds)
        standing = self._standing(member)
        if standing is None or self.tally is None:
            return known
        known = replace(known, iteration=standing.iteration, accuracy=standing.accuracy)
        connected = standing.connected
        if connected is None:
            return known
        hears = tuple(self._place[one] for one in self.tally.numbers(connected.neighbours) if one in self._place)
        known = replace(known, bytes_in=connected.bytes_in, bytes_out=standing.bytes_out)
        return replace(known, refused=connected.refused, hears=hears)

    def _judgement(self, member: int, phrases: Phrases) -> Judgement | None:
        standing, tally = self._standing(member), self.tally
        if standing is None or tally is None or not standing.heard or standing.weights is None:
            return None
        senders = [tally.number(one) for one in standing.heard]
        kept = [place for place, sender in enumerate(senders) if sender in self._place]
        return Judgement(
            receiver=self._place[member],
            iteration=standing.decided,
            senders=[self._place[senders[place]] for place in kept],
            reasons=[int(Reason[standing.heard[place].reason.upper().replace("-", "_")]) for place in kept],
            weights=standing.weights[np.array(kept, dtype=np.int64)],
            unseen=len(senders) - len(kept),
            class_words=phrases.table(
                [{one.label: tally.named(one.words) for one in standing.heard[place].classes} for place in kept],
                len(DIGITS),
            )
            if self.demo.evidence
            else None,
        )

    def _references(self) -> dict[str, list[tuple[int, float]]]:
        found: dict[str, list[tuple[int, float]]] = {}
        for row in self.compared:
            if row["rule"] != self.demo.rule:
                found.setdefault(row["rule"], []).append((row["iteration"], row["accuracy_mean"]))
        if self.demo.evidence:  # Iterations are no statements: where they end is what can be compared.
            ends = {rule: points[-1][1] for rule, points in found.items()}
            return {rule: [(0, end), (self.demo.members - 1, end)] for rule, end in ends.items()}
        return found
