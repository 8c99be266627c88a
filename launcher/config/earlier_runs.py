"""`{NAME.dir}` in a job's texts: the run directory of an earlier run that the job waits for. Pure.

Only the names in the job's own `after` are references. Everything else in braces stays as it is, so that JSON
and shell code need no escapes.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from castoff.launcher.config.job import JobSpec
    from castoff.launcher.typed.document import FieldPath

NAME = re.compile(r"[A-Za-z][A-Za-z0-9_.+-]{0,59}")
"""A name that can be a reference: also a file's name, and no scheduler's job id."""

_REFERENCE = re.compile(rf"(\$?)(\{{+)({NAME.pattern})\.dir(\}}+)")


def split(text: str, names: Collection[str]) -> Iterator[tuple[str, str | None]]:
    """Split a text into pairs of a literal part and the name of the reference after it; the last has None.

    An even number of braces stands for half of them, as in Python: `{{prepare.dir}}` is the text
    `{prepare.dir}`. Braces after a `$` stay as they are.
    """
    literal, begin = "", 0
    for match in _REFERENCE.finditer(text):
        dollar, opened, name, closed = match.groups()
        if dollar or name not in names:
            continue
        pairs = min(len(opened), len(closed))
        left, right = opened[pairs:] + "{" * (pairs // 2), "}" * (pairs // 2) + closed[pairs:]
        literal += text[begin : match.start()] + left
        begin = match.end()
        if pairs % 2:
            yield literal, name
            literal = right
        else:
            literal += f"{name}.dir{right}"
    yield literal + text[begin:], None


def named_in(spec: JobSpec) -> Iterator[tuple[FieldPath, str]]:
    """Yield each name that a job's texts refer to, whether it is a run or not, with the field's path."""
    for path, text in _texts(spec):
        everything = {match[3] for match in _REFERENCE.finditer(text)}
        for _, name in split(text, everything):
            if name is not None:
                yield path, name


def referred(spec: JobSpec) -> list[str]:
    """The runs to which a job refers: names of its `after` in its texts."""
    awaited = {name for names in spec.after.values() for name in names}
    return list(dict.fromkeys(name for _, name in named_in(spec) if name in awaited))


def _texts(spec: JobSpec) -> Iterator[tuple[FieldPath, str]]:
    for field in ("command", "setup", "teardown"):
        for number, text in enumerate(getattr(spec, field)):
            yield (field, number), text
    for name, value in spec.env.items():
        if value is not None:
            yield ("env", name), value
    if spec.workdir is not None:
        yield ("workdir",), spec.workdir
