"""``sealmaild status``, ``sealmaild doctor`` and ``sealmaild clock``."""

import asyncio
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from sealmail_net.txt_resolver import TxtResolver
from sealmail_protocol.addresses import ServerAddress
from sealmail_server.cli.common import (
    Commands,
    Exit,
    ask,
    data_option,
    json_option,
    or_fail,
    print_json,
)
from sealmail_server.config import Config
from sealmail_server.doctoring import (
    Finding,
    examine_directory,
    examine_dns,
    examine_from_outside,
    examine_hidden,
    examine_port,
)
from sealmail_server.hidden import hidden_pin
from sealmail_server.operator import dns_line
from sealmail_server.service import utc_now
from sealmail_server.setting_rules import BadConfig, Listen


@click.command()
@data_option
@json_option
def status(data: Path, as_json: bool) -> None:
    """Tell what the server holds and how it is."""
    found = ask(data, do="status")
    if as_json:
        print_json(found)
        return
    state = f"running since {found['started']}" if found["running"] else "not running"
    click.echo(f"server       {state}")
    click.echo(f"listen       {found['listen']}")
    if found["direct_tls_listen"]:
        click.echo(f"direct TLS   {found['direct_tls_listen']}")
    for address in found["hidden"]:
        click.echo(f"hidden       {address}")
    if found["onion"]:
        click.echo(f"onion        {found['onion']}")
    click.echo(f"connections  {found['connections']}")
    click.echo(f"clock        {found['clock']} ({found['time']})")
    if found["deletes_nothing_until"]:
        click.echo(f"deletes      nothing until {found['deletes_nothing_until']}")
    accounts = ", ".join(f"{number} {state}" for state, number in found["accounts"].items())
    click.echo(f"accounts     {accounts}")
    for line in _partner_lines(found["partner"]):
        click.echo(f"partner      {line}")
    queued = ", ".join(f"{number} {state}" for state, number in found["queue"].items())
    click.echo(f"queue        {queued}")
    for server in found["servers_down"]:
        click.echo(f"down         {server}")
    for line in _dht_lines(found["dht"]):
        click.echo(f"dht          {line}")
    for kind, count in found["blocks"].items():
        click.echo(f"blocks       {count['entries']} {kind}, {count['bytes']} bytes")


@click.command()
@data_option
@json_option
def doctor(data: Path, as_json: bool) -> None:
    """Examine port, certificate, disk and clock, and print the DNS line to publish."""
    directory = data.absolute()
    config = or_fail(lambda: Config.load(directory))
    found = ask(data, do="status")
    listen = Listen.parse(found["listen"])
    findings = [
        *examine_port(listen, running=found["running"]),
        *_dns_findings(config, listen.port),
        *examine_hidden(found),
        *_outside_findings(directory, config, found["hidden"]),
        *examine_directory(directory, config, utc_now()),
        _clock_finding(found),
        *_partner_findings(found["partner"]),
        *_dht_findings(found["dht"]),
    ]
    line, why_not = _dns_line(config, listen.port, found["hidden"])
    well = all(finding.well for finding in findings)
    if as_json:
        rows = [{"part": each.part, "well": each.well, "text": each.text} for each in findings]
        print_json({"well": well, "findings": rows, "dns": line})
    else:
        for each in findings:
            click.echo(f"{'ok  ' if each.well else 'FAIL'}  {each.part:<12}  {each.text}")
        click.echo(f"DNS record: {line or f'none: {why_not}'}")
    sys.exit(0 if well else Exit.UNWELL)


@click.group(cls=Commands)
def clock() -> None:
    """Look after the server's idea of time."""


@clock.command()
@data_option
@json_option
def confirm(data: Path, as_json: bool) -> None:
    """Say that the machine's clock is right, so that the server serves again."""
    done = ask(data, do="clock confirm")
    if as_json:
        print_json(done)
    else:
        click.echo(f"the time is {done['time']}; the clock was thought {done['clock_was']}")


