"""``sealmail pow``: what stamps cost on this machine, and minting and verifying them by hand."""

import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import BinaryIO

import click

from sealmail_client.cli.program import Commands
from sealmail_pow import (
    IMPLEMENTATION,
    Difficulty,
    Stamp,
    estimate,
    fastest_kernel,
    hash_rate,
    kernels,
    level,
)
from sealmail_pow import mint as mint_stamp

# The prices that `bench` foretells: from the floor of the original to minutes of a computer.
_FORETOLD_BITS = range(24, 65, 4)
_SECONDS_A_KERNEL = 0.1
# The length of what an announcement of a short mail stamps.
_LETTER_BYTES = 60


def _difficulty(text: str) -> Difficulty:
    """Read a difficulty from the command line."""
    with _refusals():
        return Difficulty.parse(text)


def _stamp(text: str) -> Stamp:
    """Read a stamp from the command line."""
    with _refusals():
        return Stamp.parse(text)


@contextmanager
def _refusals() -> Iterator[None]:
    """Tell the user the reason of a refusal."""
    try:
        yield
    except ValueError as error:
        raise click.BadParameter(str(error)) from error


_JSON = click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")


@click.group(cls=Commands)
def pow() -> None:
    """Proof of work: measure, mint and verify stamps."""


@pow.command()
@_JSON
def bench(as_json: bool) -> None:
    """Time this machine, and foretell what prices cost a sender here."""
    rates = {
        name: hash_rate(threads=1, kernel=name, seconds=_SECONDS_A_KERNEL) for name in kernels()
    }
    together = hash_rate(seconds=_SECONDS_A_KERNEL)
    one_core = rates[fastest_kernel(_LETTER_BYTES)]
    costs = {
        bits: (
            estimate(Difficulty(bits), hashes_per_second=one_core),
            estimate(Difficulty(bits), hashes_per_second=together),
        )
        for bits in _FORETOLD_BITS
    }
    if as_json:
        report = {
            "implementation": IMPLEMENTATION,
            "fastest": fastest_kernel(_LETTER_BYTES),
            "hashes_per_second": rates,
            "hashes_per_second_of_all_cores": together,
            "seconds": {
                str(Difficulty(bits)): {
                    "one_core": one.seconds,
                    "one_core_90": one.seconds_90,
                    "all_cores": all_.seconds,
                    "all_cores_90": all_.seconds_90,
                }
                for bits, (one, all_) in costs.items()
            },
        }
        click.echo(json.dumps(report))
        return
    click.echo(f"implementation: {IMPLEMENTATION}; fastest: {fastest_kernel(_LETTER_BYTES)}\n")
    click.echo(f"{'kernel':12} {'million hashes a second':>24}")
    for name, rate in rates.items():
        click.echo(f"{name:12} {rate / 1e6:24.2f}")
    click.echo(f"{'all cores':12} {together / 1e6:24.2f}\n")
    click.echo(f"{'price':10} {'one core':>12} {'in 9 of 10':>12} {'all cores':>12} {'':>12}")
    for bits, (one, all_) in costs.items():
        seconds = (one.seconds, one.seconds_90, all_.seconds, all_.seconds_90)
        row = " ".join(f"{_duration(each):>12}" for each in seconds)
        click.echo(f"{Difficulty(bits)!s:10} {row}")


@pow.command()
@click.argument("difficulty", type=_difficulty)
@click.argument("file", type=click.File("rb"), default="-")
@click.option("--threads", type=click.IntRange(1, 256), help="By default one for each processor.")
@click.option("--deterministic", is_flag=True, help="Count from zero: always the same stamp.")
@_JSON
def mint(
    difficulty: Difficulty,
    file: BinaryIO,
    threads: int | None,
    deterministic: bool,
    as_json: bool,
) -> None:
    """Search a stamp of DIFFICULTY, such as bd,48,2, over the bytes of FILE or standard input."""
    data = file.read()
    with _progress_bar(f"minting {difficulty}") as report:
        stamp = mint_stamp(
            data, difficulty, threads=threads, deterministic=deterministic, progress=report
        )
    if as_json:
        click.echo(json.dumps({"stamp": str(stamp), "bits": level(data, stamp)}))
    else:
        click.echo(str(stamp))


@pow.command()
@click.argument("stamp", type=_stamp)
@click.argument("file", type=click.File("rb"), default="-")
@click.option(
    "--difficulty",
    type=_difficulty,
    metavar="bd,BITS,NONCES",
    help="Fail, with exit code 1, if the stamp is worth less.",
)
@_JSON
def verify(stamp: Stamp, file: BinaryIO, difficulty: Difficulty | None, as_json: bool) -> None:
    """Tell what STAMP is worth over the bytes of FILE or standard input."""
    worth = Difficulty(level(file.read(), stamp), len(stamp.nonces))
    is_enough = difficulty is None or difficulty.met_by(worth.bits, worth.nonces)
    if as_json:
        click.echo(json.dumps({"worth": str(worth), "ok": is_enough}))
    else:
        click.echo(f"worth {worth}" + ("" if is_enough else f", less than {difficulty}"))
    if not is_enough:
        sys.exit(1)


@contextmanager
def _progress_bar(label: str) -> Iterator[Callable[[float], None] | None]:
    """Show the probability of being done to a user who watches, beside what is printed."""
    if not sys.stderr.isatty():
        yield None
        return
    with click.progressbar(length=100, label=label, file=sys.stderr) as bar:
        yield lambda done: bar.update(round(100 * done) - bar.pos)


def _duration(seconds: float) -> str:
    """Write a time in the unit that suits it."""
    for unit, length in (("days", 86400), ("hours", 3600), ("min", 60), ("s", 1)):
        if seconds >= 2 * length or (unit == "s" and seconds >= 1):
            return f"{seconds / length:.1f} {unit}"
    return f"{seconds * 1000:.2f} ms"
