"""The one place where text becomes part of a script: one function each for a shell word, a Slurm
directive and a PBS directive.

What a place cannot express raises ValueError; the callers name the job.
"""

from __future__ import annotations

import re
import shlex

_PLAIN_DIRECTIVE = re.compile(r"[A-Za-z0-9_@%+=:,./\[\]-]+")
_PBS_VALUE_ENDS = re.compile(r"[,\s'\"]")


def shell_word(text: str) -> str:
    """A word of a shell command that stands for exactly `text` (POSIX XCU 2.2.2)."""
    if "\x00" in text:
        raise ValueError("a NUL byte cannot stand in a command or a variable")
    # A line that ends in CR LF makes qsub refuse the whole script: '' keeps the two apart.
    return shlex.quote(text).replace("\r\n", "\r''\n")


def slurm_directive(name: str, value: str | bool) -> str:
    """An option as sbatch reads it after `#SBATCH`.

    sbatch splits the line itself (get_argument() in src/sbatch/opt.c): a backslash keeps the next
    character, also inside quotes, and an unquoted # begins a comment.
    """
    if value is True:
        return f"--{name}"
    text = _one_line(name, str(value))
    if not _PLAIN_DIRECTIVE.fullmatch(text):
        text = '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'
    return f"--{name}={text}"


def pbs_directive(name: str, value: str | bool) -> str:
    """An option as qsub reads it after `#PBS`: one letter is an option, a word a resource of -l.

    qsub splits the line itself (make_argv() in src/cmds/qsub.c): nothing is special inside quotes
    but the closing one. Then it splits what -l holds at commas (pbs_quote_parse()).
    """
    resource = len(name) > 1
    word = f"-l {name}" if resource else f"-{name}"
    if value is True:
        return word
    text = _one_line(name, str(value))
    if resource:
        return f"{word}={_pbs_word(_pbs_value(name, text))}"
    return f"{word} {_pbs_word(text)}"


def _pbs_value(name: str, text: str) -> str:
    """A resource's value, so that a comma or a space in it ends nothing."""
    if "&" in text or not (text.isascii() and text.isprintable()):
        raise ValueError(f"directives.{name}: is {text!r}, but PBS takes plain ASCII without & there")
    if not _PBS_VALUE_ENDS.search(text):
        return text
    if "'" in text and '"' in text:
        raise ValueError(f"directives.{name}: is {text!r}, but PBS cannot hold both ' and \" there")
    quote = '"' if "'" in text else "'"
    return f"{quote}{text}{quote}"


def _pbs_word(text: str) -> str:
    if _PLAIN_DIRECTIVE.fullmatch(text):
        return text
    # Runs without ' stand in '…', the apostrophes between them in "…".
    pieces = re.findall(r"[^']+|'+", text)
    return "".join(f"'{piece}'" if "'" not in piece else f'"{piece}"' for piece in pieces) or "''"


def _one_line(name: str, text: str) -> str:
    if any(character in text for character in "\n\r\x00"):
        raise ValueError(f"directives.{name}: is {text!r}, but a directive is one line of text")
    return text
