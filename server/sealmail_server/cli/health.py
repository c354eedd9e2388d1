"""``sealmaild status``, ``sealmaild doctor`` and ``sealmaild clock``."""

import asyncio
import sys
from pathlib import Path
from typing import Any

import click

from sealmail_net.txt_resolver import TxtResolver
from sealmail_server.cli.common import Exit, ask, data_option, json_option, or_fail, print_json
from sealmail_server.config import BadConfig, Config, Listen
from sealmail_server.doctoring import Finding, examine_directory, examine_dns, examine_port
from sealmail_server.operator import dns_line
from sealmail_server.service import utc_now


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
    click.echo(f"connections  {found['connections']}")
    click.echo(f"clock        {found['clock']} ({found['time']})")
    if found["deletes_nothing_until"]:
        click.echo(f"deletes      nothing until {found['deletes_nothing_until']}")
    accounts = ", ".join(f"{number} {state}" for state, number in found["accounts"].items())
    click.echo(f"accounts     {accounts}")
    queued = ", ".join(f"{number} {state}" for state, number in found["queue"].items())
    click.echo(f"queue        {queued}")
    for server in found["servers_down"]:
        click.echo(f"down         {server}")
    if dht := found["dht"]:
        click.echo(f"dht          {dht['neighbours']} neighbours, seen at {dht['seen_at']}")
        click.echo(f"dht          {dht['values']} values, {dht['bytes']} bytes")
        click.echo(f"dht          {dht['not_spread']} keys that others do not keep yet")
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
        *asyncio.run(examine_dns(config, listen.port, TxtResolver(config.dns_address))),
        *examine_directory(directory, config, utc_now()),
        _clock_finding(found),
        *_dht_findings(found),
    ]
    line = _dns_line(config, listen.port)
    well = all(finding.well for finding in findings)
    if as_json:
        rows = [{"part": each.part, "well": each.well, "text": each.text} for each in findings]
        print_json({"well": well, "findings": rows, "dns": line})
    else:
        for each in findings:
            click.echo(f"{'ok  ' if each.well else 'FAIL'}  {each.part:<12}  {each.text}")
        click.echo(f"DNS record: {line or 'none yet: the server has no port of its own'}")
    sys.exit(0 if well else Exit.UNWELL)


@click.group()
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


def _dht_findings(found: dict[str, Any]) -> list[Finding]:
    """Judge the part in the DHT: whom we know, and whether others come to us."""
    dht = found["dht"]
    if dht is None:
        return []
    if not dht["neighbours"]:
        return [Finding("dht", False, "no neighbour answers: see dht_bootstrap in config.toml")]
    seen = f"{dht['neighbours']} neighbours see this server at {dht['seen_at']}"
    if not dht["asked_by_others"]:
        return [Finding("dht", True, f"{seen}; nobody new has come to it from outside yet")]
    return [Finding("dht", True, f"{seen}, and others come to it")]


def _dns_line(config: Config, port: int) -> str | None:
    try:
        return dns_line(config, port)
    except BadConfig:
        return None
