"""The mailboxes of a user, what a place in one costs, and who has paid for it."""

import hashlib
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from fractions import Fraction

from sealmail_pow import Difficulty
from sealmail_protocol.block_codec import MAX_MAILBOXES
from sealmail_protocol.blocks import KeyAnnouncement, MessageAnnouncement
from sealmail_protocol.errors import InvalidBlock, Refusal
from sealmail_protocol.keys import KeyId
from sealmail_protocol.pricing import FLOOR, Fill, demand
from sealmail_server.accounts import AccountState
from sealmail_server.candidates import Candidate
from sealmail_server.limits import Limits
from sealmail_store import MailPlace, ReadView, StoredEntry, Terms, WriteView

# Before a user's first announcement, mail for these mailboxes is taken at the floor price.
FIRST_MAILBOXES: tuple[str, ...] = ("0", "1", "2", "3")
# A sender may have read an older announcement: its price and mailboxes hold on this long.
TERMS_LINGER = timedelta(days=12)
# Entries that pay by token may take a quarter of a mailbox, since no server can check tokens.
TOKEN_QUARTER = 4
_DATA_LINE = len("DataBlock: \r\n") + 40


@dataclass(frozen=True, slots=True)
class MailTerms:
    """The mailboxes that take mail, and the price of each place in them."""

    mailboxes: tuple[str, ...] = FIRST_MAILBOXES
    price: Difficulty = FLOOR


def terms_in_force(view: ReadView, holder: KeyId, now: datetime) -> MailTerms:
    """Return the terms of a user: of the latest announcement and of those of the last 12 days."""
    known = [each for each in view.terms(holder.raw) if _lingers(each, now)]
    if not known:
        return MailTerms()
    mailboxes = dict.fromkeys(name for each in known for name in each.mailboxes.split(","))
    prices = (Difficulty.parse(each.price) for each in known)
    lowest = min(prices, key=lambda price: (price.bits, price.nonces))
    return MailTerms(tuple(mailboxes)[:MAX_MAILBOXES], lowest)


def announce_terms(view: WriteView, holder: KeyId, block: KeyAnnouncement, now: datetime) -> None:
    """Put the terms of a user's newest announcement in force; the ones before linger."""
    new = Terms(holder.raw, block.date, ",".join(block.mailboxes), str(block.price))
    before = [
        each if each.ended else replace(each, ended=now)
        for each in view.terms(holder.raw)
        if each.ended or (each.mailboxes, each.price) != (new.mailboxes, new.price)
    ]
    lingering = [each for each in before if _lingers(each, now)]
    view.put_terms(holder.raw, (new, *lingering[: MAX_MAILBOXES - 1]))


def mail_place(view: ReadView, candidate: Candidate, nonces: list[bytes]) -> MailPlace:
    """Return what is known of the place that an announcement asks for."""
    return view.mail_place(
        candidate.key,
        candidate.digest,
        candidate.identity,
        _mail(candidate).recipient.raw,
        nonces,
        account_state=AccountState.CONFIRMED,
    )


def asked_for(
    view: ReadView,
    candidate: Candidate,
    place: MailPlace,
    held: StoredEntry | None,
    price: Difficulty,
    limits: Limits,
) -> Difficulty:
    """Return what a place for this announcement costs now; refuse it when there is none."""
    block = _mail(candidate)
    size = len(candidate.header)
    freed = len(held.header) if held is not None else 0
    freed_unpaid = freed if held is not None and not held.paid else 0
    stored, added = view.uncounted_data(block.data_blocks, block.recipient.raw)
    unpaid = place.unpaid + size - freed_unpaid
    mailbox_fill = Fraction(place.used + size - freed, limits.mailbox_bytes)
    fill = max(mailbox_fill, Fraction(place.quota + added, limits.quota_bytes))
    share = Fraction(unpaid * TOKEN_QUARTER, limits.mailbox_bytes)
    asked = demand(price, block.token is not None, Fill(fill, share), size - stored * _DATA_LINE)
    if asked is None and mailbox_fill >= 1:
        raise InvalidBlock(Refusal.FULL, "the mailbox is full")
    if asked is None:
        raise InvalidBlock(Refusal.QUOTA, "the recipient has no room left")
    return asked


def pays(candidate: Candidate, asked: Difficulty) -> bool:
    """Tell whether the stamp of a candidate is worth what is asked."""
    return asked.met_by(candidate.bits, len(candidate.block.stamp.nonces))


def used_nonces(candidate: Candidate) -> list[bytes]:
    """Return a digest of each nonce with the bytes it stamps.

    Neither mailbox nor token are stamped, so one stamp would fit many entries; each nonce
    alone, since of a few that agree one could make many stamps.
    """
    stamped = hashlib.sha256(candidate.block.challenge).digest()
    return [
        hashlib.sha256(stamped + nonce.encode()).digest() for nonce in candidate.block.stamp.nonces
    ]


def check_nonces(view: ReadView, candidate: Candidate, nonces: list[bytes]) -> None:
    """Refuse a stamp that has served another entry."""
    if view.users_of_nonces(nonces) - {entry_name(candidate)}:
        raise InvalidBlock(Refusal.STAMP, "its stamp has paid for another entry already")


def entry_name(candidate: Candidate) -> bytes:
    """Return what distinguishes an announcement from all others: its mailbox and identity."""
    return candidate.key.raw + candidate.identity


def _lingers(terms: Terms, now: datetime) -> bool:
    return terms.ended is None or now - terms.ended < TERMS_LINGER


def _mail(candidate: Candidate) -> MessageAnnouncement:
    if not isinstance(candidate.block, MessageAnnouncement):
        raise TypeError(f"a {candidate.block.type} has no place in a mailbox")
    return candidate.block
