"""Handing something to a group of servers until one of them has taken it."""

from collections.abc import Awaitable, Callable, Sequence

from sealmail_client.channels import Route
from sealmail_client.posting import Peer
from sealmail_client.servers import Servers
from sealmail_net.errors import NetworkError, NoServerReached, NoWay
from sealmail_protocol.addresses import ServerAddress

# Returns why the server did not take it, ``None`` if it did.
HandOver = Callable[[Peer], Awaitable[str | None]]


class NotDelivered(Exception):
    """No server of the group took it; ``reasons`` has one text for each.

    ``no_way``: none of them is reached as things are configured, however often one tries.
    """

    def __init__(self, causes: Sequence[NetworkError | str]) -> None:
        self.reasons = tuple(map(str, causes))
        self.no_way = bool(causes) and all(isinstance(one, NoWay) for one in causes)
        super().__init__("; ".join(self.reasons))


async def deliver_to_group(servers: Servers, route: Route, hand_over: HandOver) -> ServerAddress:
    """Try the servers of a route in their order; return which one took it.

    One that failed lately comes last. ``NotDelivered`` if none took it.
    """
    left, causes = list(route.servers), list[NetworkError | str]()
    while left:
        try:
            async with servers.deliver(left) as peer:
                address = peer.server.address
                trouble = await hand_over(peer.by(route.channel))
        except NoServerReached as error:
            causes += error.reasons
            break
        except NetworkError as error:
            causes.append(error)
        else:
            if trouble is None:
                return address
            causes.append(f"{address}: {trouble}")
        left.remove(address)
    raise NotDelivered(causes)
