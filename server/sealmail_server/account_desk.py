"""Where accounts are made, changed and used: one desk for the wire, the operator and init."""

import logging
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from datetime import datetime

from sealmail_server import accounts
from sealmail_server.accounts import AccountState, new_auth_key
from sealmail_server.partnership import Partnership, has_role, is_shared
from sealmail_server.visitor import Visitor
from sealmail_store import Account, BlockStore, StoreError, WriteView
from sealmail_verify import Undecided

_log = logging.getLogger(__name__)


async def _nobody_waits(userid: str) -> None:
    """Stand for the judging of waiting mail where no server runs: it does so when it starts."""


def _nobody_is_here(auth_key_hash: bytes) -> None:
    """Stand for the ending of sessions where there are none."""


class AccountDesk:
    """Changes accounts durably, then tells who has to know.

    ``judge_waiting`` is told each userid that has gained a key, since mail may wait for it;
    ``end_logins`` the hash of each key that was disabled, since somebody may be logged in by it.
    """

    def __init__(
        self,
        store: BlockStore,
        clock: Callable[[], datetime],
        judge_waiting: Callable[[str], Awaitable[object]] = _nobody_waits,
        end_logins: Callable[[bytes], None] = _nobody_is_here,
        partnership: Partnership | None = None,
    ) -> None:
        self._store = store
        self._clock = clock
        self._judge_waiting = judge_waiting
        self._end_logins = end_logins
        self._partnership = partnership or Partnership()

    async def log_in(self, userid: str, auth_key: str) -> Visitor | None:
        """Return who has logged in, or ``None``."""
        now = self._clock()
        return await self._store.write(lambda view: accounts.log_in(view, userid, auth_key, now))

    async def is_confirmed(self, visitor: Visitor) -> bool:
        """Tell whether a login that was provisional has been confirmed by now."""
        confirmed = await self._store.read(lambda view: accounts.is_confirmed(view, visitor))
        if confirmed and visitor.userid:
            await self._judge(visitor.userid)
        return confirmed

    async def add(self, userid: str | None, auth_key: str) -> Account:
        """Give ``auth_key`` to ``userid`` or to its first user; may raise ``AccountRefused``."""
        now = self._clock()
        if len(auth_key) < accounts.SHORT_AUTH_KEY:
            _log.warning(
                "an account was made with a chosen auth key of fewer than %d characters",
                accounts.SHORT_AUTH_KEY,
            )

        def add(view: WriteView) -> Account:
            account = accounts.add_account(view, auth_key, userid, now)
            self._partnership.tell_account(view, account, now, auth_key)
            return account

        account = await self._store.write(add)
        if account.userid:
            await self._judge(account.userid)
        await self._told((account,))
        return account

    async def generate(self, count: int) -> tuple[str, ...]:
        """Make ``count`` accounts for whoever first logs in, and return their auth keys."""
        now = self._clock()
        keys = tuple(new_auth_key() for _ in range(count))

        def add_all(view: WriteView) -> list[Account]:
            made = []
            for key in keys:
                made.append(accounts.add_account(view, key, None, now))
                self._partnership.tell_account(view, made[-1], now, key)
            return made

        await self._told(await self._store.write(add_all))
        return keys

    async def remove(self, auth_key_hashes: Iterable[bytes]) -> tuple[Account, ...]:
        """Disable auth keys for good, and end the sessions that were opened with them."""
        return await self._disable(dict.fromkeys(auth_key_hashes, ""))

    async def remove_key(self, auth_key: str) -> tuple[Account, ...]:
        """Disable an auth key that is known itself, so that an original partner can be told."""
        return await self._disable({accounts.hash_auth_key(auth_key): auth_key})

    async def _disable(self, auth_keys: Mapping[bytes, str]) -> tuple[Account, ...]:
        now = self._clock()

        def disable_all(view: WriteView) -> tuple[Account, ...]:
            removed = []
            for auth_key_hash, auth_key in auth_keys.items():
                account = accounts.disable_account(view, auth_key_hash, now)
                if account is not None:
                    self._partnership.tell_account(view, account, now, auth_key)
                    removed.append(account)
            return tuple(removed)

        removed = await self._store.write(disable_all)
        self.end_logins(account.auth_key_hash for account in removed)
        await self._told(removed)
        return removed

    def end_logins(self, auth_key_hashes: Iterable[bytes]) -> None:
        """End the sessions that were opened with auth keys that serve no more."""
        for auth_key_hash in auth_key_hashes:
            self._end_logins(auth_key_hash)

    async def list(self) -> tuple[Account, ...]:
        """Return every account, ordered by userid."""
        return await self._store.read(lambda view: view.accounts())

    async def take_from_partner(self, userid: str, auth_key: str) -> None:
        """Merge an account change that the partner server made."""
        record = accounts.partner_record(userid, auth_key, self._clock())
        if record is None:
            _log.warning("the partner sent an account for %s, which is not taken", userid)
            return
        await self.merge(record)

    async def merge(self, record: Account) -> None:
        """Merge a record of the partner's; who is logged in by a key that changed hands goes."""
        if not is_shared(record):
            _log.warning("the partner sent an account for %s, which is not taken", record.userid)
            return
        before = await self._store.read(lambda view: view.account(record.auth_key_hash))
        if before is not None and has_role(before):
            _log.warning("the partner sent an account by the auth key of a role: it is not taken")
            return
        changed = await self._store.write(lambda view: accounts.merge_account(view, record))
        if not changed:
            return
        changed_hands = before is not None and before.userid not in (None, record.userid)
        if changed_hands or record.state == AccountState.DISABLED:
            self._end_logins(record.auth_key_hash)
        if record.userid and record.state == AccountState.CONFIRMED:
            await self._judge(record.userid)

    async def _told(self, changed: Collection[Account]) -> None:
        self._partnership.wake()
        await self._partnership.has_all([each.auth_key_hash for each in changed])

    async def _judge(self, userid: str) -> None:
        try:
            await self._judge_waiting(userid)
        except (StoreError, Undecided) as error:
            # The account stands; its mail waits on, and is judged again at the next start.
            _log.error("what waits for %s could not be judged: %s", userid, error)
