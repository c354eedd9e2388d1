"""What `sealmail doctor` examines: GnuPG, home, disk, proxies, and the home server from here."""

import asyncio
import os
import shutil
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

from sealmail_client.connecting import Connecting
from sealmail_client.desk import Desk
from sealmail_client.errors import ClientError
from sealmail_client.key_lookup import KeyLookup
from sealmail_client.posting import TIME, Peer
from sealmail_client.servers import LoginRefused
from sealmail_net.errors import NetworkError, NoServerReached, PinChanged
from sealmail_protocol.addresses import ServerAddress
from sealmail_protocol.dates import format_date, parse_date

# A proxy is on this machine or near it.
_KNOCK_SECONDS = 5.0
_LEAST_FREE = 256 * 1024**2
# Servers refuse what is dated a day ahead; minutes are no harm.
_CLOCKS_AGREE = timedelta(minutes=5)
_OTHERS = stat.S_IRWXG | stat.S_IRWXO


@dataclass(frozen=True, slots=True)
class Finding:
    """What was found of one part; ``well`` if nothing has to be done."""

    part: str
    well: bool
    text: str


async def examine(desk: Desk) -> tuple[Finding, ...]:
    """Examine everything, from here to the home server and back."""
    return (
        _gnupg(desk),
        _permissions(desk),
        _disk(desk.home.path),
        *await examine_proxies(desk.settings.connecting),
        *await _home_server(desk),
    )


def _gnupg(desk: Desk) -> Finding:
    try:
        version = desk.keyring.run("--version")
        own = desk.settings.key_id
        held = desk.keyring.run("--list-secret-keys", own.hex)
    except (ClientError, OSError) as error:
        return Finding("gnupg", False, str(error))
    name = version.output.decode("utf-8", "replace").partition("\n")[0]
    if held.exit_code != 0:
        text = f"{name}; the agent has no secret key {own}: restore it from a back-up"
        return Finding("gnupg", False, text)
    return Finding("gnupg", True, f"{name}; the agent holds the secret key {own}")


def _permissions(desk: Desk) -> Finding:
    home = desk.home
    checked = (home.path, home.keyring, home.database, home.auth_file, home.settings_file)
    wrong = [path for path in checked if _open_to_others(path)]
    if wrong:
        names = " ".join(str(path) for path in wrong)
        return Finding("permissions", False, f"others can get at it: chmod go= {names}")
    return Finding("permissions", True, f"{home.path} is yours alone")


def _open_to_others(path: Path) -> bool:
    try:
        found = path.stat()
    except FileNotFoundError:
        return False
    return bool(found.st_mode & _OTHERS) or found.st_uid != os.getuid()


def _disk(path: Path) -> Finding:
    free = shutil.disk_usage(path).free
    return Finding("disk", free >= _LEAST_FREE, f"{free // 1024**2} MiB free")


async def examine_proxies(ways: Connecting) -> list[Finding]:
    """Knock at the SOCKS ports that the user named; nothing is asked of them."""
    named = (("tor", ways.tor_proxy), ("i2p", ways.i2p_proxy))
    return [await _proxy(part, proxy) for part, proxy in named if proxy is not None]


async def _proxy(part: str, proxy: ServerAddress) -> Finding:
    try:
        async with asyncio.timeout(_KNOCK_SECONDS):
            _, writer = await asyncio.open_connection(proxy.host, proxy.port)
    except (OSError, TimeoutError) as error:
        reason = str(error) or "no answer"
        return Finding(part, False, f"nothing listens at {proxy} ({reason}): start {part}")
    writer.close()
    return Finding(part, True, f"{proxy} listens")


async def _home_server(desk: Desk) -> list[Finding]:
    """Connect and log in as every other command does, and look at what is there."""
    try:
        async with desk.servers.home() as peer:
            address = peer.server.address
            return [
                Finding("server", True, f"{address} is reached"),
                Finding("pin", True, f"{address} shows the key {peer.server.pin.hex()}"),
                *_standing(peer),
                _clock(desk, peer),
                await _published(desk, peer),
            ]
    except LoginRefused as error:
        return [Finding("server", True, "it is reached"), Finding("login", False, str(error))]
    except NetworkError as error:
        return list(_unreached(error))


def _standing(peer: Peer) -> Iterator[Finding]:
    """Tell what the server is to us: the home of an account, or a door to the DHT."""
    address, lack = peer.server.address, peer.lacks
    if peer.account:
        yield Finding("login", True, f"{address} knows you")
    else:
        text = f"{address} is a door to the DHT" if lack is None else f"{address}: {lack}"
        yield Finding("dht", lack is None, text)


def _unreached(error: NetworkError) -> Iterator[Finding]:
    reasons = error.reasons if isinstance(error, NoServerReached) else (error,)
    for reason in reasons:
        part = "pin" if isinstance(reason, PinChanged) else "server"
        yield Finding(part, False, str(reason))


def _clock(desk: Desk, peer: Peer) -> Finding:
    now = desk.clock()
    try:
        ahead = parse_date(peer.capabilities[TIME]) - now
    except (KeyError, ValueError):
        return Finding("clock", True, f"{format_date(now)}; the server does not tell its own")
    text = f"the server is {ahead.total_seconds():+.0f} s from here"
    if abs(ahead) <= _CLOCKS_AGREE:
        return Finding("clock", True, text)
    return Finding("clock", False, f"{text}: set this machine's clock, or tell its operator")


async def _published(desk: Desk, peer: Peer) -> Finding:
    if desk.own_blocks.revoked:
        return Finding("key", False, "your key is revoked: sealmail identity create")
    if peer.lacks:
        return Finding("key", False, "nobody can be asked for it")
    lookup = KeyLookup(peer, desk.verifier, desk.clock())
    found = await lookup.by_key_id(desk.settings.key_id)
    if found is None:
        why = "; ".join(lookup.doubts) or "it is not there"
        return Finding("key", False, f"others do not find your key ({why}): sealmail key publish")
    date = format_date(found.announcement.date)
    if desk.own_blocks.due(desk.clock()):
        return Finding("key", False, f"published on {date}, due again: sealmail key publish")
    return Finding("key", True, f"published on {date}")
