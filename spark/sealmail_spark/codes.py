"""Every kind of finding: how bad it is, and what it means, in the words of the report."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Final


class Severity(StrEnum):
    """How bad a finding is: a fault is damage, a warning a danger, a notice worth knowing."""

    FAULT = "fault"
    WARNING = "warning"
    NOTICE = "notice"


# Worst first.
SEVERITIES: Final = tuple(Severity)


@dataclass(frozen=True, slots=True)
class Code:
    """One kind of finding."""

    job: str
    severity: Severity
    meaning: str


_FAULT, _WARNING, _NOTICE = SEVERITIES

CODES: Final[dict[str, Code]] = {
    "unreadable-store": Code("store", _FAULT, "a store of which nothing can be read"),
    "malformed": Code("store", _FAULT, "a block that no reader would take"),
    "wrong-key": Code("store", _FAULT, "a block under a key that its content does not have"),
    "weak-stamp": Code("store", _FAULT, "a stamp below what every server asks for"),
    "overstated-stamp": Code("store", _FAULT, "a stamp worth less than the store recorded"),
    "wrong-size": Code("store", _FAULT, "more or fewer bytes than the block says"),
    "too-large": Code("store", _FAULT, "a block larger than its type may be"),
    "missing-bytes": Code("store", _FAULT, "a data block whose bytes are gone"),
    "wrong-date": Code("store", _FAULT, "a block kept as of another date than it has"),
    "future-date": Code("store", _FAULT, "a block dated further ahead than any server takes"),
    "wrong-digest": Code("store", _FAULT, "a block recorded by a digest that is not its own"),
    "wrong-identity": Code("store", _FAULT, "an entry recorded as another than it is"),
    "bad-signature": Code("store", _FAULT, "a key or claim that its owner did not sign"),
    "wrong-revocation": Code("store", _FAULT, "a key recorded as revoked or not, wrongly"),
    "undecided-signature": Code("store", _WARNING, "a signature that could not be verified"),
    "outlived": Code("store", _WARNING, "a value of the DHT that is kept beyond its age"),
    "claim-without-key": Code("store", _NOTICE, "a claim whose key is not in the store"),
    "orphan-data": Code("references", _NOTICE, "data that no announcement names"),
    "missing-data": Code("references", _FAULT, "an announced mail whose data is missing"),
    "kept-too-long": Code("references", _WARNING, "a block kept beyond its age"),
    "missing-at-partner": Code("replicas", _WARNING, "a block that a partner does not have"),
    "differs": Code("replicas", _WARNING, "an entry of which partners have different versions"),
    "stale-announcement": Code("keys", _NOTICE, "a key whose owner has not announced it anew"),
    "expired-key": Code("keys", _WARNING, "an announced key that has expired"),
    "revoked-key": Code("keys", _NOTICE, "a key that its owner revoked"),
    "weak-key": Code("keys", _WARNING, "a key that can be broken, or that stands on SHA-1"),
    "rival-claims": Code("keys", _WARNING, "an address that several keys claim"),
    "changed-key": Code("keys", _WARNING, "an address that another key claims than before"),
    "reused-stamp": Code("pow", _FAULT, "one stamp that paid for several entries"),
    "stamped-ahead": Code("pow", _WARNING, "mail stamped for a time to come"),
    "underpaid": Code("pow", _NOTICE, "mail without token, stamped below the present price"),
    "unacknowledged": Code("delivery", _NOTICE, "mail delivered long ago and not acknowledged"),
    "undelivered": Code("delivery", _WARNING, "mail that is not delivered after long"),
    "given-up": Code("delivery", _WARNING, "mail that failed or expired before it was delivered"),
}
