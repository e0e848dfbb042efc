"""What a peer publishes of its head."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from bristle._core import Array, namespace


@dataclass(frozen=True, kw_only=True)
class Sharing:
    r"""w_c min(1, clip / ‖w_c‖) + noise (L / √D) N(0, 1): rows that are cut to a length, and noise on every number.

    L is the length of the row itself or, where rows are cut, that length. What a peer itself uses and trains stays as
    it is. Noise makes it harder to tell from a head which samples it was trained on, at a cost in accuracy;
    docs/privacy.md has both in figures, and why this is no differential privacy worth the name.

    Parameters
    ----------
    clip : float, optional
        The most that the Euclidean norm of a row may be; longer rows are shortened. None: as long as they are.
    noise : float
        How loud the Gaussian noise is that is added to every number, anew for every head that is shared: 1 is as loud
        as the row itself or, where rows are cut, as a row of that length.
    """

    clip: float | None = None
    noise: float = 0.0

    def __post_init__(self) -> None:
        if self.clip is not None and not 0 < self.clip < float("inf"):
            raise ValueError(f"share_clip={self.clip}: give a length above 0, or None for rows as they are")
        if not 0 <= self.noise < float("inf"):
            raise ValueError(f"share_noise={self.noise}: give 0 for none, or how loud it is beside the head")

    @property
    def plain(self) -> bool:
        """Whether heads are shared as they are."""
        return self.clip is None and not self.noise

    def __call__(self, heads: Array, normals: Array | None) -> Array:
        """Return what is shared of heads [..., C, D]; `normals` of the same shape are drawn where there is noise."""
        xp = namespace(heads)
        lengths = xp.sqrt(xp.sum(heads * heads, axis=-1, keepdims=True))
        if self.clip is not None:
            heads = heads * (self.clip / xp.maximum(lengths, xp.full_like(lengths, self.clip)))
            lengths = xp.full_like(lengths, self.clip)
        if self.noise:
            assert normals is not None
            heads = heads + (self.noise / math.sqrt(heads.shape[-1])) * lengths * normals
        return heads

    def of_live_head(self, head: np.ndarray[tuple[int, ...], np.dtype[np.float32]]) -> Array:
        """Return what is shared of a live peer's head [C, D], with noise that nobody can draw again."""
        # The peer's seed is no secret: it may come from its key id.
        secret = np.random.default_rng().standard_normal(head.shape, dtype=np.float32) if self.noise else None
        return self(head, secret)
