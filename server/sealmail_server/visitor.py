"""Who is at the other end of a connection, as far as the server knows."""

from dataclasses import dataclass, field, replace

from sealmail_protocol.commands import Capabilities, Command, PartnerPair, Ping, Quit
from sealmail_protocol.keys import KeyId
from sealmail_protocol.policy import COMMAND_POLICY, Role

# What the secret of a pairing code is good for.
_TO_PAIR = frozenset({Capabilities, PartnerPair, Ping, Quit})


@dataclass(frozen=True, slots=True)
class Visitor:
    """A role and, after a login, whose it is; only a confirmed user reads mail.

    ``source`` names the network the connection came from (``sources.source_of``): what limits
    by source are counted under. At a ``shared`` door it is that of all strangers.
    """

    role: Role
    userid: str | None = None
    confirmed: bool = False
    account: bytes | None = field(default=None, repr=False)
    source: str = ""
    shared: bool = False

    @property
    def key_id(self) -> KeyId | None:
        """Return the key that a logged-in user may post for; other userids own none."""
        if self.role is not Role.USER or self.userid is None:
            return None
        try:
            return KeyId.from_hex(self.userid)
        except ValueError:
            return None

    @property
    def is_stranger(self) -> bool:
        """Tell whether nobody has vouched for this visitor yet: limits for strangers hold."""
        return not self.confirmed

    def may_use(self, command: type[Command]) -> bool:
        """Look the command up in the command table; unproven logins have a stranger's rights.

        Who is logged in by a pairing code is no partner yet: he may become it, and nothing else.
        """
        roles = COMMAND_POLICY[command]
        if self.role is Role.REPLICATION and not self.confirmed:
            return command in _TO_PAIR
        if self.role is Role.USER and not self.confirmed:
            return Role.USER in roles and Role.ANONYMOUS in roles
        return self.role in roles

    def at(self, source: str, *, shared: bool = False) -> "Visitor":
        """Return this visitor as coming from ``source``."""
        return replace(self, source=source, shared=shared)


STRANGER = Visitor(Role.BEFORE_TLS)
ANONYMOUS = Visitor(Role.ANONYMOUS)
