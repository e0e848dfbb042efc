"""The running peer: one asyncio service that receives, integrates, trains and shares."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Sequence
from contextlib import AsyncExitStack
from dataclasses import replace
from functools import cached_property, partial
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy.typing as npt

from bristle.backbones.backbone import bundled
from bristle.backbones.base import Backbone
from bristle.backbones.head import Head
from bristle.backbones.probe import probe
from bristle.learning.optimiser import TrainingSettings
from bristle.p2p.limits import Limits
from bristle.p2p.overlay import Overlay
from bristle.peer.admission import GroupAccess
from bristle.peer.exchange import EvidenceExchange, HeadExchange, PeerExchange
from bristle.peer.learner import default_rule, live_rule
from bristle.peer.pace import Pace, Rhythm, Traffic
from bristle.peer.record import LOG, Iteration, Turn, log_turn
from bristle.peer.state import (
    WORKER,
    Floats,
    Integers,
    PeerState,
    checked_classes,
    checked_test,
    status_of,
)
from bristle.peer.status import Status
from bristle.peer.step import Sharing
from bristle.peer.store_files import ENDPOINT, IDENTITY, STORE, FolderLock, TryAgainError, make_private
from bristle.rules import Decision, Rule
from bristle.wire.group import Group
from bristle.wire.identity import Identity
from bristle.wire.messages import Address

FAREWELL = 2.0
"""Seconds to wait for the last head to be sent when the peer stops."""

_DEFAULT_PACE, _DEFAULT_TRAINING, _DEFAULT_LIMITS = Pace(), TrainingSettings(), Limits()


class Peer:
    """A peer of a group: publishes one statement about its samples, and computes a classifier from those it receives.

    With a rule for heads, such as `Bristle`, it trains a head, shares it after every iteration, and tests those of
    others.

    Use it as ``async with Peer(...) as peer: await peer.run()``. Its state is kept in its folder, from which the next
    start continues. `add`, `remove`, `predict` and `probabilities` may be called from any thread.

    Parameters
    ----------
    application : str
        Name of the application; with backbone and classes it identifies the group.
    classes : sequence of str
        Names of all classes of the group, in the same order for all peers. A peer need not hold all of them.
    folder : path
        Folder for identity and state; one per peer.
    backbone : Backbone, optional
        Extracts features from raw inputs; the bundled one by default. `NoBackbone` for ready features.
    head : Head, optional
        With rules for heads: the head to start from if the folder holds none yet; zeros by default.
    listen : (str, int)
        Address to listen on; port 0 for any free one. Loopback addresses are reachable from this machine only.
    known : iterable of (str, int)
        Addresses of peers to contact first; one is enough to find the others.
    beacon : int, optional
        UDP port for discovery in the local network.
    secret : bytes, optional; members : iterable of bytes, optional
        Close the group: to peers with the same secret, and to these key ids.
    found : bool; founders : iterable of bytes, optional; invitation : str, optional
        Close the group to its founders and invited members: found one alone, or with the key ids of all founders; or
        accept an invitation, given as text. The folder remembers the group: later starts need none of these.
    rule : Rule, optional
        Rule for what others send; `Evidence` by default.
    pace : Pace
        When and how often to work, and caps.
    training : TrainingSettings
        Optimiser and mini-batch of rules for heads.
    kappa : int
        Samples held out per class to test received heads: up to this many, and at most half.
    share_clip, share_noise : float
        With rules for heads: norm to clip the shared head's rows to, and Gaussian noise to add to it, so that it
        reveals less; see `Sharing`. Statements are made private by the rule: `Evidence(privacy=...)`.
    limits : Limits
        Bounds on neighbours, memory and rates, forwarding included; under a cap on bytes, nothing is forwarded.
    seed : int, optional
        Seed of all random draws; derived from the identity by default.
    test : (array, array), optional; test_every : int
        Features [n, D] and labels [n] of a test set, and the number of iterations between measurements; with the rule
        `evidence`, every decision is measured.
    on_iteration : callable, optional
        Called with a `Turn` after every iteration, in the event loop.
    """

    def __init__(
        self,
        *,
        application: str,
        classes: Sequence[str],
        folder: str | Path,
        backbone: Backbone | None = None,
        head: Head | None = None,
        listen: Address = ("127.0.0.1", 0),
        known: Iterable[Address] = (),
        beacon: int | None = None,
        secret: bytes | None = None,
        members: Iterable[bytes] | None = None,
        found: bool = False,
        founders: Iterable[bytes] | None = None,
        invitation: str | None = None,
        rule: Rule | None = None,
        pace: Pace = _DEFAULT_PACE,
        training: TrainingSettings = _DEFAULT_TRAINING,
        kappa: int = 10,
        share_clip: float | None = None,
        share_noise: float = 0.0,
        limits: Limits = _DEFAULT_LIMITS,
        seed: int | None = None,
        test: tuple[npt.ArrayLike, npt.ArrayLike] | None = None,
        test_every: int = 1,
        on_iteration: Callable[[Turn], object] | None = None,
    ) -> None:
        self.folder = Path(folder)
        self.backbone = bundled() if backbone is None else backbone
        self.classes = checked_classes(classes)
        self.pace, self.on_iteration, self._test_every = pace, on_iteration, test_every
        self._listen, self._known, self._beacon = listen, _checked_addresses(known), beacon
        capped = pace.bytes_per_hour is not None or pace.bytes_per_day is not None
        self._limits = replace(limits, forward_rate=0.0) if capped else limits  # A cap is for one's own bytes.
        self._sharing = Sharing(clip=share_clip, noise=share_noise)
        self._rule = live_rule(rule or default_rule())
        if self._rule.shares != "heads":
            _check_no_head_options(self._rule, head=head, sharing=self._sharing)
        self._training, self._kappa, self._seed = training, kappa, seed
        self._test = None if test is None else checked_test(*test, depth=self.backbone.features, every=test_every)
        self._admission = GroupAccess(
            self.folder, found=self._found if found else None, founders=founders, invitation=invitation
        )
        self._group = Group(
            application=application,
            backbone=self.backbone.digest,
            classes=self.classes,
            features=self.backbone.features,
            secret=secret,
            members=None if members is None else frozenset(members),
            founders=self._admission.founders,
        )
        self._start = None if head is None else head.weights_for(self.backbone, self.classes, self.backbone.features)
        self._rhythm = Rhythm(pace)
        self._runs: set[asyncio.Event] = set()
        self._alone = False
        self._work: asyncio.Future[tuple[Iteration, Decision, tuple[bytes, ...]]] | None = None
        self._state: PeerState | None = None
        self._overlay: Overlay | None = None
        self._exchange: PeerExchange | None = None
        self._exits = AsyncExitStack()

    async def __aenter__(self) -> Self:
        """Load the state from the folder, and join the network."""
        async with AsyncExitStack() as exits:
            make_private(self.folder)
            lock = FolderLock(self.folder)
            exits.callback(lock.release)
            (self.folder / ENDPOINT).unlink(missing_ok=True)  # A killed peer's: another process may have its port.
            self._state = self._open(self._identity)
            exits.callback(self._state.close)
            roster = self._admission.open(self._identity, self._group)
            exits.callback(self._admission.close)
            self._overlay = Overlay(
                identity=self._identity,
                group=self._group,
                roster=roster,
                probe=await asyncio.to_thread(probe, self.backbone, self._group.id),
                listen=self._listen,
                known=list(self._known),
                limits=self._limits,
                beacon=self._beacon,
            )
            self._traffic = Traffic(self._overlay, self._state.store, self.pace)
            exits.callback(self._traffic.keep)
            try:
                await self._overlay.start()
            except OSError as error:
                where = "{}:{}".format(*self._listen)
                raise ValueError(f"cannot listen on {where}: {error}; choose another address") from error
            exits.push_async_callback(self._overlay.stop)
            exits.push_async_callback(self._admission.stop_watching)
            self._admission.watch()
            self._exchange = self._make_exchange(self._overlay, self._state)
            exits.push_async_callback(self._finish)
            self._exits = exits.pop_all()
        details = {"address": "{}:{}".format(*self.address), "key_id": self.key_id, "iteration": self.iteration}
        LOG.info("listening", extra={"details": details})
        return self

    def _open(self, identity: Identity) -> PeerState:
        return PeerState(
            self.folder / STORE,
            identity=identity.key_id.hex(),
            group=self._group,
            backbone=self.backbone,
            rule=self._rule,
            training=self._training,
            seed=int.from_bytes(identity.key_id[:7], "big") if self._seed is None else self._seed,
            kappa=self._kappa,
            start=self._start,
        )

    def _make_exchange(self, network: Overlay, state: PeerState) -> PeerExchange:
        if state.evidence is None:
            return HeadExchange(network, state, self._traffic, self._sharing)
        return EvidenceExchange(
            network,
            state,
            self._traffic,
            self.pace,
            voices=partial(self._admission.voices, state.evidence.rule.one_voice),
        )

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Send the last head, leave the network, and save everything."""
        self.stop()
        if kind is None:
            try:
                async with asyncio.timeout(FAREWELL):
                    await self._network.sent()
            except TimeoutError:
                LOG.info("the last head was not sent in time")
        await self._exits.aclose()
        self._overlay = self._exchange = None
        LOG.info("stopped", extra={"details": {"iteration": self.iteration}})

    def stop(self) -> None:
        """End every `run` called so far after the iteration in progress; a later `run` goes on from there."""
        for stopping in self._runs:
            stopping.set()

    def add(self, x: npt.ArrayLike, y: npt.ArrayLike, *, features: bool = False) -> int:
        """Add labelled samples, durably; return how many of them were new. What was removed is not.

        Parameters
        ----------
        x : array [n, ...]
            Raw inputs for the backbone, or features [n, D].
        y : array [n]
            Class numbers, or names.
        features : bool
            Whether `x` are features already.
        """
        state, exchange = self._open_state, self._exchanging
        new = state.add(state.features_of(x, features=features), state.labels_of(y))
        exchange.changed()
        return new

    def remove(self, x: npt.ArrayLike, y: npt.ArrayLike, *, features: bool = False) -> int:
        """Delete samples that were added, durably; return how many of them were found.

        From the next decision on they count no more. A class of which stated samples are removed is left out of the
        next statement, until so many samples have come or gone that the difference from what was stated hides each.
        What was removed is known by a digest if it is added again, and not taken.

        Parameters
        ----------
        x : array [n, ...]
            The same inputs or features as they were added; features may differ by rounding.
        y : array [n]
            Class numbers, or names.
        features : bool
            Whether `x` are features.
        """
        state, exchange = self._open_state, self._exchanging
        removed = state.remove(state.features_of(x, features=features), state.labels_of(y))
        exchange.changed()
        return removed

    def remove_classes(self, y: npt.ArrayLike) -> int:
        """Delete all samples of some classes, by number or name, as `remove` does; return how many there were."""
        state, exchange = self._open_state, self._exchanging
        removed = state.remove_classes(state.labels_of(y))
        exchange.changed()
        return removed

    def predict(self, x: npt.ArrayLike, *, features: bool = False) -> Integers:
        """Return the most likely class number of each input [n]; `peer.classes` has the names."""
        most_likely: Integers = self.probabilities(x, features=features).argmax(axis=1)
        return most_likely

    def probabilities(self, x: npt.ArrayLike, *, features: bool = False) -> Floats:
        """Return the probability of each class for each input [n, C]."""
        return self._open_state.probabilities(self._open_state.features_of(x, features=features))

    def run(self, iterations: int | None = None) -> Coroutine[Any, Any, None]:
        """Learn until `stop` is called, or for so many iterations. Await it, or make it a task."""
        # Registered here, not when it is first awaited: `stop` also ends a task that has not begun.
        stopping = asyncio.Event()
        self._runs.add(stopping)
        return self._run(iterations, stopping)

    async def _run(self, iterations: int | None, stopping: asyncio.Event) -> None:
        try:
            goal = None if iterations is None else self.iteration + iterations
            while goal is None or self.iteration < goal:
                ready = partial(self._exchanging.ready, counted=goal is not None)
                if not await self._rhythm.next_turn(ready, stopping):
                    return
                await self._turn(self._exchanging, self._open_state, goal)
        finally:
            self._runs.discard(stopping)

    @property
    def exchanges_evidence(self) -> bool:
        """Whether its rule exchanges evidence, and not heads."""
        return self._rule.shares == "evidence"

    @property
    def iteration(self) -> int:
        """Number of iterations since the peer first ran."""
        return self._open_state.iteration

    @property
    def head(self) -> Floats:
        """The head that is used [C, D], and shared by rules that exchange heads."""
        return self._open_state.learner.head

    @property
    def bias(self) -> Floats:
        """What is added to the scores of each class [C]; zeros with rules that exchange heads."""
        return self._open_state.learner.bias

    @cached_property
    def _identity(self) -> Identity:
        make_private(self.folder)
        return Identity.load_or_create(self.folder / IDENTITY)

    def _found(self) -> bytes:
        return self._identity.key_id

    @property
    def key_id(self) -> str:
        """The peer's key id in hexadecimal, also before the first start: the key pair is made when it is needed."""
        return self._identity.key_id.hex()

    @property
    def address(self) -> Address:
        """The address that it listens on, for other peers to contact."""
        return self._network.address

    def invite(self, invitee: str | None = None, *, seats: int = 0, days: float | None = None) -> str:
        """Return an invitation to the group as text, for the invitee.

        Parameters
        ----------
        invitee : str, optional
            Key id of the invitee in hexadecimal; without one, the first to use the text becomes a member.
        seats : int
            Number of others that the invitee may invite.
        days : float, optional
            Days until the membership expires; by default never.
        """
        return self._admission.invite(self._identity, invitee, seats=seats, days=days)

    def revoke(self, member: str) -> None:
        """Remove a member, by its key id in hexadecimal, and all members that it invited, directly or not."""
        self._admission.revoke(self._identity, member)

    def decisions(self, last: int = 20) -> list[Iteration]:
        """Return the latest records of iterations, oldest first."""
        return self._open_state.store.decisions(last)

    def status(self) -> Status:
        """Return the current status."""
        waiting = self._rhythm.waiting or self._exchanging.held_back or self._admission.waiting
        status = status_of(self._network, self._open_state, self._traffic, waiting=waiting)
        return replace(status, members=self._admission.members())

    async def _turn(self, exchange: PeerExchange, state: PeerState, goal: int | None) -> None:
        taken = exchange.take()
        work = partial(
            state.iterate,
            taken,
            total=goal,
            test=self._test,
            measure=(self.iteration + 1) % self._test_every == 0 or self.iteration + 1 == goal,
            counters=self._traffic.totals(),
            spending=self._traffic.budget.spending,
        )
        self._work = asyncio.get_running_loop().run_in_executor(WORKER, work)
        # What has begun is finished, even where `run` is cancelled.
        try:
            record, decision, senders = await asyncio.shield(self._work)
        except TryAgainError as error:  # A full disk, as a rule. Nothing was kept, so nothing is shared.
            self._rhythm.hold(f"cannot keep what it learns: {error}")
            return
        await exchange.share()
        self._rhythm.trouble = None
        self._log_if_alone(state)
        log_turn(record, exchange.held_back)
        if self.on_iteration is not None:
            self.on_iteration(Turn(record, decision, senders, exchange.held_back is None))

    def _log_if_alone(self, state: PeerState) -> None:
        """Warn when the rule can test nothing that is received; once, until it can."""
        alone = state.learns_alone()
        if alone is not None and not self._alone:
            LOG.warning("learns alone", extra={"details": {"why": alone}})
        self._alone = alone is not None

    async def _finish(self) -> None:
        if self._work is not None:
            await asyncio.wait({self._work})

    @property
    def _open_state(self) -> PeerState:
        if self._state is None:
            raise ValueError("the peer has not been started: use it as `async with Peer(...) as peer:`")
        return self._state

    @property
    def _network(self) -> Overlay:
        if self._overlay is None:
            raise ValueError("the peer is not running: use it as `async with Peer(...) as peer:`")
        return self._overlay

    @property
    def _exchanging(self) -> PeerExchange:
        if self._exchange is None:
            raise ValueError("the peer is not running: use it as `async with Peer(...) as peer:`")
        return self._exchange


def _checked_addresses(known: Iterable[Address]) -> tuple[Address, ...]:
    """Return addresses as a tuple; raise ValueError unless each is a pair of a host and a port."""
    addresses = tuple(known)
    for address in addresses:
        if isinstance(address, str) or len(address) != 2:
            raise ValueError(f'known has {address!r}: give pairs of host and port, e.g. [("192.0.2.7", 7700)]')
    return addresses


def _check_no_head_options(rule: Rule, *, head: Head | None, sharing: Sharing) -> None:
    """Raise ValueError for options that only rules for heads can use."""
    for given, name in ((head is not None, "head"), (not sharing.plain, "share_clip and share_noise")):
        if given:
            raise ValueError(
                f"{name}: peers with the rule {type(rule).__name__} share no head; leave this out, or choose "
                "a rule that exchanges heads, e.g. bristle"
            )
