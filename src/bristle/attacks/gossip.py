"""Attacks on gossip: copy honest heads, or cancel what they contribute."""

from __future__ import annotations

from dataclasses import dataclass

from bristle._core import Array, take_rows
from bristle._core.validation import check_count, check_positive, check_share
from bristle.attacks.base import required
from bristle.attacks.statistics import AgainstHonest, Honest
from bristle.attacks.view import Knowledge, View, flatten


@dataclass(frozen=True, kw_only=True)
class Mimic(AgainstHonest):
    r"""m = x_j for one honest j, always the same.

    Karimireddy, He and Jaggi, "Byzantine-Robust Learning on Heterogeneous Datasets via Bucketing", ICLR
    2022: with every attacker a copy of j, robust rules take j for the majority and drop the data of the
    others. There is nothing in it to detect. Knows the inbox; assumes that honest data differ. O(K d).

    Parameters
    ----------
    target : int
        The place of j in the inbox; where it is empty, the next one after it that is not, from the start
        again after the last.
    """

    target: int = 0

    def __post_init__(self) -> None:
        check_count("target", self.target)

    def against(self, honest: Honest, view: View, draws: Array | None) -> Array:
        """Send a copy."""
        xp, places = honest.xp, honest.heads.shape[1]
        after = (xp.arange(places, device=honest.heads.device) - self.target % places) % places
        waiting = xp.where(honest.present, after, after + places)
        return take_rows(xp, honest.heads, xp.argmin(waiting, axis=-1)[:, None])


@dataclass(frozen=True, kw_only=True)
class Dissensus(AgainstHonest):
    r"""m = x_i - ε Σ_{j honest} W_ij (x_j - x_i) / Σ_{j attacker} W_ij, with equal weights W_ij.

    He, Karimireddy and Jaggi, "Byzantine-Robust Decentralized Learning via ClippedGossip", arXiv
    2202.01545, 2022. In a victim that averages, ε = 1 cancels the pull of its honest neighbours and a
    larger ε drives it away from them, so that peers never agree. Knows everything: the victim's own head
    x_i and its inbox. All attackers send the same. O(M d).

    Parameters
    ----------
    epsilon : float
        How much of the honest pull to take back.
    """

    epsilon: float = 1.5

    knows = Knowledge.EVERYTHING  # Also the victim's own head.

    def __post_init__(self) -> None:
        check_positive("epsilon", self.epsilon)

    def against(self, honest: Honest, view: View, draws: Array | None) -> Array:
        """Send the opposite of what the honest heads do to the victim's."""
        victim = flatten(honest.xp, required(view.victim, "victim", self))
        share = honest.count[:, None] * (self.epsilon / view.own.shape[1])
        return (victim - share * (honest.mean - victim))[:, None, :]


@dataclass(frozen=True, kw_only=True)
class FreeRide(AgainstHonest):
    r"""m_k = μ + a U(-1, 1), with μ the mean of the honest heads.

    Fraboni, Vidal and Lorenzi, "Free-rider Attacks on Model Aggregation in Federated Learning", AISTATS
    2021: resend what others learned, disguised by a little noise, and contribute nothing. Knows the inbox,
    trains nothing; draws random numbers. O((M + K) d).

    Parameters
    ----------
    noise : float
        The amplitude a.
    """

    noise: float = 1e-3

    stochastic = True  # The disguise is drawn.
    trains = False  # Not training is the whole attack.

    def __post_init__(self) -> None:
        check_share("noise", self.noise)

    def against(self, honest: Honest, view: View, draws: Array | None) -> Array:
        """Send the mean in a thin disguise."""
        assert draws is not None
        return honest.mean[:, None, :] + (2 * flatten(honest.xp, draws) - 1) * self.noise
