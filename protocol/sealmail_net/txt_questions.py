"""One question to DNS for TXT records, by dnspython; ``txt_resolver`` loads this when it asks."""

import asyncio

import dns.asyncresolver
import dns.exception
import dns.flags
import dns.name
import dns.rdatatype
import dns.resolver

from sealmail_net.txt_resolver import LookupFailed, TxtAnswer, bounded_life
from sealmail_protocol.addresses import ServerAddress
from sealmail_protocol.dns_records import record_texts

# Larger answers are cut to pieces on the way, which forgers like; TCP takes them.
_UDP_PAYLOAD = 1232


async def ask_txt(name: str, server: ServerAddress | None, deadline: float) -> TxtAnswer:
    """Ask the resolver at ``server``, without one those of the system.

    ``signed`` in the answer is what the resolver says. Raises ``LookupFailed`` when no resolver
    can tell.
    """
    try:
        # The system's settings are a file, and may have changed.
        resolver = await asyncio.to_thread(_resolver, server, deadline)
        async with asyncio.timeout(deadline + 1):
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
    signed = bool(answer.response.flags & dns.flags.AD)
    return TxtAnswer(texts, bounded_life(answer.chaining_result.minimum_ttl), signed)


def _resolver(server: ServerAddress | None, deadline: float) -> dns.asyncresolver.Resolver:
    resolver = dns.asyncresolver.Resolver(configure=server is None)
    if server is not None:
        resolver.nameservers = [server.host]
        resolver.port = server.port
    resolver.lifetime = deadline
    resolver.timeout = deadline / 2
    # A validating resolver says of its answer what it found: AD, for authentic data.
    resolver.flags = dns.flags.RD | dns.flags.AD
    resolver.use_edns(0, 0, _UDP_PAYLOAD)
    return resolver


def _negative_life(error: dns.resolver.NXDOMAIN) -> int:
    responses = error.kwargs.get("responses", {}).values()
    lives = [response.resolve_chaining().minimum_ttl for response in responses]
    return bounded_life(min(lives, default=0))


def _reason(error: BaseException) -> str:
    if isinstance(error, TimeoutError | dns.exception.Timeout):
        return "it did not answer in time"
    if isinstance(error, dns.resolver.NoNameservers):
        return "every name server refused or failed"
    return str(error) or type(error).__name__
