"""Making an identity: everything it needs, complete in its directory or not there at all."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime

from sealmail_client.connecting import DIRECTLY, Connecting
from sealmail_client.headers import address_in
from sealmail_client.home_database import HomeDatabase
from sealmail_client.household import Household, Member
from sealmail_client.keyring import Algorithm, Keyring
from sealmail_client.own_key import OwnKey
from sealmail_client.pin_book import PinBook
from sealmail_client.profile import Home
from sealmail_client.safe_files import write_private
from sealmail_client.settings import DEFAULT_PRICE, AuthKey, Locked, Settings
from sealmail_pow import Difficulty
from sealmail_protocol.addresses import ServerAddress, Transport
from sealmail_protocol.invitations import Invitation
from sealmail_protocol.keys import KeyId


@dataclass(frozen=True, slots=True)
class Account:
    """Where a user is at home: his servers, the key to them, and what they must show."""

    servers: tuple[ServerAddress, ...]
    auth_key: AuthKey
    pins: Mapping[ServerAddress, bytes] = field(default_factory=dict)

    @classmethod
    def invited(cls, invitation: Invitation) -> "Account":
        """Take up what an operator offers; his servers cannot be forged then."""
        return cls(
            tuple(server.address for server in invitation.servers),
            AuthKey(invitation.auth_key),
            {server.address: server.pin for server in invitation.servers},
        )

    def settle_in(self, home: Home, clock: Callable[[], datetime]) -> None:
        """Write the key to the account, and the pins before the first connection."""
        home.save_auth_key(self.auth_key)
        database = HomeDatabase(home.database)
        try:
            book = PinBook(database, clock)
            for address, pin in self.pins.items():
                book.accept(address, pin)
        finally:
            database.close()


@dataclass(frozen=True, slots=True)
class Doors:
    """Servers through which a user reaches the DHT, where he lives without an account."""

    servers: tuple[ServerAddress, ...]


# Where a user is at home.
Residence = Account | Doors


@dataclass(frozen=True, slots=True)
class Wish:
    """What a user says of the identity he wants."""

    name: str
    address: str
    residence: Residence
    price: Difficulty = DEFAULT_PRICE
    lock: Locked = Locked.PASSPHRASE
    allow_private_targets: bool = False
    connecting: Connecting = DIRECTLY
    dht: bool = False

    def settings(self, key_id: KeyId) -> Settings:
        """Return the settings for this identity with this key."""
        return Settings(
            key_id=key_id,
            name=self.name,
            address=self.address,
            transport=_transport(self.residence),
            doors=_doors(self.residence),
            price=self.price,
            passphrase=self.lock,
            allow_private_targets=self.allow_private_targets,
            connecting=self.connecting,
            dht=self.dht,
        )


def create_identity(
    household: Household,
    wish: Wish,
    passphrase: str | None,
    algorithm: Algorithm,
    clock: Callable[[], datetime],
) -> Member:
    """Make an identity with a new key; it is not published yet."""

    def make(keyring: Keyring) -> KeyId:
        return keyring.create(wish.name, wish.address, passphrase, algorithm)

    return _build(household, wish, passphrase, make, clock)


def import_identity(
    household: Household,
    wish: Wish,
    passphrase: str | None,
    secret_key: bytes,
    clock: Callable[[], datetime],
) -> Member:
    """Make an identity with the secret key that the user brings; it is not published yet.

    A key that does not carry the address gets a further name that does.
    """

    def take_in(keyring: Keyring) -> KeyId:
        key_id = OwnKey.take_in(keyring, secret_key, passphrase)
        own = OwnKey(keyring, key_id, passphrase)
        if wish.address not in map(address_in, own.user_ids()):
            own.add_user_id(wish.settings(key_id).user_id)
        return key_id

    return _build(household, wish, passphrase, take_in, clock)


def _build(
    household: Household,
    wish: Wish,
    passphrase: str | None,
    obtain: Callable[[Keyring], KeyId],
    clock: Callable[[], datetime],
) -> Member:
    with household.building() as home:
        keyring = Keyring(home.keyring, agent=wish.lock is Locked.AGENT)
        try:
            key_id = obtain(keyring)
            certificate = OwnKey(keyring, key_id, passphrase).revocation_certificate()
        finally:
            # Its sockets lie in a directory that is about to move.
            keyring.forget_passphrases()
        write_private(home.revocation_file, certificate.encode())
        if isinstance(wish.residence, Account):
            wish.residence.settle_in(home, clock)
        home.save(wish.settings(key_id))
        return household.admit(home)


def move_in(member: Member, residence: Residence, clock: Callable[[], datetime]) -> Member:
    """Give an identity that was never published another home: the first try was mistaken."""
    settings = replace(member.settings, transport=_transport(residence), doors=_doors(residence))
    if isinstance(residence, Account):
        residence.settle_in(member.home, clock)
    member.home.save(settings)
    return replace(member, settings=settings)


def _transport(residence: Residence) -> Transport:
    return Transport(residence.servers if isinstance(residence, Account) else ())


def _doors(residence: Residence) -> tuple[ServerAddress, ...]:
    return residence.servers if isinstance(residence, Doors) else ()
