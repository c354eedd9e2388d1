"""May this block enter? The rules of the policy table, for every way a block can come.

What needs the state of the store is decided here, inside the transaction that stores the
block, so that nothing changes between the decision and the commit. What needs none is in
``candidates``.
"""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta

from sealmail_pow import Difficulty
from sealmail_protocol.block_codec import parse_text_block
from sealmail_protocol.blocks import (
    AddressClaim,
    BlockType,
    KeyAnnouncement,
    MessageAnnouncement,
)
from sealmail_protocol.errors import InvalidBlock, Refusal
from sealmail_protocol.fields import split_lines
from sealmail_protocol.keys import KeyId, announcement_key
from sealmail_protocol.merges import Standing, displaces
from sealmail_protocol.policy import MAX_FUTURE_REPLICATED
from sealmail_protocol.replies import Accepted, Pending, Verdict
from sealmail_server.accounts import confirm
from sealmail_server.candidates import Arrival, Candidate
from sealmail_server.claims import make_room_for_claim
from sealmail_server.limits import Limits
from sealmail_server.mailboxes import (
    MailTerms,
    announce_terms,
    asked_for,
    check_nonces,
    entry_name,
    mail_place,
    pays,
    terms_in_force,
    used_nonces,
)
from sealmail_server.partnership import Partnership
from sealmail_server.quotas import check_acknowledgment_room, check_data_room, check_taken_over
from sealmail_server.waiting import let_wait, no_key
from sealmail_store import MailPlace, ReadView, StoredEntry, WriteView
from sealmail_store import Verdict as StoredVerdict

VERDICT_KEPT = timedelta(days=14)


@dataclass(frozen=True, slots=True)
class Certificate:
    """The key that a claim is verified by, and the digest of the announcement it stands in."""

    armored_key: bytes
    announced_by: bytes


class StaleCertificate(Exception):
    """The key of a claim came or changed while it was verified; verify it again."""


@dataclass(frozen=True, slots=True)
class Decision:
    """All that a decision depends on beside the candidate and the store."""

    arrival: Arrival
    now: datetime
    limits: Limits
    partnership: Partnership


def admit(view: WriteView, candidate: Candidate, given: Decision) -> Verdict:
    """Store the candidate, or let it wait, with its verdict; raise ``InvalidBlock`` if neither.

    A refused candidate leaves nothing behind: all that speaks against it is looked at before
    anything is put.
    """
    verdict, kept_until = _ADMIT[candidate.block.type](view, candidate, given)
    if given.arrival.replicated and isinstance(verdict, Accepted):
        # What the partner let in need not wait here any more.
        view.remove_waiting(candidate.digest)
    stored = StoredVerdict(candidate.digest, str(verdict), kept_until)
    view.put_verdict(stored, given.limits.verdicts)
    return verdict


def admit_data(view: WriteView, entry: StoredEntry, given: Decision) -> Verdict:
    """Store a data block, its bytes spooled and hashed, if it is new or its Date newer."""
    held = view.entry(entry.type, entry.key)
    if held is None:
        check_data_room(view, entry.key, entry.size, given.arrival, given.limits)
    elif _wins(entry, held):
        check_taken_over(view, entry, held, given.arrival, given.limits)
    if held is None or _wins(entry, held):
        _put(view, entry, given)
    else:
        if entry.data is not None:
            # Those on the disk may be lost or damaged; sound ones stay.
            view.restore_data(entry.data)
        _repeat(view, entry, held, given)
    verdict = Accepted()
    stored = StoredVerdict(entry.digest, str(verdict), given.now + VERDICT_KEPT)
    view.put_verdict(stored, given.limits.verdicts)
    return verdict


def certificate_for(view: ReadView, claim: AddressClaim) -> Certificate | None:
    """Return the key to verify ``claim`` by: its owner's stored one, if it is here."""
    stored = view.entry(BlockType.KEY_ANNOUNCEMENT, announcement_key(claim.key_id))
    if stored is None:
        return None
    if stored.revoked:
        raise InvalidBlock(Refusal.KEY, "the key that claims the address is revoked")
    block = parse_text_block(split_lines(stored.header))
    if not isinstance(block, KeyAnnouncement):
        raise InvalidBlock(Refusal.INTERNAL, "the stored announcement is none")
    return Certificate(block.signed.armored_key, stored.digest)


_Outcome = tuple[Verdict, datetime]


def _admit_key(view: WriteView, candidate: Candidate, given: Decision) -> _Outcome:
    block = candidate.block
    assert isinstance(block, KeyAnnouncement)  # noqa: S101 - the table says so
    held = view.entry(block.type, candidate.key)
    if held is not None and held.revoked and not candidate.revoked:
        raise InvalidBlock(Refusal.KEY, "this key is revoked, and no later word of it counts")
    entry = candidate.entry(given.arrival)
    if held is None or _wins(entry, held):
        _put(view, entry, given)
        if entry.revoked:
            # Refused from now on; those that came before go, or replicas would differ by it.
            view.remove_everywhere(BlockType.ADDRESS_CLAIM, candidate.key.raw)
        announce_terms(view, KeyId(candidate.key.raw), block, given.now)
    else:
        _repeat(view, entry, held, given)
    if given.arrival.visitor is not None:
        confirmed = confirm(view, given.arrival.visitor, block.date, given.now)
        if confirmed is not None:
            given.partnership.tell_account(view, confirmed, given.now)
    return Accepted(), given.now + VERDICT_KEPT


