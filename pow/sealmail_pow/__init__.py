"""Proof of work by the birthday paradox: the stamps that make mail in bulk expensive.

A stamp is a set of nonces; put before the stamped bytes, they give SHA-256 digests that
begin with the same bits. This package knows nothing of mail: bytes in, stamps out.
"""

from sealmail_pow.check import StampCheck, level, verify, verify_many
from sealmail_pow.difficulty import Difficulty
from sealmail_pow.estimate import Estimate, estimate, hash_rate
from sealmail_pow.machine import IMPLEMENTATION, fastest_kernel, kernels
from sealmail_pow.memory import fits_memory
from sealmail_pow.search import MintCancelled, Solution, mint, solve
from sealmail_pow.stamp import Stamp
from sealmail_pow.workers import mint_off_loop

__all__ = [
    "IMPLEMENTATION",
    "Difficulty",
    "Estimate",
    "MintCancelled",
    "Solution",
    "Stamp",
    "StampCheck",
    "estimate",
    "fastest_kernel",
    "fits_memory",
    "hash_rate",
    "kernels",
    "level",
    "mint",
    "mint_off_loop",
    "solve",
    "verify",
    "verify_many",
]
