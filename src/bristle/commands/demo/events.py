"""What the processes of the demo tell and are told."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

import numpy as np
import numpy.typing as npt

from bristle.peer.record import Heard

Address = tuple[str, int]


@dataclass(frozen=True)
class Listening:
    """The first peer, or the relay, is there: whom each member is told of."""

    known: Mapping[int, tuple[Address, ...]]


@dataclass(frozen=True)
class Met:
    """All members of a process have found the others, or as many as they could: neighbours of each, and attackers."""

    neighbours: Mapping[int, int]
    addresses: Mapping[int, Address]
    key_ids: Mapping[str, int]


@dataclass(frozen=True)
class Connected:
    """What a benign peer has received and refused since the start, and the key ids of its neighbours."""

    bytes_in: int
    refused: Mapping[str, int]
    neighbours: tuple[str, ...]


@dataclass(frozen=True, eq=False)
class PeerIteration:
    """One iteration of a benign peer; weights [heard, classes] are the share of each row that came from each."""

    peer: int
    iteration: int
    at: float
    accuracy: float | None
    heard: tuple[Heard, ...]
    bytes_out: int | None
    weights: npt.NDArray[np.float32] | None = None
    connected: Connected | None = None


@dataclass(frozen=True)
class Finished:
    """A benign peer has done all its iterations."""

    peer: int
    bytes_out: int
    bytes_in: int
    retransmissions: int
    heads_in: int


@dataclass(frozen=True)
class Failed:
    """A process could not go on."""

    why: str


Event = Listening | Met | PeerIteration | Finished | Failed


class Command(StrEnum):
    """What a process is told, besides where others listen."""

    GO = "go"
    STOP = "stop"
