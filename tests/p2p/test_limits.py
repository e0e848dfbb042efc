from __future__ import annotations

from typing import Any

import pytest

from bristle.p2p import Limits


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"neighbours": 0}, "neighbours must be a positive number, not 0"),
        ({"send_rate": float("nan")}, "send_rate"),
        ({"memory": float("inf")}, "memory"),
        ({"datagram": 1219}, "from 1220 to 8192"),
        ({"loopback_datagram": 65_000}, "from 1220 to 8192"),
        ({"keepalive": 5.0, "silence": 5.0}, "longer than keepalive"),
    ],
)
def test_mistakes_are_named(options: dict[str, Any], complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        Limits(**options)
