"""The options that say how an identity goes out, for all commands that make or change one."""

from collections.abc import Callable
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import click

from sealmail_client.cli.values import NONE, PROXY
from sealmail_client.connecting import Connecting, DnsUse
from sealmail_protocol.addresses import Network

_OPTIONS = (
    click.option(
        "--tor",
        "tor_proxy",
        type=PROXY,
        help="The SOCKS port of Tor, mostly 127.0.0.1:9050; .onion servers are reached by it.",
    ),
    click.option(
        "--i2p",
        "i2p_proxy",
        type=PROXY,
        help="The SOCKS port of I2P, mostly 127.0.0.1:4447; .i2p servers are reached by it.",
    ),
    click.option(
        "--anonymous/--not-anonymous",
        default=None,
        help="Make no connection but to these proxies, and ask DNS through the home server only.",
    ),
    click.option(
        "--exit-nodes/--no-exit-nodes",
        default=None,
        help="Reach public servers through Tor too; an exit node can tamper with what it sees.",
    ),
    click.option(
        "--prefer",
        type=click.Choice([each.value for each in Network]),
        help="Which address of a server is tried first, where it has several.",
    ),
    click.option(
        "--dns",
        type=click.Choice([str(each) for each in DnsUse]),
        help="Who asks DNS for the servers of a domain: you, your home server, or nobody.",
    ),
    click.option(
        "--dns-server",
        type=PROXY,
        help="The resolver to ask directly; none is that of the system.",
    ),
    click.option(
        "--dnssec/--no-dnssec",
        default=None,
        help="Whether the --dns-server checks DNSSEC; it must run on this machine.",
    ),
    click.option(
        "--ca-certificates",
        metavar="PATH",
        help="A file or directory of CAs that vouch for mail domains; none is the system's.",
    ),
)


def ways_out_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command the options that ``ways_out`` reads."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


def ways_out(said: dict[str, Any], present: Connecting) -> Connecting:
    """Take the options out of ``said``, and return what they make of the ``present`` ways."""
    given = {name: said.pop(name) for name in Connecting.__slots__}
    chosen = {name: _READ.get(name, _as_is)(v) for name, v in given.items() if v is not None}
    if chosen.get("anonymous") and "dns" not in chosen and present.dns is DnsUse.DIRECT:
        chosen.update(dns=DnsUse.SERVER)
    try:
        return replace(present, **chosen)
    except ValueError as error:
        raise click.BadParameter(str(error)) from None


def _as_is(value: Any) -> Any:
    return value


def _address(value: Any) -> Any:
    return None if value == NONE else value


def _ca_certificates(text: str) -> Path | None:
    """Return where CA certificates lie, once they were read from there."""
    if text == NONE:
        return None
    # pyOpenSSL takes a tenth of a second to load.
    from sealmail_client.judged_tls import JudgedHandshake, NoCertificates

    path = Path(text).absolute()
    try:
        JudgedHandshake(path)
    except NoCertificates as error:
        raise click.BadParameter(str(error), param_hint="--ca-certificates") from None
    return path


_READ: dict[str, Callable[[Any], Any]] = {
    "tor_proxy": _address,
    "i2p_proxy": _address,
    "dns_server": _address,
    "prefer": Network,
    "dns": DnsUse,
    "ca_certificates": _ca_certificates,
}


def ways_out_row(ways: Connecting) -> dict[str, object]:
    """Return how the identity goes out as scripts see it, by the names of the settings."""
    values = {one.name: getattr(ways, one.name) for one in fields(ways)}
    return {
        name: value if value is None or isinstance(value, bool) else str(value)
        for name, value in values.items()
    }


def tell_ways_out(ways: Connecting) -> None:
    """Print how the identity goes out, as far as it is not the ordinary way."""
    for network, proxy in (("Tor", ways.tor_proxy), ("I2P", ways.i2p_proxy)):
        if proxy is not None:
            click.echo(f"{network} is reached by {proxy}")
    if ways.anonymous:
        click.echo("anonymous: nothing else is connected to, and no name is looked up here")
    if ways.exit_nodes:
        click.echo("public servers are reached through Tor and its exit nodes")
    if ways.dns_server is not None:
        believed = ", whose word on DNSSEC is believed" if ways.dnssec else ""
        click.echo(f"DNS is asked at {ways.dns_server}{believed}")
    if ways.ca_certificates is not None:
        click.echo(f"the CAs in {ways.ca_certificates} vouch for mail domains")
