"""Asking DNS for TXT records: over UDP, over TCP what is truncated there."""

import asyncio
from dataclasses import dataclass, replace
from typing import Protocol

from sealmail_net.errors import NetworkError
from sealmail_protocol.addresses import ServerAddress

# What a record promises is believed within these: it costs a question a minute at most, and a
# moved server is found again within a day.
SHORTEST_LIFE = 60
LONGEST_LIFE = 24 * 3600
# A server that fails is left alone for this long, not for what nothing promised.
FAILURE_LIFE = 10
DEADLINE = 5.0


class LookupFailed(NetworkError):
    """DNS gave no answer, neither yes nor no; try again later."""

    def __init__(self, name: str, reason: str) -> None:
        super().__init__(f"DNS could not be asked for {name}: {reason}")
        self.name = name
        self.reason = reason


@dataclass(frozen=True, slots=True)
class TxtAnswer:
    """The texts under a name, none if there is no record, and for how many seconds they count.

    ``signed``: a resolver that is believed has found the chain of DNSSEC to them whole.
    """

    texts: tuple[str, ...] = ()
    lifetime: int = SHORTEST_LIFE
    signed: bool = False


class TxtSource(Protocol):
    """Who can be asked for TXT records."""

    async def ask(self, name: str) -> TxtAnswer:
        """Return the texts under ``name``; ``LookupFailed`` if nobody can tell."""
        ...


@dataclass(frozen=True, slots=True)
class TxtResolver:
    """Asks the resolver at an IP address, without one those of the system.

    ``validates``: it checks DNSSEC, and its word on that is believed. Anybody on the way could
    say so in its name, so it runs on this machine.
    """

    server: ServerAddress | None = None
    deadline: float = DEADLINE
    validates: bool = False

    def __post_init__(self) -> None:
        literal = None if self.server is None else self.server.literal
        if self.server is not None and literal is None:
            raise ValueError(f"{self.server}: a resolver is named by its IP address")
        if self.validates and (literal is None or not literal.is_loopback):
            raise ValueError(
                "DNSSEC is believed of a resolver on this machine only, such as 127.0.0.1:53, "
                f"and not of {self.server or 'that of the system'}"
            )

    async def ask(self, name: str) -> TxtAnswer:
        """Return the texts under ``name``; ``LookupFailed`` if no resolver can tell."""
        # dnspython is a fifth of a program's start, and most commands ask DNS nothing.
        await asyncio.to_thread(_load)
        from sealmail_net.txt_questions import ask_txt

        answer = await ask_txt(name, self.server, self.deadline)
        return answer if self.validates else replace(answer, signed=False)


def bounded_life(seconds: int) -> int:
    """Return for how long an answer counts that promises ``seconds``."""
    return min(max(seconds, SHORTEST_LIFE), LONGEST_LIFE)


def _load() -> None:
    from sealmail_net import txt_questions  # noqa: F401 (loading is all that is wanted)
