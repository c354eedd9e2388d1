"""``sealmail search``: find filed mail again."""

import click

from sealmail_client.cli.mail import mail_row, tell_mails
from sealmail_client.cli.program import desk_of, json_option, show
from sealmail_client.folders import Folder
from sealmail_client.searching import search as search_mail


@click.command()
@click.argument("text")
@click.option(
    "--folder",
    type=click.Choice([str(folder) for folder in Folder]),
    help="Search one folder only.",
)
@json_option
@click.pass_context
def search(context: click.Context, text: str, folder: str | None, as_json: bool) -> None:
    """List the mail that has every word of TEXT in its subject, people, text or attachments."""
    with desk_of(context, alone=False) as desk:
        found = search_mail(desk.folders, text, None if folder is None else Folder(folder))
        show(
            [mail_row(mail) for mail in found],
            as_json,
            lambda: tell_mails(found, "nothing found"),
        )
