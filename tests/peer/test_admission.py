"""Live peers of founded groups: invited, put out, started again; and the commands that do it from outside."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from bristle import Peer, rules
from bristle.cli import app
from bristle.commands.status import get_status
from bristle.peer.roster_file import ROSTER, RosterFile
from bristle.wire import Identity
from bristle.wire.admission import Invitation
from tests.support.network import eventually

MakePeer = Callable[..., Peer]
RUNNER = CliRunner()


def heard(peer: Peer) -> set[str]:
    return {one.key_id for one in peer.status().neighbours}


def members(peer: Peer) -> set[str]:
    return {one.key_id for one in peer.status().members}


def decided_about(peer: Peer) -> set[str]:
    """Return whose statements or heads the last decision was about."""
    last = peer.status().last
    return set() if last is None else {one.sender for one in last.heard}


def test_a_group_grows_by_invitations_and_loses_who_is_put_out(make_peer: MakePeer, digits: Any) -> None:
    async def run() -> None:
        async with make_peer("ann", found=True, rule=rules.create("evidence")) as ann:
            ann.add(*digits.of(range(7)), features=True)
            running = asyncio.create_task(ann.run())
            for_ben = ann.invite(seats=2)
            async with make_peer("ben", invitation=for_ben, known=[ann.address], rule=rules.create("evidence")) as ben:
                ben.add(*digits.of(range(3, 10)), features=True)
                also = asyncio.create_task(ben.run())
                cat_id = make_peer("cat").key_id
                for_cat = ben.invite(cat_id, days=1)
                async with make_peer("cat", invitation=for_cat, known=[ann.address]) as cat:
                    await eventually(lambda: len(heard(cat)) == 2 and len(members(ann)) == 3)
                    by_key = {one.key_id: one for one in ann.status().members}
                    assert by_key[cat.key_id].inviter == ben.key_id
                    assert by_key[cat.key_id].generation == 2
                    assert by_key[cat.key_id].expires > 0
                    assert by_key[ben.key_id].seats_left == 1
                await eventually(lambda: ann.status().decided is not None)
                decided = ann.status().decided
                assert decided is not None
                assert {one.sender for one in decided.heard} == {ben.key_id}
                ann.revoke(ben.key_id)
                await eventually(lambda: not heard(ann) and not heard(ben) and members(ann) == {ann.key_id})
                await eventually(lambda: ben.status().waiting is not None)
                assert "no member of the group any more" in str(ben.status().waiting)
                await eventually(lambda: not decided_about(ann))
                ben.stop()
                await also
            with pytest.raises(ValueError, match="is not in the group: start it with an invitation"):
                await make_peer("ben").__aenter__()
            with pytest.raises(ValueError, match="revoked"):
                await make_peer("ben", invitation=for_ben).__aenter__()
            ann.stop()
            await running

    asyncio.run(run())


def test_the_folder_remembers_the_group(make_peer: MakePeer) -> None:
    async def run() -> None:
        async with make_peer("ann", found=True) as ann:
            text = ann.invite()
            async with make_peer("ben", invitation=text, known=[ann.address]) as ben:
                await eventually(lambda: len(heard(ann)) == 1)
                group = ben._group.id
        async with make_peer("ann") as ann, make_peer("ben", known=[ann.address]) as ben:
            assert ben._group.id == group
            await eventually(lambda: len(heard(ann)) == 1)
            assert members(ann) == {ann.key_id, ben.key_id}
            assert ann.invite() != text
            with pytest.raises(ValueError, match="takes 1, and 0 of 0 are left"):
                ben.invite()

    asyncio.run(run())


def test_what_is_offered_is_on_the_disk_before_anybody_has_it(make_peer: MakePeer, tmp_path: Path) -> None:
    async def run() -> None:
        async with make_peer("ann", found=True) as ann:
            texts = [ann.invite() for _ in range(3)]
            # Nothing is closed: what a peer that is killed leaves behind is what another connection sees.
            with sqlite3.connect(tmp_path / "ann" / ROSTER) as database:
                assert database.execute("SELECT count(*) FROM offers").fetchone() == (3,)
            assert {Invitation.from_text(text).offer.slot for text in texts} == {1, 2, 3}

    asyncio.run(run())


def test_who_came_in_by_one_member_is_one_voice(make_peer: MakePeer, digits: Any) -> None:
    async def run() -> None:
        options: dict[str, Any] = {"rule": rules.create("evidence", one_voice=1)}
        async with make_peer("ann", found=True, **options) as ann:
            options["known"] = [ann.address]
            async with (
                make_peer("ben", invitation=ann.invite(seats=1), **options) as ben,
                make_peer("cat", invitation=ben.invite(), **options) as cat,
            ):
                features, labels = digits.of(range(10))
                for place, peer in enumerate((ann, ben, cat)):
                    peer.add(features[place::3], labels[place::3], features=True)
                running = [asyncio.create_task(peer.run()) for peer in (ann, ben, cat)]

                def words(peer: Peer) -> set[str]:
                    decided = peer.status().decided
                    heard = [] if decided is None else decided.heard
                    return {about.words for one in heard for about in one.classes if len(heard) == 2}

                together = "counted once with others who came in by the same member"
                await eventually(lambda: together in words(ann))
                # Of its own branch a peer counts by itself, so that cat and ben hear two voices.
                await eventually(lambda: all("kept" in words(peer) for peer in (ben, cat)))
                assert together not in words(ben) | words(cat)
                for peer in (ann, ben, cat):
                    peer.stop()
                await asyncio.gather(*running)

    asyncio.run(run())


def test_outsiders_are_refused_and_counted(make_peer: MakePeer) -> None:
    async def run() -> None:
        async with make_peer("ann", found=True) as ann:
            zoe = make_peer("zoe", founders=[bytes.fromhex(ann.key_id)], known=[ann.address])
            with pytest.raises(ValueError, match="is not in the group"):
                await zoe.__aenter__()
            # Whoever founds another group of the same name is in another group.
            async with make_peer("eve", found=True, known=[ann.address]) as eve:
                await eventually(lambda: ann.status().refused.get("wrong group", 0) > 0)
                assert not heard(eve) | heard(ann)

    asyncio.run(run())


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"found": True, "founders": [b"k" * 20]}, "give one of them"),
        ({"invitation": "hello"}, "an invitation begins with"),
        ({"found": True, "members": [b"k" * 20]}, "not both"),
        ({"founders": []}, "1 to 16 founders, not 0"),
    ],
)
def test_options_that_make_no_sense_are_refused(make_peer: MakePeer, options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make_peer("ann", **options)


def test_a_peer_without_founders_invites_nobody(make_peer: MakePeer) -> None:
    async def run() -> None:
        async with make_peer("ann") as ann:
            with pytest.raises(ValueError, match="its group has no founders"):
                ann.invite()
            assert ann.status().members == ()

    asyncio.run(run())


def test_a_folder_of_another_group_is_refused(make_peer: MakePeer) -> None:
    async def run() -> None:
        async with make_peer("ann", found=True):
            pass
        with pytest.raises(ValueError, match="is of another group"):
            await make_peer("ann", founders=[bytes.fromhex(make_peer("ann").key_id), b"k" * 20]).__aenter__()

    asyncio.run(run())


def test_commands_invite_and_revoke_while_the_peer_runs(make_peer: MakePeer, tmp_path: Path) -> None:
    folder = str(tmp_path / "ann")

    async def command(*words: str) -> str:
        done = await asyncio.to_thread(RUNNER.invoke, app, words)
        assert done.exit_code == 0, done.output
        return done.stdout

    async def run() -> None:
        async with make_peer("ann", found=True) as ann:
            text = await command("invite", folder, "--seats", "1")
            async with make_peer("ben", invitation=text, known=[ann.address]) as ben:
                await eventually(lambda: len(heard(ann)) == 1)
                await eventually(lambda: len(get_status(tmp_path / "ann").members) == 2)
                shown = await command("status", folder)
                assert f"{ann.key_id} (this peer)" in shown
                assert f"└── {ben.key_id}" in shown
                assert "1 of 1 seats left" in shown
                said = await command("revoke", folder, ben.key_id)
                assert said == "removed 1 of 2 members; others are notified now\n"
                await eventually(lambda: not heard(ann))
                await eventually(lambda: members(ben) == {ann.key_id})

    asyncio.run(run())


def test_commands_say_what_is_wrong(tmp_path: Path) -> None:
    def error(*words: str) -> str:
        return str(RUNNER.invoke(app, words).exception)

    assert "there is no folder" in error("invite", str(tmp_path / "nowhere"))
    assert "in no group with founders" in error("invite", str(tmp_path))
    RosterFile(tmp_path).close()
    Identity.load_or_create(tmp_path / "identity.key")
    assert "holds no group yet" in error("revoke", str(tmp_path), "ab" * 20)
    assert "is no key id: those have 40" in error("invite", str(tmp_path), "--for", "abc")
    assert "days=-1" in error("invite", str(tmp_path), "--days", "-1")


def test_a_damaged_roster_is_put_aside(tmp_path: Path) -> None:
    (tmp_path / ROSTER).write_bytes(b"rubbish" * 100)
    with pytest.raises(ValueError, match=r"is damaged .* and was moved to"):
        RosterFile(tmp_path)
    RosterFile(tmp_path).close()
