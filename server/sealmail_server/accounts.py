"""Who may log in: auth keys known by their hash, bound to userids.

docs/protocol.md §5. ``undefined`` keys bind themselves to the userid of their first login,
provisionally, until that user's own key-announcement, newer than the login, confirms it.
"""

import hashlib
import secrets
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timedelta
from enum import StrEnum

from sealmail_protocol.commands import ADMINISTRATOR, REPLICATION
from sealmail_protocol.policy import Role
from sealmail_server.partnership import OFFER, is_stale_offer, named_account
from sealmail_server.visitor import Visitor
from sealmail_store import Account, ReadView, WriteView

# A binding that nothing confirms must not keep a userid from its owner.
PROVISIONAL_FOR = timedelta(hours=1)
# A chosen key that is shorter can be found from its hash by trying.
SHORT_AUTH_KEY = 20
_HASH_TAG = b"sealmail auth key\0"
_SPECIAL_ROLES = {
    ADMINISTRATOR.upper(): Role.ADMINISTRATOR,
    REPLICATION.upper(): Role.REPLICATION,
}


class AccountState(StrEnum):
    """How far an auth key belongs to a userid."""

    UNDEFINED = "undefined"
    PROVISIONAL = "provisional"
    CONFIRMED = "confirmed"
    DISABLED = "disabled"


# What a record of one auth key is worth against another of the same key, the best first.
_STANDING = (
    AccountState.DISABLED,
    AccountState.CONFIRMED,
    AccountState.PROVISIONAL,
    AccountState.UNDEFINED,
)
# Words that partners write in the place of a userid; nobody can have them as his.
_STATE_WORDS = {
    AccountState.UNDEFINED.upper(): AccountState.UNDEFINED,
    AccountState.DISABLED.upper(): AccountState.DISABLED,
}


class AccountRefused(Exception):
    """The account cannot be made or changed that way; the message says why and what to do."""


def hash_auth_key(auth_key: str) -> bytes:
    """Return what is kept of an auth key at rest."""
    return hashlib.sha256(_HASH_TAG + auth_key.encode("ascii")).digest()


def new_auth_key(random_bytes: Callable[[int], bytes] = secrets.token_bytes) -> str:
    """Return a fresh auth key of 160 bits."""
    return random_bytes(20).hex().upper()


def merge_accounts(one: Account, other: Account) -> Account:
    """Return what two records of one auth key amount to, whatever their order.

    Disabled is final, a confirmed binding beats a provisional one and that an unbound key; of
    two alike the lower userid stays. The better record stays as it is: the choice is the
    minimum of a total order, so that replicas agree however changes reach them.
    """
    return min(one, other, key=_rank)


def add_account(view: WriteView, auth_key: str, userid: str | None, now: datetime) -> Account:
    """Give ``auth_key`` to ``userid``, or to who first logs in with it.

    Asking for what is there already is no error; ``AccountRefused`` if the key is disabled or
    somebody's already.
    """
    name = userid.upper() if userid else None
    if name in _STATE_WORDS:
        raise AccountRefused(f"{name} is a word for a state, and nobody's userid")
    state = AccountState.CONFIRMED if name else AccountState.UNDEFINED
    asked = Account(hash_auth_key(auth_key), name, state, now, now)
    held = view.account(asked.auth_key_hash)
    if held is None:
        view.put_account(asked)
        return asked
    held = _lapsed(held, now)
    if (held.state, held.userid) == (asked.state, asked.userid):
        return held
    if held.state == AccountState.DISABLED:
        raise AccountRefused("this auth key was removed, which is final: make a new one")
    if held.state == AccountState.CONFIRMED or asked.state == AccountState.UNDEFINED:
        raise AccountRefused("this auth key belongs to somebody already: make a new one")
    bound = replace(held, userid=name, state=state, changed=now)
    view.put_account(bound)
    return bound


def merge_account(view: WriteView, record: Account) -> bool:
    """Merge a partner's record of an auth key into ours; tell whether anything changed."""
    held = view.account(record.auth_key_hash)
    merged = record if held is None else merge_accounts(held, record)
    if merged == held:
        return False
    view.put_account(merged)
    return True


