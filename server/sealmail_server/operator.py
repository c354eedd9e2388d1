"""What an operator can ask for, beside a running server or without one.

Requests and answers are values that JSON can carry: they travel through ``operator_socket``.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from sealmail_protocol.addresses import Network, ServerAddress, domain_of
from sealmail_protocol.command_codec import MAX_GENERATED
from sealmail_protocol.dates import format_date
from sealmail_protocol.invitations import Invitation, InvitedServer, PairingCode
from sealmail_server.account_desk import AccountDesk
from sealmail_server.accounts import SHORT_AUTH_KEY, AccountRefused, AccountState, new_auth_key
from sealmail_server.backups import back_up
from sealmail_server.clock_guard import ClockGuard
from sealmail_server.config import Config
from sealmail_server.dht.service import DhtService
from sealmail_server.hidden import hidden_faces, hidden_pin
from sealmail_server.onion_service import OnionService
from sealmail_server.outgoing.desk import BEGINNING, QueueDesk
from sealmail_server.outgoing.telling import Teller
from sealmail_server.partner_desk import PairingFailed, PartnerDesk
from sealmail_server.partnership import Partnership
from sealmail_server.replication import Replication
from sealmail_server.setting_rules import BadConfig, Listen
from sealmail_server.tls_identity import BadIdentity, pin_of
from sealmail_store import Account, BlockStore, StoreError

Request = dict[str, Any]
# Enough of a hash to tell one auth key from another.
_KEY_NAME_DIGITS = 16


class OperatorError(Exception):
    """A request that cannot be fulfilled; the message says why."""


@dataclass(frozen=True, slots=True)
class HiddenPort:
    """Where the forwarders of a network come in, and the addresses that lead there."""

    listen: Listen
    addresses: tuple[ServerAddress, ...]


@dataclass(frozen=True, slots=True)
class Running:
    """What only a running server knows of itself."""

    listen: Listen
    direct_tls_listen: Listen | None
    started: datetime
    connections: int
    commits: int
    hidden: tuple[HiddenPort, ...] = ()
    onion: OnionService | None = None


def not_running() -> None:
    """Stand for the running server where there is none."""


@dataclass(frozen=True, slots=True)
class Operator:
    """Fulfils the operator's requests on an open store."""

    directory: Path
    config: Config
    store: BlockStore
    desk: AccountDesk
    guard: ClockGuard
    clock: Callable[[], datetime]
    running: Callable[[], Running | None] = not_running
    queue: QueueDesk | None = None
    partner: PartnerDesk | None = None
    replication: Replication | None = None
    dht: DhtService | None = None

    async def fulfil(self, request: Request) -> Any:
        """Do what ``request["do"]`` names; ``OperatorError`` with the reason if it cannot be."""
        work = _REQUESTS.get(str(request.get("do")))
        if work is None:
            raise OperatorError(f"no such request: {request.get('do')!r}")
        try:
            return await work(self, request)
        except _EXPLAINED as error:
            raise OperatorError(str(error)) from error

    async def _add(self, request: Request) -> dict[str, Any]:
        userid, chosen = _text(request, "userid"), _text(request, "auth_key")
        auth_key = chosen or new_auth_key()
        account = await self.desk.add(userid, auth_key)
        short = len(auth_key) < SHORT_AUTH_KEY
        return {**_row(account), "auth_key": auth_key, "short": short}

    async def _remove(self, request: Request) -> list[dict[str, Any]]:
        userid, key = _text(request, "userid"), _text(request, "key")
        chosen = [each for each in await self.desk.list() if _is_meant(each, userid, key)]
        if not chosen:
            raise OperatorError(f"no account of {userid or key}: see 'sealmaild account list'")
        if key and len(chosen) > 1:
            raise OperatorError(f"{key} is the beginning of {len(chosen)} keys: give more of it")
        removed = await self.desk.remove(each.auth_key_hash for each in chosen)
        return [_row(each) for each in removed]

    async def _list(self, _: Request) -> list[dict[str, Any]]:
        return [_row(each) for each in await self.desk.list()]

    async def _generate(self, request: Request) -> list[str]:
        count = request.get("count")
        if not isinstance(count, int) or not 1 <= count <= MAX_GENERATED:
            raise OperatorError(f"the number of accounts must be 1 to {MAX_GENERATED}")
        return list(await self.desk.generate(count))

    async def _invite(self, request: Request) -> dict[str, Any]:
        servers = await asyncio.to_thread(self._servers)
        domain = domain_of(self.config.mail_domain)
        auth_key = new_auth_key()
        code = Invitation(domain, auth_key, servers).code()
        account = await self.desk.add(_text(request, "userid"), auth_key)
        return {**_row(account), "code": code}

    async def _status(self, _: Request) -> dict[str, Any]:
        running = self.running()
        hidden = running.hidden if running else ()
        counts = await self.store.survey(lambda view: view.counts())
        accounts = await self.desk.list()
        states = {state: sum(each.state == state for each in accounts) for state in AccountState}
        return {
            "running": running is not None,
            "listen": str(running.listen) if running else self.config.listen,
            "direct_tls_listen": _or_none(running and running.direct_tls_listen),
            "hidden_ports": {str(port.listen): list(map(str, port.addresses)) for port in hidden},
            "hidden": [str(address) for port in hidden for address in port.addresses],
            "onion": running.onion.state if running and running.onion else None,
            "onion_published": bool(running and running.onion and running.onion.published),
            "started": format_date(running.started) if running else None,
            "connections": running.connections if running else 0,
            "commits": running.commits if running else 0,
            "time": format_date(self.clock()),
            "clock": str(self.guard.state()),
            "latest_time_seen": self.guard.latest and format_date(self.guard.latest),
            "deletes_nothing_until": self._hold(),
            "partner": await self._partner_status({}),
            "accounts": {str(state): number for state, number in states.items()},
            "queue": await self._queue().counts(),
            "servers_down": [str(server) for server in self._queue().down()],
            "dht": await self.dht.status() if self.dht else None,
            "blocks": {
                kind: {"entries": count.entries, "bytes": count.bytes}
                for kind, count in counts.items()
            },
        }

    async def _offer_pairing(self, request: Request) -> dict[str, Any]:
        return {"code": await self._pairing().offer(self._told_address(request))}

    async def _join_pairing(self, request: Request) -> dict[str, Any]:
        code = PairingCode.parse(_text(request, "code") or "")
        await self._pairing().join(code, self._told_address(request))
        return {"partner": str(code.server.address)}

    async def _compare(self, _: Request) -> dict[str, Any]:
        await self._pairing().compare_again()
        return {}

    async def _partner_status(self, _: Request) -> dict[str, Any] | None:
        return await self.replication.status() if self.replication else None

    def _pairing(self) -> PartnerDesk:
        if self.partner is None:
            raise OperatorError("the server is not running: start 'sealmaild run' on both sides")
        return self.partner

    def _told_address(self, request: Request) -> ServerAddress:
        told = _text(request, "address")
        return ServerAddress.parse(told) if told else self._servers()[0].address

    async def _confirm_clock(self, _: Request) -> dict[str, str]:
        before = self.guard.state()
        await self.guard.confirm()
        return {"time": format_date(self.clock()), "clock_was": str(before)}

    async def _back_up(self, request: Request) -> dict[str, str]:
        target = Path(_text(request, "target") or "")
        if not target.is_absolute():
            raise OperatorError(f"{target} is not an absolute path")
        await back_up(self.directory, self.config, self.store, target)
        return {"backup": str(target)}

    async def _queue_list(self, request: Request) -> list[dict[str, Any]]:
        full, delivered = request.get("full") is True, request.get("all") is not False
        after = request.get("after")
        if after is None:
            place = BEGINNING
        elif isinstance(after, list) and [type(each) for each in after] == [bool, int]:
            place = (after[0], after[1])
        else:
            raise OperatorError("after: not a place in the queue")
        return await self._queue().rows(full=full, delivered=delivered, after=place)

    async def _queue_retry(self, request: Request) -> dict[str, int]:
        number = _number(request)
        hastened = await self._queue().retry(number)
        if number is not None and not hastened:
            raise OperatorError(f"no row {number} waits: see 'sealmaild queue list'")
        return {"retried": hastened}

    async def _queue_drop(self, request: Request) -> dict[str, int]:
        number = _number(request)
        if number is None or not await self._queue().drop(number):
            raise OperatorError(f"no row {number} waits: see 'sealmaild queue list'")
        return {"dropped": number}

    def _queue(self) -> QueueDesk:
        partnership = Partnership(self.config.second_server, self.config.partner_queue_blocks)
        teller = Teller(self.store, partnership, self.clock)
        return self.queue or QueueDesk(self.store, teller)

    def _hold(self) -> str | None:
        hold = self.guard.hold
        return format_date(hold) if hold and hold > self.clock() else None

    def _servers(self) -> tuple[InvitedServer, ...]:
        """Return every address of this server, each with the pin that is shown there.

        Those of the partner come last; a covert server tells no public one.
        """
        servers = []
        if not self.config.covert:
            servers.append(InvitedServer(self._public_address(), self._pin()))
        servers += self._hidden_servers()
        partner = self.replication.partner if self.replication else self.config.second_server
        if partner is not None and not (
            self.config.covert and partner.address.network is Network.DIRECT
        ):
            servers.append(InvitedServer(partner.address, partner.pin))
        return tuple(servers)

    def _hidden_servers(self) -> list[InvitedServer]:
        running = self.running()
        if running is not None:
            groups = [port.addresses for port in running.hidden]
        else:
            faces = hidden_faces(self.directory, self.config, self.clock())
            groups = [face.addresses for face in faces]
        addresses = [address for group in groups for address in group]
        return [InvitedServer(one, hidden_pin(self.directory, one)) for one in addresses]

    def _public_address(self) -> ServerAddress:
        running = self.running()
        port = running.listen.port if running else self.config.address.port
        return public_address(self.config, port)

    def _pin(self) -> bytes:
        return pin_of(self.directory / self.config.certificate)


