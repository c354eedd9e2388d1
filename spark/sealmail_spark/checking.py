"""How blocks are to be examined, as options say; made in the worker, where nothing is pickled."""

from collections.abc import Mapping

from sealmail_spark.checks import BlockChecks
from sealmail_spark.signatures import SignatureChecks


def checks_for(options: Mapping[str, str]) -> BlockChecks:
    """Return the checks that the options ``signatures`` and ``certificates`` ask for."""
    share = float(options.get("signatures", "0"))
    certificates = options.get("certificates", "false") == "true"
    if share == 0 and not certificates:
        return BlockChecks()
    # It needs a compiled package, which is not there where an audit travels as pure Python.
    from sealmail_verify.verifier import Verifier

    return BlockChecks(SignatureChecks(Verifier(), share, certificates=certificates))
