"""The name of a job whose user gives none."""

from __future__ import annotations

import re
import unicodedata
from pathlib import PurePosixPath


def program_name(command: list[str]) -> str:
    """A default name for a job that every scheduler accepts: that of the module after -m, the script or the
    program.
    """
    words = [word for word in command if word]
    program = PurePosixPath(words[0]).name if words else ""
    for position, word in enumerate(words):
        if word == "-m" and position + 1 < len(words):
            program = words[position + 1].rpartition(".")[2]
            break
        if word.endswith(".py"):
            program = PurePosixPath(word).stem
            break
    name = re.sub(r"[^A-Za-z0-9_.+-]", "_", _without_accents(program))[:60]
    return name if name[:1].isalpha() else "-".join(["job", name.strip("._+-")]).strip("-")


def _without_accents(text: str) -> str:
    return "".join(c for c in unicodedata.normalize("NFKD", text) if not unicodedata.combining(c))
