"""The server's faces towards Tor and I2P: names, keys and certificates that the public one lacks.

The forwarders of each network connect to a port of loopback that is theirs alone. A certificate
names the hosts of its network only, and no two faces have one key: either would tell that two
names are one server.
"""

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from types import MappingProxyType

from sealmail_protocol.addresses import Network, ServerAddress
from sealmail_server.config import (
    CONTROL_PASSWORD_NAME,
    HIDDEN_CERTIFICATE_NAME,
    HIDDEN_KEY_NAME,
    I2P_CERTIFICATE_NAME,
    I2P_KEY_NAME,
    ONION_KEY_NAME,
    Config,
)
from sealmail_server.onion_key import load_onion_key
from sealmail_server.onion_service import OnionService
from sealmail_server.setting_rules import Listen
from sealmail_server.tls_identity import (
    TlsIdentity,
    is_our_make,
    make_tls_identity,
    names_in,
    pin_of,
    read_certificate,
    rename_certificate,
)
from sealmail_server.tor_control import ControlPort

_log = logging.getLogger(__name__)

_FILES = MappingProxyType(
    {
        Network.TOR: (HIDDEN_CERTIFICATE_NAME, HIDDEN_KEY_NAME),
        Network.I2P: (I2P_CERTIFICATE_NAME, I2P_KEY_NAME),
    }
)


@dataclass(frozen=True, slots=True)
class HiddenFace:
    """What the listener for one network shows, and the onion service that is ours to publish."""

    network: Network
    listen: Listen
    addresses: tuple[ServerAddress, ...]
    identity: TlsIdentity
    pin: bytes
    onion: OnionService | None

    @property
    def source(self) -> str:
        """Return the one source that all who come by this face are until they have logged in.

        Nothing tells one of them from another.
        """
        return self.network.value


def hidden_addresses(directory: Path, config: Config) -> tuple[ServerAddress, ...]:
    """Return the onion and I2P addresses of this server; the onion key is made if it is ours."""
    hosts = list(config.hidden_names)
    if config.tor_control:
        hosts.insert(0, load_onion_key(directory / ONION_KEY_NAME).host)
    return tuple(ServerAddress.parse(f"{host}:{config.hidden_port}") for host in hosts)


def hidden_faces(directory: Path, config: Config, now: datetime) -> tuple[HiddenFace, ...]:
    """Return a face for each network; keys and certificates are made if missing.

    Those of other hosts are set aside. Not beside a running server, which would show the new ones
    under the old names.
    """
    addresses = hidden_addresses(directory, config)
    return tuple(
        _face(
            directory,
            config,
            listen,
            [address for address in addresses if address.network is network],
            now,
        )
        for network, listen in config.hidden_addresses.items()
    )


def hidden_pin(directory: Path, address: ServerAddress) -> bytes:
    """Return the pin of the key that is shown at one of the hidden addresses."""
    return pin_of(directory / _FILES[address.network][0])


def _face(
    directory: Path,
    config: Config,
    listen: Listen,
    addresses: Sequence[ServerAddress],
    now: datetime,
) -> HiddenFace:
    network = addresses[0].network
    certificate, key = (directory / name for name in _FILES[network])
    _fit_identity(certificate, key, [address.host for address in addresses], now)
    onion = None
    if network is Network.TOR and config.tor_control:
        onion = OnionService(
            load_onion_key(directory / ONION_KEY_NAME),
            config.hidden_port,
            lambda: ControlPort(config.tor_control, _password(directory)),
        )
    identity = TlsIdentity(certificate, key)
    return HiddenFace(network, listen, tuple(addresses), identity, pin_of(certificate), onion)


def _fit_identity(certificate: Path, key: Path, hosts: Sequence[str], now: datetime) -> None:
    """See that key and certificate are for these hosts, and were never shown for others alone.

    An address that nobody is to connect with its former one must not show the same key. As long
    as one host stays, so does the key: its users have pinned it.
    """
    if not certificate.exists():
        make_tls_identity(certificate, key, hosts, now)
        return
    present = read_certificate(certificate)
    named = names_in(present)
    if named == set(hosts):
        return
    if not is_our_make(present):
        # The operator's own affair: others may have pinned its key.
        names = ", ".join(sorted(named)) or "no host"
        _log.warning("%s is for %s, not for %s", certificate, names, ", ".join(hosts))
        return
    if named.intersection(hosts):
        rename_certificate(certificate, key, hosts, now)
        return
    for path in (certificate, key):
        path.replace(path.with_name(f"{path.name}.old"))
    _log.warning("%s is for %s: a new key and certificate", certificate, ", ".join(sorted(named)))
    make_tls_identity(certificate, key, hosts, now)


def _password(directory: Path) -> str:
    try:
        return (directory / CONTROL_PASSWORD_NAME).read_text(errors="replace").strip()
    except FileNotFoundError:
        return ""
