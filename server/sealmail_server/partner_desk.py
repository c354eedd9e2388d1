"""What the partner asks of this server, and how two servers become partners.

The first server offers a pairing code, which holds a one-time secret. The second one logs in
with that and says by ``PARTNER PAIR`` where it is, its pin, and the auth key that both use from
then on.
"""

import asyncio
import logging
from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path

from sealmail_net.dialing import DialSettings
from sealmail_net.errors import NetworkError
from sealmail_protocol.addresses import ServerAddress
from sealmail_protocol.commands import REPLICATION, PartnerAccount, PartnerList, PartnerPair
from sealmail_protocol.errors import ProtocolError
from sealmail_protocol.invitations import InvitedServer, PairingCode
from sealmail_protocol.replies import Word
from sealmail_server import accounts
from sealmail_server.account_desk import AccountDesk
from sealmail_server.accounts import AccountRefused, AccountState, hash_auth_key, new_auth_key
from sealmail_server.comparing import ask_partner_to_compare, list_names
from sealmail_server.config import set_settings
from sealmail_server.partner_lane import KeyRefused, call_on, is_original
from sealmail_server.partnership import (
    OFFER,
    UNBOUND,
    Partner,
    ask_for_comparison,
    is_stale_offer,
    keep_copies_of,
    named_account,
)
from sealmail_server.replication import Replication
from sealmail_server.visitor import Visitor
from sealmail_store import Account, BlockStore, ReadView, WriteView

_log = logging.getLogger(__name__)

# Long enough to walk over to the other machine.
OFFER_HOLDS = timedelta(hours=1)
# The auth key of the present pair, by its hash: the next pairing ends it.
_PAIR_ACCOUNT = "pairing-account"
# The partner that was agreed on, until it stands in config.toml too.
_UNWRITTEN = "pairing-unwritten"
_STATES = {str(each) for each in AccountState} - {str(AccountState.PROVISIONAL)}


class PairingFailed(Exception):
    """The two servers were not paired; the message says why."""


