"""``sealmail acks``: who has opened what we sent."""

import asyncio

import click

from sealmail_client.acknowledgments import look_at_old_server, look_for_acknowledgments
from sealmail_client.cli.outbox import message_rows, tell_messages
from sealmail_client.cli.program import desk_of, json_option, show, tell_doubts
from sealmail_client.desk import Desk
from sealmail_client.following import follow_queue
from sealmail_client.posting import Peer
from sealmail_client.sending import Sender
from sealmail_client.servers import LoginRefused
from sealmail_net.errors import NetworkError


@click.command()
@json_option
@click.pass_context
def acks(context: click.Context, as_json: bool) -> None:
    """Ask your servers which messages were received, and show all that were sent."""
    with desk_of(context) as desk:
        unasked = asyncio.run(_ask(desk))
        messages = desk.outbox.all()
        show(message_rows(messages), as_json, lambda: tell_messages(messages))
        if unasked is not None:
            raise unasked


async def _ask(desk: Desk) -> NetworkError | LoginRefused | None:
    """Ask both servers, each whatever the other does; return why home was not asked."""

    async def errand(peer: Peer) -> tuple[str, ...]:
        await look_for_acknowledgments(desk, peer)
        return await follow_queue(desk, peer, Sender(desk))

    unasked: NetworkError | LoginRefused | None = None
    try:
        tell_doubts(await desk.servers.at_home(errand))
    except (NetworkError, LoginRefused) as error:
        unasked = error
    tell_doubts(await look_at_old_server(desk))
    return unasked
