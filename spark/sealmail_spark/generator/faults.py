"""One fault of each kind that audits look for, each seeded so that nothing else is wrong.

A kind is a row of ``FAULTS``: functions, one for each way to commit it, that return the entries to
store, and where the finding will be. What no entry can express is done to the store afterwards,
by ``damage``.
"""

import hashlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from typing import Final

from sealmail_pow import Difficulty, Stamp, level
from sealmail_protocol.block_codec import parse_text_block
from sealmail_protocol.blocks import BlockType, BypassToken, MessageAnnouncement
from sealmail_protocol.compose import make_announcement, make_data_header
from sealmail_protocol.fields import join_lines, split_lines
from sealmail_protocol.policy import BLOCK_POLICY
from sealmail_protocol.stamps import data_challenge_prefix
from sealmail_spark.demands import SERVER
from sealmail_spark.generator.people import gpg_key, new_key, revoked_key
from sealmail_spark.generator.town import Town
from sealmail_spark.generator.workshop import some_key, text_entry
from sealmail_spark.store_files import data_file
from sealmail_store import StoredEntry

LARGE: Final = 100_000
HEALTHY_SIZE: Final = 900
# Long enough to sign with, over when the audit looks.
_SHORT_LIFE: Final = 1800
# Beyond the age of all types but keys, and beyond that of keys.
_OLD: Final = timedelta(days=12)
_OLD_KEY: Final = timedelta(days=33)


@dataclass(frozen=True, slots=True)
class Seeded:
    """A fault that an audit must find: which job, by which code, on which block, held for what.

    ``store`` is given where there are several.
    """

    job: str
    code: str
    type: str
    key: str
    held: str = SERVER
    store: str | None = None


@dataclass(frozen=True, slots=True)
class Damage:
    """What is done to a file of a store after it was written: cut to a length, or removed."""

    file: bytes
    cut_to: int | None = None


@dataclass(frozen=True, slots=True)
class Fault:
    """The entries of one seeded fault, further damage, and the finding to expect."""

    entries: tuple[StoredEntry, ...]
    at: StoredEntry
    damage: tuple[Damage, ...] = ()


def _mail(town: Town, data: StoredEntry) -> tuple[StoredEntry, StoredEntry]:
    """Return data with word of it, so that it is not loose."""
    reader = town.rng.choice(town.people)
    return data, town.workshop.announcement(reader, data.date, [data.key])


def _sound_mail(town: Town, size: int = HEALTHY_SIZE) -> tuple[StoredEntry, StoredEntry]:
    return _mail(town, town.workshop.data(town.moment(), size))


def _malformed(town: Town) -> Fault:
    data = town.workshop.data(town.moment(), HEALTHY_SIZE)
    first, second = town.rng.sample(town.people, 2)
    word = town.workshop.announcement(first, data.date, [data.key])
    header = word.header.replace(b"Version: 1\r\n", b"Version: one\r\n")
    data_less = replace(word, header=header, digest=hashlib.sha256(header).digest(), names=())
    # Its data is named by another announcement, or it would be loose.
    other = town.workshop.announcement(second, data.date, [data.key])
    return Fault((data, data_less, other), data_less)


def _wrong_key(town: Town) -> Fault:
    raw, key = town.rng.randbytes(HEALTHY_SIZE), some_key(town.rng)
    data, word = _mail(town, town.workshop.data_of(town.moment(), raw, key))
    return Fault((data, word), data)


def _weak_stamp(town: Town) -> Fault:
    date, raw = town.moment(), town.rng.randbytes(HEALTHY_SIZE)
    stamped = data_challenge_prefix(date) + raw
    stamp, bits = Stamp(("0", "1")), 256
    while bits >= Difficulty(8).bits:
        stamp = Stamp((f"{town.rng.randrange(1 << 32):x}", b"another".hex()))
        bits = level(stamped, stamp)
    sound = town.workshop.data_of(date, raw)
    header = join_lines(make_data_header(date, stamp, len(raw)).lines)
    digest = hashlib.sha256(header + sound.key.raw).digest()
    data, word = _mail(town, replace(sound, header=header, digest=digest, stamp_bits=bits))
    return Fault((data, word), data)


def _overstated_stamp(town: Town) -> Fault:
    data, word = _sound_mail(town)
    claimed = replace(data, stamp_bits=data.stamp_bits + 20)
    return Fault((claimed, word), claimed)


