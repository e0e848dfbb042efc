"""Files of an earlier version: a checkpoint and a peer's store must open, or be refused in one clear line.

checkpoint.npz has format 1, peer.sqlite.xz version 2; expected.json says what was in them. Whoever changes a format on
purpose raises its number and sets `CHECKPOINT_OPENS` or `STORE_OPENS` below to False: the old file must then be
refused. A renamed dataclass is such a change for checkpoints, since it changes `repr(scenario)`, which they hash. Files
of a later format can be written into another folder beside this one, by the version that is to be kept:

    python tests/old_files/test_old_files.py FOLDER
"""

from __future__ import annotations

import asyncio
import json
import lzma
import os
import shutil
import sys
import tempfile
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from bristle import Pace, Peer, rules
from bristle.attacks import create as create_attack
from bristle.cli import main
from bristle.simulation import Asynchrony, FeatureData, Results, Scenario, Watch, run

CHECKPOINT_OPENS = False
STORE_OPENS = True

HERE = Path(__file__).parent
CHECKPOINT, STORE, ABOUT = "checkpoint.npz", "peer.sqlite.xz", "expected.json"
SECRET, OTHER_SECRET = (bytes(range(first, first + 32)) for first in (0, 64))

# Three classes, five features. All values are exact in binary: the same bytes on every machine.
CUT = 4
SCENARIO = Scenario(
    peers=4,
    attackers=1,
    rule=rules.create("bristle", kappa=3),
    attack=create_attack("label-flip", classes=3),
    classes_per_peer=2,
    held_out=3,
    asynchrony=Asynchrony(loss=0.25, delay=(0, 1)),
    iterations=8,
    seed=15,
)


