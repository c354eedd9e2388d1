"""``sealmail fetch``: bring new mail home, and send what still waits."""

import asyncio
from dataclasses import replace

import click

from sealmail_client.acknowledgments import look_for_acknowledgments
from sealmail_client.cli.mail import mail_row, mail_table
from sealmail_client.cli.program import desk_of, json_option, readable, show, tell_doubts
from sealmail_client.desk import Desk
from sealmail_client.inbox import ArrivingMessage, Step
from sealmail_client.presence import stay_findable
from sealmail_client.receiving import Arrivals, Receiver
from sealmail_client.sending import Sender


@click.command()
@click.option(
    "--all",
    "everything",
    is_flag=True,
    help="Ask for all mail again, underpaid and refused mail too.",
)
@json_option
@click.pass_context
def fetch(context: click.Context, everything: bool, as_json: bool) -> None:
    """Fetch, open, verify, file and acknowledge new mail.

    What waits in the outbox is tried again, and the own key is published again when it is due.
    """
    with desk_of(context) as desk:
        arrivals = asyncio.run(_fetch(desk, everything))
        filed = tuple(desk.folders.one(number) for number in arrivals.filed)
        rows = {
            "filed": [mail_row(mail) for mail in filed],
            "waiting": [_waiting_row(one) for one in arrivals.waiting],
            "refused": [_waiting_row(one) for one in arrivals.refused],
        }
        show(rows, as_json, lambda: _tell(arrivals, mail_table(filed)))
    tell_doubts(arrivals.doubts)


async def _fetch(desk: Desk, everything: bool) -> Arrivals:
    async with desk.servers.home() as peer:
        doubts = await stay_findable(desk, peer)
        arrivals = await Receiver(desk).visit(peer, everything=everything)
        await look_for_acknowledgments(desk, peer)
    await Sender(desk).work()
    return replace(arrivals, doubts=doubts + arrivals.doubts)


def _waiting_row(message: ArrivingMessage) -> dict[str, object]:
    return {
        "date": message.announcement.date.isoformat(),
        "blocks": len(message.announcement.data_blocks),
        "bits": message.bits,
        "token": message.announcement.token is not None,
        "state": str(message.step),
        "reason": message.reason,
    }


def _tell(arrivals: Arrivals, table: str) -> None:
    click.echo(table if arrivals.filed else "no new mail")
    for message in arrivals.waiting:
        click.echo(f"waiting: {_described(message)}")
    for message in arrivals.refused:
        click.echo(f"refused: {_described(message)}")


def _described(message: ArrivingMessage) -> str:
    announcement = message.announcement
    about = f"a mail of {announcement.date.isoformat()}, {len(announcement.data_blocks)} blocks"
    if message.step is Step.UNDERPAID:
        token = " and a token that is not honoured" if announcement.token else ""
        return (
            f"{about}, stamped with {message.bits} bits only{token}; "
            "`sealmail fetch --all` takes it"
        )
    return f"{about}: {readable(message.reason)}"
