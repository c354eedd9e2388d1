"""From a draft to sealed bytes on disk.

``SealOrder.of`` gathers what the letter needs; ``carry_out`` does the slow work of gpg and the
disk, and may run in a thread.
"""

import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path

from sealmail_client.ack_files import AckSecret
from sealmail_client.cutting import CutMessage
from sealmail_client.drafts import Draft
from sealmail_client.headers import Header, Place, Recipient
from sealmail_client.keyring import Keyring
from sealmail_client.letters import AckFile, Attachment, Letter
from sealmail_client.safe_files import (
    make_private,
    sync_directory,
    write_private,
)
from sealmail_client.sealing import seal
from sealmail_client.settings import Settings
from sealmail_protocol.blocks import KeyAnnouncement
from sealmail_protocol.keys import AckHash, BlockKey, KeyId, acknowledgment_key


@dataclass(frozen=True, slots=True)
class SealedFiles:
    """Where a message lies between its seal and the last acknowledgment."""

    directory: Path

    @property
    def sealed(self) -> Path:
        """What is sent."""
        return self.directory / "sealed.pgp"

    @property
    def zip_file(self) -> Path:
        """What was signed and sealed, for the sender's own folder."""
        return self.directory / "message.zip"

    @property
    def signature(self) -> Path:
        """The signature over it."""
        return self.directory / "signature"

    def remove(self) -> None:
        """Let go of everything."""
        shutil.rmtree(self.directory, ignore_errors=True)


@dataclass(frozen=True, slots=True)
class SealOrder:
    """All that is needed to write, sign and seal one message."""

    settings: Settings
    draft: Draft
    announcements: Mapping[KeyId, KeyAnnouncement]
    own_key: bytes | None
    date: datetime
    secrets: Mapping[KeyId, AckHash] = field(repr=False)

    @classmethod
    def of(
        cls,
        settings: Settings,
        draft: Draft,
        announcements: Mapping[KeyId, KeyAnnouncement],
        own: KeyAnnouncement | None,
        date: datetime,
        random_bytes: Callable[[int], bytes],
    ) -> "SealOrder":
        """Make up the secrets by which each recipient will acknowledge the message."""
        acks = {key_id: AckHash(random_bytes(20)) for key_id in announcements}
        own_key = own.signed.message if own is not None else None
        return cls(settings, draft, announcements, own_key, date, acks)

    @property
    def ack_keys(self) -> dict[KeyId, BlockKey]:
        """Return where the acknowledgment of each recipient will be."""
        return {key_id: acknowledgment_key(ack) for key_id, ack in self.secrets.items()}

    def carry_out(
        self, files: SealedFiles, keyring: Keyring, passphrase: str | None
    ) -> CutMessage:
        """Write, sign and seal; what an earlier try left in ``files`` is replaced."""
        for announcement in self.announcements.values():
            keyring.import_public(announcement.signed.armored_key.decode())
        files.remove()
        make_private(files.directory)
        sync_directory(files.directory.parent)
        letter = self._letter(keyring)
        sealed = seal(
            letter,
            keyring=keyring,
            signer=self.settings.key_id,
            passphrase=passphrase,
            readers=tuple(self.announcements),
            target=files.sealed,
            copy=files.zip_file,
        )
        write_private(files.signature, sealed.signature)
        return sealed.pieces

    def _letter(self, keyring: Keyring) -> Letter:
        return Letter(
            header=self._header(),
            text=self.draft.text,
            ack_files=tuple(self._ack_file(key_id, keyring) for key_id in self.announcements),
            own_key=self.own_key,
            attachments=tuple(Attachment(path.name, path) for path in self.draft.attachments),
            padded=self.settings.pad_sizes,
        )

    def _header(self) -> Header:
        ack_keys = self.ack_keys
        return Header(
            sender_user_id=self.settings.user_id,
            sender=self.settings.key_id,
            sender_transport=self.settings.transport,
            recipients=tuple(
                Recipient(Place.TO, one.user_id, key_id, one.transport, ack_keys[key_id])
                for key_id, one in self.announcements.items()
            ),
            unique_id=self.draft.unique_id,
            subject=self.draft.subject,
            date=self.date,
        )

    def _ack_file(self, key_id: KeyId, keyring: Keyring) -> AckFile:
        """Seal a secret to its recipient alone, unless he is the only one anyway."""
        content = AckSecret(self.secrets[key_id]).to_bytes()
        if len(self.secrets) == 1:
            return AckFile(key_id, content, sealed=False)
        return AckFile(key_id, keyring.encrypt_bytes(content, (key_id,)), sealed=True)
