"""A terminal with the commands that were run in it and what they printed."""

from __future__ import annotations

import io
import re

from rich.console import Console
from rich.terminal_theme import DIMMED_MONOKAI
from rich.text import Text

from docs.pictures.recorded import COLUMNS

_TEMPLATE = """\
<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}"
  viewBox="0 0 {width} {height}" role="img">
<title>DESCRIPTION</title>
<style>
.{unique_id}-matrix {{ font-family: ui-monospace, monospace; font-size: {char_height}px;
  line-height: {line_height}px }}
.{unique_id}-title {{ font-size: 16px; font-family: system-ui, sans-serif }}
{styles}
</style>
<defs><clipPath id="{unique_id}-clip-terminal">
<rect x="0" y="0" width="{terminal_width}" height="{terminal_height}"/></clipPath>{lines}</defs>
{chrome}
<g transform="translate({terminal_x}, {terminal_y})" clip-path="url(#{unique_id}-clip-terminal)">
{backgrounds}
<g class="{unique_id}-matrix">{matrix}</g>
</g>
</svg>
"""
"""Rich's own, without the fonts that it would fetch from the network."""


def terminal(shown: list[tuple[str, str]]) -> str:
    """Commands, each after a prompt, with their output in its colours."""
    console = Console(
        width=COLUMNS, record=True, file=io.StringIO(), force_terminal=True, legacy_windows=False
    )
    for command, output in shown:
        console.print(Text.assemble(("$ ", "bold green"), (command, "bold")))
        console.print(Text.from_ansi(output))
    commands = ", ".join(command for command, _ in shown)
    template = _TEMPLATE.replace(
        "DESCRIPTION", f"A terminal: {commands}".replace("&", "&amp;").replace("<", "&lt;")
    )
    svg = console.export_svg(title="castoff", theme=DIMMED_MONOKAI, code_format=template, unique_id="t")
    return re.sub(r"[ \t]+$", "", svg, flags=re.MULTILINE)
