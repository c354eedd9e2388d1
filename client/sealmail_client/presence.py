"""Being found: the own key and claim are on every server of the user before they age."""

from sealmail_client.desk import Desk
from sealmail_client.posting import Peer
from sealmail_client.publishing import NotPublished
from sealmail_client.servers import LoginRefused
from sealmail_client.settings import Place
from sealmail_net.errors import NetworkError

_NO_REASON_TO_STOP = (NetworkError, NotPublished, LoginRefused)


async def stay_findable(desk: Desk, home: Peer | None = None) -> tuple[str, ...]:
    """Post key and claim wherever that is due; return why a server did not take them.

    ``home`` is the home server if it is connected already. Others may not find the user then,
    which is no reason not to read or write mail.
    """
    doubts = []
    if desk.own_blocks.due(desk.clock()):
        try:
            if home is not None:
                await desk.publisher.publish_if_due(home)
            else:
                await desk.servers.at_home(desk.publisher.publish_if_due)
        except _NO_REASON_TO_STOP as error:
            doubts.append(str(error))
    return (*doubts, *await _post_further(desk))


async def publish_everywhere(desk: Desk) -> tuple[str, ...]:
    """Make key and claim anew and post them; return why a server beside the home did not.

    What the home server does not take is raised. A revoked key is not published anew, but its
    revocation is posted where it is missing: ``OwnKeyRevoked``, or why that failed.
    """
    if desk.own_blocks.revoked:
        if desk.own_blocks.unposted(Place.HOME):
            await desk.servers.at_home(desk.publisher.post)
        await _post_further(desk)
        desk.require_valid_key()
    # If this fails, the next fetch tries again.
    desk.own_blocks.forget_postings(Place.HOME)
    await desk.servers.at_home(desk.publisher.publish)
    return await _post_further(desk)


async def _post_further(desk: Desk) -> tuple[str, ...]:
    """Post what we hold to the old and the Pub server and the DHT, where it is missing."""
    doubts = []
    for place in desk.settings.places:
        if place is Place.HOME or not desk.own_blocks.unposted(place):
            continue
        try:
            async with desk.servers.at(place) as peer:
                await desk.publisher.post(peer, place)
        except _NO_REASON_TO_STOP as error:
            doubts.append(f"the {place} server: {error}")
    if desk.settings.dht and desk.settings.has_account and desk.own_blocks.unposted(Place.DHT):
        try:
            await desk.servers.in_dht(lambda peer: desk.publisher.post(peer, Place.DHT))
        except _NO_REASON_TO_STOP as error:
            doubts.append(f"the DHT: {error}")
    return tuple(doubts)
