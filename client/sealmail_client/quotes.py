"""What it costs to write to somebody, told before it is paid."""

from collections.abc import Sequence
from dataclasses import dataclass

from sealmail_client.desk import Desk
from sealmail_client.drafts import Addressee
from sealmail_client.errors import ClientError
from sealmail_client.paying import asked_by, climbed, price_for
from sealmail_pow import Difficulty, Estimate, estimate, hash_rate


class TooDear(ClientError):
    """The recipient asks for a stamp that nobody can mint, or that the user will not pay."""

    exit_code = 7


class MoreThanAgreed(TooDear):
    """A mail that is written already would cost more than the user agreed to: it waits."""

    def __init__(self, number: int, address: str, price: Difficulty, limit: Difficulty) -> None:
        super().__init__(
            f"{address} asks for a stamp of {price} now, and you agreed to {limit} at most: "
            f"`sealmail outbox pay {number} --max-price {price}` pays it"
        )


@dataclass(frozen=True, slots=True)
class Quote:
    """The price of one recipient, and what it will cost on this machine."""

    addressee: Addressee
    price: Difficulty
    cost: Estimate
    # What is paid at most, if the user names no limit: the mailbox may have become fuller.
    ceiling: Difficulty

    def require_at_most(self, limit: Difficulty) -> None:
        """Raise ``TooDear`` if more than ``limit`` is asked."""
        if not self.price.met_by(limit.bits, limit.nonces):
            raise TooDear(
                f"{self.addressee.address} asks for a stamp of {self.price}, more than {limit}: "
                "raise --max-price, or do not write"
            )


def quote(
    addressees: Sequence[Addressee], desk: Desk, rate: float | None = None
) -> tuple[Quote, ...]:
    """Return what each recipient asks; without a hash rate this machine is timed for 50 ms.

    It is timed once for pairs and once for each other number of nonces, which take a table.
    """
    rates: dict[int, float] = {}
    found = []
    for addressee in addressees:
        announcement = desk.correspondents.announcement(addressee.key_id)
        if announcement is not None:
            price = price_for(desk, addressee.key_id, announcement)
            if price.nonces not in rates:
                rates[price.nonces] = hash_rate(nonces=price.nonces) if rate is None else rate
            cost = estimate(price, hashes_per_second=rates[price.nonces])
            # A token that is honoured no more, or not for long, costs the whole price.
            found.append(Quote(addressee, price, cost, climbed(asked_by(announcement))))
    return tuple(found)