def public_address(config: Config, port: int) -> ServerAddress:
    """Return the address that users and other servers are told."""
    if port == 0:
        raise BadConfig("listen has port 0: start the server, which then knows its port")
    name = config.names[0]
    try:
        return ServerAddress.parse(f"[{name}]:{port}" if ":" in name else f"{name}:{port}")
    except ValueError as error:
        raise BadConfig(f"names: {error}") from None


def dns_line(config: Config, port: int, hidden: Sequence[str] = ()) -> str:
    """Return the line to put into the DNS zone, with the hidden addresses of the same server."""
    if config.covert:
        raise BadConfig("a covert server is in no DNS")
    servers = ",".join((str(public_address(config, port)), *hidden))
    return f'cmsvr.{config.mail_domain}. IN TXT "server={servers}"'


def _row(account: Account) -> dict[str, Any]:
    return {
        "key": account.auth_key_hash.hex()[:_KEY_NAME_DIGITS],
        "userid": account.userid,
        "state": account.state,
        "created": format_date(account.created),
        "changed": format_date(account.changed),
    }


def _is_meant(account: Account, userid: str | None, key: str | None) -> bool:
    if account.state == AccountState.DISABLED:
        return False
    if key:
        return account.auth_key_hash.hex().startswith(key.lower())
    return bool(userid) and account.userid == str(userid).upper()


