"""The one place where text becomes part of a script: one function each for a shell word, a Slurm
directive and a PBS directive.

What a place cannot express raises ValueError; the callers name the field.
"""

from __future__ import annotations

import re
import shlex

_PLAIN_DIRECTIVE = re.compile(r"[A-Za-z0-9_@%+=:,./\[\]-]+")


def shell_word(text: str) -> str:
    """A word of a shell command that stands for exactly `text` (POSIX XCU 2.2.2)."""
    if "\x00" in text:
        raise ValueError("a NUL byte cannot stand in a command or a variable")
    return shlex.quote(text)


def slurm_directive(name: str, value: str | bool) -> str:
    """An option as sbatch reads it after `#SBATCH`.

    sbatch splits the line itself (get_argument() in src/common/proc_args.c): a backslash keeps the
    next character, also inside quotes, and an unquoted # begins a comment.
    """
    if value is True:
        return f"--{name}"
    text = _one_line(str(value))
    if not _PLAIN_DIRECTIVE.fullmatch(text):
        text = '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'
    return f"--{name}={text}"


def pbs_directive(name: str, value: str | bool) -> str:
    """An option as qsub reads it after `#PBS`: one letter is an option, a word a resource of -l.

    qsub splits the line itself (make_argv() in src/cmds/qsub.c): nothing is special inside quotes
    but the closing one.
    """
    text = "" if value is True else _one_line(str(value))
    word = f"-l {name}" if len(name) > 1 else f"-{name}"
    if value is True:
        return word
    joint = "=" if len(name) > 1 else " "
    return f"{word}{joint}{_pbs_word(text)}"


def _pbs_word(text: str) -> str:
    if _PLAIN_DIRECTIVE.fullmatch(text):
        return text
    # Runs without ' stand in '…', the apostrophes between them in "…".
    pieces = re.findall(r"[^']+|'+", text)
    return "".join(f"'{piece}'" if "'" not in piece else f'"{piece}"' for piece in pieces) or "''"


def _one_line(text: str) -> str:
    if any(character in text for character in "\n\r\x00"):
        raise ValueError("a directive is one line of text; a line break cannot stand in it")
    return text
