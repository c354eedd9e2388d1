"""How an identity goes out: by which proxies, and whom it asks for the servers of a domain."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

from sealmail_net.txt_resolver import TxtResolver
from sealmail_net.ways import ProxyPolicy
from sealmail_protocol.addresses import Network, ServerAddress


class DnsUse(StrEnum):
    """Who asks DNS for the servers of a correspondent's domain."""

    DIRECT = "direct"
    SERVER = "server"  # the home server, which then knows whom its user writes to
    OFF = "off"


@dataclass(frozen=True, slots=True)
class Connecting:
    """The ways out of one identity; what would let an anonymous one leak is refused."""

    tor_proxy: ServerAddress | None = None
    i2p_proxy: ServerAddress | None = None
    anonymous: bool = False  # nothing is dialled but the proxies, and no name is looked up
    exit_nodes: bool = False  # public servers are reached through Tor
    prefer: Network = Network.DIRECT  # of a server with several addresses
    dns: DnsUse = DnsUse.DIRECT
    dns_server: ServerAddress | None = None  # none: the resolver of the system
    dnssec: bool = False  # it checks signatures, and is believed in that
    ca_certificates: Path | None = None  # whose word on servers counts; none: the system's CAs

    def __post_init__(self) -> None:
        if self.anonymous and self.dns is DnsUse.DIRECT:
            raise ValueError("an anonymous identity asks DNS by its server or not at all")
        if self.dnssec and self.dns is not DnsUse.DIRECT:
            raise ValueError(
                "DNSSEC needs --dns direct: a server's word on signatures is no proof"
            )
        # Both say what is wrong with them.
        self.policy  # noqa: B018
        self.resolver  # noqa: B018

    @property
    def policy(self) -> ProxyPolicy:
        """Return which way leads to which server."""
        return ProxyPolicy(
            self.tor_proxy,
            self.i2p_proxy,
            direct=not self.anonymous,
            use_exit_node=self.exit_nodes,
            preferred=self.prefer,
        )

    @property
    def resolver(self) -> TxtResolver:
        """Return whom to ask where DNS is asked directly."""
        return TxtResolver(self.dns_server, validates=self.dnssec)

    def rows(self) -> dict[str, str]:
        """Return the lines of ``config.toml`` that say this."""
        return {
            "tor_proxy": json.dumps(_or_empty(self.tor_proxy)),
            "i2p_proxy": json.dumps(_or_empty(self.i2p_proxy)),
            "anonymous": json.dumps(self.anonymous),
            "exit_nodes": json.dumps(self.exit_nodes),
            "prefer": json.dumps(self.prefer.value),
            "dns": json.dumps(self.dns),
            "dns_server": json.dumps(_or_empty(self.dns_server)),
            "dnssec": json.dumps(self.dnssec),
            "ca_certificates": json.dumps(str(self.ca_certificates or ""), ensure_ascii=False),
        }

    @classmethod
    def from_rows(cls, rows: Mapping[str, Any]) -> "Connecting":
        """Read those lines; ``ValueError`` names the one that is wrong, ``KeyError`` a missing."""
        return cls(
            tor_proxy=_address(rows, "tor_proxy"),
            i2p_proxy=_address(rows, "i2p_proxy"),
            anonymous=_switch(rows, "anonymous"),
            exit_nodes=_switch(rows, "exit_nodes"),
            prefer=Network(_text(rows, "prefer")),
            dns=DnsUse(_text(rows, "dns")),
            dns_server=_address(rows, "dns_server"),
            dnssec=_switch(rows, "dnssec"),
            ca_certificates=_path(rows, "ca_certificates"),
        )


CONNECTING_ROWS = frozenset(Connecting.__slots__)
DIRECTLY = Connecting()


def _or_empty(address: ServerAddress | None) -> str:
    return "" if address is None else str(address)


def _address(rows: Mapping[str, Any], name: str) -> ServerAddress | None:
    text = _text(rows, name)
    return ServerAddress.parse(text) if text else None


def _path(rows: Mapping[str, Any], name: str) -> Path | None:
    text = _text(rows, name)
    return Path(text) if text else None


def _text(rows: Mapping[str, Any], name: str) -> str:
    value = rows[name]
    if not isinstance(value, str):
        raise ValueError(f"{name} is not a text")
    return value


def _switch(rows: Mapping[str, Any], name: str) -> bool:
    value = rows[name]
    if not isinstance(value, bool):
        raise ValueError(f"{name} is neither true nor false")
    return value
