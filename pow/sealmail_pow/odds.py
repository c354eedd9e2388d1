"""The arithmetic of the birthday paradox: how many hashes a difficulty takes."""

import math

from sealmail_pow.difficulty import Difficulty

# Beyond this the search is certainly over, and exp() would soon overflow.
_CERTAIN = 50.0


def chance(difficulty: Difficulty, hashes: int) -> float:
    """Return the probability that a search is done after so many hashes."""
    if hashes < difficulty.nonces:
        return 0.0
    log_groups = difficulty.nonces * math.log(hashes) - _log_scale(difficulty)
    return -math.expm1(-math.exp(min(log_groups, _CERTAIN)))


def expected_hashes(difficulty: Difficulty) -> float:
    """Return the mean number of hashes: for two nonces 1.2533 times 2^(bits/2)."""
    count = difficulty.nonces
    mean = math.exp(_log_scale(difficulty) / count) * math.gamma(1 + 1 / count)
    return max(float(count), mean)


def hashes_for(difficulty: Difficulty, probability: float) -> float:
    """Return after how many hashes a search is done with ``probability``, below 1."""
    count = difficulty.nonces
    groups = -math.log1p(-probability)
    return max(float(count), math.exp((_log_scale(difficulty) + math.log(groups)) / count))


def _log_scale(difficulty: Difficulty) -> float:
    """Return ln(N! * 2^(bits*(N-1))).

    After t hashes t^N divided by that is the mean number of groups of N equal prefixes,
    and their number is close to a Poisson distribution.
    """
    count = difficulty.nonces
    return math.lgamma(count + 1) + difficulty.bits * (count - 1) * math.log(2)
