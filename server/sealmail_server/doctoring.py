"""What ``sealmaild doctor`` examines from outside: ports, DNS record, certificate and disk."""

import asyncio
import shlex
import shutil
import socket
import stat
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from sealmail_net.dialing import DialSettings, dial
from sealmail_net.errors import NetworkError
from sealmail_net.pins import MemoryPins
from sealmail_net.socks import Proxies
from sealmail_net.txt_resolver import LookupFailed, TxtSource
from sealmail_protocol.addresses import Network, ServerAddress
from sealmail_protocol.dns_records import named_transports, record_name
from sealmail_protocol.replies import Banner
from sealmail_server.config import (
    CONFIG_NAME,
    CONTROL_PASSWORD_NAME,
    HIDDEN_KEY_NAME,
    I2P_KEY_NAME,
    ONION_KEY_NAME,
    Config,
)
from sealmail_server.operator import public_address
from sealmail_server.setting_rules import BadConfig, Listen
from sealmail_server.tls_identity import (
    BadIdentity,
    TlsIdentity,
    names_in,
    pin_of,
    read_certificate,
)

_CONNECT_SECONDS = 5.0
_BANNER_BYTES = 500
# Peers pin the key, so an old certificate harms nobody; but who looks at dates will stumble.
_SOON = timedelta(days=14)
_LEAST_FREE = 1024**3
_NETWORKS = {
    Network.TOR: ("tor", "Tor", "tor_proxy"),
    Network.I2P: ("i2p", "I2P", "i2p_proxy"),
}
_NOT_OURS = stat.S_IRWXG | stat.S_IRWXO
_SECRET_FILES = (
    CONFIG_NAME,
    HIDDEN_KEY_NAME,
    I2P_KEY_NAME,
    ONION_KEY_NAME,
    CONTROL_PASSWORD_NAME,
)
_ANY_HOST = {"::": "::1", "0.0.0.0": "127.0.0.1"}  # noqa: S104


@dataclass(frozen=True, slots=True)
class Finding:
    """What was found of one part; ``well`` if nothing has to be done."""

    part: str
    well: bool
    text: str


def examine_port(listen: Listen, *, running: bool) -> list[Finding]:
    """Connect as a client would, and read the banner."""
    if not running:
        return [Finding("port", False, "the server is not running: start 'sealmaild run'")]
    errors = []
    for host in (_ANY_HOST.get(listen.host, listen.host), "127.0.0.1"):
        try:
            banner = _banner_of(host, listen.port)
        except (OSError, ValueError) as error:
            errors.append(f"{host}: {error}")
            continue
        ending = banner.ending
        return [Finding("port", banner.ready, f"{Listen(host, listen.port)} answers {ending}")]
    return [Finding("port", False, f"port {listen.port} does not answer: {'; '.join(errors)}")]


async def examine_dns(config: Config, port: int, resolver: TxtSource) -> list[Finding]:
    """Look the record up by which the world finds this server."""
    try:
        name, expected = record_name(config.mail_domain), public_address(config, port)
    except (BadConfig, ValueError) as error:
        return [Finding("dns", True, f"not looked up: {error}")]
    try:
        texts = (await resolver.ask(name)).texts
    except LookupFailed as error:
        return [Finding("dns", False, str(error))]
    named = [server for one in named_transports(texts) for server in one.servers]
    if expected in named:
        return [Finding("dns", True, f"{name} names {', '.join(map(str, named))}")]
    found = ", ".join(map(str, named)) or "no server"
    return [Finding("dns", False, f"{name} names {found}, not {expected}: publish the record")]


def examine_hidden(status: Mapping[str, Any]) -> list[Finding]:
    """Look at the ways in for Tor and I2P, if the server has any: ports, and what tor says."""
    findings = []
    for listen, addresses in status["hidden_ports"].items():
        (found,) = examine_port(Listen.parse(listen), running=True)
        findings.append(Finding("hidden", found.well, f"{', '.join(addresses)}: {found.text}"))
    if status["onion"]:
        findings.append(Finding("onion", bool(status["onion_published"]), status["onion"]))
    return findings


async def examine_from_outside(
    config: Config, hidden: Mapping[ServerAddress, bytes]
) -> list[Finding]:
    """Come to each hidden address through its network; it must show the pin beside it."""
    settings = DialSettings(proxies=Proxies(config.proxy_policy))
    coming = [_come_to(address, settings, pin) for address, pin in hidden.items()]
    return await asyncio.gather(*coming)


async def _come_to(address: ServerAddress, settings: DialSettings, pin: bytes) -> Finding:
    part, name, setting = _NETWORKS[address.network]
    if not settings.proxies.policy.leads_to_any((address,)):
        return Finding(part, True, f"{address}: not looked at from outside without {setting}")
    try:
        async with await dial(address, settings, MemoryPins(), strict_pin=True) as remote:
            shown = remote.pin
    except NetworkError as error:
        return Finding(part, False, f"not reached through {name}: {error}")
    if shown != pin:
        return Finding(part, False, f"{address} leads to a server with another key than ours")
    return Finding(part, True, f"{address} is reached through {name}")


def examine_directory(directory: Path, config: Config, now: datetime) -> list[Finding]:
    """Look at the TLS files, the disk, and who else may read what is secret."""
    return [_certificate(directory, config, now), _disk(directory), *_exposed(directory, config)]


def _exposed(directory: Path, config: Config) -> list[Finding]:
    """Tell of secret files that others on this machine may read or change.

    An own key outside the directory may have a group, as those of web servers often have.
    """
    secret = [directory / name for name in _SECRET_FILES]
    key = directory / config.private_key
    others = stat.S_IRWXO if not key.is_relative_to(directory) else _NOT_OURS
    modes = {**dict.fromkeys(secret, _NOT_OURS), key: others}
    return [
        Finding("files", False, f"others may use {path}: chmod go= {shlex.quote(str(path))}")
        for path, forbidden in modes.items()
        if path.exists() and path.stat().st_mode & forbidden
    ]


def _certificate(directory: Path, config: Config, now: datetime) -> Finding:
    path = directory / config.certificate
    try:
        TlsIdentity(path, directory / config.private_key)
        certificate, pin = read_certificate(path), pin_of(path)
    except BadIdentity as error:
        return Finding("certificate", False, str(error))
    left = certificate.not_valid_after_utc - now
    missing = sorted(set(config.names) - names_in(certificate))
    until = f"valid until {certificate.not_valid_after_utc:%Y-%m-%d}, pin {pin.hex()}"
    if left < _SOON:
        return Finding("certificate", False, f"{until}: renew it")
    if missing:
        return Finding("certificate", False, f"{until}; it does not name {', '.join(missing)}")
    return Finding("certificate", True, until)


def _disk(directory: Path) -> Finding:
    free = shutil.disk_usage(directory).free
    text = f"{free // 1024**2} MiB free"
    return Finding("disk", free >= _LEAST_FREE, text)


def _banner_of(host: str, port: int) -> Banner:
    with socket.create_connection((host, port), timeout=_CONNECT_SECONDS) as talking:
        with talking.makefile("rb") as lines:
            line = lines.readline(_BANNER_BYTES)
        return Banner.parse(line.decode("ascii", "replace").rstrip("\r\n"))
