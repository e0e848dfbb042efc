"""The page as text: one file, held to a policy of its own, whatever names say."""

from __future__ import annotations

import re
from base64 import b64encode
from hashlib import sha256
from html import unescape

import pytest

from bristle.report.live_page import live_page, recorded_page
from bristle.report.snapshot import RunState, Snapshot


def a_run(title: str = "A run") -> Snapshot:
    return Snapshot(
        title=title, subtitle="", rule="bristle", state=RunState.ENDED, iteration=1, total=1, classes=(), members=()
    )


def test_style_and_script_are_those_of_the_policy() -> None:
    page = live_page()
    for tag in ("style", "script"):
        (content,) = re.findall(rf"<{tag}>(.*?)</{tag}>", page.html, re.DOTALL)
        assert f"{tag}-src 'sha256-{b64encode(sha256(content.encode()).digest()).decode()}'" in page.policy
    assert page.policy.startswith("default-src 'none'")
    assert "unsafe" not in page.policy
    (inside,) = re.findall(r'Content-Security-Policy" content="([^"]*)"', page.html)
    assert page.policy == f"{unescape(inside)}; frame-ancestors 'none'"


def test_it_names_nobody_outside() -> None:
    for html in (live_page().html, recorded_page([a_run()])):
        addresses = set(re.findall(r"(?:https?:)?//[a-z0-9.]+", html)) - {"http://www.w3.org"}  # the name of SVG
        assert not {address for address in addresses if "." in address}
        assert not re.search(r"<(?:link|img|script|iframe)[^>]*(?:src|href)=\"(?!data:)", html)


def test_after_the_fact_it_may_ask_nobody() -> None:
    assert "connect-src &#x27;none&#x27;" in recorded_page([a_run()])
    with pytest.raises(ValueError, match="no run"):
        recorded_page([])


def test_names_cannot_get_out_of_their_place() -> None:
    html = recorded_page([a_run("</script><script>alert(1)</script>[[script]]")], title="</title><b>[[style]]")
    assert html.count("<script>") == 1
    assert "alert(1)</script>" not in html
    assert "<title>&lt;/title&gt;&lt;b&gt;[[style]]</title>" in html
