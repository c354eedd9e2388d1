"""The program ``sealmail``: one file for each command, this one to gather them."""

from pathlib import Path

import click
from platformdirs import user_data_path

from sealmail_client.cli.acks import acks
from sealmail_client.cli.fetch import fetch
from sealmail_client.cli.init import init
from sealmail_client.cli.key import key
from sealmail_client.cli.mail import list_mail, read, save
from sealmail_client.cli.outbox import outbox
from sealmail_client.cli.pow import pow
from sealmail_client.cli.program import Program
from sealmail_client.cli.send import send
from sealmail_client.cli.server import server
from sealmail_client.profile import Home


@click.group(
    cls=Program, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 99}
)
@click.version_option(package_name="sealmail", prog_name="sealmail")
@click.option(
    "--home",
    type=click.Path(file_okay=False, path_type=Path),
    envvar="SEALMAIL_HOME",
    default=lambda: user_data_path("sealmail"),
    help="The directory of keys, settings and mail; also from SEALMAIL_HOME.",
)
@click.pass_context
def main(context: click.Context, home: Path) -> None:
    """Write, seal, send, receive and verify mail that only its readers can open."""
    context.obj = Home(home.absolute())


for _command in (init, key, send, fetch, list_mail, read, save, outbox, acks, server, pow):
    main.add_command(_command)
