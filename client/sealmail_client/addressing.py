"""From an address that a user types to a key that mail can be sealed to."""

from collections.abc import Sequence

from sealmail_client.desk import Desk
from sealmail_client.drafts import Addressee
from sealmail_client.errors import ClientError
from sealmail_client.key_lookup import FoundKey, KeyLookup
from sealmail_net.errors import NetworkError, NoServerReached
from sealmail_protocol.addresses import ServerAddress, normal_address
from sealmail_protocol.blocks import KeyAnnouncement
from sealmail_protocol.keys import KeyId


class KeyNotFound(ClientError):
    """No server that was asked knows a key for this address: name the right one by --server."""

    exit_code = 20


class Addressing:
    """Finds keys, keeps what it learns in the address book, and prepares keys for sealing."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk
        self.doubts: list[str] = []

    async def find(
        self, address: str, servers: Sequence[ServerAddress] = ()
    ) -> tuple[FoundKey, ...]:
        """Ask ``servers`` one after the other, else the home group, for keys of ``address``.

        The first that knows a key is believed; ``NetworkError`` if none could be asked.
        """
        address = normal_address(address)
        unreached: list[NetworkError] = []
        groups: list[Sequence[ServerAddress]] = [(server,) for server in servers] or [self._home]
        for group in groups:
            try:
                found = await self._ask(address, group)
            except NetworkError as error:
                unreached.append(error)
                continue
            if found:
                self._desk.correspondents.learn(address, found, self._desk.clock())
                return found
        if len(unreached) == len(groups):
            raise NoServerReached(unreached)
        self.doubts += map(str, unreached)
        return ()

    async def _ask(self, address: str, group: Sequence[ServerAddress]) -> tuple[FoundKey, ...]:
        async with self._desk.servers.look_up(group) as peer:
            lookup = KeyLookup(peer.server, self._desk.verifier, self._desk.clock())
            found = await lookup.by_address(address)
        self.doubts += lookup.doubts
        return found

    async def find_by_id(
        self, key_id: KeyId, servers: Sequence[ServerAddress] = ()
    ) -> FoundKey | None:
        """Ask one of ``servers``, else the home group, for the announcement of ``key_id``."""
        async with self._desk.servers.look_up(servers or self._home) as peer:
            lookup = KeyLookup(peer.server, self._desk.verifier, self._desk.clock())
            found = await lookup.by_key_id(key_id)
        self.doubts += lookup.doubts
        if found is not None:
            self._desk.correspondents.remember(found)
        return found

    async def addressee(self, address: str, servers: Sequence[ServerAddress] = ()) -> Addressee:
        """Return whom to seal to, looking the key up if it is unknown or out of date."""
        address = normal_address(address)
        key_id = self._desk.correspondents.trusted_key(address)
        if key_id is None:
            await self.find(address, servers)
            key_id = self._desk.correspondents.trusted_key(address)
        if key_id is None:
            raise KeyNotFound(
                f"no key for {address} was found{self._doubtful()}: ask its owner for the server, "
                "and name it by --server HOST:PORT"
            )
        announcement = await self._fresh(key_id, servers)
        return Addressee(address, key_id, announcement.user_id)

    async def _fresh(self, key_id: KeyId, servers: Sequence[ServerAddress]) -> KeyAnnouncement:
        """Return an announcement of the key that is not past its Expires date, if it can be had.

        One that is past it still serves when nobody can be asked: its owner may be away.
        """
        held = self._desk.correspondents.announcement(key_id)
        if held is None or held.expires < self._desk.clock():
            known = held.transport.servers if held is not None else ()
            try:
                await self.find_by_id(key_id, servers or known)
            except NetworkError as error:
                if held is None:
                    raise
                self.doubts.append(f"the announcement of {key_id} is old ({error})")
        announcement = self._desk.correspondents.announcement(key_id)
        if announcement is None:
            raise KeyNotFound(f"the key {key_id} was not found{self._doubtful()}")
        return announcement

    @property
    def _home(self) -> Sequence[ServerAddress]:
        return self._desk.settings.transport.servers

    def _doubtful(self) -> str:
        return f" ({'; '.join(self.doubts)})" if self.doubts else ""
