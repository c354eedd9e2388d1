"""``sealmail doctor``: tell whether everything is as it should be."""

import asyncio
from collections.abc import Sequence
from dataclasses import asdict

import click

from sealmail_client.cli.program import desk_of, json_option, readable, show
from sealmail_client.doctoring import Finding, examine
from sealmail_client.errors import ClientError


class NotWell(ClientError):
    """Something was found that has to be mended: the lines marked with ! say what to do."""

    exit_code = 41


@click.command()
@json_option
@click.pass_context
def doctor(context: click.Context, as_json: bool) -> None:
    """Examine GnuPG, the home, the disk, the clock, the home server and your published key."""
    with desk_of(context, alone=False) as desk:
        findings = asyncio.run(examine(desk))
        show([asdict(one) for one in findings], as_json, lambda: _tell(findings))
    ill = [one.part for one in findings if not one.well]
    if ill:
        raise NotWell(f"not well: {', '.join(ill)}")


def _tell(findings: Sequence[Finding]) -> None:
    for one in findings:
        click.echo(f"{' ' if one.well else '!'} {one.part:12} {readable(one.text)}")
