"""Handing something to a group of servers until one of them has taken it."""

from collections.abc import Awaitable, Callable, Sequence

from sealmail_client.channels import Route
from sealmail_client.posting import Peer
from sealmail_client.servers import Servers
from sealmail_net.errors import NetworkError, NoServerReached
from sealmail_protocol.addresses import ServerAddress

# Returns why the server did not take it, ``None`` if it did.
HandOver = Callable[[Peer], Awaitable[str | None]]


class NotDelivered(Exception):
    """No server of the group took it; ``reasons`` has one text for each."""

    def __init__(self, reasons: Sequence[str]) -> None:
        super().__init__("; ".join(reasons))
        self.reasons = tuple(reasons)


async def deliver_to_group(servers: Servers, route: Route, hand_over: HandOver) -> ServerAddress:
    """Try the servers of a route in their order; return which one took it.

    One that failed lately comes last. ``NotDelivered`` if none took it.
    """
    left, reasons = list(route.servers), list[str]()
    while left:
        try:
            async with servers.deliver(left) as peer:
                address = peer.server.address
                trouble = await hand_over(peer.by(route.channel))
        except NoServerReached as error:
            reasons += map(str, error.reasons)
            break
        except NetworkError as error:
            reasons.append(str(error))
        else:
            if trouble is None:
                return address
            reasons.append(f"{address}: {trouble}")
        left.remove(address)
    raise NotDelivered(reasons)
