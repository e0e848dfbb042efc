"""The page of a run: one self-contained HTML text with style, script and, for recorded runs, data."""

from __future__ import annotations

import json
import re
from base64 import b64encode
from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import sha256
from html import escape
from importlib.resources import files

from bristle.report.snapshot import REASONS, Snapshot

SCRIPTS = ("core.js", "model.js", "chart.js", "graph.js", "matrix.js", "peers.js", "main.js")
NOTHING_ELSE = "default-src 'none'; img-src data:; base-uri 'none'; form-action 'none'"


@dataclass(frozen=True)
class LivePage:
    """A page and its content security policy."""

    html: str
    policy: str


def live_page() -> LivePage:
    """Return the page of a running run, which polls `state` beside it."""
    return _page("Bristle", {"live": True}, connect="'self'")


def recorded_page(runs: Sequence[Snapshot], *, title: str = "Bristle") -> str:
    """Return the page of finished runs, with their data."""
    if not runs:
        raise ValueError("there is no run to show")
    return _page(title, {"runs": [run.to_dict() for run in runs]}, connect="'none'").html


def _page(title: str, content: dict[str, object], *, connect: str) -> LivePage:
    style = _text("page.css")
    script = '"use strict";\n(() => {\n' + "\n".join(_text(name) for name in SCRIPTS) + "})();\n"
    policy = f"{NOTHING_ELSE}; connect-src {connect}; style-src {_hash(style)}; script-src {_hash(script)}"
    filled = {
        "policy": escape(policy),
        "title": escape(title),
        "style": style,
        "script": script,
        "data": _data({**content, "reasons": REASONS}),
    }
    html = re.sub(r"\[\[(\w+)\]\]", lambda place: filled[place[1]], _text("page.html"))
    return LivePage(html, f"{policy}; frame-ancestors 'none'")


def _data(content: dict[str, object]) -> str:
    """Return JSON in which no name can end the enclosing element."""
    text = json.dumps(content, allow_nan=False, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _text(name: str) -> str:
    return files("bristle.report").joinpath("live", name).read_text(encoding="utf-8")


def _hash(content: str) -> str:
    return f"'sha256-{b64encode(sha256(content.encode()).digest()).decode()}'"
