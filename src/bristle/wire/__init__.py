"""The wire format as pure functions: bytes in, values out. No sockets, no clock, no state."""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from bristle.wire.group import Group
    from bristle.wire.identity import Identity
    from bristle.wire.refusal import Refusal

__all__ = ["Group", "Identity", "Refusal"]


def __getattr__(name: str) -> object:
    """Import a name when it is first asked for: sizes are arithmetic, and need no cryptography."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return import_module(f"{__name__}.{name.lower()}").__dict__[name]
