"""``sealmaild``: the operator's program, a file for each group of commands."""

import click

from sealmail_server.cli.account import account
from sealmail_server.cli.backup import backup, restore
from sealmail_server.cli.common import Commands
from sealmail_server.cli.health import clock, doctor, status
from sealmail_server.cli.pairing import pair
from sealmail_server.cli.queue import queue
from sealmail_server.cli.serving import init, onion, run


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="sealmail", prog_name="sealmaild")
def main() -> None:
    """Run a Sealmail server and look after it."""


for command in (init, run, onion, account, status, doctor, clock, pair, queue, backup, restore):
    main.add_command(command)
