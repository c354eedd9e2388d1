"""From an address or key id that a user types to a key that mail can be sealed to."""

from collections.abc import Sequence
from datetime import timedelta

from sealmail_client.desk import Desk
from sealmail_client.drafts import Addressee
from sealmail_client.errors import ClientError
from sealmail_client.headers import address_in
from sealmail_client.key_lookup import FoundKey
from sealmail_client.key_sources import (
    DNS_PREFIX,
    DhtSource,
    DomainSource,
    KeySearch,
    KeySource,
    ProxiedSource,
    ServerSource,
    Sighting,
    union,
)
from sealmail_client.settings import Delivery
from sealmail_net.errors import NetworkError
from sealmail_protocol.addresses import ServerAddress, Transport, normal_address
from sealmail_protocol.blocks import KeyAnnouncement
from sealmail_protocol.dates import format_date
from sealmail_protocol.keys import KeyId
from sealmail_verify import Undecided

# Older announcements may hide a new price, other servers or a revocation, whatever they promise.
RENEW_AFTER = timedelta(days=7)


class KeyNotFound(ClientError):
    """No server that was asked knows a key for this address: name the right one by --server."""

    exit_code = 20


class Addressing:
    """Finds keys, keeps what it learns in the address book, and prepares keys for sealing.

    What made a source or a key doubtful is in ``doubts``, for the user to read.
    """

    def __init__(self, desk: Desk) -> None:
        self._desk = desk
        self.doubts: list[str] = []

    async def find(
        self, address: str, servers: Sequence[ServerAddress] = ()
    ) -> tuple[FoundKey, ...]:
        """Ask for the keys that claim ``address``: ``servers``, else home group and its domain."""
        address = normal_address(address)
        sources = self._named(servers) or self._at_large(address)
        return union(await self._sought(address, sources, at_large=not servers))

    async def find_by_id(
        self, key_id: KeyId, servers: Sequence[ServerAddress] = ()
    ) -> FoundKey | None:
        """Ask each of ``servers``, else the home group, for the announcement of ``key_id``."""
        sources = self._named(servers) or [*self._home(), *self._in_dht()]
        return await self._announced(key_id, KeySearch(sources))

    async def addressee(self, address: str, servers: Sequence[ServerAddress] = ()) -> Addressee:
        """Return whom to seal to, looking the key up if it is unknown or out of date.

        ``KeyUndecided`` and ``KeyRevoked`` tell what stands against it.
        """
        address = normal_address(address)
        book = self._desk.correspondents
        if book.trusted_key(address) is None:
            # Never where those are at home who merely call themselves so: anybody may write to us
            # under any name, and would choose then where we look, and what we find.
            sources = self._named(servers) or self._at_large(address)
            await self._sought(address, sources, at_large=not servers)
        key_id = self._chosen(address)
        held = book.announcement(key_id)
        if held is None or self._stale(held):
            await self._renew(address, key_id, held, servers)
            key_id = self._chosen(address)
            held = self._usable(key_id)
        return Addressee(address, key_id, held.user_id)

    async def addressee_by_key(
        self, key_id: KeyId, servers: Sequence[ServerAddress] = ()
    ) -> Addressee:
        """Return the owner of a key that the user names himself, whatever address it claims."""
        held = self._desk.correspondents.announcement(key_id)
        if held is None or self._stale(held):
            search = KeySearch([*self._sources(held, "", servers), *self._in_dht(held)])
            try:
                await self._announced(key_id, search, renew=True)
            except NetworkError as error:
                self._go_on_with(held, error)
            held = self._usable(key_id)
        return Addressee(address_in(held.user_id) or str(key_id), key_id, held.user_id)

    async def refresh(self, key_id: KeyId) -> None:
        """Fetch the announcement of a key again, whatever its age; what is held may stay."""
        held = self._desk.correspondents.announcement(key_id)
        sources = [*self._sources(held, "", ()), *self._in_dht(held)]
        try:
            await self._announced(key_id, KeySearch(sources), renew=True)
        except (NetworkError, Undecided) as error:
            self.doubts.append(str(error))

    # Keys that are known.

    async def _renew(
        self,
        address: str,
        key_id: KeyId,
        held: KeyAnnouncement | None,
        servers: Sequence[ServerAddress],
    ) -> None:
        """Fetch claims and announcement again; nobody to ask is no reason not to write."""
        book = self._desk.correspondents
        seen_at = next(key.seen_at for key in book.known(address) if key.key_id == key_id)
        sources = self._sources(held, seen_at, servers)
        try:
            sightings = await self._sightings(address, KeySearch(sources), renewing=key_id)
            if all(key_id not in _ids(sighting) for sighting in sightings):
                by_id = KeySearch([*sources, *self._in_dht(held)])
                await self._announced(key_id, by_id, renew=True)
                self._judge_silence(address, key_id, seen_at, sightings)
        except NetworkError as error:
            self._go_on_with(held, error)

    def _judge_silence(
        self, address: str, key_id: KeyId, seen_at: str, sightings: Sequence[Sighting]
    ) -> None:
        """Notice a claim that is gone from where it was, although its owner is about.

        An owner who is away lets key and claim lapse alike, and other servers never had it.
        """
        held = self._desk.correspondents.newest(key_id)
        about = held is not None and not self._stale(held)
        if about and seen_at in {sighting.source for sighting in sightings}:
            self._desk.correspondents.miss_claim(address, key_id)

    def _chosen(self, address: str) -> KeyId:
        book = self._desk.correspondents
        key_id = book.trusted_key(address)
        if key_id is not None:
            return key_id
        for known in book.known(address):
            book.refuse_revoked(known.key_id)
        raise KeyNotFound(
            f"no key for {address} was found{self._doubtful()}: ask its owner for the server, "
            f"and name it by --server HOST:PORT{self._self_styled(address)}"
        )

    def _self_styled(self, address: str) -> str:
        """Return how to write to those who call themselves ``address``, if there are any."""
        keys = ", ".join(map(str, self._desk.correspondents.keys_naming(address)))
        return (
            f"; somebody who says that he is {address} has the key {keys}: `sealmail reply` "
            "answers his mail, and --key KEYID writes to him, whoever he is"
            if keys
            else ""
        )

    def _usable(self, key_id: KeyId) -> KeyAnnouncement:
        announcement = self._desk.correspondents.announcement(key_id)
        if announcement is None:
            raise KeyNotFound(f"the key {key_id} was not found{self._doubtful()}")
        if self._stale(announcement):
            date = format_date(announcement.date)
            self.doubts.append(f"{announcement.user_id} has not renewed his key since {date}")
        return announcement

    def _stale(self, announcement: KeyAnnouncement) -> bool:
        now = self._desk.clock()
        return announcement.expires < now or now - announcement.date > RENEW_AFTER

    def _go_on_with(self, held: KeyAnnouncement | None, error: NetworkError) -> None:
        """Be content with an old announcement: its owner's server may be away for a while."""
        if held is None:
            raise error
        self.doubts.append(str(error))

    # Asking, and taking note.

    async def _sought(
        self, address: str, sources: Sequence[KeySource], *, at_large: bool
    ) -> tuple[Sighting, ...]:
        """Ask for claims; in the DHT only if nobody else has one, and has said so.

        Anybody can claim an address there: such a rival must not stop mail to a known one, nor
        take the place of one whose server or zone was made to say nothing.
        """
        further = self._in_dht() if at_large else []
        search = KeySearch(sources)
        try:
            sightings = await self._sightings(address, search)
        except NetworkError:
            if not further or self._silent(address, search):
                raise
            sightings = ()
        if any(one.keys for one in sightings) or not further:
            return sightings
        if silent := self._silent(address, search):
            self.doubts.append(
                f"the DHT, where anybody can claim an address, is asked when {silent} answers"
            )
            return sightings
        return await self._sightings(address, KeySearch(further))

    def _silent(self, address: str, search: KeySearch) -> str:
        """Return which of those who should know ``address`` did not answer.

        A server that only a stranger's mail names is none of them.
        """
        names = [source.name for source in self._at_large(address)]
        return " and ".join(name for name in names if name in search.unreached)

    async def _sightings(
        self, address: str, search: KeySearch, renewing: KeyId | None = None
    ) -> tuple[Sighting, ...]:
        def enough(sighting: Sighting) -> bool:
            return any(
                found.key_id == renewing and not self._stale(found.announcement)
                for found in sighting.keys
            )

        try:
            sightings = await search.by_address(address, enough)
        finally:
            self.doubts += search.doubts
        # All at once: keys of different sources are rivals too.
        sources = {key_id: one.source for one in reversed(sightings) for key_id in _ids(one)}
        vouched = {key_id for one in sightings if one.vouched for key_id in _ids(one)}
        self._desk.correspondents.learn(
            address, union(sightings), self._desk.clock(), sources, vouched
        )
        return sightings

    async def _announced(
        self, key_id: KeyId, search: KeySearch, *, renew: bool = False
    ) -> FoundKey | None:
        def enough(sighting: Sighting) -> bool:
            return renew and any(not self._stale(found.announcement) for found in sighting.keys)

        try:
            sightings = await search.by_key_id(key_id, enough)
        finally:
            self.doubts += search.doubts
        found = next(iter(union(sightings)), None)
        if found is not None:
            self._desk.correspondents.remember(found)
        return found

    # Where to ask.

    def _named(self, servers: Sequence[ServerAddress]) -> list[KeySource]:
        """Return the servers that the user names, each by itself."""
        return [self._at(Transport((server,))) for server in servers]

    def _at_large(self, address: str) -> list[KeySource]:
        """Return where a stranger is sought: in the home group, and where his domain says."""
        sources = self._home()
        if self._desk.domains.in_use:
            sources.append(self._domain(address.rpartition("@")[2]))
        return sources

    def _sources(
        self, held: KeyAnnouncement | None, seen_at: str, servers: Sequence[ServerAddress]
    ) -> list[KeySource]:
        """Return where a known key may have news: as named, at its own servers, at home.

        Not in the DHT: there it is sought by its id alone, since anybody can claim its address.
        """
        sources = self._named(servers)
        if held is not None and not held.transport.entangled:
            sources.append(self._at(held.transport))
        if seen_at.startswith(DNS_PREFIX):
            sources.append(self._domain(seen_at.removeprefix(DNS_PREFIX)))
        elif seen_at and seen_at != str(Transport()):
            sources.append(self._at(Transport.parse(seen_at)))
        return [*sources, *self._home()]

    def _home(self) -> list[KeySource]:
        """Return the home group, if there is one."""
        settings = self._desk.settings
        return [self._at(settings.transport)] if settings.has_account else []

    def _in_dht(self, held: KeyAnnouncement | None = None) -> list[KeySource]:
        """Return the DHT, if the user wants it, or he or the owner of a known key lives there."""
        desk = self._desk
        there = held is not None and held.transport.entangled
        if not (desk.settings.dht or there or not desk.settings.has_account):
            return []
        return [DhtSource(desk.servers.in_dht, desk.verifier, desk.clock)]

    def _at(self, transport: Transport, signed: bool = False) -> KeySource:
        """Return who asks a group: we, or the home server if that is to deliver our mail too.

        ``signed``: the domain asked for names it, as DNSSEC has proven.
        """
        desk = self._desk
        if transport.entangled:
            return DhtSource(desk.servers.in_dht, desk.verifier, desk.clock)
        if desk.settings.send is Delivery.DIRECT or transport == desk.settings.transport:
            return ServerSource(transport, desk.servers.look_up, desk.verifier, desk.clock, signed)
        return ProxiedSource(transport, desk.servers.at_home, desk.verifier, desk.clock)

    def _domain(self, domain: str) -> KeySource:
        return DomainSource(domain, self._desk.domains.servers_of, self._at)

    def _doubtful(self) -> str:
        return f" ({'; '.join(self.doubts)})" if self.doubts else ""


def _ids(sighting: Sighting) -> set[KeyId]:
    return {found.key_id for found in sighting.keys}