def test_the_checkpoint(tmp_path: Path) -> None:
    path = Path(shutil.copy(HERE / CHECKPOINT, tmp_path))
    if not CHECKPOINT_OPENS:
        with pytest.raises(ValueError, match="another version") as refused:
            resumed(path)
        assert len(str(refused.value).splitlines()) == 1
        return
    iterations: list[int] = []
    found = resumed(path, Watch(iteration=iterations.append))
    assert iterations == list(range(CUT + 1, SCENARIO.iterations + 1))
    assert found.rows[: CUT // 2] == expected()["rows"]
    whole = run(SCENARIO, data(), every=2).rows
    assert found.rows == [approximate(row) for row in whole]  # Other processors round differently.


def test_the_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put_store(tmp_path / "peer")
    if not STORE_OPENS:
        with pytest.raises(ValueError, match="version") as refused:
            asyncio.run(opened(tmp_path / "peer"))
        assert len(str(refused.value).splitlines()) == 1
        return
    status, peer = expected()["status"], expected()["peer"]
    assert common(status_of(tmp_path / "peer", monkeypatch), status) == status
    assert common(asyncio.run(opened(tmp_path / "peer")), peer) == peer


def data() -> FeatureData:
    labels = np.arange(105) % 3
    features = features_of(105, 5)
    return FeatureData(features[:90], labels[:90], features[90:], labels[90:], ("a", "b", "c"))


def features_of(count: int, features: int) -> npt.NDArray[np.float32]:
    sample, feature = np.arange(count)[:, None], np.arange(features)
    return (np.where(feature == sample % 3, 1.0, 0.0) + (sample * (feature + 3)) % 7 / 8).astype(np.float32)


def resumed(path: Path, watch: Watch | None = None) -> Results:
    return run(SCENARIO, data(), every=2, checkpoint=path, resume=True, watch=watch or Watch())


def approximate(row: dict[str, Any]) -> dict[str, Any]:
    return {name: pytest.approx(value) if isinstance(value, float) else value for name, value in row.items()}


def expected() -> dict[str, Any]:
    found: dict[str, Any] = json.loads((HERE / ABOUT).read_text(encoding="utf-8"))
    return found


def common(found: Any, wanted: Any) -> Any:
    """Return what was found without the keys that later versions have added."""
    if isinstance(found, dict) and isinstance(wanted, dict):
        return {key: common(value, wanted[key]) for key, value in found.items() if key in wanted}
    if isinstance(found, list) and isinstance(wanted, list) and len(found) == len(wanted):
        return [common(*pair) for pair in zip(found, wanted, strict=True)]
    return found


@dataclass(frozen=True)
class Plain:
    """A backbone that does nothing: samples come as features."""

    name: str = "plain"
    digest: str = "15" * 32
    features: int = 4
    input_shape: tuple[int, ...] = (4,)

    def __call__(self, x: npt.NDArray[Any], /) -> npt.NDArray[np.float32]:
        return np.asarray(x, dtype=np.float32)


def peer_in(folder: Path, known: tuple[tuple[str, int], ...] = ()) -> Peer:
    return Peer(
        application="old files",
        classes=("a", "b", "c"),
        folder=folder,
        backbone=Plain(),
        known=known,
        kappa=2,
        rule=rules.create("bristle", kappa=2),
        pace=Pace(interval=0.0),
        seed=15,
    )


async def opened(folder: Path) -> dict[str, Any]:
    """Start the peer, and return what it remembers."""
    async with peer_in(folder) as peer:
        return {
            "key_id": peer.key_id,
            "iteration": peer.iteration,
            "head": peer.head.tolist(),
            "decisions": json.loads(json.dumps([asdict(record) for record in peer.decisions()])),
            "added": peer.add(features_of(12, 4), np.arange(12) % 3, features=True),
        }


def put_store(folder: Path) -> None:
    folder.mkdir(mode=0o700)
    (folder / "peer.sqlite").write_bytes(lzma.decompress((HERE / STORE).read_bytes()))
    put_key(folder, SECRET)


def put_key(folder: Path, secret: bytes) -> None:
    folder.mkdir(mode=0o700, exist_ok=True)
    os.close(os.open(folder / "identity.key", os.O_CREAT | os.O_WRONLY, 0o600))
    (folder / "identity.key").write_text(f"bristle identity 2\n{secret.hex()}\n", encoding="ascii")


def status_of(folder: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Ask `bristle status` about a peer that does not run."""
    file = folder.parent / "status.json"
    monkeypatch.setattr("sys.argv", ["bristle", "status", str(folder), "--json", str(file)])
    with pytest.raises(SystemExit) as ended:
        main()
    assert not ended.value.code
    told: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    return told


async def learn_together(folder: Path, other: Path) -> None:
    """Let two peers exchange heads for some iterations."""
    async with peer_in(folder) as one, peer_in(other, known=(one.address,)) as two:
        one.add(features_of(12, 4), np.arange(12) % 3, features=True)
        two.add(features_of(24, 4)[12:], np.arange(12) % 3, features=True)
        for _ in range(200):
            await one.run(1)
            await two.run(1)
            if len(one.decisions()) > 2 and one.decisions()[-1].heard:
                return
            await asyncio.sleep(0.05)


def make(folder: Path) -> None:
    """Write the files with the present version."""
    folder.mkdir(exist_ok=True)
    left = iter(range(CUT))
    rows: list[dict[str, Any]] = []
    watch = Watch(row=rows.append, stop=lambda: next(left, None) is None)
    with suppress(KeyboardInterrupt):  # Raised by a run that was stopped.
        run(SCENARIO, data(), every=2, checkpoint=folder / CHECKPOINT, watch=watch)
    with tempfile.TemporaryDirectory() as temporary, pytest.MonkeyPatch.context() as monkeypatch:
        one, two = Path(temporary) / "one", Path(temporary) / "two"
        put_key(one, SECRET)
        put_key(two, OTHER_SECRET)
        asyncio.run(learn_together(one, two))
        (folder / STORE).write_bytes(lzma.compress((one / "peer.sqlite").read_bytes()))
        about = {"rows": rows, "status": status_of(one, monkeypatch), "peer": asyncio.run(opened(one))}
    (folder / ABOUT).write_text(json.dumps(about, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    make(Path(sys.argv[1]))
