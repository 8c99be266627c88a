"""A job file for a script that was read, with comments on what became of its lines. Pure."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator
from typing import Any

import yaml

from launcher.errors import printable
from launcher.importing.account import Entry
from launcher.importing.imported import Imported, nested

_WIDTH = 110

_ORDER = (
    *("name", "command", "nodes", "ranks_per_node", "ranks", "cores_per_rank", "devices_per_rank"),
    *(
        "device_type",
        "memory",
        "exclusive",
        "walltime",
        "grace",
        "account",
        "queue",
        "qos",
        "constraint",
        "reservation",
        "exclude",
    ),
    *("select", "mail", "inherit", "setup", "env", "workdir", "launcher", "container", "array", "after"),
    *("requeue", "directives", "teardown"),
)


def job_file(result: Imported, source: str, site: str) -> str:
    """The text of a job file; `source` is the script's name, `site` one to look at it with."""
    fields = nested(result.fields)
    lines = [f"# Imported from {printable(source)}. Look first:  castoff render JOB.yaml --site {site}"]
    for title, entries in (
        ("Not expressed here:", result.account.of("not expressed")),
        ("Left out, as castoff does it itself or it has no meaning here:", result.account.of("dropped")),
    ):
        if entries:
            lines += ["#", f"# {title}", *_listed(entries)]
    for text in result.notes.get("", []):
        lines += ["#", *_comment(text)]
    lines.append("")
    known = [name for name in _ORDER if name in fields] + [name for name in fields if name not in _ORDER]
    for name in known:
        for text in result.notes.get(name, []):
            lines += _comment(text)
        lines += _field(name, fields[name], _remark(name, fields))
    if result.profile:
        lines += [
            "",
            "# For the site's profile (docs/reference/sites.md), as it is the machine's and not the job's:",
        ]
        lines += [f"#   {text}".ljust(36) + f"# {why}" for text, why in sorted(result.profile.items())]
    return "\n".join(lines) + "\n"


def _listed(entries: list[Entry]) -> list[str]:
    """Entries with their lines; those of one reason together."""
    reasons: dict[str, list[Entry]] = {}
    for one in entries:
        reasons.setdefault(one.why, []).append(one)
    found: list[str] = []
    for why, those in reasons.items():
        if len(those) == 1:
            found += _comment(f"{those[0].what}: {why}", "  ")
        else:
            found += _comment(f"{why}:", "  ")
            found += [line for one in those for line in _comment(one.what, "    ")]
    return found


def _comment(text: str, indent: str = "") -> list[str]:
    return textwrap.wrap(
        printable(text),
        _WIDTH,
        initial_indent=f"# {indent}",
        subsequent_indent=f"# {indent}{indent}",
        break_long_words=False,
        break_on_hyphens=False,
    )


def _remark(name: str, fields: dict[str, Any]) -> str:
    if name == "inherit" and fields[name] == "all":
        return "the scheduler hands on the submitter's environment; without this line a job has none of it"
    if name == "setup":
        return "a line that fails ends the job"
    return ""


class _Dumper(yaml.SafeDumper):
    """Text of several lines stands as it is; numbers and words like `on` are quoted, as all of it is text."""

    def increase_indent(self, flow: bool = False, indentless: bool = False) -> None:
        super().increase_indent(flow, False)  # lists stand further in than their names


def _text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    looks_otherwise = re.fullmatch(r"[-+.]?[0-9][0-9_.:eE+-]*", text) or text.lower() in _WORDS
    hidden = not re.sub(r"[\n\t]", "", text).isprintable()
    # As a block, PyYAML would end the document behind it.
    is_open = "\n" in text and (text.endswith("\n\n") or not text.strip())
    style = '"' if looks_otherwise or hidden or is_open else "|" if "\n" in text else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style)


_Dumper.add_representer(str, _text)

_WORDS = {"null", "true", "false", "yes", "no", "on", "off", "y", "n", "~"}


def _field(name: str, value: Any, remark: str) -> list[str]:
    """A field over one line where it fits, else over several; lines of shell stand below each other."""
    whole = name in ("setup", "teardown") or any("\n" in text for text in _texts(value))
    found = _dumped({name: value}, flow=False if whole or not isinstance(value, (dict, list)) else None)
    if not whole and isinstance(value, (dict, list)):
        short = _dumped({name: value}, flow=True)[0][1:-1]
        found = [short] if len(short) <= _WIDTH else found
    return [f"{found[0]}  # {remark}" if remark else found[0], *found[1:]]


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, (dict, list)):
        for one in value.values() if isinstance(value, dict) else value:
            yield from _texts(one)


def _dumped(value: Any, *, flow: bool | None) -> list[str]:
    text = yaml.dump(
        value, Dumper=_Dumper, default_flow_style=flow, sort_keys=False, width=1_000_000, allow_unicode=True
    )
    return str(text).rstrip("\n").split("\n")
