"""The user's directory: its paths, its lock, its settings and the key to his account."""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from sealmail_client.errors import ClientError, HomeUnusable
from sealmail_client.safe_files import make_private, write_private
from sealmail_client.settings import AuthKey, Settings


class NoProfile(HomeUnusable):
    """There is no identity in this directory: make one with `sealmail init`."""


class ProfileExists(HomeUnusable):
    """There is an identity already: choose another directory by --home."""


class ProfileInUse(ClientError):
    """Another sealmail works in this directory: wait until it is done."""

    exit_code = 19


class BadProfile(HomeUnusable):
    """The settings cannot be read: mend the file, or restore it from a back-up."""


@dataclass(frozen=True, slots=True)
class Home:
    """Where everything of one user lies."""

    path: Path

    @property
    def settings_file(self) -> Path:
        """The settings, for the user to read and edit."""
        return self.path / "config.toml"

    @property
    def auth_file(self) -> Path:
        """The key to the account, alone in a file so that the settings can be shown."""
        return self.path / "auth_key"

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
    def locked(self) -> Iterator[None]:
        """Keep other programs out of the directory; ``ProfileInUse`` if one is in it."""
        make_private(self.path)
        handle = os.open(self.path / "lock", os.O_RDWR | os.O_CREAT, 0o600)
        try:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise ProfileInUse(
                    f"another sealmail works in {self.path}: wait until it is done"
                ) from None
            yield
        finally:
            os.close(handle)

    def load(self) -> Settings:
        """Read the settings."""
        try:
            return Settings.from_toml(self.settings_file.read_text(encoding="utf-8"))
        except FileNotFoundError:
            raise NoProfile(
                f"no identity in {self.path}: make one with `sealmail init`, "
                "or name another directory by --home"
            ) from None
        except ValueError as error:
            raise BadProfile(f"{self.settings_file}: {error}") from None

    def save(self, settings: Settings) -> None:
        """Write the settings, whole or not at all."""
        write_private(self.settings_file, settings.to_toml().encode())

    def refuse_second_identity(self) -> None:
        """Raise ``ProfileExists`` if there are settings."""
        if self.settings_file.exists():
            raise ProfileExists(
                f"{self.path} holds an identity already: name another directory by --home, "
                "or publish this one again with `sealmail key publish`"
            )

    def load_auth_key(self) -> AuthKey:
        """Read the key to the account."""
        try:
            return AuthKey(self.auth_file.read_text(encoding="ascii").strip())
        except FileNotFoundError:
            raise BadProfile(f"{self.auth_file} is missing: put the auth key into it") from None
        except ValueError as error:
            raise BadProfile(f"{self.auth_file}: {error}") from None

    def save_auth_key(self, auth_key: AuthKey) -> None:
        """Write the key to the account, readable by the user only."""
        write_private(self.auth_file, f"{auth_key.text}\n".encode("ascii"))