class PartnerDesk:
    """Serves the partner's commands, and pairs this server with another."""

    def __init__(
        self,
        directory: Path,
        store: BlockStore,
        desk: AccountDesk,
        replication: Replication,
        settings: DialSettings,
        clock: Callable[[], datetime],
        own_pin: Callable[[ServerAddress], bytes],
    ) -> None:
        """``own_pin`` is what is shown where this server is reached by an address."""
        self._directory = directory
        self._store = store
        self._desk = desk
        self._replication = replication
        self._settings = settings
        self._clock = clock
        self._own_pin = own_pin

    # What the partner asks.

    async def merge_account(self, command: PartnerAccount) -> bool:
        """Merge an account record; ``False`` if it says what none may."""
        userid, now = command.userid.upper(), self._clock()
        bound = None if userid == UNBOUND.upper() else userid
        if command.state not in _STATES or (bound is None and command.state == "confirmed"):
            return False
        await self._desk.merge(Account(command.key_hash, bound, command.state, now, now))
        return True

    async def list_names(self, command: PartnerList) -> tuple[str, ...]:
        """Return the lines that answer ``PARTNER LIST``."""
        return await self._store.read(lambda view: list_names(view, command.type, command.start))

    async def begin_comparing(self) -> None:
        """Look for what the partner lacks, since it asks for it."""
        await self._store.write(ask_for_comparison)

    async def accept(self, command: PartnerPair, visitor: Visitor) -> bool:
        """Become the partner of who knows the secret that was offered; once."""
        secret = hash_auth_key(command.secret)
        partner = Partner(command.address, command.auth_key, command.pin)
        try:
            if visitor.account != secret:
                raise PairingFailed("the secret is not that of the login")
            await self._become_partner_of(partner, secret)
        except (PairingFailed, AccountRefused) as error:
            _log.warning("PARTNER PAIR without an offer: %s", error)
            return False
        _log.warning("paired with %s", command.address)
        return True

    # Pairing.

    async def offer(self, address: ServerAddress) -> str:
        """Return a pairing code that holds for an hour, in the place of an earlier one."""
        secret, until = new_auth_key(), self._clock() + OFFER_HOLDS
        now = self._clock()

        def put(view: WriteView) -> list[bytes]:
            ended = _withdraw(view, OFFER, now)
            accounts.add_account(view, secret, REPLICATION, now)
            offered = hash_auth_key(secret).hex()
            view.put_setting(OFFER, f"{offered} {int(until.timestamp())}")
            return ended

        self._desk.end_logins(await self._store.write(put))
        return PairingCode(secret, InvitedServer(address, self._own_pin(address))).code()

    async def join(self, code: PairingCode, own_address: ServerAddress) -> None:
        """Become the partner of the server that offered ``code``; ``PairingFailed`` if not."""
        address, pin = code.server.address, code.server.pin
        if address == own_address or pin == self._own_pin(own_address):
            raise PairingFailed("this is this server's own code: give it to the other one")
        auth_key, now = new_auth_key(), self._clock()
        partner = Partner(address, auth_key, pin)
        # Ours first: the other side may come as soon as it has agreed.
        await self._store.write(
            lambda view: accounts.add_account(view, auth_key, REPLICATION, now)
        )
        try:
            await self._ask(Partner(address, code.secret, pin), auth_key, own_address)
        except (NetworkError, ProtocolError, PairingFailed) as error:
            await self._desk.remove((hash_auth_key(auth_key),))
            raise PairingFailed(str(error)) from error
        await self._become_partner_of(partner)

    async def compare_again(self) -> None:
        """Have both servers look for what the other lacks."""
        partner = self._replication.partner
        if partner is None:
            raise PairingFailed("this server has no partner: see 'sealmaild pair'")
        try:
            remote = await call_on(partner, self._settings)
            try:
                if await is_original(remote):
                    raise PairingFailed(
                        "the partner is an original, which cannot be compared with"
                    )
                await ask_partner_to_compare(remote)
            finally:
                await remote.hang_up()
        except (NetworkError, ProtocolError) as error:
            raise PairingFailed(str(error)) from error
        await self.begin_comparing()

    async def _ask(self, offered: Partner, auth_key: str, own_address: ServerAddress) -> None:
        try:
            remote = await call_on(offered, self._settings)
        except KeyRefused as error:
            raise PairingFailed(
                f"{error.address} does not take this code: it was used, is older than an hour, or "
                "was followed by a newer one; have 'sealmaild pair' print another one there"
            ) from error
        try:
            if await is_original(remote):
                raise PairingFailed(
                    "an original Confidant Mail server takes no code: "
                    "section 11 of docs/operations.md tells how to pair with one"
                )
            pin = self._own_pin(own_address)
            command = PartnerPair(offered.auth_key, pin, auth_key, own_address)
            if await remote.call(command) is not Word.DONE:
                raise PairingFailed("the other server declined: ask for a new code")
        finally:
            await remote.hang_up()

    async def _become_partner_of(self, partner: Partner, secret: bytes | None = None) -> None:
        """Write everything down, then begin; what is here already will be compared.

        Who names the ``secret`` of an offer needs one that holds: it serves in the same unit of
        work. Who was logged in by it, or as the former partner, is so no more.
        """
        now, known_by = self._clock(), hash_auth_key(partner.auth_key)

        def agree(view: WriteView) -> list[bytes]:
            if secret is not None and not _is_offered(view, secret, now):
                raise PairingFailed("this code is unknown or has expired: make another one")
            ended = _withdraw(view, OFFER, now) + _withdraw(view, _PAIR_ACCOUNT, now)
            accounts.add_account(view, partner.auth_key, REPLICATION, now)
            view.put_setting(_PAIR_ACCOUNT, known_by.hex())
            words = (str(partner.address), partner.auth_key, partner.pin.hex())
            view.put_setting(_UNWRITTEN, " ".join(words))
            ask_for_comparison(view)
            keep_copies_of(view, partner)
            return ended

        self._desk.end_logins(await self._store.write(agree))
        await write_down_pairing(self._directory, self._store)
        await self._replication.pair_with(partner)


async def write_down_pairing(directory: Path, store: BlockStore) -> Partner | None:
    """Write the partner that was agreed on into ``config.toml``, if it is not there yet.

    Returns the partner, ``None`` if there was nothing to write. A server begins with it: a stop
    may have come between the two.
    """
    text = await store.read(lambda view: view.setting(_UNWRITTEN))
    if text is None:
        return None
    address, auth_key, pin = text.split(" ")
    await asyncio.to_thread(
        set_settings, directory, partner=address, partner_auth_key=auth_key, partner_pin=pin
    )
    await store.write(lambda view: view.remove_setting(_UNWRITTEN))
    return Partner(ServerAddress.parse(address), auth_key, bytes.fromhex(pin))


def _is_offered(view: ReadView, secret: bytes, now: datetime) -> bool:
    return named_account(view, OFFER) == secret and not is_stale_offer(view, secret, now)


def _withdraw(view: WriteView, setting: str, now: datetime) -> list[bytes]:
    """Disable the auth key that a setting names, forget the setting, and return the key's hash."""
    known_by = named_account(view, setting)
    if known_by is None:
        return []
    accounts.disable_account(view, known_by, now)
    view.remove_setting(setting)
    return [known_by]
