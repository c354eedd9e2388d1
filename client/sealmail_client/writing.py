"""From a draft to sealed bytes on disk.

``SealOrder.of`` gathers what the letter needs; ``carry_out`` does the slow work of gpg and the
disk, and may run in a thread.
"""

import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path

from sealmail_client.ack_files import AckSecret, GivenSecret
from sealmail_client.cutting import PIECE_SIZE, CutMessage, Piece
from sealmail_client.drafts import Draft
from sealmail_client.headers import Header, Recipient
from sealmail_client.keyring import Keyring
from sealmail_client.letters import AckFile, Attachment, Forwarded, Letter
from sealmail_client.message_zip import open_letter
from sealmail_client.progress import NOBODY, Watcher
from sealmail_client.safe_files import (
    make_private,
    sync_directory,
    write_private,
)
from sealmail_client.sealing import seal
from sealmail_client.settings import Settings
from sealmail_protocol.addresses import Transport
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

    @property
    def unpacked(self) -> Path:
        """Attachments of another mail that go with this one."""
        return self.directory / "unpacked"

    def remove(self) -> None:
        """Let go of everything."""
        shutil.rmtree(self.directory, ignore_errors=True)


@dataclass(frozen=True, slots=True)
class SealOrder:
    """All that is needed to write, sign and seal one copy of a mail.

    ``announcements`` are those of its readers; whom it names besides is reached by
    ``transports``. ``bypass`` are the secrets that readers who know of such are told.
    """

    settings: Settings
    draft: Draft
    announcements: Mapping[KeyId, KeyAnnouncement]
    own_key: bytes | None
    date: datetime
    secrets: Mapping[KeyId, AckHash] = field(repr=False)
    bypass: Mapping[KeyId, GivenSecret] = field(default_factory=dict)
    transports: Mapping[KeyId, Transport] = field(default_factory=dict)

    @classmethod
    def of(
        cls,
        settings: Settings,
        draft: Draft,
        announcements: Mapping[KeyId, KeyAnnouncement],
        own: KeyAnnouncement | None,
        date: datetime,
        random_bytes: Callable[[int], bytes],
        bypass: Mapping[KeyId, GivenSecret],
        transports: Mapping[KeyId, Transport],
    ) -> "SealOrder":
        """Make up the secrets by which each recipient will acknowledge the message."""
        acks = {key_id: AckHash(random_bytes(20)) for key_id in announcements}
        own_key = own.signed.message if own is not None else None
        return cls(settings, draft, announcements, own_key, date, acks, bypass, transports)

    @property
    def ack_keys(self) -> dict[KeyId, BlockKey]:
        """Return where the acknowledgment of each recipient will be."""
        return {key_id: acknowledgment_key(ack) for key_id, ack in self.secrets.items()}

    def carry_out(
        self,
        files: SealedFiles,
        keyring: Keyring,
        passphrase: str | None,
        found: Callable[[Piece], object] | None = None,
        piece_size: int = PIECE_SIZE,
        watcher: Watcher = NOBODY,
    ) -> CutMessage:
        """Write, sign and seal; what an earlier try left in ``files`` is replaced.

        ``found`` is told of each piece as soon as it is sealed.
        """
        for announcement in self.announcements.values():
            keyring.import_public(announcement.signed.armored_key.decode())
        files.remove()
        make_private(files.directory)
        sync_directory(files.directory.parent)
        letter = self._letter(keyring, files)
        sealed = seal(
            letter,
            keyring=keyring,
            signer=self.settings.key_id,
            passphrase=passphrase,
            readers=tuple(self.announcements),
            target=files.sealed,
            zip_file=files.zip_file,
            found=found,
            piece_size=piece_size,
            watcher=watcher,
        )
        write_private(files.signature, sealed.signature)
        shutil.rmtree(files.unpacked, ignore_errors=True)
        return sealed.pieces

    def _letter(self, keyring: Keyring, files: SealedFiles) -> Letter:
        attached = (*self.draft.attachments, *_forwarded_attachments(self.draft, files))
        return Letter(
            header=self._header(),
            text=self.draft.text,
            html=self.draft.html,
            ack_files=tuple(self._ack_file(key_id, keyring) for key_id in self.announcements),
            own_key=self.own_key,
            attachments=tuple(Attachment(path.name, path) for path in attached),
            padded=self.settings.pad_sizes,
            forwarded=_forwarded_whole(self.draft),
        )

    def _header(self) -> Header:
        ack_keys = self.ack_keys
        forwarded = self.draft.forwarded
        return Header(
            sender_user_id=self.settings.user_id,
            sender=self.settings.key_id,
            sender_transport=self.settings.transport,
            recipients=tuple(
                Recipient(
                    one.place,
                    one.user_id,
                    one.key_id,
                    self.transports.get(one.key_id),
                    ack_keys.get(one.key_id),
                )
                for one in self.draft.named_to(self.announcements)
            ),
            unique_id=self.draft.unique_id,
            subject=self.draft.subject,
            date=self.date,
            reply_thread_id=self.draft.reply_thread_id,
            forwarded_id=None if forwarded is None else forwarded.signed_as,
        )

    def _ack_file(self, key_id: KeyId, keyring: Keyring) -> AckFile:
        """Seal a secret to its recipient alone, unless he is the only one anyway.

        A bypass secret is always sealed: the letter may be forwarded, and the file with it.
        """
        bypass = self.bypass.get(key_id)
        content = AckSecret(self.secrets[key_id], bypass).to_bytes()
        if len(self.secrets) == 1 and bypass is None:
            return AckFile(key_id, content, sealed=False)
        return AckFile(key_id, keyring.encrypt_bytes(content, (key_id,)), sealed=True)


def _forwarded_whole(draft: Draft) -> Forwarded | None:
    forwarded = draft.forwarded
    if forwarded is None or forwarded.signed_as is None:
        return None
    signature = forwarded.signature_file.read_bytes()
    return Forwarded(forwarded.signed_as, forwarded.zip_file, signature)


def _forwarded_attachments(draft: Draft, files: SealedFiles) -> list[Path]:
    """Unpack what is attached to a forwarded mail, for as long as this one is on its way."""
    forwarded = draft.forwarded
    if forwarded is None or forwarded.signed_as is not None:
        return []
    directory = make_private(files.unpacked)
    original = open_letter(forwarded.zip_file)
    return [original.save_attachment(one.name, directory) for one in original.attachments]
