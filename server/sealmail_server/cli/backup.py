"""``sealmaild backup`` and ``sealmaild restore``."""

from pathlib import Path

import click

from sealmail_server import backups
from sealmail_server.cli.common import ask, data_option, json_option, or_fail, print_json


@click.command()
@click.argument("target", type=click.Path(path_type=Path, file_okay=False))
@data_option
@json_option
def backup(target: Path, data: Path, as_json: bool) -> None:
    """Copy the whole server into TARGET, a new or empty directory, while it may be running."""
    done = ask(data, do="backup", target=str(target.absolute()))
    if as_json:
        print_json(done)
    else:
        click.echo(f"copied to {done['backup']}")


@click.command()
@click.argument("backup", type=click.Path(path_type=Path, file_okay=False, exists=True))
@data_option
def restore(backup: Path, data: Path) -> None:
    """Make the server of BACKUP again, in --data DIR, which must be new or empty."""
    or_fail(lambda: backups.restore(backup.absolute(), data.absolute()))
    click.echo(f"restored into {data}")
