"""How long `fetch --watch` rests between two rounds."""

import random
from collections.abc import Iterable
from datetime import datetime, timedelta

from sealmail_client.outbox import UNSENT, OutgoingMessage

# Rounds at even times would let an observer tell a client by its rhythm.
_SPREAD = 0.25
# Mail that is due again at once must not make a busy loop.
SHORTEST_REST = timedelta(seconds=5)


def rest(
    interval: timedelta, waiting: Iterable[OutgoingMessage], now: datetime, dice: random.Random
) -> timedelta:
    """Return the pause: about ``interval``, less if a message is to be tried before."""
    pause = interval * dice.uniform(1 - _SPREAD, 1 + _SPREAD)
    tries = [
        one.next_try - now
        for message in waiting
        for one in message.at(*UNSENT)
        if one.next_try is not None
    ]
    return max(min([pause, *tries]), SHORTEST_REST)
