"""Two correspondents with real GnuPG homes, made once a session."""

import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from sealmail_client.keyring import Keyring
from sealmail_protocol.keys import KeyId


@dataclass(frozen=True, slots=True)
class Correspondent:
    """A keyring with one own key, and the passphrase that opens it."""

    keyring: Keyring
    key_id: KeyId
    user_id: str
    passphrase: str | None


@pytest.fixture(scope="session")
def short_directory() -> Iterator[Path]:
    """Return a directory whose path is short enough for the sockets of GnuPG's agents."""
    directory = Path(tempfile.mkdtemp(prefix="sm-"))
    yield directory
    shutil.rmtree(directory)


def quick_home(path: Path) -> Path:
    """Make a GnuPG home whose agent does not measure first how slow passphrases should be."""
    path.mkdir(mode=0o700)
    (path / "gpg-agent.conf").write_text("s2k-count 65536\n")
    return path


@pytest.fixture(scope="session")
def amy(short_directory: Path) -> Iterator[Correspondent]:
    """Return a correspondent whose key has a passphrase."""
    with Keyring(quick_home(short_directory / "amy")) as keyring:
        key_id = keyring.create("Amy Alien", "amy@a.example", "grüne Männchen")
        yield Correspondent(keyring, key_id, "Amy Alien <amy@a.example>", "grüne Männchen")


@pytest.fixture(scope="session")
def bob(short_directory: Path, amy: Correspondent) -> Iterator[Correspondent]:
    """Return a correspondent without passphrase, who knows Amy, and whom she knows."""
    with Keyring(quick_home(short_directory / "bob")) as keyring:
        key_id = keyring.create("Bob Builder", "bob@b.example", None)
        amy.keyring.import_public(keyring.public_key(key_id))
        keyring.import_public(amy.keyring.public_key(amy.key_id))
        yield Correspondent(keyring, key_id, "Bob Builder <bob@b.example>", None)
