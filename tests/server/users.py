"""A mail user for server tests: a real GnuPG key, and blocks signed and stamped with it."""

import subprocess
import tempfile
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from sealmail_pow import Difficulty, mint
from sealmail_protocol.addresses import Transport
from sealmail_protocol.block_codec import parse_text_block
from sealmail_protocol.blocks import AddressClaim, KeyAnnouncement, MessageAnnouncement
from sealmail_protocol.bypass import BypassSecret, bypass_token
from sealmail_protocol.compose import KeyText, claim_text, make_announcement, make_data_header
from sealmail_protocol.fields import split_lines
from sealmail_protocol.keys import BlockKey, KeyId, data_key
from sealmail_protocol.stamps import claim_challenge, data_challenge_prefix, message_challenge

SIGNED_PRICE = Difficulty(24, 2)
FLOOR = Difficulty(8, 2)


def now() -> datetime:
    """Return the present second."""
    return datetime.now(UTC).replace(microsecond=0)


@dataclass(frozen=True)
class User:
    """A key in a GnuPG home of its own."""

    home: Path
    key_id: KeyId

    @classmethod
    def create(cls, home: Path, name: str) -> "User":
        """Make an Ed25519 key for ``name``."""
        home.mkdir(mode=0o700)
        _gpg(home, "--passphrase", "", "--quick-gen-key", f"{name} <{name}@a.example>", "ed25519")
        listed = _gpg(home, "--with-colons", "--list-keys").splitlines()
        fingerprint = next(line for line in listed if line.startswith("fpr:")).split(":")[9]
        return cls(home, KeyId.from_hex(fingerprint))

    def close(self) -> None:
        """End the agent of this home."""
        subprocess.run(["gpgconf", "--homedir", str(self.home), "--kill", "all"], check=True)

    def announcement(
        self,
        date: datetime | None = None,
        price: Difficulty = FLOOR,
        *,
        mailboxes: tuple[str, ...] = ("0", "1"),
        expires: datetime | None = None,
        revoked: bool = False,
    ) -> KeyAnnouncement:
        """Return a stamped and signed key-announcement."""
        date = date or now()
        text = KeyText(
            date=date,
            expires=expires or date + timedelta(days=7),
            user_id="A User <user@a.example>",
            transport=Transport.parse("server=localhost:8081"),
            mailboxes=mailboxes,
            price=price,
            armored_key=self._revoked_key() if revoked else self._key(),
        )
        signed = self._clear_sign(text.stamped(mint(text.challenge, SIGNED_PRICE)))
        block = parse_text_block(split_lines(signed))
        assert isinstance(block, KeyAnnouncement)
        return block

    def claim(
        self, address: str, key_id: KeyId | None = None, date: datetime | None = None
    ) -> AddressClaim:
        """Return a signed claim, of another's key id if the test wants a forgery."""
        date, key_id = date or now(), key_id or self.key_id
        stamp = mint(claim_challenge(date, key_id, address), SIGNED_PRICE)
        signed = self._clear_sign(claim_text(date, stamp, key_id, address))
        block = parse_text_block(split_lines(signed))
        assert isinstance(block, AddressClaim)
        return block

    def _key(self) -> str:
        return _gpg(self.home, "--armor", "--export", self.key_id.hex)

    def _revoked_key(self) -> str:
        """Return the key with the revocation that was made with it, applied in another home."""
        written = (self.home / "openpgp-revocs.d" / f"{self.key_id.hex}.rev").read_text()
        _, _, revocation = written.partition("\n:-----BEGIN")
        with tempfile.TemporaryDirectory() as place:
            _gpg(Path(place), "--import", given=self._key())
            _gpg(Path(place), "--import", given=f"-----BEGIN{revocation}")
            revoked = _gpg(Path(place), "--armor", "--export", self.key_id.hex)
            subprocess.run(["gpgconf", "--homedir", place, "--kill", "all"], check=True)
        return revoked

    def _clear_sign(self, text: str) -> bytes:
        return _gpg(self.home, "--digest-algo", "SHA512", "--clear-sign", given=text).encode()


def message(
    recipient: KeyId,
    price: Difficulty = FLOOR,
    *,
    mailbox: str = "0",
    date: datetime | None = None,
    data: bytes = b"sealed",
    secret: BypassSecret | None = None,
    extra: tuple[str, ...] = (),
) -> MessageAnnouncement:
    """Return a stamped announcement of one data block; ``extra`` lines follow it."""
    date, key = date or now(), data_key(data)
    stamped = message_challenge(recipient, key, date, (key,))
    token = bypass_token(secret, stamped) if secret else None
    made = make_announcement(date, mint(stamped, price), recipient, mailbox, (key,), key, token)
    if not extra:
        return made
    block = parse_text_block((*made.lines, *extra))
    assert isinstance(block, MessageAnnouncement)
    return block


def data_lines(data: bytes, date: datetime | None = None) -> tuple[BlockKey, tuple[str, ...]]:
    """Return the key and the stamped header lines of a data block."""
    date = date or now()
    stamp = mint(data_challenge_prefix(date) + data, FLOOR)
    return data_key(data), make_data_header(date, stamp, len(data)).lines


def _gpg(home: Path, *arguments: str, given: str = "") -> str:
    options = ("--homedir", str(home), "--batch", "--no-tty", "--pinentry-mode", "loopback")
    done = subprocess.run(
        ["gpg", *options, *arguments], input=given, capture_output=True, text=True, check=True
    )
    return done.stdout
