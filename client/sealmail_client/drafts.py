"""What a user wants to send, and to whom, in a form that outlives the program."""

import json
from collections.abc import Collection
from dataclasses import dataclass, field
from pathlib import Path

from sealmail_client.headers import Place
from sealmail_protocol.keys import KeyId


@dataclass(frozen=True, slots=True)
class Addressee:
    """One recipient: the address he was written to under, and the key that was chosen."""

    address: str
    key_id: KeyId
    user_id: str
    place: Place = Place.TO


@dataclass(frozen=True, slots=True)
class ForwardedMail:
    """A filed mail that goes along: whole under ``signed_as``, else its attachments only."""

    zip_file: Path
    signature_file: Path
    signed_as: str | None


@dataclass(frozen=True, slots=True)
class Draft:
    """A mail before it is sealed; attachments stay where they are until then."""

    unique_id: str
    subject: str
    text: str = field(repr=False)
    addressees: tuple[Addressee, ...]
    attachments: tuple[Path, ...] = ()
    html: str | None = field(default=None, repr=False)
    reply_thread_id: str | None = None
    forwarded: ForwardedMail | None = None

    def copies(self) -> tuple[tuple[Addressee, ...], ...]:
        """Return who reads the same sealed bytes: each Bcc recipient has his own."""
        shared = tuple(one for one in self.addressees if one.place is not Place.BCC)
        hidden = ((one,) for one in self.addressees if one.place is Place.BCC)
        return ((shared,) if shared else ()) + tuple(hidden)

    def named_to(self, readers: Collection[KeyId]) -> tuple[Addressee, ...]:
        """Return whom a copy for ``readers`` may name."""
        return tuple(
            one for one in self.addressees if one.place is not Place.BCC or one.key_id in readers
        )

    def to_json(self) -> str:
        """Write the draft in ASCII, names of files that are not UTF-8 too."""
        return json.dumps(
            {
                "unique_id": self.unique_id,
                "subject": self.subject,
                "text": self.text,
                "addressees": [
                    {
                        "address": one.address,
                        "key_id": one.key_id.hex,
                        "user_id": one.user_id,
                        "place": one.place,
                    }
                    for one in self.addressees
                ],
                "attachments": [str(path) for path in self.attachments],
                "html": self.html,
                "reply_thread_id": self.reply_thread_id,
                "forwarded": None if self.forwarded is None else _forwarded_parts(self.forwarded),
            }
        )

    @classmethod
    def from_json(cls, text: str) -> "Draft":
        """Read what ``to_json`` wrote, also in an earlier version."""
        parts = json.loads(text)
        return cls(
            unique_id=parts["unique_id"],
            subject=parts["subject"],
            text=parts["text"],
            addressees=tuple(
                Addressee(
                    one["address"],
                    KeyId.from_hex(one["key_id"]),
                    one["user_id"],
                    Place(one.get("place", Place.TO)),
                )
                for one in parts["addressees"]
            ),
            attachments=tuple(Path(path) for path in parts["attachments"]),
            html=parts.get("html"),
            reply_thread_id=parts.get("reply_thread_id"),
            forwarded=_read_forwarded(parts.get("forwarded")),
        )


def _forwarded_parts(forwarded: ForwardedMail) -> dict[str, str | None]:
    return {
        "zip_file": str(forwarded.zip_file),
        "signature_file": str(forwarded.signature_file),
        "signed_as": forwarded.signed_as,
    }


def _read_forwarded(parts: dict[str, str] | None) -> ForwardedMail | None:
    if parts is None:
        return None
    return ForwardedMail(
        Path(parts["zip_file"]), Path(parts["signature_file"]), parts["signed_as"]
    )
