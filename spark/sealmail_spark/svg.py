"""Plots as inline SVG: bars, stacked bars and lines, each readable without colour and in print."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import Final

_WIDTH, _HEIGHT = 640, 270
_LEFT, _RIGHT, _TOP, _BOTTOM = 64, 12, 14, 30
# Told apart by those who see colours otherwise, too (Okabe and Ito), and by their dashes.
COLOURS: Final = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9")
_DASHES: Final = ("", "7 4", "2 3", "9 3 2 3", "1 4", "12 5")
_TICKS = 5
# A letter on a phone, where text is larger against the plot.
_LETTER = 10


@dataclass(frozen=True, slots=True)
class Series:
    """One line or one layer of bars: a name and a value for each place, which may be missing."""

    name: str
    values: tuple[float | None, ...]


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
                f' height="{max(low - high, 0.5):.1f}" fill="{_colour(number)}">'
                f"<title>{escape(told)}</title></rect>"
            )
            base += value
    ticks = [(_y(value, top), _short(value)) for value in _linear_ticks(top)]
    return _figure(title, unit, ticks, _places(labels), parts, series)


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
        colour, dash = _colour(number), _DASHES[number % len(_DASHES)]
        parts.append(
            f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2.5"'
            f' stroke-dasharray="{dash}"/>'
        )
        parts += [
            f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3.5" fill="{colour}">'
            f"<title>{escape(f'{each.name}, {told} {unit}')}</title></circle>"
            for x, y, told in points
        ]
    return _figure(title, unit, ticks, _places(labels), parts, series)


def _figure(
    title: str,
    unit: str,
    ticks: Sequence[tuple[float, str]],
    places: Sequence[tuple[float, str]],
    parts: Sequence[str],
    series: Sequence[Series],
) -> str:
    grid = "".join(
        f'<line x1="{_LEFT}" x2="{_WIDTH - _RIGHT}" y1="{y:.1f}" y2="{y:.1f}" class="grid"/>'
        f'<text x="{_LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{escape(told)}</text>'
        for y, told in ticks
    )
    floor = _HEIGHT - _BOTTOM
    named = "".join(
        f'<text x="{x:.1f}" y="{floor + 16}" text-anchor="middle">{escape(told)}</text>'
        for x, told in places
    )
    legend = _legend(series) if len(series) > 1 else ""
    return (
        f'<figure><figcaption>{escape(title)} <span class="unit">({escape(unit)})</span>'
        f'</figcaption><svg viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img"'
        f' aria-label="{escape(title, quote=True)}">{grid}{named}{"".join(parts)}</svg>'
        f"{legend}</figure>"
    )


def _legend(series: Sequence[Series]) -> str:
    """Name the series, below the plot, where a narrow screen can break the line."""
    named = "".join(
        f'<li><svg viewBox="0 0 12 12" class="key"><rect width="12" height="12"'
        f' fill="{_colour(place)}"/></svg>{escape(each.name)}</li>'
        for place, each in enumerate(series)
    )
    return f"<ul>{named}</ul>"


def _places(labels: Sequence[str]) -> list[tuple[float, str]]:
    """Return where labels stand; only every so many where there is no room for all."""
    room = _WIDTH - _LEFT - _RIGHT
    width = room / max(1, len(labels))
    longest = max((len(label) for label in labels), default=1)
    most = max(1, int(room / (_LETTER * (longest + 1))))
    every = max(1, -(-len(labels) // most))
    return [
        (_LEFT + (place + 0.5) * width, label)
        for place, label in enumerate(labels)
        if place % every == 0
    ]


def _colour(number: int) -> str:
    return COLOURS[number % len(COLOURS)]


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
