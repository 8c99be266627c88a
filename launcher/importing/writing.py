"""A job file for a script that was read, with comments on what became of its lines. Pure."""

from __future__ import annotations

import re
import textwrap
from typing import Any

from launcher.errors import printable
from launcher.importing.account import Entry
from launcher.importing.imported import Imported, nested
from launcher.quoting import yaml_word

_WIDTH = 110

_ORDER = (
    *("name", "command", "nodes", "ranks_per_node", "ranks", "cores_per_rank", "devices_per_rank", "memory"),
    *("exclusive", "walltime", "grace", "account", "queue", "qos", "constraint", "reservation", "exclude"),
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
        lines += ["", "# For the site's profile (docs/sites.md), as it is the machine's and not the job's:"]
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


def _field(name: str, value: Any, remark: str) -> list[str]:
    behind = f"  # {remark}" if remark else ""
    if isinstance(value, dict):
        flow = _flow(value)
        if len(flow) <= 80 and not remark and len(value) <= 2 and "\n" not in flow:
            return [f"{name}: {flow}"]
        return [f"{name}:{behind}", *_block(value, "  ")]
    if isinstance(value, list):
        flow = _flow(value)
        if (
            name not in ("setup", "teardown")
            and len(flow) + len(name) <= _WIDTH - 4
            and not _has_lines(value)
        ):
            return [f"{name}: {flow}{behind}"]
        return [f"{name}:{behind}", *_items(value, "  ")]
    text = scalar(value, flow=False)
    return [f"{name}: {text}{behind}"]


def _block(value: dict[str, Any], indent: str) -> list[str]:
    found: list[str] = []
    for name, held in value.items():
        if isinstance(held, dict):
            found += [f"{indent}{scalar(name, flow=False)}:", *_block(held, indent + "  ")]
        elif isinstance(held, list):
            flow = _flow(held)
            short = len(flow) <= 90 and not _has_lines(held)
            found += (
                [f"{indent}{name}: {flow}"] if short else [f"{indent}{name}:", *_items(held, indent + "  ")]
            )
        else:
            found.append(f"{indent}{scalar(name, flow=False)}: {scalar(held, flow=False)}")
    return found


def _has_lines(value: list[Any]) -> bool:
    return any(isinstance(one, str) and "\n" in one for one in value)


def _items(value: list[Any], indent: str) -> list[str]:
    found: list[str] = []
    for one in value:
        if isinstance(one, str) and _fits_block(one):
            found += [
                f"{indent}- |-",
                *(
                    f"{indent}  {line}".rstrip() if not line else f"{indent}  {line}"
                    for line in one.split("\n")
                ),
            ]
        else:
            found.append(f"{indent}- {scalar(one, flow=False)}")
    return found


def _fits_block(text: str) -> bool:
    """Whether a text can stand as it is, line by line."""
    lines = text.split("\n")
    plain = all(line.isprintable() or not line or line.replace("\t", " ").isprintable() for line in lines)
    return (
        len(lines) > 1
        and plain
        and lines[0].strip() == lines[0] != ""
        and lines[-1] != ""
        and not text.startswith("\t")
    )


def _flow(value: Any) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{scalar(name)}: {_flow(held)}" for name, held in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(_flow(one) for one in value) + "]"
    return scalar(value)


_BARE = re.compile(r"[A-Za-z_./$](?:[A-Za-z0-9_.,/ =+$(){}\"'<>|;\[\]*^~@%&!?-]|:(?=\S))*")


def scalar(value: Any, *, flow: bool = True) -> str:
    """A value as YAML reads it back."""
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    if not isinstance(value, str):
        return str(value)
    quoted = yaml_word(value)
    if not quoted.startswith('"'):
        return quoted
    if (
        not flow
        and _BARE.fullmatch(value)
        and value == value.strip()
        and value.lower() not in _WORDS
        and value[-1] != ":"
    ):
        return value
    if (
        re.fullmatch(r"[-/A-Za-z_.][A-Za-z0-9_./=+@-]*", value)
        and value.lower() not in _WORDS
        and not value.startswith("---")
    ):
        if value not in ("-", "=", ".", "..") and not re.fullmatch(
            r"-?\.?[0-9].*|-?\.(?:inf|nan)", value, re.IGNORECASE
        ):
            return value
    if ("\\" in value or '"' in value) and value.isprintable():
        return "'" + value.replace("'", "''") + "'"
    return quoted


_WORDS = {"null", "true", "false", "yes", "no", "on", "off", "y", "n", "~", ""}
