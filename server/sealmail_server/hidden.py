"""The server's face towards Tor and I2P: names, key and certificate that the public one lacks.

Forwarders connect to a port of loopback that is theirs alone. The certificate names hidden hosts
only, and its key is not the public one: either would tell that two names are one server.
"""

from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from sealmail_protocol.addresses import ServerAddress
from sealmail_server.config import (
    CONTROL_PASSWORD_NAME,
    HIDDEN_CERTIFICATE_NAME,
    HIDDEN_KEY_NAME,
    ONION_KEY_NAME,
    Config,
)
from sealmail_server.onion_key import load_onion_key
from sealmail_server.onion_service import OnionService
from sealmail_server.tls_identity import TlsIdentity, make_tls_identity, pin_of
from sealmail_server.tor_control import ControlPort

# All who come through Tor and I2P are one source until they have logged in: nothing tells one of
# them from another.
HIDDEN_SOURCE = "hidden"


@dataclass(frozen=True, slots=True)
class HiddenFace:
    """What forwarders' listener shows, and the onion service that is ours to publish, if any."""

    addresses: tuple[ServerAddress, ...]
    identity: TlsIdentity
    pin: bytes
    onion: OnionService | None


def hidden_addresses(directory: Path, config: Config) -> tuple[ServerAddress, ...]:
    """Return the onion and I2P addresses of this server; the onion key is made if it is ours."""
    if not config.hidden_listen:
        return ()
    hosts = list(config.hidden_names)
    if config.tor_control:
        hosts.insert(0, load_onion_key(directory / ONION_KEY_NAME).host)
    return tuple(ServerAddress.parse(f"{host}:{config.hidden_port}") for host in hosts)


def hidden_face(directory: Path, config: Config, now: datetime) -> HiddenFace | None:
    """Return the hidden face, ``None`` without one; key and certificate are made if missing."""
    addresses = hidden_addresses(directory, config)
    if not addresses:
        return None
    certificate, key = directory / HIDDEN_CERTIFICATE_NAME, directory / HIDDEN_KEY_NAME
    if not certificate.exists():
        make_tls_identity(certificate, key, [address.host for address in addresses], now)
    onion = None
    if config.tor_control:
        onion_key = load_onion_key(directory / ONION_KEY_NAME)
        onion = OnionService(
            onion_key,
            config.hidden_port,
            lambda: ControlPort(config.tor_control, _password(directory)),
        )
    return HiddenFace(addresses, TlsIdentity(certificate, key), pin_of(certificate), onion)


def _password(directory: Path) -> str:
    try:
        return (directory / CONTROL_PASSWORD_NAME).read_text(errors="replace").strip()
    except FileNotFoundError:
        return ""
