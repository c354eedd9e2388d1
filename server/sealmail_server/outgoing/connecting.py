"""The way to strangers' servers: dialled without trust, their keys recorded, their ways noted."""

import logging
from collections import OrderedDict
from collections.abc import Callable, Collection
from datetime import datetime, timedelta

from sealmail_net.dialing import DialSettings, dial
from sealmail_net.pins import PinStore
from sealmail_net.remote_server import RemoteServer
from sealmail_protocol.addresses import ServerAddress

_log = logging.getLogger(__name__)

# An original closes the connection at the third unknown command in a row: it is asked rarely.
_REMEMBERED = timedelta(days=7)
_MAX_REMEMBERED = 10_000
_VERDICT = "VERDICT"


class OutgoingDialer:
    """Connects to servers that take mail; ``own_pins`` are the keys of this server and its pair.

    A changed key is recorded and logged, and the delivery goes on: the blocks are sealed.
    """

    def __init__(
        self,
        settings: DialSettings,
        pins: PinStore,
        own_pins: Callable[[], Collection[bytes]],
        clock: Callable[[], datetime],
    ) -> None:
        self._settings = settings
        self._pins = pins
        self._own_pins = own_pins
        self._clock = clock
        self._verdicts: OrderedDict[ServerAddress, tuple[bool, datetime]] = OrderedDict()

    async def connect(self, server: ServerAddress) -> RemoteServer:
        """Return a connection to a stranger's server, or raise ``NetworkError``."""
        return await dial(server, self._settings, self._pins, strict_pin=False)

    async def gives_verdicts(self, remote: RemoteServer) -> bool:
        """Tell whether a server answers VERDICT; asked once a week."""
        now, known = self._clock(), self._verdicts.get(remote.address)
        if known is not None and known[1] > now:
            return known[0]
        gives = _VERDICT in await remote.capabilities()
        self._verdicts[remote.address] = (gives, now + _REMEMBERED)
        self._verdicts.move_to_end(remote.address)
        if len(self._verdicts) > _MAX_REMEMBERED:
            self._verdicts.popitem(last=False)
        return gives

    def is_our_own(self, remote: RemoteServer) -> bool:
        """Tell whether we have reached ourselves, or the partner, by another name."""
        return remote.pin in self._own_pins()
