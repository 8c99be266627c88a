"""The one place where text becomes part of a script or of a YAML file: one function each for a shell word, a
comment, a YAML value and the line that names the shell. Each scheduler writes its own directives.

What a place cannot express raises ValueError; the callers name the job.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence

from castoff.launcher.errors import printable, shown

PLAIN_DIRECTIVE = re.compile(r"[A-Za-z0-9_@%+=:,./\[\]-]+")
"""What no scheduler reads otherwise than it is written."""

_RESERVED = r"(?!(?:null|true|false|[yn]|yes|no|on|off)$)"
_PLAIN_YAML = re.compile(
    _RESERVED + r"[a-z][a-z0-9_.-]*|/[a-z0-9_./-]*|[1-9][0-9]*[a-z]|[0-9]{4}-[0-9]{2}-[0-9]{2}", re.IGNORECASE
)
"""A word that YAML reads as text: a name, a path, a quantity such as 24h, a date."""
_PLAIN_WORDS = re.compile(_RESERVED + r"[a-z/](?:[a-z0-9 ./_+-]*[a-z0-9./_+-])?", re.IGNORECASE)
"""Several words that YAML reads as one text; in a list or a mapping they would be hard to tell apart."""


def shell_word(text: str) -> str:
    """A word of a shell command that means exactly `text` (POSIX XCU 2.2.2)."""
    if "\x00" in text:
        raise ValueError("a command or a variable cannot hold a NUL byte")
    # A line that ends in CR LF makes qsub refuse the whole script: '' keeps the two apart.
    return shlex.quote(text).replace("\r\n", "\r''\n")


def visible_word(text: str) -> str:
    """A word of a bash command line that a terminal shows: nothing in it moves the cursor."""
    if text.isprintable():
        return shell_word(text)
    letters = [c if c.isprintable() and c not in "\\'" else _octal(c) for c in text]
    return f"$'{''.join(letters)}'"


def _octal(character: str) -> str:
    return "".join(f"\\{byte:03o}" for byte in character.encode(errors="surrogateescape"))


def comment(text: str) -> str:
    """Text in a comment, for people: on that line, and visible, whatever it holds."""
    return printable(text)


def interpreter(text: str) -> str:
    """What stands after `#!`: a path, and perhaps an argument (execve(2))."""
    if not text.startswith("/") or not text.isprintable():
        raise ValueError(f"shell: is {shown(text)}, but takes the path of a shell, as in /bin/bash -l")
    return text


def yaml_word(text: str) -> str:
    """Text as YAML, on one line; quoted if YAML would read something else."""
    if _PLAIN_YAML.fullmatch(text):
        return text
    # What YAML's double quotes escape, Python escapes likewise.
    return '"' + printable(text.replace("\\", "\\\\").replace('"', '\\"')) + '"'


def yaml_value(value: object) -> str:
    """Plain data as YAML, on one line: texts, whole numbers, truth values, null, lists and mappings."""
    if isinstance(value, str):
        return value if _PLAIN_WORDS.fullmatch(value) else yaml_word(value)
    if isinstance(value, Mapping):
        pairs = (f"{yaml_word(name)}: {_inner(held)}" for name, held in value.items())
        return f"{{{', '.join(pairs)}}}"
    if isinstance(value, Sequence):
        return f"[{', '.join(map(_inner, value))}]"
    return "null" if value is None else str(value).lower()


def _inner(value: object) -> str:
    return yaml_word(value) if isinstance(value, str) else yaml_value(value)


def one_line(name: str, text: str) -> str:
    """What a directive says, which is one line of text."""
    if any(character in text for character in "\n\r\x00"):
        raise ValueError(f"directives.{name}: is {shown(text)}, but a directive is one line of text")
    return text
