"""The program ``sealmail``: one file for each command, this one to gather them."""

from pathlib import Path

import click
from platformdirs import user_data_path

from sealmail_client.cli.pow import pow


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 99})
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
    context.obj = home


main.add_command(pow)