def _text(request: Request, name: str) -> str | None:
    value = request.get(name)
    if value is not None and not isinstance(value, str):
        raise OperatorError(f"{name} must be a text")
    return value or None


def _number(request: Request) -> int | None:
    value = request.get("number")
    if value is not None and not (isinstance(value, int) and 0 < value < 2**63):
        raise OperatorError("the number of a row must be a whole number")
    return value


def _or_none(value: object | None) -> str | None:
    return None if value is None else str(value)


_EXPLAINED = (
    AccountRefused,
    BadConfig,
    BadIdentity,
    PairingFailed,
    StoreError,
    OSError,
    ValueError,
)

_REQUESTS: dict[str, Callable[[Operator, Request], Awaitable[Any]]] = {
    "account add": Operator._add,
    "account remove": Operator._remove,
    "account list": Operator._list,
    "account generate": Operator._generate,
    "account invite": Operator._invite,
    "status": Operator._status,
    "pair offer": Operator._offer_pairing,
    "pair join": Operator._join_pairing,
    "pair sync": Operator._compare,
    "pair status": Operator._partner_status,
    "clock confirm": Operator._confirm_clock,
    "backup": Operator._back_up,
    "queue list": Operator._queue_list,
    "queue retry": Operator._queue_retry,
    "queue drop": Operator._queue_drop,
}
