"""The page that describes the wire, against the code that speaks it."""

from __future__ import annotations

import re
from pathlib import Path

from bristle.p2p.beacon import encode_beacon
from bristle.wire import Group, Identity, Refusal
from bristle.wire.handshake import Caller, Join, answer_join, decode, encode_cookie
from bristle.wire.sizes import head_bytes

PAGE = (Path(__file__).parents[2] / "docs" / "wire-format.md").read_text(encoding="utf-8")
GROUP = Group(application="a", backbone="b", classes=("0", "1"), features=8)


def test_every_refusal_is_explained_and_no_other() -> None:
    table = PAGE.split("## Refusals")[1]
    assert re.findall(r"^\| ([a-z][^|]*) \|", table, re.MULTILINE)[1:] == [refusal.value for refusal in Refusal]


def test_messages_have_the_sizes_on_the_page() -> None:
    caller = Caller(Identity.generate(), GROUP, nonce=bytes(16), session_id=bytes(4))
    join = decode(caller.join(bytes(16), alone=False), GROUP)
    assert isinstance(join, Join)
    answer = answer_join(join, Identity.generate(), GROUP, session_id=bytes(4), full=False)
    assert isinstance(answer, tuple)
    sizes = {
        "hello": len(caller.hello()),
        "cookie": len(encode_cookie(GROUP, bytes(16), bytes(16))),
        "join": len(join.datagram),
        "welcome": len(answer[1]),
    }
    for name, size in sizes.items():
        assert f"{name}, {size} in all" in PAGE
    assert f"One datagram of {len(encode_beacon(GROUP, bytes(8), 1))} bytes" in PAGE


def test_heads_have_the_sizes_on_the_page() -> None:
    table = PAGE.split("## Sizes")[1].split("##")[0]
    rows = re.findall(r"^\| [^|]* \| (\d+) \| (\d+) \| (\d+) \|", table, re.MULTILINE)
    assert len(rows) == 6
    for body, small, large in rows:
        assert int(small) == head_bytes(10, 800, body=int(body))
        assert int(large) == head_bytes(10, 800, body=int(body), datagram=8192)
