"""The double's qsub."""

from __future__ import annotations

import getopt
import grp
import os
import pwd
import re
import shlex
import socket
import stat
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from tests.pbs.double.wire import VERSION, NoServer, Refused, ask, not_in_the_double

USAGE = """\
usage: qsub [-a date_time] [-A account_string] [-c interval]
\t[-C directive_prefix] [-e path] [-f ] [-h ] [-I [-X]] [-j oe|eo] [-J X-Y[:Z]]
\t[-k keep] [-l resource_list] [-m mail_options] [-M user_list]
\t[-N jobname] [-o path] [-p priority] [-P project] [-q queue] [-r y|n]
\t[-R o|e|oe] [-S path] [-u user_list] [-W otherattributes=value...]
\t[-v variable_list] [-V ] [-z] [script | -- command [arg1 ...]]
       qsub --version
"""
_OPTIONS = "a:A:c:C:e:fhIj:J:k:l:m:M:N:o:p:P:q:r:R:S:u:v:VW:Xz"
_KEEP = re.compile("n|d?(o|e|oe|eo)|(o|e|oe|eo)d?|d")
_NAME = re.compile(r"[A-Za-z0-9_+.\-]+")
_LONGEST_NAME = 230
_DEPENDENCIES = ("after", "afterok", "afternotok", "afterany")


class _Usage(Exception):
    """A value that qsub itself refuses, with the usage text."""


class _Stop(Exception):
    """Words, and the exit code."""

    def __init__(self, code: int, words: str) -> None:
        super().__init__(words)
        self.code, self.words = code, words


def qsub(arguments: Sequence[str]) -> int:
    """Submit a job and print its id."""
    if arguments[:1] == ["--version"]:
        print(f"pbs_version = {VERSION}")
        return 0
    try:
        submission = _Submission(arguments)
        print(ask({"request": "submit", **submission.told()})["job"])
        if "f" not in submission.flags:
            _stay_behind()
    except _Usage as usage:
        print(f"{usage}\n{USAGE}" if str(usage) else USAGE, end="", file=sys.stderr)
        return 2
    except _Stop as stop:
        print(stop.words, end="" if stop.words.endswith("\n") else "\n", file=sys.stderr)
        return stop.code
    except Refused as refused:
        print(f"qsub: {refused.text}", file=sys.stderr)
        return refused.code & 0xFF
    except NoServer as error:
        print(f"{error}\nqsub: cannot connect to server head (errno=15010)", file=sys.stderr)
        return 15010 & 0xFF
    return 0


def _stay_behind() -> None:
    """Leave a process that has what this one has open, as OpenPBS's submits for later ones for a minute."""
    subprocess.Popen(
        ["sleep", "60"],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        close_fds=False,
        start_new_session=True,
    )


