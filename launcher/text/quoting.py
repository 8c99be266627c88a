"""Quotes text for scripts and YAML files, in this module alone: a function each for shell words, comments,
YAML values and the line that names the shell. Directives are written by each scheduler.

Text that cannot be expressed raises ValueError; the callers add the job's name.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence

from castoff.launcher.errors import printable, shown

PLAIN_DIRECTIVE = re.compile(r"[A-Za-z0-9_@%+=:,./\[\]-]+")
"""Text that every scheduler reads literally."""

_RESERVED = r"(?!(?:null|true|false|[yn]|yes|no|on|off)$)"
_PLAIN_YAML = re.compile(
    _RESERVED + r"[a-z][a-z0-9_.-]*|/[a-z0-9_./-]*|[1-9][0-9]*[a-z]|[0-9]{4}-[0-9]{2}-[0-9]{2}", re.IGNORECASE
)
"""A word that YAML reads as text: a name, a path, a quantity such as 24h, or a date."""
_PLAIN_WORDS = re.compile(_RESERVED + r"[a-z/](?:[a-z0-9 ./_+-]*[a-z0-9./_+-])?", re.IGNORECASE)
"""Words that YAML reads as one text. In lists and mappings they are quoted, to keep them apart."""


_OF_A_SHELL = re.compile(
    r"(?:^|\s)(?:&&|\|\|?|[12]?>>?|<|2>&1|;|\$[A-Za-z_]\w*|\$\{[A-Za-z_]\w*\}|\$\(\S.*\))(?=\s|$)|;\s"
)
_PARAMETER = re.compile(r"\x00([A-Za-z_][A-Za-z0-9_]*)(\$?)\x00")
"""The mark of a parameter in a text, which `parameter_mark` makes; no text of a job can hold it."""


def parameter_mark(name: str, *, doubled: bool = False) -> str:
    """A text that `shell_word` writes as the value of a member's parameter; `doubled`: each $ twice."""
    return f"\x00{name}{'$' if doubled else ''}\x00"


def shell_word(text: str) -> str:
    """Quote a text as one word of a shell command (POSIX XCU 2.2.2)."""
    if "\x00" in text:
        return _with_parameters(text)
    # qsub rejects a script that contains CR LF, so '' separates them.
    return shlex.quote(text).replace("\r\n", "\r''\n")


def _with_parameters(text: str) -> str:
    """Quote a text in which marks stand for parameters, which are elements of a bash array."""
    pieces = _PARAMETER.split(text)
    if "\x00" in "".join(pieces[::3]):
        raise ValueError("a command or a variable cannot hold a NUL byte")
    words = [shell_word(pieces[0])] if pieces[0] else []
    for name, doubled, rest in zip(pieces[1::3], pieces[2::3], pieces[3::3], strict=True):
        dollars = r"//\$/\$\$" if doubled else ""
        words.append(f'"${{castoff_parameter[{name}]{dollars}}}"')
        words += [shell_word(rest)] if rest else []
    return "".join(words)


def is_shell_line(text: str) -> bool:
    """Whether a command line needs a shell: it joins or redirects commands, or one of its words is a
    variable.
    """
    return _OF_A_SHELL.search(text) is not None


def visible_word(text: str) -> str:
    """Quote a text as a word of a bash command line for a terminal, with control characters escaped."""
    if text.isprintable():
        return shell_word(text)
    letters = [c if c.isprintable() and c not in "\\'" else _octal(c) for c in text]
    return f"$'{''.join(letters)}'"


def _octal(character: str) -> str:
    return "".join(f"\\{byte:03o}" for byte in character.encode(errors="surrogateescape"))


def comment(text: str) -> str:
    """Make a text fit for a comment: on one line, with invisible characters escaped."""
    return printable(text)


def interpreter(text: str) -> str:
    """Check the text after `#!`: a path, and perhaps an argument (execve(2))."""
    if not text.startswith("/") or not text.isprintable():
        raise ValueError(f"shell: is {shown(text)}, but must be the path of a shell, as in /bin/bash -l")
    return text


def yaml_word(text: str) -> str:
    """Write a text as YAML on one line, quoted if YAML would read it otherwise."""
    if _PLAIN_YAML.fullmatch(text):
        return text
    # Python's escapes are valid in YAML's double quotes.
    return '"' + printable(text.replace("\\", "\\\\").replace('"', '\\"')) + '"'


def yaml_value(value: object) -> str:
    """Write plain data as YAML on one line: texts, integers, booleans, null, lists and mappings."""
    if isinstance(value, str):
        return value if _PLAIN_WORDS.fullmatch(value) else yaml_word(value)
    if isinstance(value, Mapping):
        pairs = (f"{yaml_word(name)}: {_inner(item)}" for name, item in value.items())
        return f"{{{', '.join(pairs)}}}"
    if isinstance(value, Sequence):
        return f"[{', '.join(map(_inner, value))}]"
    return "null" if value is None else str(value).lower()


def _inner(value: object) -> str:
    return yaml_word(value) if isinstance(value, str) else yaml_value(value)


def one_line(name: str, text: str) -> str:
    """Check that a directive's text is one line."""
    if any(character in text for character in "\n\r\x00"):
        raise ValueError(f"directives.{name}: is {shown(text)}, but a directive is one line of text")
    return text
