"""The end of a key: revoked for everybody, and for good."""

import asyncio
from pathlib import Path

from sealmail_client.desk import Desk
from sealmail_client.errors import BadKey, ClientError, NoSuchKey
from sealmail_client.own_key import OwnKey
from sealmail_client.presence import stay_findable
from sealmail_client.safe_files import write_private


class SecretKeyLost(ClientError):
    """Only the holder of the secret key can publish its end: others must be told in person."""

    exit_code = 26


async def revoke_identity(
    desk: Desk, certificate: str, *, key_lost: bool = False
) -> tuple[str, ...]:
    """Revoke the user's key and publish that; return why a server does not know it yet.

    The announcement is signed first, then the revocation is applied here, then it is posted.
    Whatever stops us in between, a repeat or the next fetch goes on. ``SecretKeyLost`` if the
    key cannot sign any more, or the user says that he cannot open it: then it is revoked here
    only. ``BadKey`` if the certificate is not of this key.
    """
    own = OwnKey(desk.keyring, desk.settings.key_id, None)
    if not desk.own_blocks.revoked:
        revoked_key = await asyncio.to_thread(own.when_revoked, certificate)
        if not key_lost:
            try:
                await desk.publisher.write_revocation(revoked_key)
            except NoSuchKey:
                key_lost = True
        if key_lost:
            desk.own_blocks.keep_revocation(None, desk.clock())
            await asyncio.to_thread(own.revoke, certificate)
            raise SecretKeyLost(_lost(desk, revoked_key))
    await asyncio.to_thread(own.revoke, certificate)
    return await stay_findable(desk)


def read_certificate(desk: Desk, path: Path | None) -> str:
    """Return the text of the certificate at ``path``, without one that of the home."""
    try:
        return (path or desk.home.revocation_file).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise BadKey(
            f"the revocation certificate cannot be read ({error}): "
            "name the copy that you kept by --certificate"
        ) from None


def _lost(desk: Desk, revoked_key: str) -> str:
    """Leave the revoked key in a file, and return what the user can do."""
    path = desk.home.path / "revoked-key.asc"
    write_private(path, revoked_key.encode())
    return (
        "the secret key is not here or stays locked, and only it can sign the announcement of its "
        f"end, so servers cannot be told. The revoked public key is in {path}: send it to "
        "those who write to you; your address is free 10 days after you last published it"
    )
