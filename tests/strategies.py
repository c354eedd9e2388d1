"""Hypothesis strategies for everything that travels: keys, blocks, commands, answers, noise.

Stamps made here have the right form and no worth; what a stamp is worth is tested by vectors.
"""

import base64
import hashlib
from datetime import UTC, datetime

from hypothesis import strategies as st

from sealmail_pow import Difficulty, Stamp
from sealmail_protocol import commands as c
from sealmail_protocol.addresses import ServerAddress, Transport
from sealmail_protocol.block_codec import parse_block
from sealmail_protocol.blocks import (
    Acknowledgment,
    AddressClaim,
    Block,
    BlockType,
    BypassToken,
    DataBlock,
    KeyAnnouncement,
    MessageAnnouncement,
)
from sealmail_protocol.compose import (
    KeyText,
    claim_text,
    make_acknowledgment,
    make_announcement,
    make_data_header,
)
from sealmail_protocol.errors import Refusal
from sealmail_protocol.keys import AckHash, BlockKey, KeyId
from sealmail_protocol.merges import Standing
from sealmail_protocol.replies import (
    Accepted,
    Banner,
    LineReply,
    Listing,
    Pending,
    Pong,
    QueueRow,
    QueueState,
    Refused,
    Word,
)

ALPHANUMERIC = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
PRINTABLE = "".join(map(chr, range(0x20, 0x7F)))

raw_keys = st.binary(min_size=20, max_size=20)
block_keys = raw_keys.map(BlockKey)
key_ids = raw_keys.map(KeyId)
ack_hashes = raw_keys.map(AckHash)
digests = st.binary(min_size=32, max_size=32)
dates = st.datetimes(datetime(1, 1, 2), datetime(9999, 12, 30), timezones=st.just(UTC)).map(
    lambda moment: moment.replace(microsecond=0)
)
difficulties = st.builds(Difficulty, st.integers(0, 256), st.integers(2, 16))
stamps = (
    st.lists(st.text("0123456789abcdef", min_size=1, max_size=12), min_size=2, max_size=16,
             unique=True)
    .map(tuple)
    .map(Stamp)
)  # fmt: skip
mailboxes = st.text(ALPHANUMERIC, min_size=1, max_size=16)


def onion_name(key: bytes) -> str:
    """Return the version 3 onion name of an Ed25519 key."""
    checksum = hashlib.sha3_256(b".onion checksum" + key + b"\x03").digest()[:2]
    return base64.b32encode(key + checksum + b"\x03").decode().lower() + ".onion"


hosts = st.one_of(
    st.from_regex(r"[a-z]([a-z0-9-]{0,10}[a-z0-9])?(\.[a-z]{2,5}){0,2}", fullmatch=True),
    st.ip_addresses(v=4).map(str),
    st.ip_addresses(v=6).map(str),
    st.binary(min_size=32, max_size=32).map(onion_name),
    st.from_regex(r"[a-z2-7]{52}\.b32\.i2p", fullmatch=True),
)
servers = st.builds(ServerAddress, hosts, st.integers(1, 65_535))
server_groups = st.lists(servers, min_size=1, max_size=16).map(tuple).map(Transport)
transports = st.just(Transport()) | server_groups
addresses = st.from_regex(r"[a-z0-9äöß.+-]{1,20}@[a-z]{1,10}\.[a-z]{2,4}", fullmatch=True)

_armor = st.lists(
    st.text("ABCDEFGHabcdefgh0123+/", min_size=1, max_size=64), min_size=1, max_size=3
)
_words = st.text("abcdefgh ÄÖÜ<>@.", min_size=1, max_size=30).map(str.strip).filter(bool)


def clear_signed(text: str, armor: list[str]) -> bytes:
    """Return what gpg would make of ``text``, but for the signature itself."""
    lines = text.removesuffix("\n").split("\n")
    escaped = [f"- {line}" if line.startswith("-") else line for line in lines]
    return "\r\n".join(
        (
            "-----BEGIN PGP SIGNED MESSAGE-----",
            "Hash: SHA512",
            "",
            *escaped,
            "-----BEGIN PGP SIGNATURE-----",
            "",
            *armor,
            "-----END PGP SIGNATURE-----",
            "",
        )
    ).encode()


