"""Say how to install what only some need: the extras of the package."""

from __future__ import annotations


def to_install(extra: str) -> str:
    """Return the words that say how to install an extra, for the end of a message."""
    return f"install the extra {extra!r} of bristle (in the clone: pip install '.[{extra}]')"
