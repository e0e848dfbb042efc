"""Images that somebody else made: `bristle.data.load` of a folder of class folders.

The first byte chooses the ending of the file's name, which says nothing about what is in it, and gray or colour.
"""

from __future__ import annotations

import io
import warnings
from pathlib import Path

import numpy as np
from PIL import Image

from bristle.data import load
from bristle.data.images import SUFFIXES
from harness import BrokenPromiseError, Target, refused, scratch

FOLDER = scratch()
MAX_BYTES = 1 << 20
ENDINGS = tuple(sorted(SUFFIXES))
SIZE = (6, 8)
GOOD = np.arange(48, dtype=np.uint8).reshape(SIZE)


def _saved(image: Image.Image, form: str, **options: object) -> bytes:
    written = io.BytesIO()
    image.save(written, form, **options)
    return written.getvalue()


def _prepare() -> Path:
    for name in ("bad", "good"):
        (FOLDER / name).mkdir()
    (FOLDER / "good" / "good.png").write_bytes(_saved(Image.fromarray(GOOD), "PNG"))
    return FOLDER / "bad"


BAD = _prepare()


def check(data: bytes) -> str:
    """Load it; what is taken has the size that was asked for, and the good image beside it is what it was."""
    choice, rest = data[0] if data else 0, data[1:]
    file = BAD / f"image{ENDINGS[choice % 16 % len(ENDINGS)]}"
    file.write_bytes(rest)
    colour = choice >> 4 & 1
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # Pillow warns of odd notes in files; the loader decides by itself.
            loaded = load(FOLDER, test_share=0, size=SIZE, channels="rgb" if colour else "gray", max_bytes=MAX_BYTES)
    except ValueError as error:
        if not str(error).startswith(str(FOLDER)):
            raise BrokenPromiseError(f"the refusal does not name the file: {error}") from error
        return refused(error)
    finally:
        file.unlink()
    good = loaded.x_train[1, ..., 0] if colour else loaded.x_train[1]
    if loaded.x_train.dtype != np.uint8 or not np.array_equal(good, GOOD):
        raise BrokenPromiseError(f"took {loaded.x_train.dtype} {loaded.x_train.shape}, or changed the image beside it")
    return "taken"


def seeds() -> dict[str, bytes]:
    """Return small images of every kind that is read."""
    gray = Image.fromarray(GOOD)
    colour = Image.fromarray(np.stack([GOOD, GOOD, GOOD], axis=-1))
    deep = Image.fromarray(GOOD.astype(np.uint16) * 256)
    turned = Image.Exif()
    turned[0x0112] = 6
    made = {
        ".bmp": _saved(colour, "BMP"),
        ".gif": _saved(gray.convert("P"), "GIF"),
        ".jpg": _saved(colour, "JPEG", quality=30, exif=turned),
        ".pgm": _saved(gray, "PPM"),
        ".png": _saved(colour.convert("RGBA"), "PNG"),
        ".tif": _saved(deep, "TIFF"),
        ".tiff": _saved(gray, "TIFF", compression="tiff_deflate"),
        ".webp": _saved(colour, "WEBP", quality=20),
    }
    return {f"image{ending}": bytes([ENDINGS.index(ending) | 16]) + content for ending, content in made.items()}


TOKENS = (
    b"\x89PNG\r\n\x1a\n",
    b"IHDR",
    b"IDAT",
    b"tEXt",
    b"zTXt",
    b"iCCP",
    b"acTL",
    b"eXIf",
    b"II*\x00",
    b"MM\x00*",
    b"\xff\xd8\xff",
)
TARGET = Target(name="images", check=check, seeds=seeds, largest=4096, growth=128 << 20, tokens=TOKENS)
