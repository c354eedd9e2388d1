"""Several identities in one directory, each in a numbered one of its own.

They share nothing, neither keys nor pins nor what was learned of others, so that whoever sees
two of them at work cannot tell that they are one person. Numbers keep the paths short, which
GnuPG's agent needs for its sockets.
"""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from sealmail_client.errors import HomeUnusable
from sealmail_client.profile import Home, NoProfile, lock_directory
from sealmail_client.safe_files import make_private, sync_directory, write_private
from sealmail_client.settings import Settings
from sealmail_protocol.keys import KeyId

# Where an identity is built; it gets its number when it is complete.
_UNFINISHED = "new"


class NoSuchIdentity(HomeUnusable):
    """No identity here has this address or key: `sealmail identity list` shows those that are."""


class IdentityExists(HomeUnusable):
    """The key is here already: `sealmail --identity` chooses the identity that has it."""


@dataclass(frozen=True, slots=True)
class Member:
    """One identity of the household."""

    number: int
    home: Home
    settings: Settings


@dataclass(frozen=True, slots=True)
class Household:
    """The directory that ``--home`` names."""

    path: Path

    def members(self) -> tuple[Member, ...]:
        """Return every identity, the oldest first."""
        return tuple(
            Member(number, home, home.load())
            for number in self._numbers()
            if (home := Home(self.path / str(number))).settings_file.exists()
        )

    def choose(self, wish: str | None = None) -> Member:
        """Return the identity with this address or key id, without a wish the default one.

        Of two with the same address the younger is meant: the older key is given up.
        """
        members = self.members()
        if not members:
            raise NoProfile(
                f"no identity in {self.path}: make one with `sealmail init`, "
                "or name another directory by --home"
            )
        wish = wish or self._read_default()
        if wish is None:
            return members[0]
        for member in reversed(members):
            if wish.lower() in (member.settings.address, member.settings.key_id.hex.lower()):
                return member
        listed = ", ".join(member.settings.address for member in members)
        raise NoSuchIdentity(f"no identity {wish} in {self.path}, only {listed}")

    def set_default(self, key_id: KeyId) -> None:
        """Choose the identity that is meant when none is named."""
        write_private(self._default_file, f"{key_id.hex}\n".encode())

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Keep other programs from adding identities; ``ProfileInUse`` if one does."""
        with lock_directory(self.path):
            yield

    @contextmanager
    def building(self) -> Iterator[Home]:
        """Give a place to build an identity in; what an earlier try left there is removed.

        Nothing stays if the body fails; ``admit`` makes the result an identity.
        """
        with self.locked():
            home = Home(self.path / _UNFINISHED)
            shutil.rmtree(home.path, ignore_errors=True)
            make_private(home.path)
            try:
                yield home
            finally:
                shutil.rmtree(home.path, ignore_errors=True)

    def admit(self, built: Home) -> Member:
        """Give a complete identity its number and place."""
        settings = built.load()
        for member in self.members():
            if member.settings.key_id == settings.key_id:
                raise IdentityExists(
                    f"{settings.key_id} is here already, for {member.settings.address}: "
                    f"choose it by --identity {member.settings.address}"
                )
        number = max(self._numbers(), default=0) + 1
        home = Home(self.path / str(number))
        built.path.rename(home.path)
        sync_directory(self.path)
        return Member(number, home, settings)

    def remove(self, member: Member) -> None:
        """Give up an identity with all that it holds."""
        with self.locked(), member.home.locked():
            shutil.rmtree(member.home.path)
            if (self._read_default() or "").lower() == member.settings.key_id.hex.lower():
                self._default_file.unlink()
            sync_directory(self.path)

    @property
    def _default_file(self) -> Path:
        return self.path / "default"

    def _read_default(self) -> str | None:
        try:
            return self._default_file.read_text("utf-8", "replace").strip()
        except FileNotFoundError:
            return None

    def _numbers(self) -> list[int]:
        if not self.path.is_dir():
            return []
        return sorted(int(path.name) for path in self.path.iterdir() if path.name.isdecimal())
