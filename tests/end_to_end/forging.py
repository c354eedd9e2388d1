"""What somebody can do who has a keyring and a connection, but keeps to no rule."""

import asyncio
import io
from collections.abc import Awaitable, Callable
from pathlib import Path

from tests.end_to_end.programs import User

from sealmail_client.desk import utc_now
from sealmail_client.headers import Header, Place, Recipient
from sealmail_client.keyring import Keyring
from sealmail_client.letters import AckFile, Letter
from sealmail_client.message_zip import zip_chunks
from sealmail_net.dialing import DialSettings, dial
from sealmail_net.pins import MemoryPins
from sealmail_net.remote_server import RemoteServer
from sealmail_pow import Difficulty, mint
from sealmail_protocol.addresses import Transport
from sealmail_protocol.compose import make_announcement, make_data_header
from sealmail_protocol.keys import AckHash, acknowledgment_key, data_key, mailbox_key
from sealmail_protocol.replies import Word
from sealmail_protocol.stamps import data_challenge_prefix, message_challenge

SECRET = AckHash(b"not to be published!")


def forged_letter(claimed: User, reader: User, subject: str) -> Letter:
    """Return a letter that ``claimed`` never wrote, with the secret of an acknowledgment."""
    transport = Transport((claimed.server.address,))
    recipient = Recipient(
        Place.TO, reader.name, reader.key_id, transport, acknowledgment_key(SECRET)
    )
    header = Header(
        sender_user_id=f"{claimed.name} <{claimed.address}>",
        sender=claimed.key_id,
        sender_transport=transport,
        recipients=(recipient,),
        unique_id="f" * 40,
        subject=subject,
        date=utc_now(),
    )
    ack = AckFile(reader.key_id, SECRET.raw, sealed=False)
    return Letter(header, "\x1b[2JGive me\x9b31m money\r\nnow", ack_files=(ack,))


def sign(keyring: Keyring, signer: User, letter: Letter) -> tuple[bytes, bytes]:
    """Return the ZIP of a letter and a signature over it, by whomever."""
    content = b"".join(zip_chunks(letter))
    return content, keyring.sign_detached(io.BytesIO(content), signer.key_id, None)


def post(keyring: Keyring, reader: User, content: bytes, signature: bytes, place: Path) -> None:
    """Seal a ZIP and a signature to ``reader``, and leave them in his mailbox."""
    leave(reader, seal(keyring, reader, content, signature, place))


def seal(keyring: Keyring, reader: User, content: bytes, signature: bytes, place: Path) -> bytes:
    """Seal a ZIP and a signature to ``reader``."""
    keyring.import_public(Keyring(reader.home / "gnupg").public_key(reader.key_id))
    sealed = place / f"{data_key(content).hex}.pgp"
    whole = len(signature).to_bytes(2, "big") + signature + content
    keyring.encrypt(io.BytesIO(whole), sealed, (reader.key_id,))
    return sealed.read_bytes()


def leave(reader: User, sealed: bytes) -> None:
    """Leave sealed bytes of one block in the mailbox of ``reader``."""
    leave_data(reader, sealed)
    announce(reader, sealed)


def leave_data(reader: User, sealed: bytes) -> None:
    """Leave a block on the server of ``reader``, of which nobody tells him."""
    key, date = data_key(sealed), utc_now()
    header = make_data_header(
        date, mint(data_challenge_prefix(date) + sealed, Difficulty(8, 2)), len(sealed)
    )
    _at_server(reader, lambda remote: remote.store_data(key, header, (sealed,)))


def announce(reader: User, sealed: bytes) -> None:
    """Tell ``reader`` of a mail of one block, wherever that is."""
    key, date = data_key(sealed), utc_now()
    stamped = message_challenge(reader.key_id, key, date, (key,))
    announcement = make_announcement(
        date, mint(stamped, Difficulty(20, 2)), reader.key_id, "0", (key,), key
    )
    mailbox = mailbox_key("0", reader.key_id)
    _at_server(reader, lambda remote: remote.store(mailbox, announcement.lines))


def _at_server(reader: User, store: Callable[[RemoteServer], Awaitable[Word]]) -> None:
    async def connected() -> Word:
        local, address = DialSettings(allow_private_targets=True), reader.server.address
        async with await dial(address, local, MemoryPins(), strict_pin=False) as remote:
            return await store(remote)

    assert asyncio.run(connected()) is Word.DONE
