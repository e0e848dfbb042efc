"""Who may ask over HTTP: those who know the token, under a name that is this machine's own."""

from __future__ import annotations

import hmac
import ipaddress
from urllib.parse import urlsplit


def same_token(given: str, token: bytes) -> bool:
    """Tell whether a token is the right one, in a time that does not say how much of it is."""
    return hmac.compare_digest(given.encode(errors="surrogateescape"), token)


def names_us(host_header: str, listening: str) -> bool:
    """Tell whether a Host header names this machine: a page whose own name was pointed here gets nothing."""
    try:
        name = urlsplit(f"//{host_header}").hostname or ""
    except ValueError:
        return False
    if name in ("localhost", listening):
        return True
    try:
        ipaddress.ip_address(name)  # Nobody can point a number elsewhere.
    except ValueError:
        return False
    return True
