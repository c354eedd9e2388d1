"""``sealmail backup`` and ``sealmail restore``: a whole home in one file."""

from pathlib import Path

import click

from sealmail_client.backup import BackupContent, restore_backup, write_backup
from sealmail_client.cli.program import Start, readable
from sealmail_client.desk import utc_now
from sealmail_client.errors import CannotWrite


@click.command()
@click.argument("file", type=click.Path(path_type=Path))
@click.pass_context
def backup(context: click.Context, file: Path) -> None:
    """Write every identity of this home, with keys and mail, to FILE.

    It holds all that makes you you: the secret keys (locked by their passphrases, if they have
    any), the auth keys, and your mail as it can be read. Keep it as safe as the home itself.
    """
    start: Start = context.obj
    if file.exists():
        raise CannotWrite(f"{file} is there already: name another file")
    content = write_backup(start.household, file, utc_now())
    click.echo(f"{file} holds {_told(content)}: secret keys, auth keys, and mail in the clear")


@click.command()
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.pass_context
def restore(context: click.Context, file: Path) -> None:
    """Bring back what `sealmail backup` wrote to FILE, into an empty home."""
    start: Start = context.obj
    content = restore_backup(file, start.household)
    click.echo(f"{start.household.path} holds {_told(content)}, as of {readable(content.made)}")


def _told(content: BackupContent) -> str:
    people = ", ".join(content.identities)
    return f"{readable(people)} ({content.files} files, {content.size} bytes)"
