"""Pictures inside a page: small, without identifiers that clash, and in the page's own colours."""

from __future__ import annotations

import re
from collections.abc import Mapping
from xml.etree import ElementTree

XLINK_HREF = "{http://www.w3.org/1999/xlink}href"
LONG_NUMBER = re.compile(r"-?\d*\.\d{3,}")
REFERENCE = re.compile(r"#([\w-]+)\)")
COLOUR = re.compile(r"#[0-9a-f]{6}\b")


def variable(colour: str) -> str:
    """Return the name of the CSS variable that stands for a colour of the light scheme."""
    return f"--on-{colour.removeprefix('#')}"


def inline(svg: bytes, *, prefix: str, colours: Mapping[str, str], attributes: Mapping[str, str]) -> str:
    """Return an SVG file as an element of a page.

    Parameters
    ----------
    svg : bytes
        As matplotlib wrote it.
    prefix : str
        What identifiers begin with: those of all pictures in a page must differ.
    colours : Mapping[str, str]
        Colours that change with the scheme; they become CSS variables.
    attributes : Mapping[str, str]
        Of the element, such as its role and label.

    """
    root = ElementTree.fromstring(svg)
    used = {match for element in root.iter() for value in element.attrib.values() for match in REFERENCE.findall(value)}
    used |= {element.attrib[XLINK_HREF].removeprefix("#") for element in root.iter() if XLINK_HREF in element.attrib}
    short = {name: f"{prefix}-{place}" for place, name in enumerate(sorted(used))}
    _drop(root)
    for element in root.iter():
        element.tag = element.tag.rpartition("}")[2]
        _rewrite(element, short, colours)
    kept = {"viewBox": root.attrib["viewBox"]} | dict(attributes)
    root.attrib.clear()
    root.attrib.update(kept)
    return ElementTree.tostring(root, encoding="unicode", short_empty_elements=True)


def _drop(parent: ElementTree.Element) -> None:
    """Remove metadata, style sheets of the file's own, and line breaks between elements."""
    for child in list(parent):
        if child.tag.endswith("}metadata"):
            parent.remove(child)
            continue
        if child.tag.endswith("}defs"):
            for style in [inner for inner in child if inner.tag.endswith("}style")]:
                child.remove(style)
        _drop(child)
    if parent.text is not None and not parent.text.strip():
        parent.text = None
    for child in parent:
        child.tail = None


def _rewrite(element: ElementTree.Element, short: Mapping[str, str], colours: Mapping[str, str]) -> None:
    link, name = element.attrib.pop(XLINK_HREF, None), element.attrib.pop("id", None)
    for key, value in element.attrib.items():
        linked = REFERENCE.sub(lambda match: f"#{short[match[1]]})", value)
        rewritten = _style(linked, colours) if key == "style" else LONG_NUMBER.sub(_shorter, linked)
        element.set(key, " ".join(rewritten.split()))
    if link is not None:
        element.set("href", f"#{short[link.removeprefix('#')]}")
    if name is not None and name in short:
        element.set("id", short[name])


def _style(value: str, colours: Mapping[str, str]) -> str:
    coloured = COLOUR.sub(lambda match: f"var({variable(match[0])})" if match[0] in colours else match[0], value)
    return re.sub(r"'DejaVu Sans'[^;]*", "sans-serif", coloured).replace(": ", ":").replace("; ", ";")


def _shorter(match: re.Match[str]) -> str:
    return f"{float(match[0]):.2f}".rstrip("0").rstrip(".")
