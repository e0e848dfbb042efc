from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bristle.p2p import Overlay
from bristle.p2p.beacon import decode_beacon, encode_beacon
from bristle.wire import Group, Identity, Refusal

GROUP = Group(application="a", backbone="b", classes=("0", "1"), features=8, secret=b"sixteen bytes or more")


def test_a_beacon_says_where_a_member_listens() -> None:
    beacon = encode_beacon(GROUP, b"8 bytes.", 4711)
    assert decode_beacon(beacon, GROUP) == (b"8 bytes.", 4711)
    assert decode_beacon(beacon, replace(GROUP, application="c")) is Refusal.WRONG_GROUP
    outsider = replace(GROUP, secret=b"sixteen bytes or less")
    object.__setattr__(outsider, "id", GROUP.id)
    assert decode_beacon(encode_beacon(outsider, b"8 bytes.", 4711), GROUP) is Refusal.NOT_A_MEMBER
    assert decode_beacon(encode_beacon(GROUP, b"8 bytes.", 0), GROUP) is Refusal.NOT_A_MEMBER
    assert decode_beacon(b"x" + beacon[1:], GROUP) is Refusal.MALFORMED


@given(st.binary(max_size=80))
def test_any_bytes_are_refused(data: bytes) -> None:
    assert isinstance(decode_beacon(data, GROUP), Refusal)


@pytest.mark.parametrize("host", ["::1", "2001:db8::1"])
def test_a_beacon_needs_ipv4(host: str) -> None:
    with pytest.raises(ValueError, match="needs IPv4"):
        Overlay(identity=Identity.generate(), group=GROUP, listen=(host, 0), beacon=4711)
