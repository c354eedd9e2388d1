"""Lists for people: a table at a terminal, plain lines for a pipe, which scripts may read."""

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import click

from sealmail_client.cli.program import readable

if TYPE_CHECKING:
    from rich.console import Console

# An address has mostly less, and stays in one piece too; what is longer may be folded.
_LONGEST_WORD = 40
# Blanks beside a column, and between it and the next.
_AROUND = 3


@dataclass(frozen=True, slots=True)
class Column:
    """A heading, and whether its values are kept ``whole`` because people copy them."""

    heading: str
    whole: bool = False


def tell_table(columns: Sequence[Column], rows: Sequence[Sequence[str]], plain: str) -> None:
    """Print ``rows`` as a table at a terminal; elsewhere, or if there are none, ``plain``."""
    if not rows or not sys.stdout.isatty():
        if plain:
            click.echo(plain)
        return
    # Imported here: it is a fifth of the program's start, which scripts need not wait for.
    from rich.console import Console

    print_table(Console(), columns, rows)


def print_table(
    console: "Console", columns: Sequence[Column], rows: Sequence[Sequence[str]]
) -> None:
    """Print a table, as wide as the console or wider where values need it to stay whole.

    Values may be of strangers: they are text and nothing else, neither markup nor control codes.
    """
    from rich.box import SIMPLE_HEAD
    from rich.cells import cell_len
    from rich.console import ConsoleDimensions
    from rich.table import Table
    from rich.text import Text

    table, needed = Table(box=SIMPLE_HEAD, pad_edge=False), 0
    for column, *cells in zip(columns, *rows, strict=True):
        parts = cells if column.whole else [part for cell in cells for part in cell.split()]
        longest = max((cell_len(part) for part in (column.heading, *parts)), default=0)
        least = longest if column.whole else min(longest, _LONGEST_WORD)
        needed += least + _AROUND
        table.add_column(
            column.heading, no_wrap=column.whole, min_width=least, overflow="fold"
        )  # fmt: skip
    for row in rows:
        table.add_row(*(Text(readable(cell)) for cell in row))
    # The terminal breaks longer lines; cropped, a value would look whole and be none.
    console.size = ConsoleDimensions(max(console.width, needed), console.height)
    console.print(table, crop=False)