def _wrong_size(town: Town) -> Fault:
    data, word = _sound_mail(town, LARGE)
    return Fault((data, word), data, (Damage(file=data.key.raw, cut_to=LARGE // 2),))


def _too_large(town: Town) -> Fault:
    data, word = _sound_mail(town, BLOCK_POLICY[BlockType.DATA].size + 1)
    return Fault((data, word), data)


def _missing_bytes(town: Town) -> Fault:
    data, word = _sound_mail(town, LARGE)
    return Fault((data, word), data, (Damage(file=data.key.raw),))


def _wrong_date(town: Town) -> Fault:
    data, word = _sound_mail(town)
    moved = replace(data, date=data.date - timedelta(hours=1))
    return Fault((moved, word), moved)


def _future_date(town: Town) -> Fault:
    ahead = town.workshop.acknowledgment(town.now + timedelta(days=5))
    return Fault((ahead,), ahead)


def _wrong_digest(town: Town) -> Fault:
    data, word = _sound_mail(town)
    other = replace(data, digest=town.rng.randbytes(32))
    return Fault((other, word), other)


def _wrong_identity(town: Town) -> Fault:
    data, word = _sound_mail(town)
    other = replace(word, identity=town.rng.randbytes(32))
    return Fault((data, other), other)


def _bad_signature(town: Town) -> Fault:
    """Let one person claim an address in the name of another."""
    owner, forger = town.rng.sample(town.people, 2)
    address = f"forged{town.rng.randrange(1 << 40)}@example.net"
    claim = town.workshop.claim(owner, town.moment(), address=address, by=forger)
    return Fault((claim,), claim)


def _wrong_revocation(town: Town) -> Fault:
    """Keep a key that says of itself that it is revoked as one that is not."""
    number = town.rng.randrange(1 << 40)
    person = town.person(number, revoked_key(f"Unheard {number}"), user="unheard")
    key = town.workshop.key(person, town.moment(timedelta(days=6)))
    return Fault((key,), key)


def _claim_without_key(town: Town) -> Fault:
    stranger = town.person(town.rng.randrange(1 << 40), user="stranger")
    claim = town.workshop.claim(stranger, town.moment())
    return Fault((claim,), claim)


def _orphan_data(town: Town) -> Fault:
    data = town.workshop.data(town.moment(), HEALTHY_SIZE)
    return Fault((data,), data)


def _missing_data(town: Town) -> Fault:
    reader = town.rng.choice(town.people)
    word = town.workshop.announcement(reader, town.moment(), [some_key(town.rng)])
    return Fault((word,), word)


def _old_acknowledgment(town: Town) -> Fault:
    old = town.workshop.acknowledgment(town.now - _OLD)
    return Fault((old,), old)


def _old_claim(town: Town) -> Fault:
    address = f"former{town.rng.randrange(1 << 40)}@example.net"
    old = town.workshop.claim(town.rng.choice(town.people), town.now - _OLD, address=address)
    return Fault((old,), old)


def _old_key(town: Town) -> Fault:
    """Keep a key beyond its age that says that it is good for longer."""
    person = town.person(town.rng.randrange(1 << 40), user="patient")
    old = town.workshop.key(person, town.now - _OLD_KEY, life=2 * _OLD_KEY)
    return Fault((old,), old)


def _old_announcement(town: Town) -> Fault:
    """Keep word of a mail whose data may stay as long as it is named."""
    data = town.workshop.data(town.now - _OLD, HEALTHY_SIZE)
    word = town.workshop.announcement(town.rng.choice(town.people), data.date, [data.key])
    return Fault((data, word), word)


def _old_data(town: Town) -> Fault:
    old = town.workshop.data(town.now - _OLD, HEALTHY_SIZE)
    return Fault((old,), old)


def _stale_announcement(town: Town) -> Fault:
    person = town.person(town.rng.randrange(1 << 40), user="gone")
    key = town.workshop.key(person, town.now - timedelta(days=20))
    return Fault((key,), key)


def _expired_key(town: Town) -> Fault:
    number = town.rng.randrange(1 << 40)
    person = town.person(number, new_key(f"Expired {number}", seconds=_SHORT_LIFE), user="expired")
    key = town.workshop.key(person, town.moment(timedelta(days=6)))
    return Fault((key,), key)


def _revoked_key(town: Town) -> Fault:
    number = town.rng.randrange(1 << 40)
    person = town.person(number, revoked_key(f"Revoked {number}"), user="revoked")
    key = town.workshop.key(person, town.moment(timedelta(days=6)), revoked=True)
    return Fault((key,), key)


def _small_key(town: Town) -> Fault:
    return _key_of_gpg(town, "rsa1024")


def _small_subkey(town: Town) -> Fault:
    """Sign by a sound key, and have mail sealed to a weak one."""
    return _key_of_gpg(town, "ed25519", sealing="rsa1024")


def _sha1_key(town: Town) -> Fault:
    return _key_of_gpg(town, "rsa2048", digest="SHA1")


def _key_of_gpg(
    town: Town, kind: str, *, digest: str = "SHA256", sealing: str | None = None
) -> Fault:
    number = town.rng.randrange(1 << 40)
    pair = gpg_key(f"Weak {number}", kind, digest, sealing)
    person = town.person(number, pair, user="weak")
    key = town.workshop.key(person, town.moment(timedelta(days=6)))
    return Fault((key,), key)


def _rival_claims(town: Town) -> Fault:
    address = f"wanted{town.rng.randrange(1 << 40)}@example.net"
    date = town.moment()
    claims = [
        town.workshop.claim(one, date, address=address) for one in town.rng.sample(town.people, 2)
    ]
    return Fault(tuple(claims), claims[0])


def _reused_stamp(town: Town) -> Fault:
    data, word = _sound_mail(town)
    block = parse_text_block(split_lines(word.header))
    if not isinstance(block, MessageAnnouncement):
        raise TypeError("word of a mail is an announcement")
    token = BypassToken(town.rng.randbytes(20))
    again = make_announcement(
        block.date,
        block.stamp,
        block.recipient,
        block.mailbox,
        block.data_blocks,
        block.message_hash,
        token,
    )
    return Fault((data, word, text_entry(again, word.key, paid=True)), word)


def _stamped_ahead(town: Town) -> Fault:
    data = town.workshop.data(town.moment(), HEALTHY_SIZE)
    reader = town.rng.choice(town.people)
    ahead = town.now + timedelta(hours=30)
    word = town.workshop.announcement(reader, ahead, [data.key])
    return Fault((data, word), word)


def _underpaid(town: Town) -> Fault:
    data = town.workshop.data(town.moment(), HEALTHY_SIZE)
    reader = town.rng.choice(town.people)
    word = town.workshop.announcement(reader, data.date, [data.key], price=Difficulty(8))
    bits = word.stamp_bits
    if bits >= reader.price.bits:
        return _underpaid(town)
    return Fault((data, word), word)


# By job and code.
FAULTS: Final[dict[tuple[str, str], tuple[Callable[[Town], Fault], ...]]] = {
    ("store", "malformed"): (_malformed,),
    ("store", "wrong-key"): (_wrong_key,),
    ("store", "weak-stamp"): (_weak_stamp,),
    ("store", "overstated-stamp"): (_overstated_stamp,),
    ("store", "wrong-size"): (_wrong_size,),
    ("store", "too-large"): (_too_large,),
    ("store", "missing-bytes"): (_missing_bytes,),
    ("store", "wrong-date"): (_wrong_date,),
    ("store", "future-date"): (_future_date,),
    ("store", "wrong-digest"): (_wrong_digest,),
    ("store", "wrong-identity"): (_wrong_identity,),
    ("store", "bad-signature"): (_bad_signature,),
    ("store", "wrong-revocation"): (_wrong_revocation,),
    ("store", "claim-without-key"): (_claim_without_key,),
    ("references", "orphan-data"): (_orphan_data,),
    ("references", "missing-data"): (_missing_data,),
    ("references", "kept-too-long"): (
        *(_old_acknowledgment, _old_claim, _old_key, _old_announcement, _old_data),
    ),
    ("keys", "stale-announcement"): (_stale_announcement,),
    ("keys", "expired-key"): (_expired_key,),
    ("keys", "revoked-key"): (_revoked_key,),
    ("keys", "weak-key"): (_small_key, _small_subkey, _sha1_key),
    ("keys", "rival-claims"): (_rival_claims,),
    ("pow", "reused-stamp"): (_reused_stamp,),
    ("pow", "stamped-ahead"): (_stamped_ahead,),
    ("pow", "underpaid"): (_underpaid,),
}


def seeded_faults(town: Town, each: int) -> Iterator[tuple[Seeded, Fault]]:
    """Yield ``each`` faults of every kind, committed in each of its ways."""
    for (job, code), ways in FAULTS.items():
        for make in ways * each:
            fault = make(town)
            yield Seeded(job, code, str(fault.at.type), fault.at.key.hex), fault


def damage(directory: Path, damages: list[Damage]) -> None:
    """Do to a closed store what its own code never does."""
    for one in damages:
        path = data_file(directory, one.file)
        if one.cut_to is None:
            path.unlink()
        else:
            with path.open("rb+") as file:
                file.truncate(one.cut_to)
