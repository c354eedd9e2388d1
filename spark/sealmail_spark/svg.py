"""Plots as inline SVG: bars, stacked bars and lines, each readable without colour and in print.

The layers of stacked bars are told apart by patterns, which a page must have once: ``PATTERNS``.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import Final

_WIDTH, _HEIGHT = 640, 270
_LEFT, _RIGHT, _TOP, _BOTTOM = 64, 12, 14, 30
# Told apart by those who see colours otherwise, too (Okabe and Ito); by all others, by dashes and
# by what is drawn on them.
COLOURS: Final = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9")
_DASHES: Final = ("", "7 4", "2 3", "9 3 2 3", "1 4", "12 5")
_HATCHES: Final = (
    "",
    "M-2 2l4-4M-2 10l12-12M6 10l4-4",
    "M1 2h2M5 6h2",
    "M0 4h8",
    "M-2 6l4 4M-2-2l12 12M6-2l4 4",
    "M0 4h8M4 0v8",
)
_TICKS = 5
# A letter on a phone, where text is larger against the plot.
_LETTER = 12


@dataclass(frozen=True, slots=True)
class Series:
    """One line or one layer of bars: a name and a value for each place, which may be missing."""

    name: str
    values: tuple[float | None, ...]


def _pattern(number: int) -> str:
    return (
        f'<pattern id="layer{number}" width="8" height="8" patternUnits="userSpaceOnUse">'
        f'<rect width="8" height="8" fill="{_colour(number)}"/>'
        f'<path d="{_HATCHES[number]}" stroke="#fff" stroke-width="1.6"/></pattern>'
    )


def bars(title: str, labels: Sequence[str], series: Sequence[Series], unit: str) -> str:
    """Draw bars, one on another where there are several series."""
    heights = [sum(each.values[i] or 0 for each in series) for i in range(len(labels))]
    top = _nice(max(heights, default=0))
    width = (_WIDTH - _LEFT - _RIGHT) / max(1, len(labels))
    parts = []
    for place in range(len(labels)):
        base = 0.0
        for number, each in enumerate(series):
            value = each.values[place] or 0
            if not value:
                continue
            low, high = _y(base, top), _y(base + value, top)
            x = _LEFT + place * width + width * 0.1
            told = f"{labels[place]}, {each.name}: {_short(value)} {unit}"
            parts.append(
                f'<rect x="{x:.1f}" y="{high:.1f}" width="{width * 0.8:.1f}"'
                f' height="{max(low - high, 0.5):.1f}" fill="{_layer(number)}">'
                f"<title>{escape(told)}</title></rect>"
            )
            base += value
    ticks = [(_y(value, top), _short(value)) for value in _linear_ticks(top)]
    keys = [
        f'<rect width="24" height="12" fill="{_layer(number)}"/>' for number in range(len(series))
    ]
    legend = _legend(series, keys)
    return _figure(title, unit, ticks, _places(labels), parts, legend)


def lines(
    title: str, labels: Sequence[str], series: Sequence[Series], unit: str, *, log: bool = False
) -> str:
    """Draw lines over places; ``log`` gives each power of ten the same room."""
    found = [value for each in series for value in each.values if value is not None]
    known = [value for value in found if value > 0 or not log]
    if log:
        low = math.floor(math.log10(min(known, default=1)))
        high = max(low + 1, math.ceil(math.log10(max(known, default=10))))
        step = max(1, -(-(high - low) // 8))
        powers = range(low, high + 1, step)
        ticks = [(_between(p, low, high), _short(10.0**p)) for p in powers]
    else:
        top = _nice(max(known, default=0))
        ticks = [(_y(value, top), _short(value)) for value in _linear_ticks(top)]
    width = (_WIDTH - _LEFT - _RIGHT) / max(1, len(labels))
    parts = []
    for number, each in enumerate(series):
        points = []
        for place, value in enumerate(each.values):
            if value is None or (log and value <= 0):
                continue
            y = _between(math.log10(value), low, high) if log else _y(value, top)
            points.append((_LEFT + (place + 0.5) * width, y, f"{labels[place]}: {_short(value)}"))
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y, _ in points)
        parts.append(f'<polyline points="{path}" fill="none" {_stroke(number)}/>')
        parts += [
            f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3.5" fill="{_colour(number)}">'
            f"<title>{escape(f'{each.name}, {told} {unit}')}</title></circle>"
            for x, y, told in points
        ]
    keys = [f'<path d="M0 6h24" {_stroke(number)}/>' for number in range(len(series))]
    return _figure(title, unit, ticks, _places(labels), parts, _legend(series, keys))


def _figure(
    title: str,
    unit: str,
    ticks: Sequence[tuple[float, str]],
    places: Sequence[tuple[float, str]],
    parts: Sequence[str],
    legend: str,
) -> str:
    grid = "".join(
        f'<line x1="{_LEFT}" x2="{_WIDTH - _RIGHT}" y1="{y:.1f}" y2="{y:.1f}" class="grid"/>'
        f'<text x="{_LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{escape(told)}</text>'
        for y, told in ticks
    )
    floor = _HEIGHT - _BOTTOM
    named = "".join(
        f'<text x="{x:.1f}" y="{floor + 20}" text-anchor="middle">{escape(told)}</text>'
        for x, told in places
    )
    return (
        f'<figure><figcaption>{escape(title)} <span class="unit">({escape(unit)})</span>'
        f'</figcaption><svg viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img"'
        f' aria-label="{escape(title, quote=True)}">{grid}{named}{"".join(parts)}</svg>'
        f"{legend}</figure>"
    )


def _legend(series: Sequence[Series], keys: Sequence[str]) -> str:
    """Name several series, below the plot, where a narrow screen can break the line."""
    if len(series) < 2:
        return ""
    named = "".join(
        f'<li><svg viewBox="0 0 24 12" class="key">{key}</svg>{escape(each.name)}</li>'
        for each, key in zip(series, keys, strict=True)
    )
    return f"<ul>{named}</ul>"


def _places(labels: Sequence[str]) -> list[tuple[float, str]]:
    """Return where labels stand; only every so many where there is no room for all.

    Where one is longer than most, a neighbour is left out instead.
    """
    room = _WIDTH - _LEFT - _RIGHT
    width = room / max(1, len(labels))
    lengths = sorted(map(len, labels)) or [1]
    most = max(1, int(room / (_LETTER * (lengths[len(lengths) // 2] + 1))))
    every = max(1, -(-len(labels) // most))
    placed, end = [], 0.0
    for place in range(0, len(labels), every):
        label = labels[place]
        half = _LETTER * len(label) / 2
        # Not out of the picture, nor into the one before.
        x = max(half, min(_LEFT + (place + 0.5) * width, _WIDTH - half))
        if x - half >= end:
            placed.append((x, label))
            end = x + half
    return placed


def _colour(number: int) -> str:
    return COLOURS[number % len(COLOURS)]


def _layer(number: int) -> str:
    """Return how a layer is filled: the first in plain, each other with a pattern of its own."""
    place = number % len(COLOURS)
    return f"url(#layer{place})" if place else COLOURS[0]


def _stroke(number: int) -> str:
    dash = _DASHES[number % len(_DASHES)]
    return f'stroke="{_colour(number)}" stroke-width="2.5" stroke-dasharray="{dash}"'


def _y(value: float, top: float) -> float:
    return _between(value, 0, top)


def _between(value: float, low: float, high: float) -> float:
    share = (value - low) / (high - low)
    return _HEIGHT - _BOTTOM - share * (_HEIGHT - _BOTTOM - _TOP)


def _nice(most: float) -> float:
    """Return a round number that is not below ``most``."""
    if most <= 0:
        return 1.0
    power = 10.0 ** math.floor(math.log10(most))
    return next(step * power for step in (1, 2, 2.5, 5, 10) if step * power >= most)


def _linear_ticks(top: float) -> list[float]:
    return [top * place / _TICKS for place in range(_TICKS + 1)]


_UNITS: Final[Mapping[int, str]] = {12: "T", 9: "G", 6: "M", 3: "k"}


def _short(value: float) -> str:
    """Write a number in few characters."""
    for power, letter in _UNITS.items():
        if abs(value) >= 10**power:
            return f"{value / 10**power:.3g}{letter}"
    if value == 0 or abs(value) >= 0.01:
        return f"{value:.3g}"
    mantissa, exponent = f"{value:.0e}".split("e")
    return f"{mantissa}e{int(exponent)}"


PATTERNS: Final = (
    '<svg class="patterns" width="0" height="0" aria-hidden="true"><defs>'
    f"{''.join(map(_pattern, range(1, len(COLOURS))))}</defs></svg>"
)
