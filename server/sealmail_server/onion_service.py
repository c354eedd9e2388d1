"""Keeps the onion service published: again after every restart of tor, for as long as we run."""

import asyncio
import logging
from collections.abc import Callable

from sealmail_server.onion_key import OnionKey
from sealmail_server.tor_control import ControlFailed, ControlPort, TorControl

_log = logging.getLogger(__name__)

_FIRST_PAUSE = 1.0
_LONGEST_PAUSE = 60.0


class OnionService:
    """The service of one key; ``state`` says how it is, for the operator.

    ``control`` is asked at every attempt: a password may be written down while the server runs.
    """

    def __init__(
        self, key: OnionKey, virtual_port: int, control: Callable[[], ControlPort]
    ) -> None:
        self._key = key
        self._virtual_port = virtual_port
        self._control = control
        self.published = False
        self.state = "not published yet"

    @property
    def host(self) -> str:
        """Return the name under which the service is found."""
        return self._key.host

    async def keep_published(self, target: str) -> None:
        """Publish, and publish again whenever tor has gone; until cancelled."""
        pause = _FIRST_PAUSE
        while True:
            try:
                async with await TorControl.connect(self._control()) as tor:
                    await tor.publish(self._key.for_tor, self.host, self._virtual_port, target)
                    self.published, self.state = True, "published"
                    _log.info("published as %s:%d", self.host, self._virtual_port)
                    pause = _FIRST_PAUSE
                    await tor.gone()
                self.state = "tor has ended; published again when it is back"
            except ControlFailed as error:
                self.state = str(error)
            except OSError as error:
                self.state = f"the connection to tor has ended: {error}"
            self.published = False
            _log.warning("the onion service is not published: %s", self.state)
            await asyncio.sleep(pause)
            pause = min(pause * 2, _LONGEST_PAUSE)
