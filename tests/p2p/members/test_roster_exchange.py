from __future__ import annotations

import random
from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np
import pytest

from bristle.p2p.members.roster import Roster
from bristle.p2p.members.roster_exchange import REST
from bristle.p2p.node import Node
from bristle.wire import Refusal
from bristle.wire.admission import MOST_GENERATIONS, Offer
from bristle.wire.messages import MOST_IDS, Records, RosterIds, encode
from bristle.wire.statements import sign_statement
from tests.support.rosters import Clock, founded, identity, invite

if TYPE_CHECKING:
    from tests.support.network import VirtualNetwork

Networks = Callable[..., "VirtualNetwork"]
FAMILY = [("ann", "ben", 3), ("ben", "cat", 1), ("ann", "dan", 0), ("cat", "eve", 0)]


def whole(clock: Clock | None = None, *extra: tuple[str, str, int]) -> Roster:
    """Return the roster of all."""
    roster = Roster(founded("ann"), clock=clock or Clock())
    for inviter, invitee, seats in (*FAMILY, *extra):
        invite(roster, inviter, invitee, seats=seats)
    return roster


def own_chain(name: str, everything: Roster, clock: Clock | None = None) -> Roster:
    """Return what a member knows that has just come in: those who lead to it."""
    roster = Roster(everything.group, clock=clock or Clock())
    roster.add_all(everything.chain(identity(name).key_id))
    return roster


def join(network: VirtualNetwork, names: list[str], rosters: list[Roster], founder: str = "ann") -> list[Node]:
    nodes = [
        network.add(founded(founder), identity=identity(name), roster=roster, port=1 + place)
        for place, (name, roster) in enumerate(zip(names, rosters, strict=True))
    ]
    for node in nodes[1:]:
        node.name(("127.0.0.1", 1), network.now)
    return nodes


def linked(node: Node) -> set[bytes]:
    return set(node.membership.links)


def ids(*names: str) -> set[bytes]:
    return {identity(name).key_id for name in names}


@pytest.mark.parametrize("impairment", [{}, {"loss": 0.2, "duplication": 0.1, "jitter": 0.02}])
def test_members_who_know_only_their_own_chain_let_each_other_in(
    virtual: Networks, impairment: dict[str, float]
) -> None:
    network, everything = virtual(3, **impairment), whole()
    names = ["eve", "dan", "ann", "cat", "ben"]
    nodes = join(network, names, [own_chain(name, everything) for name in names])
    assert network.run(60, lambda: all(len(node.membership.links) == 4 for node in nodes))
    rosters = [node.roster.roster for node in nodes if node.roster]
    assert network.run(60, lambda: all(set(roster.members()) == ids(*names) for roster in rosters))


def test_a_long_chain_comes_in_several_datagrams(virtual: Networks) -> None:
    roster, names = Roster(founded("m0"), clock=Clock()), [f"m{number}" for number in range(MOST_GENERATIONS + 1)]
    for number in range(MOST_GENERATIONS):
        code = roster.invite(identity(names[number]), seats=20 - number)
        roster.accept(identity(names[number + 1]), code)
    network = virtual(0)
    first, last = join(
        network, [names[0], names[-1]], [Roster(roster.group, clock=Clock()), own_chain(names[-1], roster)]
    )
    assert network.run(20, lambda: linked(first) == ids(names[-1]) and linked(last) == ids(names[0]))
    assert max(len(datagram) for _, _, datagram in network.traffic) <= 1232


def test_strangers_get_nothing_but_a_cookie(virtual: Networks) -> None:
    network, everything = virtual(0), whole()
    ann, _ = join(network, ["ann", "ben"], [everything, own_chain("ben", everything)])
    other = Roster(founded("ann"), clock=Clock())
    # A stranger does not know that it is none: it has made up an invitation.
    forged = Offer.sign(identity("zoe"), other.group.id, slot=1, number=1, invitee=identity("zoe").key_id)
    made_up = forged.accept(identity("zoe"), other.group.id, number=1)
    other.admits = lambda key_id: True  # type: ignore[method-assign]
    other.chain = lambda key_id: (made_up.data,)  # type: ignore[method-assign]
    zoe = network.add(founded("ann"), identity=identity("zoe"), roster=other, port=9)
    zoe.name(("127.0.0.1", 1), network.now)
    network.traffic.clear()
    network.run(20)
    assert linked(ann) == ids("ben")
    assert not linked(zoe)
    assert ann.counters.refused[Refusal.NOT_A_MEMBER]
    assert ann.counters.refused[Refusal.UNKNOWN_INVITER]
    assert {len(datagram) for source, to, datagram in network.traffic if to == ("127.0.0.1", 9)} == {56}


