"""A letter before it is sealed; attachments stay in their files until then."""

from dataclasses import dataclass, field
from pathlib import Path

from sealmail_client.headers import Header
from sealmail_protocol.keys import KeyId


@dataclass(frozen=True, slots=True)
class Attachment:
    """A file that goes with a letter, under a name that need not be the file's own."""

    name: str
    path: Path


@dataclass(frozen=True, slots=True)
class AckFile:
    """What one recipient needs to acknowledge the letter; ``sealed``: only he can read it."""

    key_id: KeyId
    content: bytes = field(repr=False)
    sealed: bool


@dataclass(frozen=True, slots=True)
class Forwarded:
    """A whole earlier letter with the signature of its own writer."""

    message_id: str
    zip_file: Path
    signature: bytes = field(repr=False)


@dataclass(frozen=True, slots=True)
class Letter:
    """Everything that is signed and sealed together.

    ``own_key`` is the sender's key-announcement, so that a stranger need not look for it;
    ``padded``: its size is to tell little.
    """

    header: Header
    text: str | None = None
    html: str | None = None
    ack_files: tuple[AckFile, ...] = ()
    own_key: bytes | None = None
    attachments: tuple[Attachment, ...] = ()
    forwarded: Forwarded | None = None
    padded: bool = False

    @property
    def source_files(self) -> tuple[Path, ...]:
        """Return the files that are read while the letter is packed."""
        attached = tuple(one.path for one in self.attachments)
        return attached if self.forwarded is None else (*attached, self.forwarded.zip_file)
