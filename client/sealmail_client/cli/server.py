"""``sealmail server``: what is known of servers."""

import click

from sealmail_client.cli.program import desk_of
from sealmail_client.cli.values import SERVER
from sealmail_client.errors import ClientError
from sealmail_protocol.addresses import ServerAddress


class NoSuchServer(ClientError):
    """Nothing is known of this server: see that HOST:PORT is written as before."""

    exit_code = 21


@click.group()
def server() -> None:
    """Judge the servers that mail goes through."""


@server.command()
@click.argument("address", metavar="HOST:PORT", type=SERVER)
@click.pass_context
def forget(context: click.Context, address: ServerAddress) -> None:
    """Forget the TLS key of a server, once its operator said that it has a new one.

    The key that it shows next is then trusted as at the first connection.
    """
    with desk_of(context) as desk:
        if not desk.servers.pins.forget(address):
            raise NoSuchServer(f"no key of {address} is known: is that how it was named before?")
        click.echo(f"forgot the key of {address}: the next one it shows will be trusted")
