"""The program ``sealmail``: one file for each command, this one to gather them."""

from pathlib import Path

import click
from platformdirs import user_data_path

from sealmail_client.cli.acks import acks
from sealmail_client.cli.answers import forward, reply
from sealmail_client.cli.backup import backup, restore
from sealmail_client.cli.bypass import block, bypass, unblock
from sealmail_client.cli.doctor import doctor
from sealmail_client.cli.fetch import fetch
from sealmail_client.cli.identity import identity as identity_group
from sealmail_client.cli.init import init
from sealmail_client.cli.key import key
from sealmail_client.cli.mail import list_mail, read, save
from sealmail_client.cli.outbox import outbox
from sealmail_client.cli.pow import pow
from sealmail_client.cli.program import Program, Start
from sealmail_client.cli.search import search
from sealmail_client.cli.send import send
from sealmail_client.cli.server import server
from sealmail_client.household import Household


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
@click.option(
    "--identity",
    metavar="ADDRESS",
    envvar="SEALMAIL_IDENTITY",
    help="Which identity of the home, by address or key id; also from SEALMAIL_IDENTITY.",
)
@click.pass_context
def main(context: click.Context, home: Path, identity: str | None) -> None:
    """Write, seal, send, receive and verify mail that only its readers can open."""
    context.obj = Start(Household(home.absolute()), identity)


for _command in (
    *(init, identity_group, key, server),
    *(send, fetch, list_mail, read, save, search, reply, forward, outbox, acks),
    *(bypass, block, unblock),
    *(backup, restore, pow, doctor),
):
    main.add_command(_command)
