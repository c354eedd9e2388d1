"""Which searches fit into memory; a walk needs next to none, a count keeps every prefix."""

from sealmail_pow import machine
from sealmail_pow.difficulty import MIN_NONCES, Difficulty
from sealmail_pow.odds import hashes_for

# Half a gibibyte: what a mail program may take for one stamp on any computer of today.
MOST_TABLE_BYTES = 512 * 1024 * 1024
# In C a count takes four bytes, and a fifth of the slots stays empty (kernel/search_count.c); in
# Python it takes an entry of a dictionary, a text and a number.
_BYTES_A_HASH = {"native": 4 / 0.8, "python": 128}
# One search in a hundred may end without a stamp, and is begun anew.
_SURELY = 0.99


def fits_memory(difficulty: Difficulty, implementation: str = machine.IMPLEMENTATION) -> bool:
    """Tell whether a stamp of ``difficulty`` can be searched in half a gibibyte.

    Pairs always can. What more nonces ask for is known before the first hash.
    """
    if difficulty.nonces == MIN_NONCES:
        return True
    most = MOST_TABLE_BYTES / _BYTES_A_HASH[implementation]
    return hashes_for(difficulty, _SURELY) <= most