def test_a_revocation_travels_and_its_member_is_gone_everywhere_with_what_it_brought(virtual: Networks) -> None:
    network, everything = virtual(0), whole()
    names = ["ann", "ben", "cat", "dan", "eve"]
    nodes = join(network, names, [own_chain(name, everything) for name in names])
    assert network.run(60, lambda: all(len(node.membership.links) == 4 for node in nodes))
    ann, ben, cat, dan, eve = nodes
    assert ann.roster is not None
    ann.roster.roster.revoke(identity("ann"), identity("cat").key_id)
    assert network.run(5, lambda: linked(ann) == ids("ben", "dan") and linked(dan) == ids("ann", "ben"))
    assert network.run(5, lambda: linked(ben) == ids("ann", "dan"))
    assert network.run(5, lambda: not linked(cat) and not linked(eve))
    network.run(1)
    for gone in (cat, eve):
        assert gone.roster is not None
        assert not gone.roster.roster.admits(identity("cat").key_id), "it was told why"
    network.run(60)
    assert linked(ann) == ids("ben", "dan"), "it does not come back"


def test_what_a_member_stated_is_forgotten_when_it_is_put_out(virtual: Networks) -> None:
    from bristle.learning.metrics import Evaluation  # noqa: PLC0415
    from bristle.rules.evidence import state  # noqa: PLC0415

    clock, network = Clock(1000.0), virtual(0)
    everything = whole(clock)
    nodes = join(network, ["ann", "ben"], [everything, own_chain("ben", everything, clock)])
    ann, ben = nodes
    for node in nodes:
        node.gossip.clock = clock
    rng = np.random.default_rng(0)
    samples = Evaluation(rng.normal(size=(40, 80)).astype(np.float32), np.arange(40) % 10)
    ben.publish(ben.sign_statement(state(samples, 10), number=1, expires=2000), network.now)
    assert network.run(20, lambda: len(ann.statements()) == 1)
    ann.statement_store.take()
    everything.revoke(identity("ann"), identity("ben").key_id)
    assert network.run(5, lambda: not ann.statements())
    assert ann.statement_store.changed


def test_a_statement_that_comes_before_its_author_is_known_is_fetched_then(virtual: Networks) -> None:
    from bristle.learning.metrics import Evaluation  # noqa: PLC0415
    from bristle.rules.evidence import state  # noqa: PLC0415

    clock, network = Clock(1000.0), virtual(0)
    everything = whole(clock)
    group = founded("ann")
    ann, ben = join(network, ["ann", "ben"], [own_chain(name, everything, clock) for name in ("ann", "ben")])
    for node in (ann, ben):
        node.gossip.clock = clock
    assert network.run(20, lambda: linked(ann) == ids("ben"))
    network.run(5)
    rng = np.random.default_rng(0)
    samples = Evaluation(rng.normal(size=(40, 80)).astype(np.float32), np.arange(40) % 10)
    said = sign_statement(state(samples, 10), number=1, expires=2000, identity=identity("dan"), group=group)
    assert not ann.restore(said, network.now), "nobody has heard of dan"
    assert ann.roster is not None
    ann.roster.roster.add_all(everything.chain(identity("dan").key_id))
    assert ann.restore(said, network.now)
    ann.gossip.changed(identity("dan").key_id)
    ann.gossip.tick(list(ann.membership.links.values()), network.now)
    assert network.run(20, lambda: len(ben.statements()) == 1)
    assert ben.counters.refused[Refusal.NOT_A_MEMBER] == 1, "the offer came first"


@pytest.mark.parametrize("seed", range(3))
def test_rosters_that_differ_anyhow_become_the_same(virtual: Networks, seed: int) -> None:
    rng, network = random.Random(seed), virtual(seed, loss=0.1)
    everything = whole()
    invite(everything, "ann", "head", seats=500)
    for number in range(MOST_IDS + 30):
        invite(everything, "head", f"member {number}")
    for gone in ("dan", "member 5"):
        everything.revoke(identity("ann"), identity(gone).key_id)
    records, names = everything.records(), ["ann", "ben", "head"]
    rosters = [own_chain(name, everything) for name in names]
    for roster in rosters:
        roster.add_all(rng.sample(records, rng.randint(20, len(records))))
    known = {record for roster in rosters for record in roster.records()}
    assert not any(set(roster.records()) == known for roster in rosters)
    nodes = join(network, names, rosters)
    assert network.run(120, lambda: all(set(roster.records()) == known for roster in rosters))
    network.run(10)
    network.traffic.clear()
    network.run(120)
    sent = sum(len(datagram) for _, _, datagram in network.traffic) / len(nodes)
    assert sent < 120 / 5 * 2 * 400, "then there is little more than signs of life"


