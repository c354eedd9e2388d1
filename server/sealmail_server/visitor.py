"""Who is at the other end of a connection, as far as the server knows."""

from dataclasses import dataclass, field
from datetime import datetime

from sealmail_protocol.keys import KeyId
from sealmail_protocol.policy import Role


@dataclass(frozen=True, slots=True)
class Visitor:
    """A role and, after a login, whose it is; only a confirmed user reads mail.

    ``source`` names the network the connection came from: what limits by source are counted
    under.
    """

    role: Role
    userid: str | None = None
    confirmed: bool = False
    logged_in_at: datetime | None = None
    account: bytes | None = field(default=None, repr=False)
    source: str = ""

    @property
    def key_id(self) -> KeyId | None:
        """Return the key that a logged-in user may post for; other userids own none."""
        if self.role is not Role.USER or self.userid is None:
            return None
        try:
            return KeyId.from_hex(self.userid)
        except ValueError:
            return None


STRANGER = Visitor(Role.BEFORE_TLS)
ANONYMOUS = Visitor(Role.ANONYMOUS)
