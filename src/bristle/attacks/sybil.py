"""The sybil attack: one attacker with many identities."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from operator import attrgetter
from typing import Any

from bristle._core import Array, namespace
from bristle._core.validation import check_share
from bristle.attacks.base import Attack
from bristle.attacks.data_free import LabelFlip
from bristle.attacks.view import View
from bristle.rules.base import Rule


def _as_inner(name: str) -> Any:
    return property(attrgetter(f"inner.{name}"))


@dataclass(frozen=True, kw_only=True)
class Sybil(Attack):
    r"""m_1 = A(x_1), m_k = m_1 + a U(-1, 1) for k > 1: one attacker with an attack A and K identities.

    Douceur, "The Sybil Attack", IPTPS 2002; in learning, Fung, Yoon and Beschastnikh, "The Limitations of
    Federated Learning in Sybil Settings", RAID 2020. Only the first of the own heads counts. The inner
    attack sees K attackers, since that is how many the victim counts. Knows what the inner attack
    knows; draws random numbers. Costs what the inner attack costs, and O(K d).

    Parameters
    ----------
    inner : Attack
        The attack A. `attacks.create("sybil", inner="krum")` takes its name as well.
    jitter : float
        The amplitude a, so that no two identities send the same bits.
    """

    inner: Attack = field(default_factory=LabelFlip)
    jitter: float = 1e-3

    stochastic = True  # The jitter is drawn.
    one_head = True  # All identities send what the first one makes.
    # In all else it is like the inner attack.
    knows = _as_inner("knows")
    trains = _as_inner("trains")
    equivocates = _as_inner("equivocates")
    broadcasts = _as_inner("broadcasts")
    feature_count = _as_inner("feature_count")
    flips_labels = _as_inner("flips_labels")
    finite = _as_inner("finite")

    def __post_init__(self) -> None:
        if not isinstance(self.inner, Attack):
            raise ValueError(f"inner must be an attack, such as LabelFlip(), not {self.inner!r}")
        check_share("jitter", self.jitter)

    def labels(self, y: Array) -> Array:
        """Return the labels that the inner attack trains on."""
        return self.inner.labels(y)

    def pointed_at(self, rule: Rule) -> Sybil:
        """Point the inner attack at a rule."""
        return replace(self, inner=self.inner.pointed_at(rule))

    def claims(self, view: View) -> Array:
        """Claim what the inner attack claims."""
        return self.inner.claims(view)

    def craft(self, view: View, draws: Array | None) -> Array:
        """Send what one attacker would, under every name."""
        assert draws is not None
        xp, own, sent = namespace(view.own), view.own, view.sent

        def shared(heads: Array) -> Array:
            return xp.broadcast_to(heads[:, :1, ...], own.shape)

        alone = replace(view, own=shared(own), sent=None if sent is None else shared(sent))
        first = self.inner.craft(alone, draws if self.inner.stochastic else None)[:, :1, ...]
        # The first identity's uniforms belong to the inner attack: it goes out as it is.
        return xp.concat([first, first + (2 * draws[:, 1:, ...] - 1) * self.jitter], axis=1)
