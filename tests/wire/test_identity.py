from __future__ import annotations

import stat
import threading
from pathlib import Path

import pytest

from bristle.wire import Identity
from bristle.wire.identity import key_id_of, verify


def test_a_key_is_made_once_for_its_owner_only(tmp_path: Path) -> None:
    path = tmp_path / "peer" / "key"
    identity = Identity.load_or_create(path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert Identity.load_or_create(path) == identity
    assert identity.key_id == key_id_of(identity.key)
    assert len(identity.key_id) == 20
    assert [file.name for file in path.parent.iterdir()] == ["key"]


def test_a_key_that_others_can_read_is_refused_with_the_remedy(tmp_path: Path) -> None:
    path = tmp_path / "key"
    Identity.load_or_create(path)
    path.chmod(0o640)
    with pytest.raises(ValueError, match=f"chmod 600 {path}"):
        Identity.load_or_create(path)


@pytest.mark.parametrize(
    "content", [b"", b"bristle identity 2\n", b"bristle identity 2\n" + b"0" * 63 + b"\n", b"x" * 84, bytes(5000)]
)
def test_a_file_without_a_key_is_named(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "key"
    path.write_bytes(content)
    path.chmod(0o600)
    with pytest.raises(ValueError, match=str(path)):
        Identity.load_or_create(path)


def test_an_identity_of_an_older_release_is_named_with_the_remedy(tmp_path: Path) -> None:
    path = tmp_path / "key"
    path.write_bytes(b"LibNaCLSK:" + bytes(64))
    path.chmod(0o600)
    with pytest.raises(ValueError, match=r"identity of an older release.*; start this peer in a new folder") as refused:
        Identity.load_or_create(path)
    assert len(str(refused.value).splitlines()) == 1


def test_a_secret_of_another_length_is_none() -> None:
    with pytest.raises(ValueError, match="32 bytes, not 31"):
        Identity(bytes(31))


def test_processes_that_start_together_get_the_same_key(tmp_path: Path) -> None:
    found: list[Identity] = []
    barrier = threading.Barrier(8)

    def load() -> None:
        barrier.wait()
        found.append(Identity.load_or_create(tmp_path / "key"))

    threads = [threading.Thread(target=load) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len({identity.key_id for identity in found}) == 1
    assert [file.name for file in tmp_path.iterdir()] == ["key"]


def test_signatures() -> None:
    one, other = Identity.generate(), Identity.generate()
    signature = one.sign(b"message")
    assert one.verify(signature, b"message")
    assert not one.verify(signature, b"another")
    assert not other.verify(signature, b"message")
    assert not verify(one.key, signature[:-1], b"message")
    assert not verify(one.key[:-1], signature, b"message")
    assert not verify(bytes(32), signature, b"message")
    assert not verify(b"\xff" * 32, signature, b"message")


def test_the_secret_is_never_shown() -> None:
    identity = Identity.generate()
    assert identity.secret.hex() not in repr(identity)
    assert repr(identity.secret)[2:-1] not in repr(identity)
