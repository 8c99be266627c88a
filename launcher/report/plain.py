"""What anybody wrote, as text for a page: without colours, and what cannot be seen as an escape. Pure."""

from __future__ import annotations

import re

_CONTROL = re.compile(
    r"\x1b(?:\[[0-?]*[ -/]*[@-~]"  # CSI: colours, moves
    r"|[\]PX^_].*?(?:\x07|\x1b\\|$)"  # OSC, DCS and their like: titles, links
    r"|[ -/]*[0-Z\\^-~])",  # character sets and modes
    re.DOTALL,
)
"""Control sequences as ECMA-48 (5th edition, 5.3 to 5.6) has them."""

_KEPT = frozenset("\n\t\u00a0\u202f\u3000")


def without_colours(text: str) -> str:
    """Text of a log without a terminal's control sequences."""
    return _CONTROL.sub("", text)


def visible(text: str) -> str:
    """Text with what cannot be seen, or reorders what can, written as an escape: `\\u202e`."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() or c in _KEPT else _escaped(c) for c in text)


def log_text(lines: list[bytes]) -> str:
    """Lines of a log."""
    texts = (without_colours(line.decode(errors="replace")).expandtabs() for line in lines)
    return "\n".join(visible(text.rstrip("\r\n")) for text in texts)


def cut(text: str, most: int, where: str) -> str:
    """The first lines of a text; a last one says how many more there are `where`."""
    lines = text.splitlines()
    if len(lines) <= most:
        return text
    return "\n".join([*lines[:most], f"… {len(lines) - most} more lines: {where}"])


def _escaped(character: str) -> str:
    return character.encode("unicode_escape", "surrogatepass").decode()
