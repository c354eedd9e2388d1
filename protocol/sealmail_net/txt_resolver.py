"""Asking DNS for TXT records, by dnspython: over UDP, over TCP what is truncated there."""

import asyncio
from dataclasses import dataclass
from typing import Protocol

import dns.asyncresolver
import dns.exception
import dns.name
import dns.rdatatype
import dns.resolver

from sealmail_net.errors import NetworkError
from sealmail_protocol.addresses import ServerAddress
from sealmail_protocol.dns_records import record_texts

# What a record promises is believed within these: it costs a question a minute at most, and a
# moved server is found again within a day.
SHORTEST_LIFE = 60
LONGEST_LIFE = 24 * 3600
# A server that fails is left alone for this long, not for what nothing promised.
FAILURE_LIFE = 10
DEADLINE = 5.0
# Larger answers are cut to pieces on the way, which forgers like; TCP takes them.
_UDP_PAYLOAD = 1232


class LookupFailed(NetworkError):
    """DNS gave no answer, neither yes nor no; try again later."""

    def __init__(self, name: str, reason: str) -> None:
        super().__init__(f"DNS could not be asked for {name}: {reason}")
        self.name = name
        self.reason = reason


@dataclass(frozen=True, slots=True)
class TxtAnswer:
    """The texts under a name, none if there is no record, and for how many seconds they count."""

    texts: tuple[str, ...] = ()
    lifetime: int = SHORTEST_LIFE


class TxtSource(Protocol):
    """Who can be asked for TXT records."""

    async def ask(self, name: str) -> TxtAnswer:
        """Return the texts under ``name``; ``LookupFailed`` if nobody can tell."""
        ...


@dataclass(frozen=True, slots=True)
class TxtResolver:
    """Asks the resolver at an IP address, without one those of the system."""

    server: ServerAddress | None = None
    deadline: float = DEADLINE

    def __post_init__(self) -> None:
        if self.server is not None and self.server.literal is None:
            raise ValueError(f"{self.server}: a resolver is named by its IP address")

    async def ask(self, name: str) -> TxtAnswer:
        """Return the texts under ``name``; ``LookupFailed`` if no resolver can tell."""
        try:
            # The system's settings are a file, and may have changed.
            resolver = await asyncio.to_thread(self._resolver)
            async with asyncio.timeout(self.deadline + 1):
                answer = await resolver.resolve(
                    dns.name.from_text(f"{name}."),
                    dns.rdatatype.TXT,
                    raise_on_no_answer=False,
                    search=False,
                )
        except dns.resolver.NXDOMAIN as error:
            return TxtAnswer((), _negative_life(error))
        except (dns.exception.DNSException, OSError, TimeoutError, ValueError) as error:
            raise LookupFailed(name, _reason(error)) from error
        records = () if answer.rrset is None else answer.rrset
        texts = record_texts(record.strings for record in records)
        return TxtAnswer(texts, _bounded(answer.chaining_result.minimum_ttl))

    def _resolver(self) -> dns.asyncresolver.Resolver:
        resolver = dns.asyncresolver.Resolver(configure=self.server is None)
        if self.server is not None:
            resolver.nameservers = [self.server.host]
            resolver.port = self.server.port
        resolver.lifetime = self.deadline
        resolver.timeout = self.deadline / 2
        resolver.use_edns(0, 0, _UDP_PAYLOAD)
        return resolver


def _negative_life(error: dns.resolver.NXDOMAIN) -> int:
    responses = error.kwargs.get("responses", {}).values()
    lives = [response.resolve_chaining().minimum_ttl for response in responses]
    return _bounded(min(lives, default=SHORTEST_LIFE))


def _bounded(seconds: int) -> int:
    return min(max(seconds, SHORTEST_LIFE), LONGEST_LIFE)


def _reason(error: BaseException) -> str:
    if isinstance(error, TimeoutError | dns.exception.Timeout):
        return "it did not answer in time"
    if isinstance(error, dns.resolver.NoNameservers):
        return "every name server refused or failed"
    return str(error) or type(error).__name__