def _key_announcement(text: KeyText, stamp: Stamp, armor: list[str]) -> KeyAnnouncement:
    block = parse_block(clear_signed(text.stamped(stamp), armor))
    assert isinstance(block, KeyAnnouncement)
    return block


def _address_claim(
    date: datetime, stamp: Stamp, key_id: KeyId, address: str, armor: list[str]
) -> AddressClaim:
    block = parse_block(clear_signed(claim_text(date, stamp, key_id, address), armor))
    assert isinstance(block, AddressClaim)
    return block


def _armored_key(armor: list[str]) -> str:
    begin, end = (f"-----{word} PGP PUBLIC KEY BLOCK-----" for word in ("BEGIN", "END"))
    return "\n".join((begin, "", *armor, end, ""))


key_texts = st.builds(
    KeyText,
    date=dates,
    expires=dates,
    user_id=_words,
    transport=transports,
    mailboxes=st.lists(mailboxes, min_size=1, max_size=16, unique=True).map(tuple),
    price=difficulties,
    armored_key=_armor.map(_armored_key),
    tokens_accepted_since=st.none() | dates,
)
key_announcements: st.SearchStrategy[KeyAnnouncement] = st.builds(
    _key_announcement, key_texts, stamps, _armor
)
address_claims: st.SearchStrategy[AddressClaim] = st.builds(
    _address_claim, dates, stamps, key_ids, addresses, _armor
)
message_announcements: st.SearchStrategy[MessageAnnouncement] = st.builds(
    make_announcement,
    date=dates,
    stamp=stamps,
    recipient=key_ids,
    mailbox=mailboxes,
    data_blocks=st.lists(block_keys, min_size=1, max_size=4, unique=True),
    message_hash=block_keys,
    token=st.none() | raw_keys.map(BypassToken),
)
acknowledgments: st.SearchStrategy[Acknowledgment] = st.builds(
    make_acknowledgment, dates, stamps, ack_hashes
)
data_blocks: st.SearchStrategy[DataBlock] = st.builds(
    lambda date, stamp, data: DataBlock(make_data_header(date, stamp, len(data)), data),
    dates,
    stamps,
    st.binary(min_size=1, max_size=300),
)
BLOCKS: dict[BlockType, st.SearchStrategy[Block]] = {
    BlockType.KEY_ANNOUNCEMENT: key_announcements,
    BlockType.ADDRESS_CLAIM: address_claims,
    BlockType.MESSAGE_ANNOUNCEMENT: message_announcements,
    BlockType.ACKNOWLEDGMENT: acknowledgments,
    BlockType.DATA: data_blocks,
}
blocks = st.one_of(*BLOCKS.values())
# Few values of each part, so that most of what is drawn ties somewhere.
standings = st.builds(
    Standing,
    st.sampled_from([datetime(2026, 1, 1, 0, 0, second, tzinfo=UTC) for second in range(2)]),
    st.binary(min_size=1, max_size=1),
    st.booleans(),
    st.integers(24, 25),
)

