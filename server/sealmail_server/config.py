"""The server's settings: one frozen value read from ``config.toml``, every default in it."""

import difflib
import re
import tomllib
from collections.abc import Callable
from dataclasses import dataclass, field, fields, replace
from datetime import timedelta
from pathlib import Path
from types import MappingProxyType
from typing import Any, TypeVar

from sealmail_net.ways import ProxyPolicy
from sealmail_protocol.addresses import Network, ServerAddress
from sealmail_protocol.blocks import BlockType
from sealmail_server import setting_rules as rules
from sealmail_server.dht.neighbourhood import DhtSettings
from sealmail_server.limits import Limits, QueueLimits
from sealmail_server.partnership import Partner
from sealmail_server.setting_rules import BadConfig, Listen
from sealmail_store import write_durably

T = TypeVar("T")

CONFIG_NAME = "config.toml"
STORE_NAME = "store"
CERTIFICATE_NAME = "tls/server.crt"
KEY_NAME = "tls/server.key"
HIDDEN_CERTIFICATE_NAME = "tls/hidden.crt"
HIDDEN_KEY_NAME = "tls/hidden.key"
I2P_CERTIFICATE_NAME = "tls/i2p.crt"
I2P_KEY_NAME = "tls/i2p.key"
ONION_KEY_NAME = "tor/onion.key"
CONTROL_PASSWORD_NAME = "tor/control_password"  # noqa: S105 - the name of a file

DEFAULT_LISTEN = "[::]:8081"

_LIMITS = Limits()
_QUEUE = QueueLimits()
# Every limit but the ages is a setting of the same name.
_BOUNDS = tuple(each.name for each in fields(Limits) if each.name != "max_age")


def _setting(
    default: T, about: str, check: Callable[[Any], None] | None = None, *, secret: bool = False
) -> T:
    """Declare a setting with the comment that explains it in ``config.toml``."""
    made: T = field(default=default, repr=not secret, metadata={"about": about, "check": check})
    return made