def _admit_claim(view: WriteView, candidate: Candidate, given: Decision) -> _Outcome:
    block = candidate.block
    assert isinstance(block, AddressClaim)  # noqa: S101 - the table says so
    key = view.entry(BlockType.KEY_ANNOUNCEMENT, announcement_key(block.key_id))
    if (None if key is None else key.digest) != candidate.verified_by:
        raise StaleCertificate
    if key is None:
        return _let_wait(view, candidate, given, block.key_id, otherwise=no_key(candidate))
    entry = candidate.entry(given.arrival)
    if view.entry(entry.type, entry.key, entry.identity) is None:
        make_room_for_claim(view, entry)
    return _keep(view, entry, given)


def _admit_mail(view: WriteView, candidate: Candidate, given: Decision) -> _Outcome:
    block = candidate.block
    assert isinstance(block, MessageAnnouncement)  # noqa: S101 - the table says so
    nonces = used_nonces(candidate)
    place = mail_place(view, candidate, nonces)
    if place.dropped:
        raise InvalidBlock(Refusal.RECIPIENT, "the recipient has dropped this mail")
    terms = terms_in_force(view, block.recipient, given.now)
    paid = pays(candidate, terms.price)
    entry = candidate.entry(given.arrival, paid=paid)
    held = view.entry(entry.type, entry.key, entry.identity) if place.held else None
    if held is not None and not _wins(entry, held):
        _repeat(view, entry, held, given)
        return Accepted(), given.now + VERDICT_KEPT
    if not given.arrival.replicated:
        pending = _judge_mail(view, candidate, place, held, given, terms, nonces)
        if pending is not None:
            return pending
    _put(view, entry, given)
    kept = given.limits.max_age[block.type] + MAX_FUTURE_REPLICATED
    view.use_nonces(nonces, entry_name(candidate), max(given.now, block.date) + kept)
    return Accepted(), given.now + VERDICT_KEPT


def _judge_mail(
    view: WriteView,
    candidate: Candidate,
    place: MailPlace,
    held: StoredEntry | None,
    given: Decision,
    terms: MailTerms,
    nonces: list[bytes],
) -> tuple[Pending, datetime] | None:
    """Judge by what is known here: account, mailbox, stamp and price; ``None`` lets it in."""
    block = candidate.block
    assert isinstance(block, MessageAnnouncement)  # noqa: S101 - the table says so
    if not place.awaited:
        nobody = InvalidBlock(Refusal.RECIPIENT, "the recipient has no account here")
        return _let_wait(view, candidate, given, block.recipient, otherwise=nobody)
    if block.mailbox not in terms.mailboxes:
        raise InvalidBlock(Refusal.RECIPIENT, f"the recipient has no mailbox {block.mailbox}")
    if place.seen_nonces:
        check_nonces(view, candidate, nonces)
    asked = asked_for(view, candidate, place, held, terms.price, given.limits)
    if pays(candidate, asked):
        return None
    too_cheap = InvalidBlock(Refusal.PRICE, f"{asked} is asked")
    return _let_wait(view, candidate, given, block.recipient, otherwise=too_cheap, demand=asked)


def _let_wait(
    view: WriteView,
    candidate: Candidate,
    given: Decision,
    awaits: KeyId,
    *,
    otherwise: InvalidBlock,
    demand: Difficulty | None = None,
) -> tuple[Pending, datetime]:
    """Keep a candidate until ``awaits`` comes, and let the partner keep it too."""
    arrival, now = given.arrival, given.now
    new = not view.is_waiting(candidate.digest)
    pending = let_wait(
        view, candidate, arrival, awaits, now, given.limits, otherwise=otherwise, demand=demand
    )
    if not arrival.by_partner:
        given.partnership.tell_waiting(view, candidate.digest, candidate.key, now, new=new)
    return pending


def _admit_acknowledgment(view: WriteView, candidate: Candidate, given: Decision) -> _Outcome:
    entry = candidate.entry(given.arrival)
    held = view.entry(entry.type, entry.key)
    if held is None:
        check_acknowledgment_room(view, len(entry.header), given.arrival, given.limits)
    elif _wins(entry, held):
        check_taken_over(view, entry, held, given.arrival, given.limits)
    return _keep(view, entry, given)


_ADMIT: dict[BlockType, Callable[[WriteView, Candidate, Decision], _Outcome]] = {
    BlockType.KEY_ANNOUNCEMENT: _admit_key,
    BlockType.ADDRESS_CLAIM: _admit_claim,
    BlockType.MESSAGE_ANNOUNCEMENT: _admit_mail,
    BlockType.ACKNOWLEDGMENT: _admit_acknowledgment,
}


def _keep(view: WriteView, entry: StoredEntry, given: Decision) -> _Outcome:
    """Put ``entry`` if it wins against what is held; either way it is accepted."""
    held = view.entry(entry.type, entry.key, entry.identity)
    if held is None or _wins(entry, held):
        _put(view, entry, given)
    else:
        _repeat(view, entry, held, given)
    return Accepted(), given.now + VERDICT_KEPT


def _put(view: WriteView, entry: StoredEntry, given: Decision) -> None:
    """Store an entry; one that came here first is queued for the partner in the same commit."""
    if given.arrival.replicated:
        view.put_entry(entry)
    else:
        given.partnership.put_entry(view, entry, given.now)


def _repeat(view: WriteView, entry: StoredEntry, held: StoredEntry, given: Decision) -> None:
    """Have what came again told to the partner, if it is still to be told."""
    if not given.arrival.replicated and entry.digest == held.digest:
        given.partnership.repeat_entry(view, held, given.now)


def _wins(entry: StoredEntry, held: StoredEntry) -> bool:
    return displaces(BlockType(entry.type), _standing(entry), _standing(held))


def _standing(entry: StoredEntry) -> Standing:
    return Standing(entry.date, entry.digest, entry.revoked, entry.stamp_bits)
