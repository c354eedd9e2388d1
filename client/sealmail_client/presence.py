"""Being found: the own key and claim are on every server of the user before they age."""

from sealmail_client.desk import Desk
from sealmail_client.posting import Peer
from sealmail_client.publishing import NotPublished
from sealmail_client.servers import LoginRefused
from sealmail_client.settings import Place, Settings
from sealmail_net.errors import NetworkError

_NO_REASON_TO_STOP = (NetworkError, NotPublished, LoginRefused)
_NAMES = {Place.OLD: "the old server", Place.PUB: "the pub server", Place.DHT: "the DHT"}


async def stay_findable(desk: Desk) -> tuple[str, ...]:
    """Post key and claim wherever that is due; return why a server did not take them.

    Others may not find the user then, which is no reason not to read or write mail.
    """
    doubts: tuple[str, ...] = ()
    if desk.own_blocks.due(desk.clock()):
        try:
            doubts = await desk.servers.at_home(lambda home: stay_findable_at(desk, home))
        except _NO_REASON_TO_STOP as error:
            doubts = (str(error),)
    return (*doubts, *await stay_findable_beside(desk))


async def stay_findable_at(desk: Desk, home: Peer) -> tuple[str, ...]:
    """Post key and claim to the connected home server if that is due, as ``stay_findable``."""
    try:
        await desk.publisher.publish_if_due(home)
    except NotPublished as error:
        return (str(error),)
    return ()


async def stay_findable_beside(desk: Desk) -> tuple[str, ...]:
    """Post to the old and the Pub server and the DHT what is missing there.

    The home server goes first; while it is away, what has aged is made anew without it.
    """
    beside = _beside(desk.settings)
    if beside and desk.own_blocks.outdated(desk.clock()):
        await desk.publisher.renew(desk.servers.moment())
    doubts = []
    for place in beside:
        if not desk.own_blocks.unposted(place):
            continue
        try:
            await _post_to(desk, place)
        except _NO_REASON_TO_STOP as error:
            doubts.append(f"{_NAMES[place]}: {error}")
    return tuple(doubts)


async def publish_everywhere(desk: Desk) -> tuple[str, ...]:
    """Make key and claim anew and post them; return why a server beside the home did not.

    What the home server does not take is raised. A revoked key is not published anew, but its
    revocation is posted where it is missing: ``OwnKeyRevoked``, or why that failed.
    """
    if desk.own_blocks.revoked:
        if desk.own_blocks.unposted(Place.HOME):
            await desk.servers.at_home(desk.publisher.post)
        await stay_findable_beside(desk)
        desk.require_valid_key()
    # If this fails, the next fetch tries again.
    desk.own_blocks.forget_postings(Place.HOME)
    await desk.servers.at_home(desk.publisher.publish)
    return await stay_findable_beside(desk)


def _beside(settings: Settings) -> list[Place]:
    """Return where else than at home the user is published."""
    places: list[Place] = [place for place in settings.places if place is not Place.HOME]
    if settings.dht and settings.has_account:
        places.append(Place.DHT)
    return places


async def _post_to(desk: Desk, place: Place) -> None:
    if place is Place.DHT:
        await desk.servers.in_dht(lambda peer: desk.publisher.post(peer, Place.DHT))
    else:
        async with desk.servers.at(place) as peer:
            await desk.publisher.post(peer, place)