def test_no_record_is_sent_to_who_has_it(virtual: Networks) -> None:
    network, everything = virtual(0), whole()
    ann, ben = join(network, ["ann", "ben"], [everything, own_chain("ben", everything)])
    assert network.run(20, lambda: ben.counters.records_in == 3)
    network.run(20)
    assert ann.counters.records_out == 3
    assert ben.counters.records_out == 0


def test_a_neighbour_that_floods_with_records_costs_few_signatures(virtual: Networks) -> None:
    network, everything = virtual(0), whole(None, ("ann", "fay", 4000))
    ann, ben = join(network, ["ann", "ben"], [everything, own_chain("ben", everything)])
    assert network.run(20, lambda: bool(linked(ann)))
    link = next(iter(ben.membership.links.values()))
    group, fay = everything.group.id, identity("fay")
    offer = Offer.sign(fay, group, slot=1, number=1, invitee=identity("gil").key_id)
    real = bytearray(offer.accept(identity("gil"), group, number=1).data)
    for number in range(3000):
        real[34:36] = (1 + number).to_bytes(2, "big")  # Another slot: what was signed is something else.
        ben.send_message(link, encode(Records((bytes(real),))))
        if not number % 50:
            network.run(0.005)
    network.run(1)
    checked = ann.counters.refused[Refusal.BAD_SIGNATURE]
    assert 100 < checked < 1000
    assert ann.counters.refused[Refusal.OVER_BUDGET] > 500
    for _ in range(500):
        ben.send_message(link, encode(RosterIds(bytes(8))))
    before = network.sent_bytes
    network.run(1)
    assert network.sent_bytes - before < 100_000


def test_a_member_that_renews_its_invitations_all_the_time_keeps_nobody_busy(
    virtual: Networks, monkeypatch: pytest.MonkeyPatch
) -> None:
    network, everything = virtual(0), whole(None, ("ann", "fay", 300))
    for number in range(300):
        invite(everything, "fay", f"member {number}")
    ann, ben = join(network, ["ann", "ben"], [everything, own_chain("ben", everything)])
    assert network.run(20, lambda: bool(linked(ann)))
    network.run(20)
    (link,) = ben.membership.links.values()
    group, fay = everything.group.id, identity("fay")
    renewed = [
        Offer.sign(fay, group, slot=1 + slot, number=2**50 + turn, invitee=identity(f"member {slot}").key_id).accept(
            identity(f"member {slot}"), group, number=1
        )
        for turn in range(2)
        for slot in range(300)
    ]
    walks: list[Roster] = []
    walk = Roster._walk

    def counted(roster: Roster, now: float) -> object:
        walks.append(roster)
        return walk(roster, now)

    monkeypatch.setattr(Roster, "_walk", counted)
    before = ann.counters.records_in
    for record in renewed:
        ben.send_message(link, encode(Records((record.data,))))
        network.run(0.002)
    network.run(0.2)
    seconds = len(renewed) * 0.002 + 0.2
    # Each time the roster is gone through twice, for now and for what expired lately.
    assert 2 <= sum(roster is everything for roster in walks) <= 2 * (seconds / (300 * REST) + 2)
    assert 0 < ann.counters.records_in - before < 150, "of 600"
    assert ann.counters.refused[Refusal.OVER_BUDGET] > 300


def test_a_newcomer_is_let_in_before_others_have_heard_of_it(virtual: Networks) -> None:
    network, everything = virtual(0), whole()
    names = ["ann", "ben", "dan"]
    nodes = join(network, names, [own_chain(name, everything) for name in names])
    assert network.run(20, lambda: all(len(node.membership.links) == 2 for node in nodes))
    # Ben invites by a code, and tells nobody: the newcomer brings its own papers to dan.
    ben = nodes[1].roster
    assert ben is not None
    code = ben.roster.invite(identity("ben"))
    roster = Roster(everything.group, clock=Clock())
    roster.accept(identity("new"), code)
    new = network.add(founded("ann"), identity=identity("new"), roster=roster, port=9)
    new.name(("127.0.0.1", 3), network.now)
    assert network.run(5, lambda: len(linked(new)) == 3)
