"""In which types a world keeps what it is not computing with: memory, not time, bounds how many peers fit a device."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, get_args

from bristle._core import Array, namespace
from bristle.learning.optimiser import HeadState

Moments = Literal["same", "float16", "bfloat16"]
Shared = Literal["same", "bfloat16"]


@dataclass(frozen=True, kw_only=True)
class Precision:
    """How exactly peers are kept between iterations. Heads, and all that is computed, are in the features' type.

    Parameters
    ----------
    moments : str
        Type of the optimiser's moments: `same` as the heads, `float16` (NumPy, torch), or `bfloat16` (torch). The
        second moment is kept as its root, whose range also 16 bits can hold.
    shared : str
        Type in which heads are shared, and tested by those who receive them: `same` as the heads, or `bfloat16` (large
        worlds of torch tensors only). Everyone's own head stays exact.
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
        """Return what is kept in the type of `like`, to the bit."""
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
