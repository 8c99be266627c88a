"""Checks before submission that bash accepts a job's shell lines.

Each part that a user wrote, such as setup, must be complete by itself: an open quote, here-document or
continued line in it would swallow castoff's lines below.
"""

from __future__ import annotations

import itertools
import os
import re
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from io import FileIO
from pathlib import Path
from typing import Any

from castoff.launcher.config.job import JobSpec
from castoff.launcher.errors import CastoffError, InvalidInput, Problem, printable
from castoff.launcher.planning.render import Script
from castoff.launcher.runs.plan import Plan
from castoff.launcher.runs.script import head_of
from castoff.launcher.typed.document import invalid

_PROGRAM = re.compile(r"<<'(CASTOFF_\w+)'\n(.*?)^\1$", re.MULTILINE | re.DOTALL)
"""A program for the nodes, as it appears in a script."""

_END_OF_TEARDOWN = "CASTOFF_TEARDOWN"
"""The end of the here-document with a script's teardown lines."""

_PLAIN_LINE = re.compile(r"(?:[A-Za-z0-9_./:=,+@%-]+(?: |$))+")

_TRIED = 100
"""The most lines that are left out in turn to find the one that begins what has no end."""

_RESERVED = frozenset(
    (
        *("case", "coproc", "do", "done", "elif", "else", "esac", "fi", "for", "function", "if", "in"),
        *("select", "then", "time", "until", "while"),
    )
)
"""The reserved words that consist of letters:
https://www.gnu.org/software/bash/manual/html_node/Reserved-Words.html.
"""

_OF_BASH_4_4 = "inherit_errexit"
"""A shell option of the oldest bash that can run a job's script: others would complain about its syntax."""


def check_syntax(plan: Plan, script: Script, spec: JobSpec | None = None) -> None:
    """Have bash check the syntax of the job's script and of each of its parts. `spec`: the job as written.

    Raises:
        InvalidInput: bash reports an error or a warning in a part; the message has the line of the job file.
        CastoffError: bash reports one about the whole script.
    """
    for name, text in _parts(plan, script.theirs):
        if name.endswith("teardown") and _END_OF_TEARDOWN in text.split("\n"):
            raise invalid(
                "",
                f"its line {_END_OF_TEARDOWN} is castoff's own mark for the end: change that line",
                (name,),
            )
        if _is_plain(text):
            continue
        if complaint := _complaints(text):
            number = _failing_line(text, complaint)
            line = printable(text.split("\n")[number])
            why = re.sub(r"^line \d+: |; line \d+: `.*'$", "", complaint)  # lines of this part alone
            problem = f"bash does not parse this as intended: {why}; in the line: {line}"
            token = re.search(r"[`'\"](\S+?)'", why)
            raise InvalidInput([_placed(plan, spec, name, number, problem, token[1] if token else "")])
        if _complaints(f"{{\n:\n{text}}}\n"):  # the part is complete, but it continues into the }
            last = printable(text.rstrip("\n").rpartition("\n")[2])
            problem = (
                f"its last line, {last}, continues in the next line, which is castoff's; "
                "remove the \\ at its end"
            )
            raise InvalidInput([_placed(plan, spec, name, text.count("\n") - 1, problem)])
    if complaint := _complaints(script.text):
        raise CastoffError(
            f"the job's script, with its parts: bash does not parse it as intended: {complaint}"
        )
    if plan.templates is not None:  # castoff's own templates are tested
        for name, text in _PROGRAM.findall(script.text[len(head_of(script.text)) :]):
            if complaint := _complaints(text, "-o", "posix"):
                program = f"{name.removeprefix('CASTOFF_').lower()}.sh"
                raise CastoffError(
                    f"{program}, with your parts: sh does not parse it as intended: {complaint}"
                )


def _failing_line(text: str, complaint: str) -> int:
    """The index of the line that bash complains of; where it misses an end, of the line that begins what has
    none.
    """
    lines = text.split("\n")[:-1]
    if (at := re.match(r"line (\d+): syntax error near", complaint)) and int(at[1]) <= len(lines):
        return int(at[1]) - 1
    for count in range(len(lines) - 1, max(0, len(lines) - _TRIED), -1):
        if not _complaints("".join(f"{line}\n" for line in lines[:count])):
            return count
    return 0


