"""When to try again: a table of pauses, each a little longer or shorter by chance."""

import random
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta

# Pauses after the first, second, … failure of one block; the last one repeats.
BLOCK_PAUSES = tuple(timedelta(seconds=each) for each in (30, 120, 300, 1800, 3600))
# Pauses between looks at a server that is down. The first are short: most are restarting.
PROBE_PAUSES = tuple(timedelta(seconds=each) for each in (5, 15, 60, 300, 900))
# What failed together must not come back together.
_JITTER = 0.2


@dataclass(frozen=True, slots=True)
class Schedule:
    """Pauses by the number of failures before them."""

    pauses: Sequence[timedelta]
    chance: random.Random

    def pause(self, failures: int) -> timedelta:
        """Return how long to wait after so many failures, the first one being 1."""
        pause = self.pauses[min(max(failures, 1), len(self.pauses)) - 1]
        return pause * (1 + self.chance.uniform(-_JITTER, _JITTER))