@dataclass(frozen=True, slots=True)
class Config:
    """What an operator may choose."""

    listen: str = _setting(
        DEFAULT_LISTEN,
        "Where to listen: HOST:PORT, IPv6 addresses in brackets. [::] takes IPv4 too.",
        rules.address,
    )
    names: tuple[str, ...] = _setting(
        ("localhost",),
        "The host names of this server. The first is the one that users and DNS are told.",
        rules.host_names,
    )
    domain: str = _setting(
        "",
        "The domain of the users' addresses, for the DNS line and invitations.\n"
        "Empty means: the first of names.",
        rules.domain,
    )
    direct_tls_listen: str = _setting(
        "",
        "A second address where TLS begins at once, without STARTTLS. Empty means: none.",
        rules.address_or_off,
    )
    require_tls: bool = _setting(
        True,
        "With false, old clients may use every command, LOGIN too, without encryption.",
    )
    certificate: str = _setting(
        CERTIFICATE_NAME,
        "The TLS certificate (PEM, with its chain) and its key; relative to this directory.\n"
        "New files are taken up at the next connection, or at once by SIGHUP.",
        rules.path,
    )
    private_key: str = _setting(KEY_NAME, "", rules.path)
    permit_dns_txt: bool = _setting(
        True,
        "Whether clients may look up TXT records through this server, which keeps their own\n"
        "address from name servers.",
    )
    dns_server: str = _setting(
        "",
        "The resolver to ask, IP:PORT. Empty means: those of the system.",
        rules.ip_and_port,
    )
    tor_proxy: str = _setting(
        "",
        "The SOCKS proxies, IP:PORT, by which this server reaches others in Tor and I2P.",
        rules.ip_and_port,
    )
    i2p_proxy: str = _setting("", "", rules.ip_and_port)
    use_exit_node: bool = _setting(
        False, "With true, public servers are reached through Tor too, by its exit nodes."
    )
    preferred_connection: str = _setting(
        "direct",
        "Which address of a server is tried first where it has several: direct, tor or i2p.",
        rules.network,
    )
    hidden_listen: str = _setting(
        "",
        "Where Tor or I2P on this machine forward connections to: an address of loopback and a\n"
        "port that nobody else uses. Empty means: none.",
        rules.loopback_or_off,
    )
    i2p_listen: str = _setting(
        "",
        "Where I2P forwards to on a server that is in Tor too: by one port, with one key, others\n"
        "could tell that both hosts are one server. Empty means: to hidden_listen.",
        rules.loopback_or_off,
    )
    hidden_names: tuple[str, ...] = _setting(
        (),
        "The .onion and .b32.i2p hosts that forward there, but for one that tor_control makes.",
        rules.hidden_hosts,
    )
    hidden_port: int = _setting(
        8081, "The port of these hosts, as others are told it.", rules.between(1, 65_535)
    )
    tor_control: str = _setting(
        "",
        "Tor's control port, IP:PORT on loopback or the path of its socket. With it this server\n"
        "makes an onion service of its own, and publishes it again when tor was restarted.",
        rules.control_or_off,
    )
    covert: bool = _setting(
        False,
        "With true, this server is reached through Tor or I2P only and reaches others only so.",
    )
    max_hidden_connections: int = _setting(
        200,
        "Connections by hidden_listen, and as many by i2p_listen; they count for themselves.",
        rules.at_least(1),
    )
    max_connections: int = _setting(
        1000, "Connections beyond these numbers are answered BUSY.", rules.at_least(1)
    )
    max_connections_per_source: int = _setting(100, "", rules.at_least(1))
    idle_seconds: int = _setting(
        60,
        "A connection on which nothing happens for this many seconds is closed.",
        rules.at_least(1),
    )
    stop_seconds: int = _setting(
        10, "How long commands that are running may take when the server stops.", rules.at_least(0)
    )
    stranger_requests_per_second: int = _setting(
        20,
        "How often one source may ask for a VERDICT, a SELFTEST and the like without login;\n"
        "ten times as many at once. Beyond it answers are delayed, then the connection closed.",
        rules.at_least(1),
    )
    memory_bytes: int = _setting(
        256 * 1024**2,
        "Memory for large bodies and answers under way, in all and for one source. Beyond it\n"
        "they are answered FAILED; ordinary mail needs none of it.",
        rules.at_least(1),
    )
    memory_bytes_by_source: int = _setting(64 * 1024**2, "", rules.at_least(1))
    allow_private_targets: bool = _setting(
        False,
        "With true, mail may be delivered to servers in private networks and on this machine.",
    )
    dht: bool = _setting(
        False,
        "Whether this server takes part in the DHT, by datagrams on the port of listen. Whoever\n"
        "takes part shows its address to strangers; a covert server must not.",
    )
    dht_bootstrap: tuple[str, ...] = _setting(
        (), "Servers that take part already, HOST:PORT; one that answers is enough.", rules.servers
    )
    dht_network: str = _setting(
        "sealmail-dht-1", "Servers with another name here are another network.", rules.name
    )
    entangled_peers: tuple[str, ...] = _setting(
        (),
        "Servers, HOST:PORT, that are asked for what the DHT does not have, and posted to:\n"
        "originals, which have a network of their own, or others of our kind.",
        rules.servers,
    )
    dht_bytes: int = _setting(
        256 * 1024**2,
        "Room for what the DHT has this server keep; one source has a sixteenth of it.",
        rules.at_least(1024**2),
    )
    dht_requests_per_second: int = _setting(
        100,
        "How many datagrams one source may send; ten times as many at once. Others are dropped.",
        rules.at_least(1),
    )
    dht_replicas: int = _setting(
        20,
        "How many nodes are to keep a value of the DHT; the same in the whole network.",
        rules.between(1, 20),
    )
    takeover_seconds: int = _setting(
        300,
        "When the partner has been away for so long, what it has to deliver is delivered here.",
        rules.at_least(1),
    )
    proxy_bytes: int = _setting(
        _QUEUE.bytes,
        "Room for blocks that wait to be delivered to other servers, in all and of one user.",
        rules.at_least(1),
    )
    proxy_bytes_by_user: int = _setting(_QUEUE.bytes_by_user, "", rules.at_least(1))
    proxy_rows: int = _setting(
        _QUEUE.rows,
        "How many deliveries to other servers may wait, in all and of one user.",
        rules.at_least(1),
    )
    proxy_rows_by_user: int = _setting(_QUEUE.rows_by_user, "", rules.at_least(1))
    quota_bytes: int = _setting(
        _LIMITS.quota_bytes, "How many bytes the mail of one user may take.", rules.at_least(1)
    )
    mailbox_bytes: int = _setting(
        _LIMITS.mailbox_bytes,
        "How many bytes of announcements a mailbox holds.",
        rules.at_least(1),
    )
    loose_bytes: int = _setting(
        _LIMITS.loose_bytes,
        "Room for data that no paid mail names (yet), in all and from one source.",
        rules.at_least(1),
    )
    loose_bytes_by_source: int = _setting(_LIMITS.loose_bytes_by_source, "", rules.at_least(1))
    acknowledgment_bytes: int = _setting(
        _LIMITS.acknowledgment_bytes,
        "Room for acknowledgments, in all and from one source.",
        rules.at_least(1),
    )
    acknowledgment_bytes_by_source: int = _setting(
        _LIMITS.acknowledgment_bytes_by_source, "", rules.at_least(1)
    )
    waiting_bytes: int = _setting(
        _LIMITS.waiting_bytes,
        "Room for mail that waits for an account, a key or a price, in all and from one source.",
        rules.at_least(1),
    )
    waiting_bytes_by_source: int = _setting(_LIMITS.waiting_bytes_by_source, "", rules.at_least(1))
    verdicts: int = _setting(
        _LIMITS.verdicts, "How many verdicts are remembered.", rules.at_least(1000)
    )
    partner: str = _setting(
        "",
        "The second server of a pair, HOST:PORT; its replication auth key, and the pin of its\n"
        "public key. 'sealmaild pair' sets all three. Empty means: no partner.",
        rules.server_or_none,
    )
    partner_auth_key: str = _setting(
        "",
        "",
        rules.pattern_or_none("[0-9A-Za-z]{8,40}", "8 to 40 letters and digits"),
        secret=True,
    )
    partner_pin: str = _setting("", "", rules.pattern_or_none("[0-9a-fA-F]{64}", "64 hex digits"))
    replication: str = _setting(
        "async",
        'With "async" a STORE is answered after the commit here; with "both" after that of the\n'
        "partner too, or after 5 seconds without it.",
        rules.one_of("async", "both"),
    )
    partner_queue_blocks: int = _setting(
        500_000,
        "How many blocks may wait for the partner; beyond it both are compared when it is back.",
        rules.at_least(1),
    )
    outgoing_address: str = _setting(
        "", "The own address to connect from. Empty means: the system chooses.", rules.ip_or_none
    )
    max_age_days_key_announcement: int = _setting(
        31,
        "For how many days blocks of each type are kept; never longer than these defaults.",
        rules.between(1, 31),
    )
    max_age_days_address_claim: int = _setting(10, "", rules.between(1, 10))
    max_age_days_message_announcement: int = _setting(10, "", rules.between(1, 10))
    max_age_days_acknowledgment: int = _setting(10, "", rules.between(1, 10))
    max_age_days_data: int = _setting(10, "", rules.between(1, 10))

    @classmethod
    def load(cls, directory: Path) -> "Config":
        """Read the settings of a data directory; unknown or ill-typed ones are refused."""
        path = directory / CONFIG_NAME
        try:
            values = tomllib.loads(path.read_text())
        except FileNotFoundError:
            raise BadConfig(
                f"{directory} is no server directory: run 'sealmaild init --data {directory}'"
            ) from None
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
            raise BadConfig(f"{path}: {error}") from None
        try:
            return cls.of(values)
        except BadConfig as error:
            raise BadConfig(f"{path}: {error}") from None

    @classmethod
    def of(cls, values: dict[str, Any]) -> "Config":
        """Check values as TOML gives them, and return the settings."""
        config = cls(**{name: _checked(name, value) for name, value in values.items()})
        config._check_together()
        return config

    def _check_together(self) -> None:
        """Refuse settings that contradict each other, rather than leak by one of them."""
        self._check_hidden()
        if self.covert and self.direct_tls_listen:
            raise BadConfig("direct_tls_listen: a covert server listens on no port of its own")
        if self.covert and self.dht:
            raise BadConfig("dht: datagrams would show where a covert server is")
        if self.entangled_peers and not self.dht:
            raise BadConfig("entangled_peers: needs dht = true")
        self.second_server  # noqa: B018 - it checks itself
        try:
            self.proxy_policy  # noqa: B018 - it checks itself
        except ValueError as error:
            raise BadConfig(f"tor_proxy, i2p_proxy, use_exit_node, covert: {error}") from None

    def _check_hidden(self) -> None:
        """Refuse hidden hosts without a port of their network, and ports without hosts."""
        networks = self._hidden_networks
        if self.covert and not networks:
            raise BadConfig("hidden_listen: is needed by covert, with hidden_names or tor_control")
        if self.hidden_listen and not networks:
            raise BadConfig("hidden_listen: needs hidden_names or tor_control")
        if self.i2p_listen and Network.I2P not in networks:
            raise BadConfig("i2p_listen: needs an .i2p host in hidden_names")
        if Network.TOR in networks and not self.hidden_listen:
            raise BadConfig("hidden_listen: is needed by onion hosts and tor_control")
        if Network.I2P in networks and not (self.hidden_listen or self.i2p_listen):
            raise BadConfig("hidden_listen: is needed by hidden_names")
        if len(networks) > 1 and self.i2p_listen in ("", self.hidden_listen):
            raise BadConfig("i2p_listen: a server in Tor and I2P needs another port for I2P")
        if self.hidden_listen and self.i2p_listen and Network.TOR not in networks:
            raise BadConfig("hidden_listen: nothing forwards to it beside i2p_listen")

    @property
    def address(self) -> Listen:
        """Return where to listen, parsed."""
        return Listen.parse(self.listen)

    @property
    def direct_tls_address(self) -> Listen | None:
        """Return where to listen for direct TLS, if anywhere."""
        return Listen.parse(self.direct_tls_listen) if self.direct_tls_listen else None

    def paired_with(self, partner: Partner) -> "Config":
        """Return these settings with another partner."""
        return replace(
            self,
            partner=str(partner.address),
            partner_auth_key=partner.auth_key,
            partner_pin=partner.pin.hex(),
        )

    @property
    def second_server(self) -> Partner | None:
        """Return the partner, if there is one; ``BadConfig`` if a part of it is missing."""
        parts = self.partner, self.partner_auth_key, self.partner_pin
        if not any(parts):
            return None
        if not all(parts):
            raise BadConfig("partner, partner_auth_key and partner_pin belong together")
        pin = bytes.fromhex(self.partner_pin)
        return Partner(ServerAddress.parse(self.partner), self.partner_auth_key, pin)

    @property
    def dns_address(self) -> ServerAddress | None:
        """Return the resolver to ask, ``None`` for those of the system."""
        return rules.at_ip(self.dns_server)

    @property
    def proxy_policy(self) -> ProxyPolicy:
        """Return which way leads from this server to others."""
        return ProxyPolicy(
            rules.at_ip(self.tor_proxy),
            rules.at_ip(self.i2p_proxy),
            direct=not self.covert,
            use_exit_node=self.use_exit_node,
            preferred=Network(self.preferred_connection),
        )

    @property
    def hidden_addresses(self) -> dict[Network, Listen]:
        """Return where the forwarders of each network connect."""
        named = {
            Network.TOR: self.hidden_listen,
            Network.I2P: self.i2p_listen or self.hidden_listen,
        }
        return {
            network: Listen.parse(at)
            for network, at in named.items()
            if network in self._hidden_networks
        }

    @property
    def _hidden_networks(self) -> frozenset[Network]:
        networks = {ServerAddress.parse(f"{host}:1").network for host in self.hidden_names}
        return frozenset(networks | ({Network.TOR} if self.tor_control else set()))

    @property
    def mail_domain(self) -> str:
        """Return the domain of the users' addresses."""
        return self.domain or self.names[0]

    @property
    def dht_settings(self) -> DhtSettings:
        """Return how this server takes part in the DHT."""
        return DhtSettings(
            network=self.dht_network,
            allow_private=self.allow_private_targets,
            requests_per_second=self.dht_requests_per_second,
            replicas=self.dht_replicas,
        )

    @property
    def limits(self) -> Limits:
        """Return the bounds for blocks."""
        ages = {
            kind: timedelta(days=getattr(self, f"max_age_days_{kind.replace('-', '_')}"))
            for kind in BlockType
        }
        bounds = {name: getattr(self, name) for name in _BOUNDS}
        return Limits(max_age=MappingProxyType(ages), **bounds)

    @property
    def queue_limits(self) -> QueueLimits:
        """Return the bounds for what waits to be delivered elsewhere."""
        return QueueLimits(
            self.proxy_rows, self.proxy_rows_by_user, self.proxy_bytes, self.proxy_bytes_by_user
        )


