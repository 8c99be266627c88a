"""A script for a scheduler, read as a job. Pure: it is never run, and nothing else is read."""

from __future__ import annotations

import re

from launcher.config.job import JobSpec
from launcher.errors import CastoffError
from launcher.importing.account import Account
from launcher.importing.head import read_head
from launcher.importing.imported import Imported, nested
from launcher.importing.reading import Reading
from launcher.importing.shell import Statement, statements
from launcher.importing.validity import make_valid
from launcher.importing.words import Overgrown
from launcher.schedulers.registry import readers

_MOST = 10_000
"""Commands of a script."""

_DEEP = 20
"""Groups within groups whose lines are taken one by one."""


class NotAScript(CastoffError):
    """What was to be read is no script of a shell's."""

    exit_code = 2


def read_script(text: str) -> Imported:
    """Read a script. It is never run, and nothing else is read.

    Raises:
        NotAScript: it holds no shell script.
    """
    marked = text.startswith("\ufeff")
    text = text.removeprefix("\ufeff")
    shell = _shell_of(text)
    try:
        result = _read(text, shell)
    except (Overgrown, RecursionError):
        raise NotAScript("holds commands within commands, more of them than can be read") from None
    if marked:
        result.note("", "the script begins with a byte order mark, with which the scheduler would refuse it")
    return result


def _read(text: str, shell: str) -> Imported:
    account = Account()
    lines = text.replace("\r\n", "\n").split("\n")
    body = _without_groups(statements("\n".join(lines)), account)
    if len(body) > _MOST:
        raise NotAScript(f"has {len(body):,} commands; castoff import reads scripts of {_MOST:,} at the most")
    head = read_head(lines, body, readers(), account)
    if head.reader and "array" in head.asked.fields:
        variables = "|".join(head.reader.array_index) or "(?!)"
        own = re.sub(rf"\b(?:{variables})\b", "CASTOFF_ARRAY_INDEX", "\n".join(lines))
        body = _without_groups(statements(own), account)
    reading = Reading(head, body, account)
    reading.around.ends_at_failure = bool(re.match(r"#!.*sh\s+-\w*e", lines[0]))
    result = reading.imported()
    make_valid(result)
    if result.fields.get("inherit") == "all" and re.match(r"#!\s*/(?:usr/)?bin/(?:ba)?sh\s*$", lines[0]):
        why = "as in the script's first line; castoff's sites start a login shell, which may reset PATH"
        result.profile["shell: /bin/bash"] = why
    if "\r\n" in text:
        result.note("", "the script's lines end as on Windows (CRLF), which the scheduler would refuse")
    if shell:
        why = f"the script is for {shell}, and a job file's setup lines are for bash"
        for one in body:
            account.add(one.first, one.last, "not expressed", one.text, why)
        result.fields.pop("setup", None)
    return result


def _without_groups(body: list[Statement], account: Account, depth: int = 0) -> list[Statement]:
    """Statements with those of a `{ …; }` in its place: it only sends to one file what all of them write."""
    found: list[Statement] = []
    for one in body:
        group = re.fullmatch(r"\{(\s.*[\s;])\}((?:\s*[0-9]*>[>&]?\s*\S+)*)", one.text, re.DOTALL)
        inner = statements(group[1]) if group and one.compound == "{" and depth < _DEEP else []
        if not inner or any(part.broken for part in inner):
            found.append(one)
            continue
        for line in (one.first, one.last):
            account.add(
                line, line, "dropped", "{ … }", "its lines are taken one by one, and castoff keeps logs"
            )
        before = one.first - 1
        moved = [part._replace(first=part.first + before, last=part.last + before) for part in inner]
        found += _without_groups(moved, account, depth + 1)
    return found


def _shell_of(text: str) -> str:
    """The shell of a script, if it is none that is read as bash is.

    Raises:
        NotAScript: it is a program of another language, or no text.
    """
    first = text.split("\n", 1)[0]
    if not text.strip():
        raise NotAScript("is empty: name the script that you give to sbatch, qsub or flux batch")
    if "\x00" in text:
        raise NotAScript("is no text: name the script that you give to sbatch, qsub or flux batch")
    found = re.match(
        r"#!\s*\S*?/?(?:env\s+(?:-S\s+)?)?([\w.+-]+)(?:\s|$)",
        first.replace("/usr/bin/", "").replace("/bin/", ""),
    )
    name = found[1] if found else ""
    if re.match(r"python|perl|ruby|julia|Rscript|node", name) or (not name and _reads_like_python(text)):
        hint = "castoff submit --site SITE -- python FILE runs it as a job"
        raise NotAScript(
            f"is a program in {name or 'Python'}, no script for sbatch, qsub or flux batch; {hint}"
        )
    if not name and not _has_directives(text) and re.search(r"^command:", text, re.MULTILINE):
        raise NotAScript("is a job file already; castoff render FILE shows its script")
    return name if name in ("csh", "tcsh", "fish") else ""


def _has_directives(text: str) -> bool:
    return re.search(r"^#(?:SBATCH|PBS| ?flux:)", text, re.MULTILINE) is not None


def _reads_like_python(text: str) -> bool:
    line = r"(?:import \w|from \w[\w.]* import |def \w+\(|class \w+)"
    begins = re.match(rf"(?:\s*(?:#.*)?\n)*{line}", text)
    return bool(begins or len(re.findall(f"^{line}", text, re.MULTILINE)) >= 2) and not _has_directives(text)


def job_of(result: Imported) -> JobSpec:
    """The job that a script was read as."""
    return JobSpec.of(nested(result.fields))
