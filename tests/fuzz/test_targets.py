"""Every surface that takes bytes from outside, fed with hostile ones: what was found once, and a short run."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import run
from harness import BrokenPromiseError, Reader, Target, Watch, counted
from mutation import Mutator

REGRESSIONS = Path(__file__).parent / "regressions"
SLOW_ONES = {
    "transfer": 200,
    "gossip": 200,
    "datagrams": 100,
    "forwarding": 100,
    "roster": 100,
    "npz": 200,
    "idx": 200,
    "images": 200,
    "toml": 150,
}
INPUTS = 2_000


@pytest.mark.parametrize("name", run.TARGETS)
def test_a_short_run_breaks_no_promise(name: str) -> None:
    inputs = SLOW_ONES.get(name, INPUTS)
    watch = run.mutate(run.load(name), inputs=inputs, seed=1)
    assert watch.inputs == inputs
    assert len(watch.outcomes) >= 2, "some inputs are taken and some refused"
    assert watch.outcomes.total() == inputs


@pytest.mark.parametrize("name", run.TARGETS)
@settings(max_examples=20)
@given(data=st.data())
def test_inputs_that_hypothesis_thinks_of_break_no_promise(name: str, data: st.DataObject) -> None:
    target = run.load(name)
    seed = data.draw(st.sampled_from(run.corpus_of(name)))
    at = data.draw(st.integers(0, len(seed)))
    changed = seed[:at] + data.draw(st.binary(max_size=40)) + seed[data.draw(st.integers(at, len(seed))) :]
    Watch(target).feed(changed)


@pytest.mark.parametrize("path", sorted(REGRESSIONS.glob("*/*")), ids=lambda path: f"{path.parent.name}-{path.name}")
def test_what_broke_once_does_not_again(path: Path) -> None:
    Watch(run.load(path.parent.name)).feed(path.read_bytes())


@pytest.mark.parametrize("name", run.TARGETS)
def test_the_corpus_holds_what_our_encoders_make(name: str) -> None:
    target = run.load(name)
    kept = {path.name: target.check(path.read_bytes()) for path in (run.CORPUS / name).iterdir()}
    assert kept == {seed: target.check(content) for seed, content in target.seeds().items()}


def grow(data: bytes) -> str:
    return "grown" if bytearray(300 << 20).count(1) else "not"


def dawdle(data: bytes) -> str:
    return str(sum(range(20_000_000 if data else 1)))


def fail(data: bytes) -> str:
    return {b"": "empty", b"s": "seed"}[data]


@pytest.mark.parametrize(
    ("check", "error"), [(dawdle, BrokenPromiseError), (grow, BrokenPromiseError), (fail, KeyError)]
)
def test_the_watch_sees_what_is_too_slow_too_large_or_wrong(
    check: Callable[[bytes], str], error: type[Exception]
) -> None:
    target = Target(name="made-up", check=check, seeds=dict, largest=10)
    with pytest.raises(error):
        Watch(target).feed(b"x")


def test_an_input_that_breaks_something_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "corpus" / "made-up").mkdir(parents=True)
    (tmp_path / "corpus" / "made-up" / "seed").write_bytes(b"s")
    monkeypatch.setattr(run, "CORPUS", tmp_path / "corpus")
    monkeypatch.setattr(run, "CRASHES", tmp_path / "crashes")
    target = Target(name="made-up", check=fail, seeds=lambda: {"seed": b"s"}, largest=10)
    with pytest.raises(KeyError) as found:
        run.mutate(target, inputs=50, seed=0)
    (kept,) = (tmp_path / "crashes").iterdir()
    assert found.value.args == (kept.read_bytes(),)
    assert kept.name in found.value.__notes__[0]


def test_a_guided_run_sees_all_of_the_imports() -> None:
    # What is imported before atheris looks has no branches to be guided by.
    code = f"import sys; sys.path.append({str(run.FOLDER)!r}); import run; print('bristle' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout == "False\n"


def test_the_same_seed_makes_the_same_inputs() -> None:
    def made(seed: int) -> list[bytes]:
        mutator = Mutator([b"some seed", b"another"], largest=50, tokens=[b"word"], seed=seed)
        return [mutator.next() for _ in range(200)]

    assert made(3) == made(3)
    assert made(3) != made(4)
    assert max(map(len, made(3))) <= 50


@given(st.lists(st.binary(max_size=50), max_size=5))
def test_byte_strings_are_read_as_they_were_written(texts: list[bytes]) -> None:
    reader = Reader(b"".join(counted(text) for text in texts))
    assert [reader.text() for _ in texts] == texts
    assert not reader.left
    assert reader.byte() == reader.short() == 0