class _Submission:
    """What qsub was told: on its command line, and for what is not there, in the script."""

    def __init__(self, arguments: Sequence[str]) -> None:
        self.arguments = arguments
        self.values: dict[str, str] = {}
        self.flags: set[str] = set()
        self.resources: dict[str, str] = {}
        self.attributes: dict[str, str] = {}
        operands = self._take(arguments, {})
        if len(operands) > 1:
            raise _Usage("")
        path = operands[0] if operands else "-"
        self.script = self._read(path)
        self.values.setdefault("N", "STDIN" if path == "-" else Path(path).name)
        self._directives()
        if "I" in self.flags:
            raise _Stop(
                1, "qsub:\tstandard input and output must be a terminal for\n\tinteractive job submission"
            )

    def _take(self, words: Sequence[str], before: dict[str, Any]) -> list[str]:
        """Take what is said; `before` was said on the command line and counts more."""
        try:
            options, operands = getopt.getopt(list(words), _OPTIONS)
        except getopt.GetoptError as error:
            letter = error.opt
            why = "option requires an argument" if "requires" in error.msg else "invalid option"
            raise _Usage(f"qsub: {why} -- '{letter}'") from error
        wrong = []
        for option, value in options:
            letter = option[1:]
            try:
                if letter == "l":
                    self._resources(value, before.get("resources", {}))
                elif letter == "W":
                    self._attributes(value, before.get("attributes", {}))
                elif letter in "fhIV":
                    self.flags.add(letter)
                elif letter in "cCRuXz":
                    raise not_in_the_double(f"qsub -{letter}")
                elif letter not in before.get("values", {}):
                    self.values[letter] = _checked(letter, value)
            except _Usage as usage:
                wrong.append(str(usage))
        if "J" in self.values and self.values.get("r") == "n":
            wrong.append("qsub:  cannot submit non-rerunable Array Job")
        if wrong:
            raise _Usage("\n".join(wrong))
        return operands

    def _resources(self, words: str, before: dict[str, str]) -> None:
        for word in words.split(","):
            name, equals, value = word.partition("=")
            if not name or (not equals and name != "place") or not value:
                raise _Usage("qsub: illegal -l value")
            if name not in before:
                self.resources[name] = value

    def _attributes(self, words: str, before: dict[str, str]) -> None:
        for word in re.split(r",(?=\s*\w+\s*=)", words):
            name, equals, value = map(str.strip, word.partition("="))
            if not equals or not name or value.endswith(","):
                raise _Usage("qsub: illegal -W value")
            if name == "depend":
                _dependencies(value)
            elif name not in ("umask", "group_list", "max_run_subjobs", "tolerate_node_failures"):
                raise _Stop(154, "qsub: Error (15002) submitting job")
            elif name == "tolerate_node_failures" and value not in ("all", "job_start", "none"):
                raise _Usage("qsub: illegal -W value")
            if name not in before or name == "umask":  # qsub does not remember who has said that
                self.attributes[name] = value

    def _read(self, path: str) -> str:
        if path == "-":
            return sys.stdin.read()
        try:
            mode = Path(path).stat().st_mode
        except OSError as error:
            raise _Stop(1, f"qsub: script file:: {error.strerror}") from error
        if not stat.S_ISREG(mode):
            raise _Stop(1, "qsub: script not a file")
        try:
            return Path(path).read_text()
        except OSError as error:
            raise _Stop(8, f"qsub: opening script file:: {error.strerror}") from error

    def _directives(self) -> None:
        before: dict[str, Any] = {
            "values": dict(self.values)
            if _said_name(self.arguments)
            else {k: v for k, v in self.values.items() if k != "N"},
            "resources": dict(self.resources),
            "attributes": dict(self.attributes),
        }
        for line in _directive_lines(self.script):
            self._take(shlex.split(line), before)

    def told(self) -> dict[str, Any]:
        """The request to the server."""
        values = self.values
        user = pwd.getpwuid(os.geteuid())
        indices = values.get("J", "")
        span, _, at_most = indices.partition("%")
        return {
            "name": values["N"],
            "user": user.pw_name,
            "group": grp.getgrgid(user.pw_gid).gr_name,
            "host": socket.gethostname(),
            "workdir": _workdir(),
            "queue": values.get("q", ""),
            "account": values.get("A", ""),
            "after": _moment(values["a"]) if "a" in values else None,
            "error": _output(values.get("e", "")),
            "output": _output(values.get("o", "")),
            "held": "h" in self.flags,
            "join": values.get("j", "n"),
            "keep": values.get("k", "n"),
            "mail": values.get("m", "a"),
            "priority": values.get("p", "0"),
            "rerunnable": values.get("r", "y") == "y",
            "shell": values.get("S", ""),
            "umask": _umask(self.attributes.get("umask")),
            "group_list": self.attributes.get("group_list"),
            "tolerate_node_failures": self.attributes.get("tolerate_node_failures"),
            "depend": _dependencies(self.attributes.get("depend", "")),
            "asked": self.resources,
            "array": span,
            "at_most": at_most or self.attributes.get("max_run_subjobs", ""),
            "variables": list(self._variables()),
            "arguments": " ".join(self.arguments),
            "script": self.script,
        }

    def _variables(self) -> Iterator[tuple[str, str]]:
        """Of the job, with commas, backslashes and quotes as PBS writes them."""
        environ = os.environ
        yield "PBS_O_HOME", environ.get("HOME", "/").replace(",", "\\,")
        for name in ("LANG", "LOGNAME", "PATH", "MAIL", "SHELL", "TZ"):
            if name in environ:
                yield f"PBS_O_{name}", environ[name].replace(",", "\\,")
        yield "PBS_O_WORKDIR", _workdir().replace(",", "\\,")
        yield "PBS_O_SYSTEM", "Linux"
        said = {}
        if "v" in self.values:
            for word in _comma_words(self.values["v"]):
                name, equals, value = word.partition("=")
                if not equals and name not in environ:
                    raise _Stop(1, "qsub: cannot send environment with the job")
                once = _encoded(value if equals else environ[name], quoted=not equals)
                said[name] = _encoded(once, quoted=False)
        if "V" in self.flags:
            for name, value in environ.items():
                said.setdefault(name, _encoded(value, quoted=True))
        for name, value in said.items():
            if not name.startswith("PBS_O_"):
                yield name, value


def _checked(letter: str, value: str) -> str:
    """A value that qsub itself looks at.

    Raises:
        _Usage: it is none.
    """
    good = True
    match letter:
        case "N":
            if len(value) > _LONGEST_NAME:
                raise _Stop(2, "qsub: Job name is too long ")
            good = bool(_NAME.fullmatch(value))
        case "J":
            good = _indices(value.partition("%")[0]) is not None
        case "j":
            good = value in ("oe", "eo", "n")
        case "k":
            good = bool(_KEEP.fullmatch(value))
        case "r":
            good = value in ("y", "n")
        case "a":
            good = _moment(value) is not None
    if not good:
        raise _Usage(f"qsub: illegal -{letter} value")
    return value


