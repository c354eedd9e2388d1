"""A user's desk: everything in one home, opened together and put away together."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cached_property

from sealmail_client.blocklist import Blocklist
from sealmail_client.bypass_book import BypassBook
from sealmail_client.correspondents import Correspondents
from sealmail_client.domains import Domains
from sealmail_client.folders import Folders
from sealmail_client.home_database import HomeDatabase
from sealmail_client.inbox import Inbox
from sealmail_client.keyring import Keyring
from sealmail_client.outbox import Outbox
from sealmail_client.passphrases import ask_passphrase
from sealmail_client.profile import Home
from sealmail_client.progress import Nobody, Watcher
from sealmail_client.proxied import ProxiedBlocks
from sealmail_client.publishing import OwnBlocks, OwnKeyRevoked, Publisher
from sealmail_client.servers import Servers
from sealmail_client.settings import Locked, Settings
from sealmail_client.terms import FormerTerms, Terms
from sealmail_verify import Verifier

Clock = Callable[[], datetime]


def utc_now() -> datetime:
    """Return the present second."""
    return datetime.now(UTC).replace(microsecond=0)


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
        return Keyring(self.home.keyring, agent=self.settings.passphrase is Locked.AGENT)

    @cached_property
    def passphrase(self) -> str | None:
        """What opens the user's key, asked for once; ``None`` if it is not ours to know."""
        return self.ask() if self.settings.passphrase is Locked.PASSPHRASE else None

    @cached_property
    def servers(self) -> Servers:
        """The way to all servers."""
        accounts = [at for at, one in self.settings.places.items() if not one.entangled]
        auth_keys = {place: self.home.load_auth_key(place) for place in accounts}
        return Servers(self.settings, auth_keys, self.database, self.clock)

    @cached_property
    def domains(self) -> Domains:
        """The way from a domain to its servers."""
        return Domains(
            self.settings.connecting, self.database, self.clock, lambda: self.servers.home()
        )

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

    @property
    def terms(self) -> Terms:
        """What senders may go by: the present terms, and those of a while ago."""
        present = Terms((self.settings.price,), self.settings.mailboxes)
        return present.with_former(FormerTerms(self.database).still_valid(self.clock()))

    def require_valid_key(self) -> None:
        """Raise ``OwnKeyRevoked`` if the user has revoked his key."""
        if self.own_blocks.revoked:
            raise OwnKeyRevoked(self.settings.key_id)

    def change(self, settings: Settings) -> None:
        """Write other settings; parts that were made from the former ones are made anew."""
        self.home.save(settings)
        self.settings = settings
        for part in ("servers", "domains", "publisher"):
            self.__dict__.pop(part, None)

    @cached_property
    def correspondents(self) -> Correspondents:
        """The address book."""
        return Correspondents(self.database)

    @cached_property
    def bypass(self) -> BypassBook:
        """What lets known senders in without work."""
        return BypassBook(self.database)

    @cached_property
    def blocklist(self) -> Blocklist:
        """Whose mail is refused."""
        return Blocklist(self.database)

    @cached_property
    def outbox(self) -> Outbox:
        """Messages on their way."""
        return Outbox(self.database)

    @cached_property
    def proxied(self) -> ProxiedBlocks:
        """What the home server delivers."""
        return ProxiedBlocks(self.database)

    @cached_property
    def inbox(self) -> Inbox:
        """Messages that arrive."""
        return Inbox(self.database)

    @cached_property
    def folders(self) -> Folders:
        """Messages that are filed."""
        return Folders(self.database, self.home.mail, self.watcher)

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
    patience: float = 0.0,
) -> Iterator[Desk]:
    """Open a home; ``alone`` keeps other programs from working in it at the same time.

    One that works there already is waited for up to ``patience`` seconds.
    """
    settings = home.load()
    with ExitStack() as stack:
        if alone:
            stack.enter_context(home.locked(patience))
        desk = Desk(home, settings, HomeDatabase(home.database), clock, watcher or Nobody(), ask)
        stack.callback(desk.put_away)
        yield desk
