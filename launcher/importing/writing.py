"""Write the job file of an imported script, with comments about its lines. Pure functions."""

from __future__ import annotations

import re
import textwrap
from typing import Any

import yaml

from castoff.launcher.config.job import JobSpec
from castoff.launcher.errors import printable
from castoff.launcher.importing.imported import Entry, Imported, nested
from castoff.launcher.typed.structure import fields_of

_WIDTH = 110

_ORDER = sorted(fields_of(JobSpec), key=lambda name: (name != "name", name == "script", name == "directives"))
"""The order of fields: the name, then as they are declared, then directives and the script."""


def job_file(result: Imported, source: str, site: str) -> str:
    """The text of the job file. `source`: the script's name; `site`: a site for the command in its first
    comment.
    """
    fields = nested(result.fields)
    lines = _comment(f"Imported from {source}. Look first: castoff render JOB.yaml --site {site}")
    if result.kept:
        lines += _comment(f"Kept as a script: {result.kept}.")
    for title, entries in (("Not expressed:", result.refused), ("Left out:", result.left_out)):
        if entries:
            lines += [f"# {title}", *_listed(entries)]
    for text in result.notes:
        lines += _comment(text)
    lines.append("")
    for name in sorted(fields, key=_ORDER.index):
        if name in result.remarks:
            lines += _comment(result.remarks[name])
        lines += _field(name, fields[name])
    return "\n".join(lines) + "\n"


def _listed(entries: list[Entry]) -> list[str]:
    return [line for entry in entries for line in _comment(f"{entry.what}: {entry.why}", "  ")]


def _comment(text: str, indent: str = "") -> list[str]:
    return textwrap.wrap(
        printable(text),
        _WIDTH,
        initial_indent=f"# {indent}",
        subsequent_indent=f"# {indent}{indent}",
        break_long_words=False,
        break_on_hyphens=False,
    )


class _Dumper(yaml.SafeDumper):
    """A YAML dumper that writes every value as text, so numbers and words like `on` are quoted."""

    def increase_indent(self, flow: bool = False, indentless: bool = False) -> None:
        super().increase_indent(flow, False)  # also indents the items of a list


def _text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    looks_like_other_type = re.fullmatch(r"[-+.]?[0-9][0-9_.:eE+-]*", text) or text.lower() in _WORDS
    style = '"' if looks_like_other_type or not text.isprintable() else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style)


_Dumper.add_representer(str, _text)

_WORDS = {"null", "true", "false", "yes", "no", "on", "off", "y", "n", "~"}


def _field(name: str, value: Any) -> list[str]:
    """A field on one line if it fits, else on several; scripts as blocks."""
    if name == "script":
        return block("script: ", value, 2)
    if name == "setup":
        return ["setup:", *(line for text in value for line in block("  - ", text, 4))]
    if isinstance(value, (dict, list)):
        short = _dumped({name: value}, flow=True)[0][1:-1]
        return [short] if len(short) <= _WIDTH else _dumped({name: value}, flow=False)
    return _dumped({name: value}, flow=False)


def block(start: str, text: str, indent: int) -> list[str]:
    """A text as a literal block, which keeps it byte for byte, with `indent` spaces before its lines."""
    outer = len(start) - len(start.lstrip())
    indicator = str(indent - outer) if text[:1] in (" ", "\t", "\n") else ""
    body = text[:-1] if text.endswith("\n") else text
    chomping = "-" if not text.endswith("\n") else "+" if body.endswith("\n") or not body else ""
    return [
        f"{start}|{indicator}{chomping}",
        *(" " * indent + line if line else "" for line in body.split("\n")),
    ]


def _dumped(value: Any, *, flow: bool) -> list[str]:
    text = yaml.dump(
        value, Dumper=_Dumper, default_flow_style=flow, sort_keys=False, width=1_000_000, allow_unicode=True
    )
    return str(text).rstrip("\n").split("\n")
