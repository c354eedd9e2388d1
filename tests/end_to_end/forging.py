"""What somebody can do who has a keyring and a connection, but keeps to no rule."""

import asyncio
import io
from pathlib import Path

from tests.end_to_end.programs import User

from sealmail_client.desk import utc_now
from sealmail_client.headers import Header, Place, Recipient
from sealmail_client.keyring import Keyring
from sealmail_client.letters import AckFile, Letter
from sealmail_client.message_zip import zip_chunks
from sealmail_net.dialing import DialSettings, dial
from sealmail_net.pins import MemoryPins
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
    keyring.import_public(Keyring(reader.home / "gnupg").public_key(reader.key_id))
    sealed = place / f"{data_key(content).hex}.pgp"
    whole = len(signature).to_bytes(2, "big") + signature + content
    keyring.encrypt(io.BytesIO(whole), sealed, (reader.key_id,))
    leave(reader, sealed.read_bytes())


def leave(reader: User, sealed: bytes) -> None:
    """Leave sealed bytes of one block in the mailbox of ``reader``."""
    asyncio.run(_deliver(reader, sealed))


async def _deliver(reader: User, data: bytes) -> None:
    key, date = data_key(data), utc_now()
    stamped = message_challenge(reader.key_id, key, date, (key,))
    announcement = make_announcement(
        date, mint(stamped, Difficulty(20, 2)), reader.key_id, "0", (key,), key
    )
    stamp = mint(data_challenge_prefix(date) + data, Difficulty(8, 2))
    local, address = DialSettings(allow_private_targets=True), reader.server.address
    async with await dial(address, local, MemoryPins(), strict_pin=False) as remote:
        header = make_data_header(date, stamp, len(data))
        assert await remote.store_data(key, header, (data,)) is Word.DONE
        mailbox = mailbox_key("0", reader.key_id)
        assert await remote.store(mailbox, announcement.lines) is Word.DONE
