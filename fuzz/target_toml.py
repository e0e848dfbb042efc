"""The configuration of a simulation: `bristle.simulation.config.read` of a file, and of `--set` overrides.

Lines that begin with `--set ` are overrides; the rest is the file.
"""

from __future__ import annotations

from bristle.simulation.config import SimulationConfig, read
from harness import BrokenPromiseError, Target, refused, scratch

FILE = scratch() / "world.toml"
_SET = b"--set "


def check(data: bytes) -> str:
    """Read it; what is taken is a configuration that reads itself again."""
    lines = data.split(b"\n")
    FILE.write_bytes(b"\n".join(line for line in lines if not line.startswith(_SET)))
    # As Python decodes the command line.
    overrides = [line[len(_SET) :].decode("utf-8", "surrogateescape") for line in lines if line.startswith(_SET)]
    try:
        config = read(FILE, overrides)
    except ValueError as error:
        return refused(error)
    again = read(SimulationConfig.model_validate(config.model_dump()))
    # NaN is not equal to itself, wherever it stands.
    if again != config and "nan" not in repr(config):
        raise BrokenPromiseError(f"{config} is not what it is when read again")
    return "taken"


WHOLE = b"""[world]
peers = 6
attackers = 2
iterations = 20
moments = "same"
[data]
dataset = "mnist"
train_samples = 3000
[partition]
name = "dirichlet"
alpha = 0.3
[rule]
name = "krum"
f = 4
before = ["clipping", { name = "bucketing", s = 2 }]
[attack]
name = "label-flip"
[topology]
name = "random"
k = 4
[asynchrony]
loss = 0.1
delay = [0, 2]
absences = [[1, 2, 3]]
[training]
learning_rate = 1e-3
"""


def seeds() -> dict[str, bytes]:
    """Return worlds."""
    return {
        "empty": b"",
        "whole": WHOLE,
        "dotted": b'world.peers = 3\nrule = { name = "median" }\n',
        "odd": b'"rule"."name" = """median"""\ntraining.l2 = +1_0.5e-3\nworld.seed = 0xff\nworld.figure = \'x\'\n',
        "overridden": b"[world]\npeers = 6\n--set world.peers=20\n--set rule.name=krum\n--set topology.k=[1, 2]\n",
    }


TOKENS = (
    b"[",
    b"]",
    b"[[",
    b"{",
    b"}",
    b"=",
    b".",
    b'"""',
    b"'''",
    b"0x",
    b"nan",
    b"inf",
    b"1979-05-27T07:32:00Z",
    b"\\u",
)
TARGET = Target(name="toml", check=check, seeds=seeds, largest=2048, tokens=TOKENS)
