"""When mail that did not leave, or open, is tried again: soon at first, then a few times a day."""

import random
from datetime import datetime, timedelta

# A server that restarts is back in minutes, one that broke is not hurried by being asked.
WAITS = tuple(timedelta(minutes=minutes) for minutes in (1, 5, 15, 60, 180, 360))
# Spread, so that a server which comes back is not met by all its senders in one second, and
# the hour of a try does not tell when the mail was written.
_SPREAD = 0.25


def next_try(failed: int, now: datetime, dice: random.Random) -> datetime:
    """Return when to try again after ``failed`` tries, of which there is at least one."""
    wait = WAITS[min(failed, len(WAITS)) - 1]
    return now + wait * dice.uniform(1 - _SPREAD, 1 + _SPREAD)
