"""What heads of a group have in common."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True, kw_only=True)
class Grouping:
    """What heads of a group have in common: a store belongs to one of them for good.

    Parameters
    ----------
    application : str
        What the group calls itself.
    backbone : str
        Digest of the backbone.
    classes : tuple of str
        Names of the classes, in the order of the rows.
    features : int
        Columns of a head.
    """

    application: str
    backbone: str
    classes: tuple[str, ...]
    features: int

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns of a head."""
        return len(self.classes), self.features

    @classmethod
    def from_json(cls, text: str) -> Grouping:
        """Read what `to_json` wrote."""
        fields: dict[str, Any] = json.loads(text)
        return cls(**{**fields, "classes": tuple(fields["classes"])})

    def to_json(self) -> str:
        """Return the group as JSON."""
        return json.dumps(asdict(self))

    def difference(self, other: Grouping) -> str | None:
        """Say in what another group differs; None where it is the same."""
        for name, mine, theirs in (
            ("application", self.application, other.application),
            ("backbone", self.backbone[:16], other.backbone[:16]),
            ("list of classes", ", ".join(self.classes), ", ".join(other.classes)),
            ("number of features", self.features, other.features),
        ):
            if mine != theirs:
                return f"its {name} is {theirs!r}, this peer's is {mine!r}"
        return None
