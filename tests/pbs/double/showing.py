"""qstat's ways of showing jobs, as OpenPBS has them."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Sequence

from tests.pbs.double.jobs import Attribute
from tests.pbs.double.wire import SERVER, VERSION

Told = tuple[str, Sequence[Attribute]]
"""A job's id and its attributes."""

_LINE = 79
_ESCAPES = {"\b": r"\b", "\f": r"\f", "\n": r"\n", "\r": r"\r", "\t": r"\t"}


def table(jobs: Sequence[Told]) -> str:
    """The short form; nothing for no jobs."""
    if not jobs:
        return ""
    lines = [
        "Job id            Name             User              Time Use S Queue",
        "----------------  ---------------- ----------------  -------- - -----",
    ]
    for job, attributes in jobs:
        told = {
            name if resource is None else f"{name}.{resource}": value for name, resource, value in attributes
        }
        name, user = told["Job_Name"][-16:], told["Job_Owner"].partition("@")[0]
        used = told.get("resources_used.cput", "0")
        lines.append(f"{job:<17} {name:<16} {user:<16}  {used:>8} {told['job_state']} {told['queue']:<16}")
    return "\n".join(lines) + "\n"


def full(jobs: Sequence[Told], *, wide: bool) -> str:
    """qstat -f; `wide`: with -w."""
    attribute = _in_one_line if wide else _wrapped
    text = ""
    for job, attributes in jobs:
        text += f"Job Id: {job}\n"
        text += "".join(attribute(*one) + "\n" for one in attributes) + "\n"
    return text


def _in_one_line(name: str, resource: str | None, value: str) -> str:
    key = name if resource is None else f"{name}.{resource}"
    return f"    {key} = " + value.replace("\n", r"\n").replace("\f", r"\f")


def _wrapped(name: str, resource: str | None, value: str) -> str:
    """An attribute over several lines, broken at commas or anywhere."""
    key = name if resource is None else f"{name}.{resource}"
    text = f"    {key} = "
    at, first = len(key) + 7, True
    words = [word for word in value.split(",") if word]
    for place, word in enumerate(words):
        if len(word) + at < _LINE:
            text += word
            at += len(word)
        else:
            if not first:
                text += "\n\t"
                at = 9
            for letter in word:
                text += letter
                at += 1
                if at > _LINE:
                    text += "\n\t"
                    at = 8
        if place + 1 < len(words):
            first = False
            text += ","
    return text


def json_text(jobs: Sequence[Told]) -> str:
    """qstat -f -F json, whose values lose their types, and some of them more than that."""
    now = int(time.time())
    lines = [
        # It looks for white space in the number's bytes, and finds nothing but that once in 256 s.
        f'    "timestamp":{now if now & 0xFF else chr(34) * 2}',
        f'    "pbs_version":"{VERSION}"',
        f'    "pbs_server":"{SERVER}"',
    ]
    objects = []
    for job, attributes in jobs:
        objects.append(f'        "{job}":{{\n' + ",\n".join(_members(attributes)) + "\n        }")
    if objects:
        lines.append('    "Jobs":{\n' + ",\n".join(objects) + "\n    }")
    return "{\n" + ",\n".join(lines) + "\n}" + ("\n" if jobs else "")


def _members(attributes: Sequence[Attribute]) -> Iterator[str]:
    indent = " " * 12
    group: str | None = None
    inside: list[str] = []
    for name, resource, value in attributes:
        if group is not None and (resource is None or name != group):
            yield f'{indent}"{group}":{{\n' + ",\n".join(inside) + f"\n{indent}}}"
            group, inside = None, []
        if resource is not None:
            group = name
            inside.append(f'{indent}    "{resource}":{_value(value)}')
        elif name == "Variable_List":
            pairs = [f'{indent}    "{key}":{_value(text)}' for key, text in _variables(value)]
            yield f'{indent}"{name}":{{\n' + ",\n".join(pairs) + f"\n{indent}}}"
        else:
            yield f'{indent}"{name}":{_value(value)}'
    if group is not None:
        yield f'{indent}"{group}":{{\n' + ",\n".join(inside) + f"\n{indent}}}"


def _variables(text: str) -> Iterator[tuple[str, str]]:
    """The variables of a job as qstat takes them apart; an empty value swallows the next variable."""
    at = 0
    while at < len(text):
        key, value, has_value = "", "", False
        while at < len(text) and text[at] != ",":
            if text[at] == "\\" and text[at + 1 : at + 2] == ",":
                at += 1
            if not has_value and text[at] == "=":
                has_value = True
                at += 1
                if at >= len(text):
                    break
            if has_value:
                value += text[at]
            else:
                key += text[at]
            at += 1
        yield key, value
        at += 1


_NUMBER = re.compile(
    r"\s*[+-]?(0[xX][0-9a-fA-F]+(\.[0-9a-fA-F]*)?([pP][+-]?\d+)?|(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?|inf(inity)?|nan)\s*",
    re.IGNORECASE,
)
"""What strtod takes."""


def _value(text: str) -> str:
    """A value: what looks like a number stands there as it is."""
    if _NUMBER.fullmatch(text) and (not text.startswith("0") or _float(text) < 1):
        return text
    return f'"{_escaped(text)}"'


def _float(text: str) -> float:
    try:
        return float.fromhex(text) if "x" in text.lower() else float(text)
    except ValueError:
        return 0.0


def _escaped(text: str) -> str:
    """Quotes that have no backslash before them get one; others are left as they are."""
    found, at = "", 0
    while at < len(text):
        letter = text[at]
        if letter in _ESCAPES:
            found += _ESCAPES[letter]
        elif letter == '"':
            found += '"' if at == 0 or text[at - 1] == "\\" else '\\"'
        elif letter == "\\":
            following = text[at + 1 : at + 2]
            if following and following in "',":
                found += following
            else:
                found += letter + following
            at += 1
        else:
            found += letter
        at += 1
    return found
