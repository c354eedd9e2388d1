"""``sealmail backup`` and ``sealmail restore``: a whole home in one file."""

from pathlib import Path

import click

from sealmail_client.backup import BackupContent, restore_backup, write_backup
from sealmail_client.cli.program import Start, json_option, readable, show
from sealmail_client.desk import utc_now
from sealmail_client.errors import CannotWrite


@click.command()
@click.argument("file", type=click.Path(path_type=Path))
@json_option
@click.pass_context
def backup(context: click.Context, file: Path, as_json: bool) -> None:
    """Write every identity of this home, with keys and mail, to FILE.

    It holds all that makes you you: the secret keys (locked by their passphrases, if they have
    any), the auth keys, and your mail as it can be read. Keep it as safe as the home itself.
    """
    start: Start = context.obj
    if file.exists():
        raise CannotWrite(f"{file} is there already: name another file")
    content = write_backup(start.household, file, utc_now())
    told = f"{file} holds {_told(content)}: secret keys, auth keys, and mail in the clear"
    show({"file": str(file), **_row(content)}, as_json, lambda: click.echo(told))


@click.command()
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@json_option
@click.pass_context
def restore(context: click.Context, file: Path, as_json: bool) -> None:
    """Bring back what `sealmail backup` wrote to FILE, into an empty home."""
    start: Start = context.obj
    content = restore_backup(file, start.household)
    home = start.household.path
    told = f"{home} holds {_told(content)}, as of {readable(content.made)}"
    show({"home": str(home), **_row(content)}, as_json, lambda: click.echo(told))


def _row(content: BackupContent) -> dict[str, object]:
    return {
        "made": content.made,
        "identities": list(content.identities),
        "files": content.files,
        "size": content.size,
    }


def _told(content: BackupContent) -> str:
    people = ", ".join(content.identities)
    return f"{readable(people)} ({content.files} files, {content.size} bytes)"
