"""How blocks are to be examined, as options say; made in the worker, where nothing is pickled."""

from collections.abc import Mapping, Sequence
from functools import cache
from typing import Final

from sealmail_spark.checks import BlockChecks
from sealmail_spark.signatures import SignatureChecks, Verifying

# What can only be known by hashing: facts that ask for none of these cost far less.
HASHED: Final = frozenset({"problems", "bits", "signature"})
# Enough for the keys of some thousand people with many claims each.
_KEY_MEMORY: Final = 128 * 1024 * 1024


def checks_for(options: Mapping[str, str], columns: Sequence[str] | None = None) -> BlockChecks:
    """Return the checks that some columns of facts need, and the options ask for.

    ``signatures`` is a share from 0 to 1; ``certificates`` tells whether keys are read.
    """
    thorough = columns is None or not HASHED.isdisjoint(columns)
    share = float(options.get("signatures", "0"))
    certificates = options.get("certificates", "false") == "true"
    # Where no signature is asked for, each is still told to be left out.
    verifier = _verifier() if share or certificates else None
    return BlockChecks(
        SignatureChecks(verifier, share, certificates=certificates), thorough=thorough
    )


@cache
def _verifier() -> Verifying | None:
    """Return what verifies; nothing where an audit travels as pure Python, without pysequoia.

    It stays for all parts that a worker reads: claims of one key are anywhere in a store.
    """
    try:
        import pysequoia  # noqa: F401 - whether it is there is the question
    except ModuleNotFoundError:
        return None
    from sealmail_verify.loaded_keys import KeyMemory
    from sealmail_verify.verifier import Verifier

    return Verifier(memory=KeyMemory(_KEY_MEMORY))
