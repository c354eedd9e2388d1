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
from sealmail_server.visitor import Visitor
from sealmail_store import Account, ReadView, WriteView

# A binding that nothing confirms must not keep a userid from its owner.
PROVISIONAL_FOR = timedelta(hours=1)
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


def hash_auth_key(auth_key: str) -> bytes:
    """Return what is kept of an auth key at rest."""
    return hashlib.sha256(_HASH_TAG + auth_key.encode("ascii")).digest()


def new_auth_key(random_bytes: Callable[[int], bytes] = secrets.token_bytes) -> str:
    """Return a fresh auth key of 160 bits."""
    return random_bytes(20).hex().upper()


def add_account(view: WriteView, auth_key: str, userid: str | None, now: datetime) -> AccountState:
    """Create the account of ``auth_key``: for ``userid``, or for who first logs in with it."""
    state = AccountState.CONFIRMED if userid else AccountState.UNDEFINED
    name = userid.upper() if userid else None
    view.put_account(Account(hash_auth_key(auth_key), name, state, now, now))
    return state


def is_user(view: ReadView, userid: str) -> bool:
    """Return whether a confirmed account of ``userid`` is here."""
    return any(account.state == AccountState.CONFIRMED for account in view.accounts(userid))


def log_in(view: WriteView, userid: str, auth_key: str, now: datetime) -> Visitor | None:
    """Return who has logged in, or ``None``; a first login binds an undefined key."""
    name = userid.upper()
    account = view.account(hash_auth_key(auth_key))
    if account is None:
        return None
    account = _lapsed(account, now)
    if account.state == AccountState.UNDEFINED and _may_bind(view, name, now):
        account = replace(account, userid=name, state=AccountState.PROVISIONAL, changed=now)
        view.put_account(account)
    if account.userid != name or account.state == AccountState.DISABLED:
        return None
    return Visitor(
        _SPECIAL_ROLES.get(name, Role.USER),
        name,
        confirmed=account.state == AccountState.CONFIRMED,
        logged_in_at=account.changed,
        account=account.auth_key_hash,
    )


def confirm(view: WriteView, visitor: Visitor, announced: datetime, now: datetime) -> bool:
    """Confirm a provisional binding by its user's key-announcement dated ``announced``."""
    account = view.account(visitor.account) if visitor.account else None
    if account is None or account.state != AccountState.PROVISIONAL:
        return False
    # An older announcement is public: anybody could replay it to take the userid over.
    if announced < account.changed.replace(microsecond=0):
        return False
    view.put_account(replace(account, state=AccountState.CONFIRMED, changed=now))
    return True


def _lapsed(account: Account, now: datetime) -> Account:
    expired = now - account.changed > PROVISIONAL_FOR
    if account.state == AccountState.PROVISIONAL and expired:
        return replace(account, userid=None, state=AccountState.UNDEFINED)
    return account


def _may_bind(view: ReadView, name: str, now: datetime) -> bool:
    if name in _SPECIAL_ROLES:
        return False
    held = (_lapsed(account, now) for account in view.accounts(name))
    return not any(account.userid == name for account in held)
