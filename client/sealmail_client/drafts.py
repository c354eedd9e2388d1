"""What a user wants to send, and to whom, in a form that outlives the program."""

import json
from dataclasses import dataclass, field
from pathlib import Path

from sealmail_protocol.keys import KeyId


@dataclass(frozen=True, slots=True)
class Addressee:
    """One recipient: the address he was written to under, and the key that was chosen."""

    address: str
    key_id: KeyId
    user_id: str


@dataclass(frozen=True, slots=True)
class Draft:
    """A mail before it is sealed; attachments stay where they are until then."""

    unique_id: str
    subject: str
    text: str = field(repr=False)
    addressees: tuple[Addressee, ...]
    attachments: tuple[Path, ...] = ()

    def to_json(self) -> str:
        """Write the draft in ASCII, names of files that are not UTF-8 too."""
        return json.dumps(
            {
                "unique_id": self.unique_id,
                "subject": self.subject,
                "text": self.text,
                "addressees": [
                    {"address": one.address, "key_id": one.key_id.hex, "user_id": one.user_id}
                    for one in self.addressees
                ],
                "attachments": [str(path) for path in self.attachments],
            }
        )

    @classmethod
    def from_json(cls, text: str) -> "Draft":
        """Read what ``to_json`` wrote."""
        parts = json.loads(text)
        return cls(
            unique_id=parts["unique_id"],
            subject=parts["subject"],
            text=parts["text"],
            addressees=tuple(
                Addressee(one["address"], KeyId.from_hex(one["key_id"]), one["user_id"])
                for one in parts["addressees"]
            ),
            attachments=tuple(Path(path) for path in parts["attachments"]),
        )
