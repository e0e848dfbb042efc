"""Scenarios: everything that defines a world, in one value."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal, get_args

import numpy as np

from bristle._core import Array, namespace
from bristle._core.arrays import from_numpy
from bristle._core.validation import check_count, check_share
from bristle.attacks import Attack
from bristle.attacks import create as create_attack
from bristle.data.partitions import Partitioner
from bristle.learning import HeadState, TrainingSettings
from bristle.peer.step import Sharing
from bristle.rules import Bristle, Rule
from bristle.simulation.mailbox import Asynchrony
from bristle.simulation.topology import All, Topology

EVALUATE_EVERY = 10
"""Default number of iterations between evaluations."""

Moments = Literal["same", "float16", "bfloat16"]
Shared = Literal["same", "grid", "bfloat16"]


@dataclass(frozen=True, kw_only=True)
class Precision:
    """Precision of optimiser states and of shared heads. Heads and computations have the features' type.

    Parameters
    ----------
    moments : str
        Type of the optimiser's moments: `same` as the heads, `float16` (NumPy, torch), or `bfloat16` (torch). The
        second moment is kept as its root, whose range fits 16 bits.
    shared : str
        Encoding of shared heads: `same` as the heads, on a `grid` as live peers share them, with their bytes counted,
        or `bfloat16` (large worlds of torch tensors only). A peer's own head stays exact.
    """

    moments: Moments = "same"
    shared: Shared = "same"

    def __post_init__(self) -> None:
        if self.shared not in get_args(Shared):
            raise ValueError(f"shared must be one of {', '.join(get_args(Shared))}, not {self.shared!r}")
        if self.moments not in get_args(Moments):
            raise ValueError(f"moments must be one of {', '.join(get_args(Moments))}, not {self.moments!r}")

    def narrowed(self, state: HeadState) -> HeadState:
        """Return the state as it is kept."""
        if self.moments == "same":
            return state
        xp = namespace(state.head)
        kind = self._type(xp)
        first, second = xp.astype(state.first, kind), xp.astype(xp.sqrt(state.second), kind)
        return HeadState(state.head, first, second, state.steps)

    def widened(self, state: HeadState) -> HeadState:
        """Return a state to compute with."""
        if self.moments == "same":
            return state
        first, root = self.plain(state.first, state.head), self.plain(state.second, state.head)
        return HeadState(state.head, first, root * root, state.steps)

    def plain(self, kept: Array, like: Array) -> Array:
        """Return kept moments in the type of `like`, without rounding."""
        return namespace(like).astype(kept, like.dtype, copy=False)

    def kept(self, plain: Array) -> Array:
        """Undo `plain`."""
        xp = namespace(plain)
        return plain if self.moments == "same" else xp.astype(plain, self._type(xp))

    def _type(self, xp: Any) -> Any:
        try:
            return xp.float16 if self.moments == "float16" else xp.bfloat16
        except AttributeError:
            raise ValueError(f"{xp.__name__} has no type {self.moments}: keep the moments as same") from None


@dataclass(frozen=True, kw_only=True)
class Scenario:
    """Everything that defines a world, except its data.

    Parameters
    ----------
    peers, attackers : int
        Number of benign peers, and of attackers in addition.
    rule : Rule
        Aggregation rule of all benign peers.
    attack : Attack
        The attack. Attackers own samples of all classes, train alone, if at all, and never integrate.
    classes_per_peer : int
        Peer i holds the classes {i, ..., i + k - 1} modulo all.
    samples_per_class, held_out : int
        Number of training and held-out samples that a peer has of each of its classes.
    reuse : bool
        Whether several peers may hold the same sample if there are too few.
    partition : Partitioner, optional
        Another assignment of samples to benign peers; it then decides about classes and samples. Attackers get
        `samples_per_class` samples of every class.
    user_shift : float
        How much users differ: each benign peer's features are moved by a Gaussian offset with this many of each
        feature's standard deviations. The paper assumes 0.
    claiming : float
        Fraction of the benign peers that claim the classes they train and test; the first ones do not. Attackers claim
        what their attack says.
    topology : Topology
        Connections between peers.
    attackers_in_graph : bool
        False: every benign peer hears every attacker, and the topology connects benign peers. True: the topology
        connects benign peers and attackers, at nodes drawn by the seed.
    asynchrony : Asynchrony
        Slow, late and absent peers; lost and delayed messages.
    iterations : int
        Length of the run.
    seed : int
        Seed of all random draws.
    training : TrainingSettings
        Optimiser and mini-batch.
    receivers_at_once : int, optional
        Number of peers stepped together; None: as many as fit in memory.
    precision : Precision
        Precision of optimiser states and of shared heads.
    sharing : Sharing
        Clipping and noise of shared heads.
    branches : tuple of int
        By which member whom a founder invited each peer, and then each attacker, came in. Those with equal numbers are
        one owner of a class to rules that count a chain of invitations as one voice. By default all came in alone.
    head : array [C, D], optional
        The head that all peers and attackers start from; zeros by default. See `Head.weights_for`.
    """

    peers: int = 10
    attackers: int = 0
    rule: Rule = field(default_factory=Bristle)
    attack: Attack = field(default_factory=lambda: create_attack("none"))
    classes_per_peer: int = 4
    samples_per_class: int = 2
    held_out: int = 10
    reuse: bool = False
    partition: Partitioner | None = None
    user_shift: float = 0.0
    claiming: float = 1.0
    topology: Topology = field(default_factory=All)
    attackers_in_graph: bool = False
    asynchrony: Asynchrony = field(default_factory=Asynchrony)
    iterations: int = 300
    seed: int = 0
    training: TrainingSettings = field(default_factory=TrainingSettings)
    receivers_at_once: int | None = None
    precision: Precision = field(default_factory=Precision)
    sharing: Sharing = field(default_factory=Sharing)
    branches: tuple[int, ...] = field(default=(), repr=False)
    # Kept out of `repr`, which checkpoints hash: NumPy leaves out most numbers of a long array.
    head: np.ndarray[Any, np.dtype[np.float32]] | None = field(default=None, repr=False)

    def start(self, shape: tuple[int, ...], *, like: Array) -> HeadState:
        """Return the heads [..., C, D] of this shape before the first iteration, in the library of `like`."""
        if self.head is None:
            return HeadState.zeros(shape, like=like)
        if self.head.shape != shape[-2:]:
            raise ValueError(f"the initial head has shape {list(self.head.shape)}, not {list(shape[-2:])}")
        rows = np.broadcast_to(self.head, shape).astype(np.float32)
        return HeadState.start(from_numpy(rows, like=like, dtype=like.dtype))

    def check(self) -> None:
        """Raise ValueError for settings that are impossible with any data."""
        if self.peers < 1 or self.attackers < 0:
            raise ValueError(f"a world needs at least 1 peer and 0 attackers, not {self.peers} and {self.attackers}")
        if not isinstance(self.rule, Rule) or not isinstance(self.attack, Attack):
            raise ValueError(
                f"rule must be a Rule and attack an Attack, not {self.rule!r} and {self.attack!r}: "
                "make them with rules.create(name) and attacks.create(name)"
            )
        check_count("iterations", self.iterations, least=1)
        check_count("seed", self.seed)
        if not 0 <= self.user_shift < float("inf"):
            raise ValueError(f"user_shift must be 0 or a positive number, not {self.user_shift}")
        check_share("claiming", self.claiming)
        if self.head is not None and self.rule.shares != "heads":
            raise ValueError(
                f"peers that exchange {self.rule.shares} train no head: leave out the initial head, or choose a rule "
                "that exchanges heads"
            )
        if self.branches and len(self.branches) != self.peers + self.attackers:
            raise ValueError(
                f"branches has {len(self.branches)} numbers: give one for each of {self.peers} peers and "
                f"{self.attackers} attackers, or leave it out"
            )
        if self.branches and getattr(self.rule, "one_voice", None) is None:
            raise ValueError(
                f"{self.rule!r} counts every peer by itself: leave out branches, or use evidence with one_voice=1"
            )
        if self.receivers_at_once is not None:
            check_count("receivers_at_once", self.receivers_at_once, least=1)