_KNOWN = {each.name: each for each in fields(Config)}


def _checked(name: str, value: Any) -> Any:
    known = _KNOWN.get(name)
    if known is None:
        near = difflib.get_close_matches(name, _KNOWN, n=1)
        hint = f"; did you mean {near[0]!r}?" if near else ""
        raise BadConfig(f"unknown setting {name!r}{hint}")
    if isinstance(known.default, tuple):
        if not isinstance(value, list) or not all(isinstance(each, str) for each in value):
            raise BadConfig(f"{name} must be a list of texts")
        value = tuple(value)
    if type(value) is not type(known.default):
        raise BadConfig(f"{name} must be of type {type(known.default).__name__}")
    check = known.metadata["check"]
    try:
        if check is not None:
            check(value)
    except BadConfig as error:
        raise BadConfig(f"{name}: {error}") from None
    return value


def config_text(**chosen: Any) -> str:
    """Return a first ``config.toml``: the chosen values, and every default as a comment."""
    lines = ["# Sealmail server. Lines that begin with '#' show the defaults."]
    for each in _KNOWN.values():
        about = each.metadata["about"]
        if about:
            lines += ["", *(f"# {line}" for line in about.split("\n"))]
        value = chosen.get(each.name, each.default)
        lines.append(("" if each.name in chosen else "# ") + f"{each.name} = {_toml(value)}")
    return "\n".join(lines) + "\n"


def set_settings(directory: Path, **chosen: Any) -> None:
    """Change settings in ``config.toml``, and leave its other lines as the operator wrote them."""
    path = directory / CONFIG_NAME
    lines = path.read_text().splitlines()
    for name, value in chosen.items():
        line = f"{name} = {_toml(_checked(name, value))}"
        # A setting stands where it is shown as a comment; before any table, of which we have none.
        places = [at for at, old in enumerate(lines) if re.match(rf"(?:# )?{name} *=", old)]
        if places:
            lines[places[0] : places[0] + 1] = [line]
            lines = [
                old
                for at, old in enumerate(lines)
                if at == places[0] or not re.match(rf"{name} *=", old)
            ]
        else:
            lines.append(line)
    write_durably(path, ("\n".join(lines) + "\n").encode())


def _toml(value: str | int | bool | tuple[str, ...]) -> str:
    match value:
        case bool():
            return "true" if value else "false"
        case int():
            return str(value)
        case str():
            return f'"{value}"'
        case tuple():
            return "[" + ", ".join(map(_toml, value)) + "]"