def _indices(span: str) -> tuple[int, int, int] | None:
    found = re.fullmatch(r"(\d+)-(\d+)(?::(\d+))?", span)
    if found is None:
        return None
    first, last, step = int(found[1]), int(found[2]), int(found[3] or 1)
    return (first, last, step) if first < last and step >= 1 else None


def _dependencies(words: str) -> list[tuple[str, str]]:
    """Kind and job of each.

    Raises:
        _Usage: they are none.
    """
    found = []
    for part in words.split(",") if words else []:
        kind, *jobs = part.split(":")
        if kind.startswith("before") or kind in ("on", "runone"):
            raise not_in_the_double(f"-W depend={kind}")
        if (
            kind not in _DEPENDENCIES
            or not jobs
            or not all(re.match(r"\d+(\[\d*\])?(\.|$)", job) for job in jobs)
        ):
            raise _Usage("qsub: illegal -W value")
        found += [(kind, job) for job in jobs]
    return found


def _moment(said: str) -> float | None:
    """The time that -a says: [[[[CC]YY]MM]DD]hhmm[.SS]."""
    found = re.fullmatch(r"(\d{4}|\d{6}|\d{8}|\d{10}|\d{12})(?:\.(\d\d))?", said)
    if found is None:
        return None
    now = time.localtime()
    digits, second = found[1], int(found[2] or 0)
    minute, hour = int(digits[-2:]), int(digits[-4:-2])
    day = int(digits[-6:-4]) if len(digits) >= 6 else now.tm_mday
    month = int(digits[-8:-6]) if len(digits) >= 8 else now.tm_mon
    year = now.tm_year
    if len(digits) >= 10:
        year = int(digits[:-8]) + (0 if len(digits) == 12 else 2000)
    if minute > 59 or hour > 23 or second > 59 or not 1 <= day <= 31 or not 1 <= month <= 12:
        return None
    if len(digits) == 4 and (hour, minute) <= (now.tm_hour, now.tm_min):
        day += 1
    return time.mktime((year, month, day, hour, minute, second, 0, 0, -1))


def _umask(said: str | None) -> str:
    return "" if said is None else str(int(said)) if said.isdigit() else said


def _output(path: str) -> str:
    """A path as the server keeps it: a folder keeps its slash."""
    if not path:
        return ""
    host, colon, rest = path.partition(":") if ":" in path.partition("/")[0] else ("", "", path)
    full = rest if rest.startswith("/") else f"{_workdir()}/{rest}"
    return f"{host}{colon}{full}"


def _workdir() -> str:
    """The working directory by the name that the shell has for it."""
    named = os.environ.get("PWD")
    try:
        if named and Path(named).samefile("."):
            return named
    except OSError:
        pass
    return str(Path.cwd())


def _said_name(arguments: Sequence[str]) -> bool:
    try:
        return any(option == "-N" for option, _ in getopt.getopt(list(arguments), _OPTIONS)[0])
    except getopt.GetoptError:
        return False


def _directive_lines(script: str) -> Iterator[str]:
    """What the script says to qsub: up to its first command."""
    lines = iter(script.splitlines())
    for line in lines:
        if line.startswith("#PBS"):
            words = line[4:]
            while words.endswith("\\"):
                words = words[:-1] + next(lines, "")
            if words[:1].isspace():
                yield words.strip()
        elif line.strip() and not line.lstrip().startswith("#"):
            return


def _comma_words(text: str) -> list[str]:
    """Words between commas that are neither quoted nor escaped."""
    words, word, quote, at = [], "", "", 0
    while at < len(text):
        letter = text[at]
        if letter in "'\"":
            quote = "" if letter == quote else letter
        elif letter == "\\" and at + 1 < len(text):
            word += letter
            at += 1
            letter = text[at]
        elif letter == "," and not quote:
            words.append(word)
            word, at = "", at + 1
            continue
        word += letter
        at += 1
    return [one for one in [*words, word] if one]


def _encoded(value: str, *, quoted: bool) -> str:
    """A value as it stands in Variable_List.

    Raises:
        _Stop: a quote that does not end.
    """
    found, quote, at = "", "", 0
    while at < len(value):
        letter = value[at]
        if letter in "'\"":
            if quote and letter == quote:
                quote = ""
            elif quote or quoted:
                found += f"\\{letter}"
            else:
                quote = letter
        elif letter == "\\":
            found += letter
            if value[at + 1 : at + 2] != ",":
                found += letter
        elif letter == "," and (quote or quoted):
            found += "\\,"
        else:
            found += letter
        at += 1
    if quote:
        raise _Stop(1, "qsub: cannot send environment with the job")
    return found