def partner_record(userid: str, auth_key: str, now: datetime) -> Account | None:
    """Read the account change of a REPLOGIN; ``None`` if it names a role, which none may."""
    name = userid.upper()
    if name in _SPECIAL_ROLES:
        return None
    state = _STATE_WORDS.get(name, AccountState.CONFIRMED)
    bound = name if name not in _STATE_WORDS else None
    return Account(hash_auth_key(auth_key), bound, state, now, now)


def disable_account(view: WriteView, auth_key_hash: bytes, now: datetime) -> Account | None:
    """Disable an auth key for good; ``None`` if it is not known.

    The record stays with its userid: an undefined key cannot take the name over. A name that
    was bound provisionally was nobody's, and is free again.
    """
    held = view.account(auth_key_hash)
    if held is None or held.state == AccountState.DISABLED:
        return held
    userid = None if held.state == AccountState.PROVISIONAL else held.userid
    disabled = replace(held, userid=userid, state=AccountState.DISABLED, changed=now)
    view.put_account(disabled)
    return disabled


def is_user(view: ReadView, userid: str) -> bool:
    """Return whether a confirmed account of ``userid`` is here."""
    return any(account.state == AccountState.CONFIRMED for account in view.accounts(userid))


def is_confirmed(view: ReadView, visitor: Visitor) -> bool:
    """Return whether the very key that ``visitor`` logged in with is confirmed as his by now."""
    account = view.account(visitor.account) if visitor.account else None
    return (
        account is not None
        and account.state == AccountState.CONFIRMED
        and account.userid == visitor.userid
    )


def log_in(view: WriteView, userid: str, auth_key: str, now: datetime) -> Visitor | None:
    """Return who has logged in, or ``None``; a first login binds an undefined key."""
    name = userid.upper()
    account = view.account(hash_auth_key(auth_key))
    if account is None or is_stale_offer(view, account.auth_key_hash, now):
        return None
    account = _lapsed(account, now)
    if account.state == AccountState.UNDEFINED and _may_bind(view, name):
        account = replace(account, userid=name, state=AccountState.PROVISIONAL, changed=now)
        view.put_account(account)
    if account.userid != name or account.state == AccountState.DISABLED:
        return None
    return Visitor(
        _SPECIAL_ROLES.get(name, Role.USER),
        name,
        confirmed=account.state == AccountState.CONFIRMED
        and named_account(view, OFFER) != account.auth_key_hash,
        account=account.auth_key_hash,
    )


def confirm(
    view: WriteView, visitor: Visitor, announced: datetime, now: datetime
) -> Account | None:
    """Confirm a provisional binding by its user's key-announcement dated ``announced``.

    Return the account if that is what has happened.
    """
    account = view.account(visitor.account) if visitor.account else None
    if account is None or account.state != AccountState.PROVISIONAL:
        return None
    # The connection may be older than the binding: the key may be another userid's by now.
    if account.userid != visitor.userid or _lapsed(account, now) != account:
        return None
    # Once the user has a key that was proven, announcements are his, and anybody may copy them.
    if is_user(view, account.userid or ""):
        return None
    # An older announcement is public: anybody could replay it to take the userid over.
    if announced < account.changed.replace(microsecond=0):
        return None
    confirmed = replace(account, state=AccountState.CONFIRMED, changed=now)
    view.put_account(confirmed)
    return confirmed


def _rank(account: Account) -> tuple[int, bool, str, datetime, datetime]:
    standing = _STANDING.index(AccountState(account.state))
    unbound = account.userid is None
    return standing, unbound, account.userid or "", account.changed, account.created


def _lapsed(account: Account, now: datetime) -> Account:
    expired = now - account.changed > PROVISIONAL_FOR
    if account.state == AccountState.PROVISIONAL and expired:
        return replace(account, userid=None, state=AccountState.UNDEFINED)
    return account


def _may_bind(view: ReadView, name: str) -> bool:
    """Tell whether a userid is free: another's binding that nothing has proven keeps nobody out.

    Or who has one undefined key could keep any userid from its owner, an hour at a time.
    """
    if name in _SPECIAL_ROLES or name in _STATE_WORDS:
        return False
    return all(account.state == AccountState.PROVISIONAL for account in view.accounts(name))