_names = st.text(ALPHANUMERIC, min_size=8, max_size=40)
_moments = st.none() | dates
_pings = st.text(PRINTABLE, max_size=200).filter(lambda text: not text or bool(text.strip()))
COMMANDS: dict[type[c.Command], st.SearchStrategy[c.Command]] = {
    c.StartTls: st.builds(c.StartTls),
    c.Quit: st.builds(c.Quit),
    c.Ping: st.builds(c.Ping, _pings),
    c.SelfTest: st.builds(c.SelfTest),
    c.Capabilities: st.builds(c.Capabilities),
    c.Login: st.builds(c.Login, _names, _names),
    c.GetServer: st.builds(c.GetServer, block_keys, _moments),
    c.GetEntangled: st.builds(c.GetEntangled, block_keys, _moments),
    c.GetProxy: st.builds(c.GetProxy, block_keys, server_groups),
    c.StoreServer: st.builds(c.StoreServer, block_keys),
    c.StoreEntangled: st.builds(c.StoreEntangled, block_keys),
    c.StoreDhtValue: st.builds(c.StoreDhtValue, block_keys),
    c.ListDhtValues: st.builds(c.ListDhtValues, block_keys),
    c.GetDhtValue: st.builds(c.GetDhtValue, block_keys, st.binary(min_size=32, max_size=32)),
    c.StoreProxy: st.builds(c.StoreProxy, block_keys, _moments),
    c.Replicate: st.builds(c.Replicate, block_keys, st.none() | _names),
    c.DnsTxt: st.builds(c.DnsTxt, st.text(ALPHANUMERIC + "_.-", min_size=1, max_size=253)),
    c.Shutdown: st.builds(c.Shutdown),
    c.AddLogin: st.builds(c.AddLogin, st.none() | _names, _names),
    c.RmLogin: st.builds(c.RmLogin, _names),
    c.RepLogin: st.builds(c.RepLogin, _names, _names),
    c.GenLogin: st.builds(c.GenLogin, st.integers(1, 1000)),
    c.AskVerdict: st.builds(c.AskVerdict, digests),
    c.AskQueue: st.builds(c.AskQueue, _moments),
    c.Drop: st.builds(c.Drop, block_keys, digests),
    c.PartnerDrop: st.builds(c.PartnerDrop, block_keys, digests, digests, dates),
    c.PartnerAccount: st.builds(
        c.PartnerAccount, digests, _names, st.sampled_from(("confirmed", "disabled", "undefined"))
    ),
    c.PartnerQueued: st.builds(c.PartnerQueued, block_keys),
    c.PartnerWaiting: st.builds(c.PartnerWaiting, block_keys, st.none() | _names, dates),
    c.PartnerList: st.builds(c.PartnerList, st.sampled_from(BlockType), block_keys),
    c.PartnerPair: st.builds(
        c.PartnerPair,
        st.text(ALPHANUMERIC, min_size=16, max_size=64),
        digests,
        _names,
        servers,
    ),
    c.PartnerSync: st.builds(c.PartnerSync),
}
commands = st.one_of(*COMMANDS.values())

refusals: st.SearchStrategy[Refused] = st.builds(
    Refused, st.sampled_from(Refusal), st.text(PRINTABLE, max_size=200).map(str.strip)
)
verdicts = st.one_of(
    st.builds(Accepted, st.booleans()), st.builds(Pending, st.none() | difficulties), refusals
)
queue_rows = st.builds(
    QueueRow,
    key=block_keys,
    type=st.sampled_from(BlockType),
    post_to=st.integers(1, 256),
    state=st.sampled_from(QueueState),
    code=st.just("-") | st.sampled_from(Refusal).map(str),
    queued=dates,
    last=_moments,
    digest=st.binary(min_size=32, max_size=32),
    demand=st.none() | difficulties,
)
banners = st.builds(
    Banner, st.integers(0, 999_999_999), st.just("READY") | st.text(PRINTABLE[1:], min_size=1)
)
pongs = st.builds(Pong, _pings)
line_replies: st.SearchStrategy[LineReply] = st.one_of(
    st.sampled_from(Word), verdicts, pongs, banners
)
listings = st.lists(
    st.text(PRINTABLE, max_size=80).filter(
        lambda line: line.lower() != "endblock" and line not in set(Word)
    )
).map(lambda lines: Listing(tuple(lines)))


def mutated(originals: st.SearchStrategy[bytes]) -> st.SearchStrategy[bytes]:
    """Return valid inputs with some bytes replaced, cut out or doubled."""

    def mutate(original: bytes, at: int, cut: int, inserted: bytes) -> bytes:
        place = at % (len(original) + 1)
        return original[:place] + inserted + original[place + cut :]

    return st.builds(
        mutate, originals, st.integers(0, 10_000), st.integers(0, 40), st.binary(max_size=12)
    )
