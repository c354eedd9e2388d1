"""``sealmail identity export|rotate|passphrase|revoke``: the user's own key."""

import asyncio
from dataclasses import replace
from pathlib import Path

import click

from sealmail_client.cli.program import desk_of, json_option, show, tell_doubts
from sealmail_client.desk import Desk
from sealmail_client.errors import CannotWrite
from sealmail_client.own_key import OwnKey
from sealmail_client.passphrases import NEW_PASSPHRASE_FILE, ask_new_passphrase
from sealmail_client.presence import publish_everywhere
from sealmail_client.revoking import read_certificate, revoke_identity
from sealmail_client.safe_files import create_private
from sealmail_client.settings import Locked


@click.command()
@click.argument("file", type=click.Path(path_type=Path))
@click.pass_context
def export(context: click.Context, file: Path) -> None:
    """Write the secret key to FILE, which must not exist yet; only you can read it."""
    with desk_of(context) as desk:
        secret = _own_key(desk).hand_out()
        try:
            with create_private(file) as target:
                target.write(secret)
        except FileExistsError:
            raise CannotWrite(f"{file} is there already: name another file") from None
        locked = desk.settings.passphrase is not Locked.NOTHING
    click.echo(f"the secret key is in {file}")
    guard = "and guesses its passphrase " if locked else ""
    click.echo(f"warning: whoever has this file {guard}is you: keep it safe", err=True)


@click.command()
@json_option
@click.pass_context
def rotate(context: click.Context, as_json: bool) -> None:
    """Let mail be sealed to a new subkey from now on, and publish it.

    The former one ends, and is kept to open mail that was sealed to it.
    """
    with desk_of(context) as desk:
        desk.require_valid_key()
        added = _own_key(desk).rotate()
        tell_doubts(asyncio.run(publish_everywhere(desk)))
        show(
            {"key_id": desk.settings.key_id.hex, "subkey": added},
            as_json,
            lambda: click.echo(f"mail is sealed to the subkey {added} from now on"),
        )


@click.command(name="passphrase")
@click.option("--no-passphrase", is_flag=True, help="The key is not locked on this machine.")
@click.pass_context
def change_passphrase(context: click.Context, no_passphrase: bool) -> None:
    """Change the passphrase of the key.

    Scripts name the present one by SEALMAIL_PASSPHRASE_FILE, the new one by
    SEALMAIL_NEW_PASSPHRASE_FILE.
    """
    with desk_of(context) as desk:
        own = _own_key(desk)
        if desk.settings.passphrase is Locked.AGENT:
            own.change_passphrase(None)
            click.echo("gpg-agent has asked for it")
            return
        new = None if no_passphrase else ask_new_passphrase(NEW_PASSPHRASE_FILE)
        try:
            own.change_passphrase(new)
        except ValueError as error:
            raise click.BadParameter(str(error)) from None
        lock = Locked.NOTHING if new is None else Locked.PASSPHRASE
        desk.change(replace(desk.settings, passphrase=lock))
        click.echo(
            "the key has no passphrase any more" if new is None else "the passphrase is changed"
        )


@click.command()
@click.option("--yes", is_flag=True, help="Do not ask whether that is meant.")
@click.option(
    "--certificate",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="A revocation certificate; without it, the one in the home.",
)
@click.option(
    "--key-lost",
    is_flag=True,
    help="The secret key or its passphrase is gone: write the revoked public key to a file for "
    "your correspondents, since servers cannot be told.",
)
@json_option
@click.pass_context
def revoke(
    context: click.Context, yes: bool, certificate: Path | None, key_lost: bool, as_json: bool
) -> None:
    """Declare the own key void, for everybody and for good.

    Nothing is sent, claimed or published with it any more, and nobody seals to it. Mail that you
    have can still be read.
    """
    with desk_of(context) as desk:
        settings = desk.settings
        text = read_certificate(desk, certificate)
        if not yes and not desk.own_blocks.revoked:
            click.echo(f"{settings.user_id}, {settings.key_id}: this cannot be undone.", err=True)
            click.confirm("Revoke this key?", abort=True, err=True)
        doubts = asyncio.run(revoke_identity(desk, text, key_lost=key_lost))
    show(
        {"key_id": settings.key_id.hex, "revoked": True, "published": not doubts},
        as_json,
        lambda: click.echo(f"{settings.key_id} is revoked"),
    )
    tell_doubts(doubts)
    if doubts:
        click.echo("the next `sealmail fetch` or `sealmail key publish` tries again", err=True)


def _own_key(desk: Desk) -> OwnKey:
    return OwnKey(desk.keyring, desk.settings.key_id, desk.passphrase)