def _placed(
    plan: Plan, spec: JobSpec | None, name: str, number: int, message: str, token: str = ""
) -> Problem:
    """A problem of a line of a part, by its index, with the place in the job file that has this line, and
    there the `token`.
    """
    mine: list[str] = getattr(spec, name, []) if name in ("setup", "teardown") else []
    items: list[str] = getattr(plan, name, [])
    starts = (n for n in range(len(items)) if mine and items[n : n + len(mine)] == mine)
    if spec is None or spec.source is None or (start := next(starts, None)) is None:
        return Problem("", name, message)
    ends = [*itertools.accumulate(item.count("\n") + 1 for item in items)]
    at = next(n for n, end in enumerate(ends) if number < end)
    if not 0 <= at - start < len(mine):
        return Problem("", name, message)
    lines = items[at].split("\n")
    inner = number - (ends[at] - len(lines))
    below = inner + (len(lines) > 1)  # a block begins a line later
    place = _in_file(spec.source.where((name, at - start)), lines[inner].strip(), below, token)
    return Problem(place, name, message)


def _in_file(where: str, line: str, below: int, token: str) -> str:
    """The line and the column in a file, FILE:LINE:COLUMN, of a `token` of a shell line, so many lines below
    `where`, FILE:LINE. If the file spells the line otherwise, `where`.
    """
    file, _, number = where.rpartition(":")
    try:
        lines = Path(file).read_text(encoding="utf-8").splitlines() if number.isdecimal() else []
    except (OSError, ValueError):
        return where
    at = int(number) + below if lines else 0
    if not line or not 0 < at <= len(lines) or (begin := lines[at - 1].find(line)) < 0:
        return where
    return f"{file}:{at}:{begin + max(0, line.rfind(token) if token else 0) + 1}"


def _parts(plan: Plan, theirs: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """The parts that users wrote, each with its name for messages."""
    yield "setup", "".join(f"{line}\n" for line in plan.setup)
    yield "teardown", "".join(f"{line}\n" for line in plan.teardown)
    yield "the site's teardown", "".join(f"{line}\n" for line in plan.site_teardown)
    for name, text in theirs.items():
        yield printable(f"{plan.templates}/blocks/{name}.sh"), text


def _is_plain(text: str) -> bool:
    """Whether each line is a command of unquoted words, such as `module load a`, which needs no check."""
    lines = text.split("\n")[:-1]
    return all(_PLAIN_LINE.fullmatch(line) and line.partition(" ")[0] not in _RESERVED for line in lines)


def _complaints(text: str, *options: str) -> str | None:
    """The messages of bash when it parses a script without running it; None if there are none."""
    # -p, to ignore BASH_ENV; extglob, since setup may turn it on; an option that older ones do not have.
    command = ["bash", "-p", "-n", "-O", "extglob", "-O", _OF_BASH_4_4, *options]
    content = text.encode(errors="surrogateescape")
    with ExitStack() as stack:
        try:
            script: dict[str, Any] = {"stdin": stack.enter_context(_in_memory(content))}
        except OSError:  # a Mac, or a limit on files
            script = {"input": content}
        try:
            checked = subprocess.run(
                command,
                **script,
                capture_output=True,
                check=False,
                # No other variables, or bash might complain about them.
                env={"PATH": os.environ.get("PATH", os.defpath), "LC_ALL": "C"},
            )
        except OSError:  # no bash here
            return None
    if f"{_OF_BASH_4_4}: invalid shell option name".encode() in checked.stderr:  # a Mac's bash is 3.2
        return None
    complaint = checked.stderr.decode(errors="replace").replace("bash: ", "").strip().replace("\n", "; ")
    return printable(complaint) or (f"exit code {checked.returncode}" if checked.returncode else None)


@contextmanager
def _in_memory(content: bytes) -> Iterator[FileIO]:
    """A file in memory: bash would read a pipe byte by byte, which takes a tenth of the time of a render."""
    if not hasattr(os, "memfd_create"):
        raise OSError("there are no files in memory")
    with FileIO(os.memfd_create("script"), "r+") as file:
        if file.write(content) < len(content):
            raise OSError("no file may be so long")
        file.seek(0)
        yield file
