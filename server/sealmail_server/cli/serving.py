"""``sealmaild init`` and ``sealmaild run``."""

import asyncio
import logging
import sys
from pathlib import Path

import click

from sealmail_server.cli.common import data_option, or_fail
from sealmail_server.config import DEFAULT_LISTEN, BadConfig, Config, Listen
from sealmail_server.operator import dns_line
from sealmail_server.service import run_server, utc_now
from sealmail_server.setting_up import set_up

_LEVELS = (logging.WARNING, logging.INFO, logging.DEBUG)


@click.command()
@data_option
@click.option("--listen", default=DEFAULT_LISTEN, show_default=True, help="HOST:PORT to serve.")
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
