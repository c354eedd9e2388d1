"""From a mail domain to its servers: asked of DNS here or by the home server, and remembered."""

import json
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from sealmail_client.connecting import Connecting, DnsUse
from sealmail_client.home_database import HomeDatabase
from sealmail_client.posting import Peer
from sealmail_net.txt_resolver import LookupFailed, TxtAnswer
from sealmail_protocol.addresses import Transport
from sealmail_protocol.commands import DnsTxt
from sealmail_protocol.dates import format_date, parse_date
from sealmail_protocol.dns_records import named_transports, record_name, texts_in
from sealmail_protocol.replies import Listing, Word

# The home server says nothing of lifetimes; it remembers answers itself.
SERVER_LIFE = 300
# Nor does it say whether there is no record or DNS failed, which has often passed a moment later.
NOTHING_LIFE = 30


@dataclass(frozen=True, slots=True)
class DomainServers:
    """The groups of servers that a domain names; ``signed`` if DNSSEC has proven that it does."""

    transports: tuple[Transport, ...] = ()
    signed: bool = False


@dataclass(frozen=True, slots=True)
class Domains:
    """Looks domains up as the identity wants it; each way of asking has answers of its own."""

    connecting: Connecting
    database: HomeDatabase
    clock: Callable[[], datetime]
    home: Callable[[], AbstractAsyncContextManager[Peer]]

    @property
    def in_use(self) -> bool:
        """Return whether this identity asks DNS at all."""
        return self.connecting.dns is not DnsUse.OFF

    async def servers_of(self, domain: str) -> DomainServers:
        """Return what ``domain`` names, nothing if it has no record or is no public domain.

        ``NetworkError`` if nobody can tell.
        """
        try:
            name = record_name(domain)
        except ValueError:
            return DomainServers()
        answer = self._remembered(name)
        if answer is None:
            answer = await self._ask(name)
            self._remember(name, answer)
        return DomainServers(named_transports(answer.texts), answer.signed)

    async def _ask(self, name: str) -> TxtAnswer:
        if self.connecting.dns is DnsUse.DIRECT:
            return await self.connecting.resolver.ask(name)
        async with self.home() as peer:
            reply = await peer.server.call(DnsTxt(name))
        if isinstance(reply, Listing):
            return TxtAnswer(texts_in(reply.lines), SERVER_LIFE)
        if reply is Word.NOT_FOUND:
            return TxtAnswer((), NOTHING_LIFE)
        raise LookupFailed(name, f"{peer.server.address} looks up no names for its users")

    @property
    def _asked(self) -> str:
        """Return what answers are kept under: another resolver's word is another's."""
        one = self.connecting
        if one.dns is DnsUse.SERVER:
            return one.dns
        signed = " dnssec" if one.dnssec else ""
        return f"{one.dns} {one.dns_server or 'system'}{signed}"

    def _remembered(self, name: str) -> TxtAnswer | None:
        row = self.database.row(
            "SELECT * FROM txt_answer WHERE asked = ? AND name = ?", self._asked, name
        )
        if row is None or parse_date(row["until"]) <= self.clock():
            return None
        return TxtAnswer(tuple(_texts(row["texts"])), signed=bool(row["signed"]))

    def _remember(self, name: str, answer: TxtAnswer) -> None:
        now = self.clock()
        with self.database.unit():
            self.database.write("DELETE FROM txt_answer WHERE until <= ?", format_date(now))
            self.database.write(
                "INSERT OR REPLACE INTO txt_answer VALUES (?, ?, ?, ?, ?)",
                self._asked,
                name,
                format_date(now + timedelta(seconds=answer.lifetime)),
                json.dumps(answer.texts),
                answer.signed,
            )


def _texts(stored: str) -> list[str]:
    texts: Any = json.loads(stored)
    return [str(text) for text in texts]
