"""A terminal whose screens follow one another: an SVG that plays by itself, without a script.

Each line stays for as long as it did on the screen. Who prefers less motion sees the last screen.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple
from xml.sax.saxutils import escape

from rich.color import Color
from rich.console import Console
from rich.style import Style
from rich.terminal_theme import DIMMED_MONOKAI
from rich.text import Text

from docs.pictures.recorded import Screen

_LONGEST, _HOLD = 0.7, 3.0
"""Seconds for which a screen stays at most, and the last one."""
_CHAR, _LINE, _EDGE, _TOP = 7.2, 17, 14, 34

_PAGE = Color.parse("#1e2127")
_STYLE = """
  .page { fill: #1e2127; stroke: #3d444d }
  text { font-family: ui-monospace, monospace; font-size: 12px; fill: #c9cfd6; white-space: pre }
  .name { font-family: system-ui, sans-serif; font-size: 13px; fill: #9198a1 }
  .at { visibility: hidden; animation: SECONDSs step-end infinite }
"""
_STILL = (
    "  @media (prefers-reduced-motion: reduce) { .at { animation: none } .last { visibility: visible } }\n"
)


class Shown(NamedTuple):
    """A line in a row of the screen, and from when to when."""

    row: int
    line: str
    begin: float
    end: float


def moving(screens: Sequence[Screen], columns: int, rows: int, words: str) -> str:
    """`words`: what it shows, for who does not see it."""
    screens = [*_without_waiting(screens)]
    total = screens[-1].seconds + _HOLD
    lines = [one for one in shown(screens, total) if one.line.strip()]
    times = sorted({(one.begin, one.end) for one in lines} - {(0, total)})
    width, height = round(columns * _CHAR) + 2 * _EDGE, rows * _LINE + _TOP + _EDGE
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
        f'viewBox="0 0 {width} {height}" role="img">',
        f"<title>{escape(words)}</title>",
        f"<style>{_STYLE.replace('SECONDS', f'{total:g}')}",
        *(_keyframes(number, begin, end, total) for number, (begin, end) in enumerate(times)),
        f"{_STILL}</style>",
        f'<rect class="page" x="0.5" y="0.5" width="{width - 1}" height="{height - 1}" rx="8"/>',
        f'<text class="name" x="{width / 2:g}" y="21" text-anchor="middle">your laptop</text>',
    ]
    for one in lines:
        inner = "".join(_drawn(one.line, _TOP + one.row * _LINE))
        if (one.begin, one.end) in times:
            number, last = times.index((one.begin, one.end)), " last" if one.end == total else ""
            inner = f'<g class="at{last}" style="animation-name:s{number}">{inner}</g>'
        parts.append(inner)
    return "\n".join([*parts, "</svg>", ""])


def still(screens: Sequence[Screen], columns: int, rows: int, words: str, with_text: str) -> str:
    """The last screen with a text."""
    (*_, found) = (screen for screen in screens if with_text in "\n".join(screen.lines))
    return moving([found._replace(seconds=0)], columns, rows, words)


def shown(screens: Sequence[Screen], total: float) -> Iterator[Shown]:
    """Each row's lines, one after the other."""
    for row in range(max(len(screen.lines) for screen in screens)):
        since, line = 0.0, ""
        for screen in screens:
            now = screen.lines[row] if row < len(screen.lines) else ""
            if now != line:
                yield Shown(row, line, since, screen.seconds)
                since, line = screen.seconds, now
        yield Shown(row, line, since, total)


def _without_waiting(screens: Sequence[Screen]) -> Iterator[Screen]:
    at = before = 0.0
    for screen in screens:
        at += min(screen.seconds - before, _LONGEST)
        before = screen.seconds
        yield screen._replace(seconds=round(at, 2))


def _keyframes(number: int, begin: float, end: float, total: float) -> str:
    steps = ["0%{visibility:hidden}"] if begin else []
    steps.append(f"{100 * begin / total:.4g}%{{visibility:visible}}")
    if end < total:
        steps.append(f"{100 * end / total:.4g}%{{visibility:hidden}}")
    return f"  @keyframes s{number} {{{''.join(steps)}}}"


def _drawn(line: str, top: float) -> Iterator[str]:
    """A line's words in their colours, and what is behind them."""
    column = 0
    for words, style, _ in Text.from_ansi(line).render(Console(width=1000)):
        style, x = style or Style(), _EDGE + column * _CHAR
        length = len(words) * _CHAR
        front, behind = style.color, style.bgcolor
        if style.reverse:
            front = _PAGE if behind is None or behind.is_default else behind
            behind = Color.parse("#c9cfd6") if style.color is None or style.color.is_default else style.color
        if behind is not None and not behind.is_default:
            yield f'<rect x="{x:g}" y="{top:g}" width="{length:g}" height="{_LINE}" fill="{_hex(behind)}"/>'
        if words.strip():
            colour = "" if front is None or front.is_default else f' style="fill:{_hex(front)}"'
            bold = ' font-weight="bold"' if style.bold else ""
            place = f'x="{x:g}" y="{top + 13:g}" textLength="{length:g}"'
            yield f"<text {place}{colour}{bold}>{escape(words)}</text>"
        column += len(words)


def _hex(colour: Color) -> str:
    return colour.get_truecolor(DIMMED_MONOKAI).hex
