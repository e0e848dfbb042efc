"""The red-team table: the paper's rule and bristle-plus against attackers who know how foreign rows are admitted.

Plain values, for whoever runs experiments: each match is a world, and every rule of `RULES` plays all of them.
"""

from __future__ import annotations

from dataclasses import dataclass

RULES = ("bristle", "bristle-plus")
"""Who defends."""

KNOWING = ("foreign-trojan", "excused-trojan", "late-trojan", "row-copy", "outnumber", "claim-liar", "inflate")
"""Attacks on what a victim cannot test, the last six made for bristle-plus."""

OVERSHOOTING = ("alie", "trimmed-mean", "trimmed-mean-along")
"""Attacks on averages that a rule with votes must not do worse against than the paper's."""


@dataclass(frozen=True, kw_only=True)
class Match:
    """A world of the table: 2 samples a class and peer, everybody hears everybody."""

    attack: str
    peers: int = 10
    attackers: int
    classes_per_peer: int = 4

    @property
    def owners(self) -> float:
        """How many honest peers own a class, on average over the ten."""
        return self.peers * self.classes_per_peer / 10

    @property
    def name(self) -> str:
        """What rows call it."""
        return f"{self.attack} {self.peers}+{self.attackers}, {self.classes_per_peer} classes"


SIZES = ((10, 1, 4), (10, 2, 4), (10, 3, 4), (10, 5, 4), (30, 9, 4), (10, 1, 2), (10, 5, 6), (10, 5, 10))
"""Peers, attackers and classes a peer: below, at and beyond the number of honest owners of a class."""

MATCHES = tuple(
    Match(attack=attack, peers=peers, attackers=attackers, classes_per_peer=classes)
    for attack in (*KNOWING, *OVERSHOOTING)
    for peers, attackers, classes in (SIZES if attack in KNOWING else ((10, 5, 4), (30, 9, 4)))
)
"""The whole table."""
