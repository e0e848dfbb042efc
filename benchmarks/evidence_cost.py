"""How much time of one core a receiver takes to weigh the statements of 15 senders.

`python benchmarks/evidence_cost.py` prints a line per size: milliseconds a decision (median of several), where a
statement's sketch has rank 16, and once with the full scatter.
"""

from __future__ import annotations

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import argparse
import time

import numpy as np

from bristle import Evaluation
from bristle.rules.evidence import Evidence, Statement, state

SENDERS = 15


def world(classes: int, features: int, held: int, samples: int, rank: int) -> tuple[list[Statement], Evaluation]:
    """Return the statements of a receiver and its senders, and the receiver's samples: Gaussian classes."""
    rng = np.random.default_rng(0)
    centres = rng.normal(size=(classes, features)) * 3 / np.sqrt(features)
    turn = rng.normal(size=(features, features)) / np.sqrt(features)
    statements, mine = [], None
    for sender in range(SENDERS + 1):
        labels = np.repeat((sender * 3 + np.arange(held)) % classes, samples)
        x = centres[labels] + rng.normal(size=(len(labels), features)) @ turn * 0.5
        found = Evaluation(x, labels)
        statements.append(state(found, classes, rank=rank / np.sqrt(held * (samples - 1))))
        mine = found if sender == 0 else mine
    assert mine is not None
    return statements, mine


def main() -> None:
    words = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    words.add_argument("--repeats", type=int, default=7, help="decisions that are timed for each size (7)")
    chosen = words.parse_args()
    rule = Evidence()
    for classes, features, held, samples, rank in (
        (10, 800, 4, 12, 16),
        (100, 2048, 40, 12, 16),
        (10, 800, 4, 200, 796),
    ):
        statements, mine = world(classes, features, held, samples, rank)
        spent = []
        for _ in range(chosen.repeats):
            began = time.process_time()
            rule.weigh(statements[0], statements[1:], mine)
            spent.append(time.process_time() - began)
        factors = statements[0].factors
        used = 0 if factors is None else factors.shape[0]
        print(f"{SENDERS} senders of {classes} x {features}, rank {used}: {1000 * float(np.median(spent)):.1f} ms")


if __name__ == "__main__":
    main()