def _clock_finding(found: dict[str, Any]) -> Finding:
    text = f"{found['time']}, latest time seen {found['latest_time_seen']}"
    if found["clock"] == "right":
        return Finding("clock", True, text)
    return Finding(
        "clock", False, f"{found['clock']}: {text}; set it, or run 'sealmaild clock confirm'"
    )


def _dht_lines(dht: dict[str, Any] | None) -> list[str]:
    """Tell how it stands with the DHT; nothing if the server takes no part."""
    if dht is None:
        return []
    states = {
        peer["peer"]: f"away: {peer['reason']}" if peer["reason"] else "well"
        for peer in dht["peers"]
    }
    return [
        f"{dht['neighbours']} neighbours, {_seen(dht)}",
        _reached(dht),
        f"{dht['values']} values, {dht['bytes']} bytes",
        f"{dht['not_spread']} keys that others do not keep yet",
        *(f"peer {p['peer']} {states[p['peer']]}, {p['waiting']} waiting" for p in dht["peers"]),
    ]


def _seen(dht: dict[str, Any]) -> str:
    return f"seen at {dht['seen_at']}" if dht["seen_at"] else "seen by nobody yet"


def _reached(dht: dict[str, Any]) -> str:
    """Tell of those who came unasked: whoever was asked first comes through any router."""
    if not dht["asked_by_others"]:
        return "not known to be reached from outside: nobody has come unasked yet"
    return f"reached from outside: {dht['asked_by_others']} came unasked"


def _dht_findings(dht: dict[str, Any] | None) -> list[Finding]:
    """Judge the part in the DHT: whom we know, and whether others come to us."""
    if dht is None:
        return []
    return [
        _neighbours_finding(dht),
        *(
            Finding("dht", False, f"peer {peer['peer']}: {peer['reason']}")
            for peer in dht["peers"]
            if peer["reason"]
        ),
    ]


def _neighbours_finding(dht: dict[str, Any]) -> Finding:
    if not dht["neighbours"]:
        return Finding("dht", False, "no neighbour answers: see dht_bootstrap in config.toml")
    return Finding("dht", True, f"{dht['neighbours']} neighbours, {_seen(dht)}; {_reached(dht)}")


def _partner_lines(partner: dict[str, Any] | None) -> list[str]:
    """Tell how it stands with the partner; nothing if there is none."""
    if partner is None:
        return []
    reached = "reached" if partner["connected"] else f"away: {partner['reason']}"
    since = f" since {partner['since']}" if partner["since"] else ""
    waiting = ", ".join(f"{number} {kind}" for kind, number in partner["queued"].items())
    lines = [
        f"{partner['partner']}, {reached}{since}",
        f"waiting: {waiting}; lag {partner['lag_seconds']} s",
    ]
    if partner["degraded"]:
        lines.append("degraded: STOREs are answered without it")
    if partner["comparing"]:
        lines.append(f"resync needed; compared {partner['comparing']['percent']} %")
    return lines


def _partner_findings(partner: dict[str, Any] | None) -> list[Finding]:
    if partner is None:
        return []
    well = partner["connected"] and not partner["degraded"] and not partner["resync_needed"]
    return [Finding("partner", well, "; ".join(_partner_lines(partner)))]


def _dns_findings(config: Config, port: int) -> list[Finding]:
    if config.covert:
        return []
    return asyncio.run(examine_dns(config, port, TxtResolver(config.dns_address)))


def _outside_findings(directory: Path, config: Config, hidden: Sequence[str]) -> Sequence[Finding]:
    if not hidden:
        return []
    addresses = [ServerAddress.parse(each) for each in hidden]
    pins = {address: hidden_pin(directory, address) for address in addresses}
    return asyncio.run(examine_from_outside(config, pins))


def _dns_line(config: Config, port: int, hidden: Sequence[str]) -> tuple[str | None, str]:
    """Return the line for the zone, or why there can be none."""
    try:
        return dns_line(config, port, hidden), ""
    except BadConfig as error:
        return None, str(error)
