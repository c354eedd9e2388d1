"""Why nothing is sent to an address until its user has decided: each case told in one text."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from sealmail_client.errors import ClientError
from sealmail_client.headers import address_in
from sealmail_protocol.dates import format_date
from sealmail_protocol.keys import KeyId

# The standing of a key that was never seen to claim its address.
NOT_KNOWN = "not in the address book"


class Decision(StrEnum):
    """What is thought of a key for an address."""

    VERIFIED = "verified"  # the user compared the fingerprint with its owner
    TRUSTED = "trusted"  # the first one seen, or the user's word
    UNDECIDED = "undecided"
    REJECTED = "rejected"

    @property
    def chosen(self) -> bool:
        """Return whether mail to the address is sealed to this key."""
        return self in (Decision.VERIFIED, Decision.TRUSTED)


class Mark(StrEnum):
    """What speaks for a key, for people to see; the rungs of a ladder."""

    PINNED = "pinned"  # the first one seen, or the user's word: no other takes its place unseen
    DOMAIN_VERIFIED = "domain-verified"  # a CA's word: its domain's server gave it
    VERIFIED_IN_PERSON = "verified in person"  # the user compared the fingerprint with its owner


class Change(StrEnum):
    """What a chosen key no longer does, and the user has not yet agreed to."""

    NONE = ""
    UNCLAIMED = "unclaimed"  # it is still announced, but does not claim the address
    MOVED = "moved"  # its user id names another address


@dataclass(frozen=True, slots=True)
class KnownKey:
    """A key that was seen to claim an address; ``user_id`` is what its owner calls himself."""

    address: str
    key_id: KeyId
    decision: Decision
    first_seen: datetime
    last_seen: datetime
    seen_at: str = ""
    change: Change = Change.NONE
    user_id: str = ""
    revoked: bool = False
    domain_verified: datetime | None = None  # when a server of its domain last proved to be that

    @property
    def marks(self) -> tuple[Mark, ...]:
        """Return what speaks for the key, the weakest first; nothing does for a revoked one."""
        held = {
            Mark.PINNED: self.decision.chosen,
            Mark.DOMAIN_VERIFIED: self.domain_verified is not None,
            Mark.VERIFIED_IN_PERSON: self.decision is Decision.VERIFIED,
        }
        return tuple(mark for mark, earned in held.items() if earned and not self.revoked)

    @property
    def standing(self) -> str:
        """Return in a few words how far the key can be relied on."""
        if self.revoked:
            return "revoked"
        words = [str(mark) for mark in self.marks]
        if not self.decision.chosen:
            words.insert(0, str(self.decision))
        return ", ".join([*words, str(self.change)] if self.change else words)


def standing_of(known: Sequence[KnownKey]) -> str:
    """Return in a few words how far one key can be relied on, for each address if they differ."""
    standings = {one.standing for one in known}
    if len(standings) > 1:
        return "; ".join(f"{one.address}: {one.standing}" for one in known)
    return standings.pop() if standings else NOT_KNOWN


def marks_of(known: Sequence[KnownKey]) -> list[str]:
    """Return the marks that one key has for each of its addresses, the weakest first."""
    return [str(mark) for mark in Mark if known and all(mark in one.marks for one in known)]


class KeyUndecided(ClientError):
    """It is unclear which key belongs to an address: compare fingerprints, then decide."""

    exit_code = 22

    def __init__(self, address: str, known: Sequence[KnownKey]) -> None:
        super().__init__(f"{_what_happened(address, known)}\n{_way_out(address, known)}")
        self.address = address
        self.known = tuple(known)


class KeyRevoked(ClientError):
    """The key is revoked by its owner: nothing is sealed to it any more."""

    exit_code = 6


def undecided(known: Sequence[KnownKey]) -> bool:
    """Return whether what is known of one address stops mail to it."""
    return any(
        key.decision is Decision.UNDECIDED or (key.decision.chosen and key.change)
        for key in known
        if not key.revoked
    )


def _what_happened(address: str, known: Sequence[KnownKey]) -> str:
    chosen = next((key for key in known if key.decision.chosen), None)
    rivals = [key for key in known if key.decision is Decision.UNDECIDED and not key.revoked]
    listed = "".join(f"\n  {key.key_id} ({_seen(key)})" for key in known)
    if chosen is None:
        return f"it is not decided which key belongs to {address}:{listed}"
    if not rivals:
        return _CHANGED[chosen.change](chosen)
    if chosen.revoked:
        return f"the key of {address} is revoked, and another one claims the address:{listed}"
    if all(rival.last_seen > chosen.last_seen for rival in rivals):
        return f"the key of {address} has changed:{listed}"
    return f"another key than the known one claims {address} too:{listed}"


def _way_out(address: str, known: Sequence[KnownKey]) -> str:
    rivals = [key for key in known if key.decision is Decision.UNDECIDED and not key.revoked]
    if rivals:
        candidate = rivals[0]
        ask = "nothing is sent there until you compare the fingerprint with its owner, by another"
    else:
        candidate = next(key for key in known if key.decision.chosen)
        ask = "nothing is sent there until you ask its owner, by another"
    return (
        f"{ask} way (`sealmail key verify {address}` prints it as words); then say\n"
        f"  sealmail key trust {address} {candidate.key_id}"
        f"{'   (or the other one)' if rivals else ''}"
    )


def _seen(key: KnownKey) -> str:
    return f"{key.standing}, last seen {format_date(key.last_seen)}"


def _unclaimed(key: KnownKey) -> str:
    return (
        f"the key {key.key_id} does not claim {key.address} any more: its owner may have given "
        f"the address up (last seen {format_date(key.last_seen)} at {key.seen_at})"
    )


def _moved(key: KnownKey) -> str:
    address = address_in(key.user_id)
    now = f"; if it is still the same person, `sealmail key find {address}`" if address else ""
    return (
        f"the owner of {key.key_id}, known as {key.address}, calls himself {key.user_id} now{now}"
    )


_CHANGED = {Change.UNCLAIMED: _unclaimed, Change.MOVED: _moved}
