"""``sealmail init``: a key pair, an account, and a first word to the world."""

import asyncio
import getpass
from typing import get_args

import click

from sealmail_client.cli.program import watcher
from sealmail_client.cli.values import ADDRESS, PRICE, SERVER
from sealmail_client.desk import Desk, open_desk
from sealmail_client.keyring import Algorithm, Keyring
from sealmail_client.profile import Home
from sealmail_client.settings import DEFAULT_MAILBOXES, DEFAULT_PRICE, AuthKey, Settings
from sealmail_pow import Difficulty
from sealmail_protocol.addresses import ServerAddress, Transport


@click.command()
@click.option("--name", prompt="Your name", help="The name that others see.")
@click.option("--address", prompt="Your mail address", type=ADDRESS, help="The address to claim.")
@click.option(
    "--server",
    "servers",
    prompt="Your server (HOST:PORT)",
    type=SERVER,
    multiple=True,
    help="The home server; repeat it for the other servers of its group.",
)
@click.option(
    "--auth-key",
    prompt="The auth key your operator gave you",
    hide_input=True,
    envvar="SEALMAIL_AUTH_KEY",
    help="What opens the account; asked for if absent, also from SEALMAIL_AUTH_KEY.",
)
@click.option(
    "--price",
    type=PRICE,
    default=DEFAULT_PRICE,
    show_default=str(DEFAULT_PRICE),
    help="The stamp that strangers must pay to write to you.",
)
@click.option(
    "--algorithm",
    type=click.Choice(get_args(Algorithm)),
    default="ed25519",
    show_default=True,
    help="The kind of key; original Confidant Mail clients with GnuPG 1.4 need rsa3072.",
)
@click.option("--no-passphrase", is_flag=True, help="Leave the key unlocked on this machine.")
@click.option(
    "--allow-private-targets",
    is_flag=True,
    help="Allow servers in private networks and on this machine.",
)
@click.pass_context
def init(
    context: click.Context,
    name: str,
    address: str,
    servers: tuple[ServerAddress, ...],
    auth_key: str,
    price: Difficulty,
    algorithm: Algorithm,
    no_passphrase: bool,
    allow_private_targets: bool,
) -> None:
    """Make an identity: a key pair and an account, published on the home server."""
    home: Home = context.obj
    with home.locked():
        home.refuse_second_identity()
        try:
            secret = AuthKey(auth_key)
        except ValueError as error:
            raise click.BadParameter(str(error), param_hint="--auth-key") from None
        passphrase = None if no_passphrase else _new_passphrase()
        with Keyring(home.keyring) as keyring:
            try:
                key_id = keyring.create(name, address, passphrase, algorithm)
                settings = Settings(
                    key_id,
                    name,
                    address,
                    Transport(servers),
                    DEFAULT_MAILBOXES,
                    price,
                    passphrase is not None,
                    allow_private_targets,
                )
            except ValueError as error:
                raise click.BadParameter(str(error)) from None
        home.save_auth_key(secret)
        home.save(settings)
    click.echo(f"your key is {key_id}")
    with open_desk(home, alone=True, watcher=watcher(), ask=lambda: passphrase) as desk:
        asyncio.run(_publish(desk))
    click.echo(f"published on {settings.transport}: others find you as {address}")


async def _publish(desk: Desk) -> None:
    async with desk.servers.home() as peer:
        await desk.publisher.publish(peer)


def _new_passphrase() -> str:
    while True:
        first = getpass.getpass("A passphrase for your key: ")
        if not first:
            click.echo("it is empty; use --no-passphrase if you want none", err=True)
        elif first == getpass.getpass("The same again: "):
            return first
        else:
            click.echo("they differ", err=True)
