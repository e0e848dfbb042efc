"""The base class of all attacks: one checked call that hides what the attack does not know."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from numbers import Real
from typing import TYPE_CHECKING, Any

from bristle._core import Array, namespace, uniforms
from bristle.attacks.view import Knowledge, View, blocks, check_shapes

if TYPE_CHECKING:
    from bristle.rules.base import Rule


@dataclass(frozen=True)
class Attack(ABC):
    """What K attackers send: `attack(view)` returns heads [..., K, C, D], one from each to each victim.

    An attack is a value: parameters are stored unchanged, calls have no side effects and no hidden state.
    To write one, subclass, declare what it `knows`, and implement `craft`; shapes, masks, batches and hidden fields
    are handled before `craft` is called. `bristle.testing.check_attack` checks it. It can then be used as
    `module:name` or registered by a package. An attack of Bristle's own also needs an entry in `attacks/__init__.py`,
    its settings in `attacks/grids.py`, its name and a test in `tests/attacks/`, and a line in the changelog:
    see "Add an attack" in CONTRIBUTING.md.
    """

    @property
    def knows(self) -> Knowledge:
        """How much the attackers know about a victim. `craft` sees only that much of the view."""
        return Knowledge.NOTHING

    @property
    def stochastic(self) -> bool:
        """Whether the attack draws random numbers."""
        return False

    @property
    def trains(self) -> bool:
        """Whether the attackers train heads of their own.

        If not, `view.own` may be any finite heads, such as zeros. It still gives the shape, and is what
        they send where they would use honest heads and there are none.
        """
        return True

    @property
    def one_head(self) -> bool:
        """Whether only the first of the own heads counts, so that the others need no training."""
        return False

    @property
    def equivocates(self) -> bool:
        """Whether random numbers are drawn for each victim; otherwise all victims of an iteration share them.

        For stochastic attacks that send different random heads to different victims.
        """
        return False

    @property
    def broadcasts(self) -> bool:
        """Whether all victims get the same heads, made of what is known about all of them together.

        `craft` then sees all victims at once and returns the same for each.
        """
        return False

    @property
    def feature_count(self) -> int | None:
        """The number of features that heads must have for this attack; None: any."""
        return None

    @property
    def flips_labels(self) -> bool:
        """Whether the attackers train on labels that are not the true ones."""
        return False

    @property
    def finite(self) -> bool:
        """Whether all that the attackers send is finite."""
        return True

    def pointed_at(self, rule: Rule) -> Attack:
        """Return the attack adapted to peers that use `rule`; by default, the attack itself.

        Worlds call it with the rule of their peers.
        """
        return self

    def labels(self, y: Array) -> Array:
        """Return the labels that the attackers train on, given the true ones; -1 is padding and is kept."""
        return y

    def claims(self, view: View) -> Array:
        """Return the classes that each attacker says it trains and tests itself, a boolean array [..., K, C].

        By default all of them, which is the truth: attackers own samples of every class. No class at all means that the
        sender makes no claims. Like `craft`, it gets a view with one batch axis in which the inbox, if seen, is
        an array.
        """
        xp = namespace(view.own)
        return xp.ones(view.own.shape[:-1], dtype=xp.bool, device=view.own.device)

    def __call__(self, view: View, *, rng: Any = None) -> Array:
        """Return what the attackers send.

        Parameters
        ----------
        view : View
            The scene. The attack sees only what `knows` allows.
        rng : numpy.random.Generator or array [..., K, C, D], optional
            Randomness, for attacks that sample: a generator, or uniforms in [0, 1) already drawn.

        Returns
        -------
        array [..., K, C, D]
            Of the library and type of `view.own`, with which it may share memory.

        Raises
        ------
        ValueError
            For a caller's mistake: shapes that do not fit, a field that the attack needs and that is None,
            ...
        """
        batch, own = check_shapes(view), view.own
        draws = uniforms(rng, tuple(own.shape), like=own) if self.stochastic else None
        if 0 in own.shape:
            return own
        seen = view.seen_by(self.knows)
        heads = [self._crafted(block, lanes) for block, lanes in blocks(seen, batch, draws, whole=self.broadcasts)]
        xp = namespace(own)
        return xp.reshape(heads[0] if len(heads) == 1 else xp.concat(heads, axis=0), own.shape)

    def claimed(self, view: View) -> Array:
        """Return what `claims` says for a view of any batch shape: a boolean array [..., K, C]."""
        batch, own = check_shapes(view), view.own
        xp, shape = namespace(own), tuple(own.shape[:-1])
        if 0 in own.shape or type(self).claims is Attack.claims:
            return Attack.claims(self, view)
        seen = view.seen_by(self.knows)
        found = [self.claims(block) for block, _ in blocks(seen, batch, None, whole=self.broadcasts)]
        claims = found[0] if len(found) == 1 else xp.concat(found, axis=0)
        if claims.dtype != xp.bool or tuple(claims.shape[1:]) != shape[-2:]:
            raise ValueError(
                f"{type(self).__name__}.claims returned {claims.dtype} {tuple(claims.shape)}, "
                f"not booleans {('victims', *shape[-2:])}"
            )
        return xp.reshape(claims, shape)

    @abstractmethod
    def craft(self, view: View, draws: Array | None) -> Array:
        """Return what the attackers send [B, K, C, D] to a block of B victims.

        Every array in `view` has one batch axis. The inbox, if seen, is an array in which absent heads are
        zero, and its mask is given. `draws` are uniforms [B, K, C, D] if the attack samples.
        """

    def _crafted(self, view: View, draws: Array | None) -> Array:
        heads = self.craft(view, draws)
        if tuple(heads.shape) != tuple(view.own.shape) or heads.dtype != view.own.dtype:
            raise ValueError(
                f"{type(self).__name__}.craft returned {heads.dtype} {tuple(heads.shape)} instead of "
                f"{view.own.dtype} {tuple(view.own.shape)}"
            )
        return heads


def check_number(name: str, value: float, *, least: float = -1e15, most: float = 1e15) -> None:
    """Raise ValueError unless a value is a number from `least` to `most`; both signs are allowed by default."""
    if isinstance(value, bool) or not (isinstance(value, Real) and least <= value <= most):
        raise ValueError(f"{name} must be a number from {least:g} to {most:g}, not {value!r}")


def required(value: Array | None, field: str, attack: Attack) -> Array:
    """Return a field of the view that the attack cannot do without."""
    if value is None:
        raise ValueError(f"{type(attack).__name__} needs view.{field}, which is None; pass it or choose another attack")
    return value
