"""The attackers of the soak: members of the group, in this process, behind the same lines as everybody."""

from __future__ import annotations

import asyncio

import numpy as np

import repository  # noqa: F401
from bristle import attacks
from bristle.backbones.backbone import bundled
from bristle.backbones.features import extract
from bristle.commands.demo.attackers import HeadAttackers
from bristle.data import load
from bristle.learning.samples import Samples
from bristle.p2p import Limits
from bristle.wire import Group
from tests.support.fault_lines import Lines
from tests.support.fault_peers import APPLICATION

EACH = 10
"""Samples of every class that an attacker trains on."""


class Attack:
    """Label flippers that work together until they are stopped."""

    def __init__(self, lines: Lines, first: int, count: int, *, interval: float, seed: int) -> None:
        backbone, digits, attack = bundled(threads=1), load("mnist"), attacks.create("label-flip")
        chosen = np.concatenate([np.flatnonzero(digits.y_train == digit)[-EACH:] for digit in range(10)])
        features = extract(backbone, digits.x_train[chosen])
        labels = np.tile(attack.labels(digits.y_train[chosen].astype(np.int64)), (count, 1))
        numbers = range(first, first + count)
        known = [lines.addresses(number) for number in numbers]
        self._lines = lines

        async def begin() -> tuple[HeadAttackers, asyncio.Task[None]]:
            attackers = HeadAttackers(
                numbers,
                group=Group(
                    application=APPLICATION,
                    backbone=backbone.digest,
                    classes=digits.classes,
                    features=backbone.features,
                ),
                attack=attack,
                samples=Samples(features, labels, np.tile(np.arange(len(chosen)), (count, 1))),
                total=1000,
                interval=interval,
                seed=seed,
                limits=Limits(),
            )
            await attackers.start(known)
            return attackers, asyncio.get_running_loop().create_task(attackers.run())

        self._attackers, self._task = lines.wait(begin())

    @property
    def key_ids(self) -> frozenset[str]:
        """Who they are, in hexadecimal."""
        return frozenset(key_id.hex() for key_id in self._attackers.key_ids)

    def stop(self) -> None:
        """Leave; what went wrong meanwhile comes out here."""

        async def end() -> None:
            if self._task.done():
                self._task.result()
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
            await self._attackers.stop()

        self._lines.wait(end())
