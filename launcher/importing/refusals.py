"""Recognize texts that are not scripts for a scheduler. Pure functions."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable

from castoff.launcher.errors import CastoffError

_NAME_IT = "name the script that you give to sbatch, qsub or flux batch"
_PYTHON = re.compile(r"(?:import \w|from \w[\w.]* import |def \w+\(|class \w+)")
_UNHELD = re.compile(
    "[^\n\t\x20-\x7e\xa0-\u2027\u202a-\ud7ff\ue000-\ufefe\uff00-\ufffd\U00010000-\U0010ffff]"
)
"""Characters that a block of YAML cannot contain, or that YAML reads as a line break."""


class NotAScript(CastoffError):
    """The text is not a script for a scheduler."""

    exit_code = 2


def check(text: str, marks: Iterable[str]) -> None:
    """Check that a text may be a script; its lines end in LF.

    `marks`: what schedulers' directives begin with.

    Raises:
        NotAScript: the text is not a script, or no job file can contain it.
    """
    if not text.strip():
        raise NotAScript(f"is empty: {_NAME_IT}")
    if "\x00" in text:
        raise NotAScript(f"is not text: {_NAME_IT}")
    if text.lstrip().startswith("<"):
        raise NotAScript(f"is a page of HTML or XML, perhaps one that shows the script: {_NAME_IT}")
    if _is_notebook(text):
        raise NotAScript(f"is a notebook: {_NAME_IT}")
    marked = "|".join(re.escape(mark.removeprefix("#")) for mark in marks)
    directives = re.search(rf"^[ \t]*#[ \t]*(?:{marked})", text, re.MULTILINE) is not None
    if language := "" if directives else _language(text):
        hint = "castoff submit --site SITE -- python FILE runs it as a job"
        raise NotAScript(f"is a program in {language}, not a script for sbatch, qsub or flux batch; {hint}")
    is_job = re.search(r"^(?:command|script):", text, re.MULTILINE)
    if is_job and not directives and not text.startswith("#!"):
        raise NotAScript("is a job file already; castoff render FILE shows its script")
    if unheld := _UNHELD.search(text):
        line, char = text.count("\n", 0, unheld.start()) + 1, unheld.group()
        if "\udc80" <= char <= "\udcff":
            raise NotAScript(f"is not UTF-8 text (line {line}); save it as UTF-8")
        raise NotAScript(
            f"contains the character U+{ord(char):04X} (line {line}), which a job file cannot contain"
        )


def _is_notebook(text: str) -> bool:
    try:
        data = json.loads(text) if text.lstrip().startswith("{") else None
    except (ValueError, RecursionError):
        return False
    return isinstance(data, dict) and "cells" in data


def _language(text: str) -> str:
    """The language of a program that is not a shell script; empty for a shell script or an unknown
    language.
    """
    first = text.split("\n", 1)[0]
    if first.startswith("#!"):
        shebang = re.match(r"#!\s*(?:\S*/)?(?:env\s+(?:-S\s+)?)?([\w.+-]+)", first)
        name = shebang[1] if shebang else ""
        return name if re.match(r"python|perl|ruby|julia|Rscript|node", name) else ""
    begins = re.match(rf"(?:\s*(?:#.*)?\n)*{_PYTHON.pattern}", text)
    lines = re.findall(rf"^{_PYTHON.pattern}", text, re.MULTILINE)
    return "Python" if begins or len(lines) >= 2 else ""
