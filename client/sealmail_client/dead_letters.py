"""What the words of a queue mean for a sender: a table of reasons, and what can be done."""

from dataclasses import dataclass
from enum import Enum, auto


class Remedy(Enum):
    """What the client does by itself about a dead letter."""

    MINT = auto()  # at the price that was asked
    LOOK_UP = auto()  # the recipient may have moved, or have other mailboxes
    WAIT = auto()  # and give it to the home server again
    NONE = auto()


@dataclass(frozen=True, slots=True)
class Meaning:
    """Why something was not delivered, and who can mend that."""

    reason: str
    remedy: Remedy = Remedy.NONE
    way_out: str = ""


_ASK = "ask the recipient, by another way, where he is reached now"
_LATER = "send it again later"
_TELL = "tell the makers of this program: it should not have been sent so"
_UNKNOWN = Meaning("it was not taken", way_out=_LATER)

MEANINGS = {
    "price": Meaning("the stamp is below what the mailbox asks", Remedy.MINT, _LATER),
    "recipient": Meaning("no account or mailbox of his is there", Remedy.LOOK_UP, _ASK),
    "full": Meaning("the mailbox is full", Remedy.WAIT),
    "quota": Meaning("his share of the server is used up", Remedy.WAIT),
    "internal": Meaning("a server met a fault of its own", Remedy.WAIT),
    "data": Meaning("its data was not taken", Remedy.WAIT),
    "failed": Meaning("there was no room, or no permission", Remedy.WAIT),
    "unsure": Meaning("the server did not say what became of it", Remedy.WAIT),
    "pending": Meaning("the server does not know the recipient yet", Remedy.WAIT),
    "date": Meaning("it was too old when it arrived, or the clocks differ", way_out=_LATER),
    "size": Meaning("a block is larger than its type may be", way_out=_TELL),
    "form": Meaning("a block is not well formed", way_out=_TELL),
    "stamp": Meaning("a stamp is not valid", way_out=_TELL),
    "signature": Meaning("a signature is not valid", way_out=_TELL),
    "key": Meaning("a block does not belong under its key", way_out=_TELL),
    "permission": Meaning("only somebody else may leave that there", way_out=_TELL),
    "forbidden": Meaning(
        "your home server never dials the network that his server is in",
        way_out="its operator may set allow_private_targets = true; or "
        "`sealmail identity set --send direct --acknowledge direct` sends from here",
    ),
    "network": Meaning(
        "your home server has no way into the network that his server is in",
        way_out="`sealmail identity set --send direct` sends from here",
    ),
    "entangled": Meaning(
        "your home server takes no part in the DHT any more, where he lives",
        way_out="ask its operator",
    ),
    "unreachable": Meaning("his server could not be reached", way_out=_ASK),
    "busy": Meaning("his server did not serve", way_out=_LATER),
    "tls": Meaning("his server did not encrypt", way_out=_ASK),
    "slow": Meaning("his server was too slow", way_out=_LATER),
    "lost": Meaning("the connection to his server was lost", way_out=_LATER),
    "protocol": Meaning("his server broke the protocol", way_out=_ASK),
    "expired": Meaning("its time was over before his server was reached", way_out=_LATER),
    "dropped": Meaning(
        "the operator of your home server took it out of the queue", way_out="ask the operator"
    ),
}


def meaning_of(code: str) -> Meaning:
    """Return what a code says; a server may know more of them than we do."""
    return MEANINGS.get(code, _UNKNOWN)


def told(code: str) -> str:
    """Return a code in words, and beside them the code as operators know it."""
    return f"{meaning_of(code).reason} ({code})"
