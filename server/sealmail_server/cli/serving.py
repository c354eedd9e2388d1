"""``sealmaild init`` and ``sealmaild run``."""

import asyncio
import logging
import sys
from pathlib import Path

import click

from sealmail_protocol.addresses import Network
from sealmail_server.cli.common import data_option, or_fail
from sealmail_server.config import CONFIG_NAME, DEFAULT_LISTEN, Config
from sealmail_server.hidden import hidden_addresses
from sealmail_server.operator import dns_line
from sealmail_server.service import run_server, utc_now
from sealmail_server.setting_rules import BadConfig, Listen
from sealmail_server.setting_up import set_up

# Where Debian's tor may keep the keys of services that torrc names.
_TOR_DIRECTORY = "/var/lib/tor/sealmail"
_LEVELS = (logging.WARNING, logging.INFO, logging.DEBUG)


@click.command()
@data_option
@click.option(
    "--listen",
    metavar="HOST:PORT",
    default=DEFAULT_LISTEN,
    show_default=True,
    help="Where to serve.",
)
@click.option(
    "--name",
    "names",
    multiple=True,
    default=("localhost",),
    show_default=True,
    help="Host name, for the certificate; may be repeated, the public one first.",
)
@click.option("--domain", default="", help="Domain of the users' addresses; default: the name.")
def init(data: Path, listen: str, names: tuple[str, ...], domain: str) -> None:
    """Make a new server: configuration, TLS key and certificate, store, first auth keys."""
    config, keys = or_fail(lambda: set_up(data, Listen.parse(listen), names, domain, utc_now))
    click.echo(f"administrator auth key: {keys.administrator}")
    click.echo(f"replication auth key: {keys.replication}")
    try:
        click.echo(f"DNS record: {dns_line(config, config.address.port)}")
    except BadConfig as error:
        click.echo(f"DNS record: none yet, since {error}")
    click.echo(
        f"The auth keys are shown this once. Next: sealmaild run --data {data},"
        f" then sealmaild account invite --data {data}",
        err=True,
    )


@click.command()
@data_option
def onion(data: Path) -> None:
    """Print the onion address of this server, or what torrc needs to make one."""
    directory = data.absolute()
    config = or_fail(lambda: Config.load(directory))
    for address in or_fail(lambda: hidden_addresses(directory, config)):
        click.echo(str(address))
    if config.tor_control:
        click.echo(f"'sealmaild run' publishes it by {config.tor_control}", err=True)
        return
    at = config.hidden_addresses.get(Network.TOR, "127.0.0.1:8082")
    click.echo(f"HiddenServiceDir {_TOR_DIRECTORY}")
    click.echo("HiddenServiceVersion 3")
    click.echo(f"HiddenServicePort {config.hidden_port} {at}")
    click.echo(
        f"Put these lines into torrc, restart tor, and set in {directory / CONFIG_NAME}:\n"
        f'  hidden_listen = "{at}"\n'
        f"  hidden_names = [...], the host that tor writes to {_TOR_DIRECTORY}/hostname",
        err=True,
    )


@click.command()
@data_option
@click.option(
    "-v", "--verbose", count=True, help="Log every block; twice: every command, without secrets."
)
def run(data: Path, verbose: int) -> None:
    """Serve until SIGTERM or Ctrl-C; SIGHUP takes up a new certificate."""
    logging.basicConfig(
        level=_LEVELS[min(verbose, len(_LEVELS) - 1)],
        format="%(asctime)s %(levelname)s %(message)s",
        stream=sys.stderr,
    )
    directory = data.absolute()
    config = or_fail(lambda: Config.load(directory))

    def announce(listen: Listen) -> None:
        click.echo(f"sealmaild: listening on {listen}")
        sys.stdout.flush()

    or_fail(lambda: asyncio.run(run_server(directory, config, announce)))
