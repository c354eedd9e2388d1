"""A user's desk: everything in one home, opened together and put away together."""

import getpass
import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path

from sealmail_client.correspondents import Correspondents
from sealmail_client.errors import WrongPassphrase
from sealmail_client.folders import Folders
from sealmail_client.home_database import HomeDatabase
from sealmail_client.inbox import Inbox
from sealmail_client.keyring import Keyring
from sealmail_client.outbox import Outbox
from sealmail_client.profile import Home
from sealmail_client.progress import Nobody, Watcher
from sealmail_client.publishing import OwnBlocks, Publisher
from sealmail_client.servers import Servers
from sealmail_client.settings import Settings
from sealmail_verify import Verifier

# Where scripts leave the passphrase; a variable with the passphrase itself would show in `ps e`.
PASSPHRASE_FILE = "SEALMAIL_PASSPHRASE_FILE"  # noqa: S105 - a name, no secret

Clock = Callable[[], datetime]


def utc_now() -> datetime:
    """Return the present second."""
    return datetime.now(UTC).replace(microsecond=0)


def ask_passphrase() -> str | None:
    """Return the passphrase from the file that the environment names, else from the user."""
    named = os.environ.get(PASSPHRASE_FILE)
    if named:
        try:
            return Path(named).read_text(encoding="utf-8").rstrip("\r\n")
        except (OSError, UnicodeDecodeError) as error:
            raise WrongPassphrase(f"reading {PASSPHRASE_FILE} ({error})") from None
    return getpass.getpass("Passphrase of your key: ")


@dataclass
class Desk:
    """The opened home; parts that cost something are made when they are first used."""

    home: Home
    settings: Settings
    database: HomeDatabase = field(repr=False)
    clock: Clock = utc_now
    watcher: Watcher = field(default_factory=Nobody)
    ask: Callable[[], str | None] = ask_passphrase

    @cached_property
    def keyring(self) -> Keyring:
        """The user's keys and those of his correspondents."""
        return Keyring(self.home.keyring)

    @cached_property
    def passphrase(self) -> str | None:
        """What opens the user's key, asked for once; ``None`` if the key has none."""
        return self.ask() if self.settings.passphrase else None

    @cached_property
    def servers(self) -> Servers:
        """The way to all servers."""
        return Servers(self.settings, self.home.load_auth_key(), self.database, self.clock)

    @cached_property
    def verifier(self) -> Verifier:
        """What checks the signatures of blocks."""
        return Verifier()

    @cached_property
    def own_blocks(self) -> OwnBlocks:
        """The user's own key-announcement and claim."""
        return OwnBlocks(self.database)

    @cached_property
    def publisher(self) -> Publisher:
        """What makes and posts those."""
        return Publisher(
            self.own_blocks,
            self.settings,
            self.keyring,
            lambda: self.passphrase,
            self.clock,
            self.watcher,
        )

    @cached_property
    def correspondents(self) -> Correspondents:
        """The address book."""
        return Correspondents(self.database)

    @cached_property
    def outbox(self) -> Outbox:
        """Messages on their way."""
        return Outbox(self.database)

    @cached_property
    def inbox(self) -> Inbox:
        """Messages that arrive."""
        return Inbox(self.database)

    @cached_property
    def folders(self) -> Folders:
        """Messages that are filed."""
        return Folders(self.database, self.home.mail)

    def put_away(self) -> None:
        """End what was started for this desk."""
        if "keyring" in self.__dict__:
            self.keyring.close()
        self.database.close()


@contextmanager
def open_desk(
    home: Home,
    *,
    alone: bool,
    clock: Clock = utc_now,
    watcher: Watcher | None = None,
    ask: Callable[[], str | None] = ask_passphrase,
) -> Iterator[Desk]:
    """Open a home; ``alone`` keeps other programs from working in it at the same time."""
    settings = home.load()
    with ExitStack() as stack:
        if alone:
            stack.enter_context(home.locked())
        desk = Desk(home, settings, HomeDatabase(home.database), clock, watcher or Nobody(), ask)
        stack.callback(desk.put_away)
        yield desk
