"""Where accounts are made, changed and used: one desk for the wire, the operator and init."""

import logging
from collections.abc import Awaitable, Callable, Iterable
from datetime import datetime

from sealmail_server import accounts
from sealmail_server.accounts import AccountState, new_auth_key
from sealmail_server.visitor import Visitor
from sealmail_store import Account, BlockStore, StoreError, WriteView
from sealmail_verify import Undecided

_log = logging.getLogger(__name__)

_CONFIRMED = AccountState.CONFIRMED


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
    ) -> None:
        self._store = store
        self._clock = clock
        self._judge_waiting = judge_waiting
        self._end_logins = end_logins

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
        account = await self._store.write(
            lambda view: accounts.add_account(view, auth_key, userid, now)
        )
        if account.userid:
            await self._judge(account.userid)
        return account

    async def generate(self, count: int) -> tuple[str, ...]:
        """Make ``count`` accounts for whoever first logs in, and return their auth keys."""
        now = self._clock()
        keys = tuple(new_auth_key() for _ in range(count))

        def add_all(view: WriteView) -> None:
            for key in keys:
                accounts.add_account(view, key, None, now)

        await self._store.write(add_all)
        return keys

    async def remove(self, auth_key_hashes: Iterable[bytes]) -> tuple[Account, ...]:
        """Disable auth keys for good, and end the sessions that were opened with them."""
        now, hashes = self._clock(), tuple(auth_key_hashes)

        def disable_all(view: WriteView) -> tuple[Account, ...]:
            found = (accounts.disable_account(view, each, now) for each in hashes)
            return tuple(account for account in found if account is not None)

        removed = await self._store.write(disable_all)
        for account in removed:
            self._end_logins(account.auth_key_hash)
        return removed

    async def judge_all_waiting(self) -> None:
        """Judge what waits for accounts that came while no server was running."""
        users = {each.userid for each in await self.list() if each.state == _CONFIRMED}
        for userid in filter(None, users):
            await self._judge(userid)

    async def list(self) -> tuple[Account, ...]:
        """Return every account, ordered by userid."""
        return await self._store.read(lambda view: view.accounts())

    async def take_from_partner(self, userid: str, auth_key: str) -> None:
        """Merge an account change that the partner server made."""
        record = accounts.partner_record(userid, auth_key, self._clock())
        if record is None:
            _log.warning("the partner sent an account for %s, which is not taken", userid)
            return
        changed = await self._store.write(lambda view: accounts.merge_account(view, record))
        if changed and record.state == AccountState.DISABLED:
            self._end_logins(record.auth_key_hash)
        elif changed and record.userid:
            await self._judge(record.userid)

    async def _judge(self, userid: str) -> None:
        try:
            await self._judge_waiting(userid)
        except (StoreError, Undecided) as error:
            # The account stands; its mail waits on, and is judged again at the next start.
            _log.error("what waits for %s could not be judged: %s", userid, error)
