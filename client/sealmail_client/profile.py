"""The directory of one identity: its paths, its lock, settings and the keys to its accounts."""

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from sealmail_client.errors import ClientError, HomeUnusable
from sealmail_client.safe_files import make_private, write_private
from sealmail_client.settings import (
    SETTINGS_VERSION,
    AuthKey,
    Place,
    Settings,
    auth_file_name,
    settings_version,
)

_LOOK_AGAIN = 0.05


class NoProfile(HomeUnusable):
    """There is no identity in this directory: make one with `sealmail init`."""


class ProfileExists(HomeUnusable):
    """There is an identity already: make a further one with `sealmail identity create`."""


class ProfileInUse(ClientError):
    """Another sealmail works in this directory: wait until it is done."""

    exit_code = 19


class BadProfile(HomeUnusable):
    """The settings cannot be read: mend the file, or restore it from a back-up."""


@contextmanager
def lock_directory(path: Path, patience: float = 0.0) -> Iterator[None]:
    """Hold the lock of a directory, which is made if need be.

    ``ProfileInUse`` if it is still held after ``patience`` seconds.
    """
    make_private(path)
    handle = os.open(path / "lock", os.O_RDWR | os.O_CREAT, 0o600)
    end = time.monotonic() + patience
    try:
        while not _locked(handle):
            if time.monotonic() >= end:
                raise ProfileInUse(f"another sealmail works in {path}: wait until it is done")
            time.sleep(_LOOK_AGAIN)
        yield
    finally:
        os.close(handle)


def _locked(handle: int) -> bool:
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


@dataclass(frozen=True, slots=True)
class Home:
    """Where everything of one identity lies; another one shares nothing with it."""

    path: Path

    @property
    def settings_file(self) -> Path:
        """The settings, for the user to read and edit."""
        return self.path / "config.toml"

    @property
    def auth_file(self) -> Path:
        """The key to the account, alone in a file so that the settings can be shown."""
        return self.auth_file_of(Place.HOME)

    def auth_file_of(self, place: Place) -> Path:
        """Return where the key to the account at ``place`` is."""
        return self.path / auth_file_name(place)

    @property
    def revocation_file(self) -> Path:
        """The certificate by which the key is revoked, for the user to copy to a safe place."""
        return self.path / "revocation-certificate.txt"

    @property
    def keyring(self) -> Path:
        """The home directory of GnuPG."""
        return self.path / "gnupg"

    @property
    def database(self) -> Path:
        """Outbox, inbox, folders, correspondents and pins."""
        return self.path / "mail.sqlite"

    @property
    def outgoing(self) -> Path:
        """Messages on their way, a directory for each."""
        return make_private(self.path / "outgoing")

    @property
    def incoming(self) -> Path:
        """Messages that arrive, a directory for each."""
        return make_private(self.path / "incoming")

    @property
    def mail(self) -> Path:
        """Messages that are filed, a directory for each."""
        return make_private(self.path / "mail")

    @contextmanager
    def locked(self, patience: float = 0.0) -> Iterator[None]:
        """Keep other programs out of the directory; ``ProfileInUse`` if one stays in it."""
        with lock_directory(self.path, patience):
            yield

    def load(self) -> Settings:
        """Read the settings; those of an older version are brought up to date on disk too."""
        try:
            text = self.settings_file.read_text(encoding="utf-8")
            settings = Settings.from_toml(text)
            version = settings_version(text)
        except FileNotFoundError:
            raise NoProfile(
                f"no identity in {self.path}: make one with `sealmail init`, "
                "or name another directory by --home"
            ) from None
        except ValueError as error:
            raise BadProfile(f"{self.settings_file}: {error}") from None
        if version < SETTINGS_VERSION:
            kept = self.settings_file.with_name(f"{self.settings_file.name}.version-{version}")
            write_private(kept, text.encode())
            self.save(settings)
        return settings

    def save(self, settings: Settings) -> None:
        """Write the settings, whole or not at all."""
        write_private(self.settings_file, settings.to_toml().encode())

    def load_auth_key(self, place: Place = Place.HOME) -> AuthKey:
        """Read the key to an account."""
        path = self.auth_file_of(place)
        try:
            return AuthKey(path.read_text(encoding="ascii").strip())
        except FileNotFoundError:
            raise BadProfile(f"{path} is missing: put the auth key into it") from None
        except ValueError as error:
            raise BadProfile(f"{path}: {error}") from None

    def save_auth_key(self, auth_key: AuthKey, place: Place = Place.HOME) -> None:
        """Write the key to an account, readable by the user only."""
        write_private(self.auth_file_of(place), f"{auth_key.text}\n".encode("ascii"))
