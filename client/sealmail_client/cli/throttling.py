"""The option ``--throttle`` of every command that moves mail."""

import click

from sealmail_client.desk import Desk
from sealmail_client.throttle import MIN_KIB, Throttle

throttle_option = click.option(
    "--throttle",
    type=click.IntRange(min=MIN_KIB),
    metavar="KIB",
    help="Move at most so many KiB a second; without it, what `identity set` says.",
)


def set_throttle(desk: Desk, kib_per_second: int | None) -> None:
    """Let the wish of one command stand before the setting."""
    if kib_per_second is not None:
        desk.servers.throttle = Throttle(kib_per_second)
