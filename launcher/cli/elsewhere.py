"""Verbs on another machine: which machine is meant, and how each verb runs on it.

The machine is named by `castoff --on NAME VERB …`, by the variable CASTOFF_ON, or by `on:` in the project's
.castoff/config.yaml.
"""

from __future__ import annotations

import os
import re
import signal
import sys
from collections.abc import Callable
from pathlib import Path

import click

from castoff.launcher.cli.group import WrongWords
from castoff.launcher.cli.group import call as call_here
from castoff.launcher.cli.help import VERBS
from castoff.launcher.cli.output import is_terminal, report, write_output
from castoff.launcher.errors import CastoffError, printable
from castoff.launcher.remote import passing
from castoff.launcher.remote.entries import HERE, entry_named
from castoff.launcher.remote.machine import Machine, NotInstalled
from castoff.launcher.remote.ssh import Bounded
from castoff.launcher.text.quoting import visible_word

ONLY_HERE = {
    "init": "writes a job file here; then `castoff --on NAME submit` takes it along",
    "import": "reads a script and writes a job file here",
    "schema": "is the same everywhere",
    "completion": "is for the shell that you type in",
    "launch": "starts ranks on this machine, without a scheduler; `submit` and `alloc` start ranks there",
    "train": "trains on this machine; to train there, `submit -- castoff train …`",
    "mcp": "serves a program on this machine; its tools take the other machine as `machine`",
    "on": "manages the machines for --on from this machine",
}
"""Verbs that cannot run on another machine, and why."""

_ON_BOTH = ("submit", "render", "pull")
"""Verbs that run on this machine, and connect to the other one by themselves."""

_ON_TERMINALS = ("shell", "alloc", "top", "clean", "notify")
"""Verbs that get a terminal on the other machine if they have one on this machine."""

_LARGEST_PAGE = 1 << 26
"""Limit of a run page's size, in bytes; a page with 20 curves has a fiftieth of it."""

_END_OF_PAGE = b"</html>\n"
"""The end of a page, which is nowhere else in it, since pages escape all text of runs."""

_REFRESH = re.compile(rb'<meta http-equiv="refresh"[^>]*>\n')
"""What lets a browser load a page again."""

_READING = ("shell", "alloc")
"""Verbs that pass this process's standard input to their program."""


def call(words: list[str], program: list[str] | None) -> int:
    """Call a verb on the machine that is meant, and return its exit code.

    Raises:
        CastoffError: there is no such machine, or the verb failed on it.
    """
    name, why, rest = _meant(words)
    if name in HERE:
        return call_here(rest, program)
    explicit = rest is not words
    if not rest:
        raise WrongWords(f"name a verb after --on {name}, as in castoff --on {name} list", 2)
    verb = rest[0]
    if verb not in (*VERBS, "version", "--version") or {"-h", "--help"} & {*rest}:
        return call_here(rest, program)
    if verb in ONLY_HERE:
        reason = ONLY_HERE[verb].replace("NAME", name)
        raise WrongWords(f"{verb} {reason}; without --on: castoff {verb}", 2)
    machine = Machine(entry_named(name, os.environ, why), os.environ, as_named=explicit)
    typed = ["castoff", *words, *([] if program is None else ["--", *program])]
    if signal.getsignal(signal.SIGINT) is signal.SIG_DFL:  # from now on Ctrl-C is an exception
        signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        return _with_castoff(machine, lambda: _call(machine, typed, rest, program))
    except KeyboardInterrupt:
        print(file=sys.stderr)
        _interrupted(machine, rest)
        return 130


def machine_that_answers(words: list[str]) -> tuple[Machine, list[str]] | None:
    """The machine that knows the runs which a command line is about, and the words after `--on NAME`; None:
    this one does.

    Raises:
        CastoffError: there is no such machine.
    """
    name, why, rest = _meant(words)
    if name in HERE or not rest or rest[0] not in VERBS or rest[0] in (*ONLY_HERE, "submit", "render"):
        return None
    return Machine(entry_named(name, os.environ, why), os.environ, as_named=True), rest


def _meant(words: list[str]) -> tuple[str, str, list[str]]:
    """The machine's name, the setting that named it, and the words after `--on NAME`."""
    if words[0].startswith("--on="):
        return words[0].partition("=")[2], "--on", words[1:]
    if words[0] == "--on":
        if len(words) < 2:
            raise WrongWords(
                "--on takes the name of a machine; `castoff on list` lists the known machines", 2
            )
        return words[1], "--on", words[2:]
    if (name := os.environ.get("CASTOFF_ON")) is not None:
        return name, "CASTOFF_ON", words
    from castoff.launcher.config.project import project_machine
    from castoff.launcher.config.site import Search

    project = Search.here().project
    config = None if project is None else project / ".castoff" / "config.yaml"
    name = project_machine(config) if config is not None and config.is_file() else None
    return name or "", f"{config}: on", words


def _call(machine: Machine, typed: list[str], rest: list[str], program: list[str] | None) -> int:
    verb, words = rest[0], rest[1:]
    if verb == "report":
        return _report(machine, words)
    if verb in _ON_BOTH:
        from castoff.launcher.cli.job_options import Target, target

        token = target.set(Target(machine, typed))
        try:
            return call_here(rest, program)
        finally:
            target.reset(token)
    _check_paths(machine, verb, words)
    passed = passing.Passed(machine, "--version" if verb == "version" else verb, words, program)
    has_terminal = is_terminal(sys.stdin) and is_terminal(sys.stdout)
    answers_itself = program is not None or {"--yes", "--dry-run", "--json"} & {*words}
    if verb in _ON_TERMINALS and has_terminal and not answers_itself:
        return passing.run_on_terminal(passed, os.environ)
    if verb == "watch":
        from castoff.launcher.cli.watch_elsewhere import watch_elsewhere

        return watch_elsewhere(machine, words, os.environ)
    if verb == "wait":
        return passing.wait_through(passed, os.environ)
    if verb == "logs" and _follows(words):
        return passing.follow_through(passed, os.environ)
    if verb == "resubmit":
        return _resubmit(passed, words)
    reads = verb in _READING and program is not None
    return passing.run(passed, os.environ, reads=reads or (verb == "notify" and words[:1] == ["add"]))


def _report(machine: Machine, words: list[str]) -> int:
    """Make the page of runs on the other machine, and write it on this one as `castoff report` would."""
    from castoff.launcher.cli.report import command

    context = command.make_context("castoff report", list(words))
    runs, output, watch = (context.params[name] for name in ("runs", "output", "watch"))
    chosen = [word for name, value in context.params.items() for word in _ranking(name, value)]
    if watch:
        chosen += ["--watch", "--interval", f"{context.params['interval']:g}s"]
    _check_paths(machine, "report", list(runs))
    if output is None and is_terminal(sys.stdout):
        output = "comparison.html" if len(runs) > 1 else f"{Path(*runs or ('report',)).name}.html"
    passed = passing.Passed(machine, "report", [*runs, *chosen, "--output", "-"])
    if output in (None, "-"):
        return passing.run(passed, os.environ)
    pages = _Pages(machine.entry.name, output)
    try:
        code = passing.run(passed, os.environ, write=pages.take)
    finally:
        pages.stop()
    if code == 0:
        report(f"wrote {Path(output).absolute()}")
    return code


class _Pages:
    """Writes a page, or with --watch each that the machine prints, as soon as it is whole."""

    def __init__(self, name: str, output: str):
        self._whole = Bounded(f"{name}: the page", _LARGEST_PAGE)
        self._output = output
        self._arriving = bytearray()
        self._written = b""

    def take(self, data: bytes) -> None:
        """Take what the machine has printed."""
        begin = max(len(self._arriving) - len(_END_OF_PAGE), 0)
        self._arriving += self._whole.take(data)
        while (end := self._arriving.find(_END_OF_PAGE, begin)) >= 0:
            end += len(_END_OF_PAGE)
            self._write(bytes(self._arriving[:end]))
            del self._arriving[:end]
            self._whole, begin = self._whole.anew(), 0

    def stop(self) -> None:
        """Write the last page so that browsers do not load it again."""
        if (last := _REFRESH.sub(b"", self._written, count=1)) != self._written:
            self._write(last)

    def _write(self, page: bytes) -> None:
        write_output(self._output, page.decode(errors="surrogateescape"), 0o600)
        self._written = page


def _follows(words: list[str]) -> bool:
    """Whether the words of `castoff logs` follow a run."""
    from castoff.launcher.cli.logs import command

    context = command.make_context("castoff logs", list(words), resilient_parsing=True)
    return bool(context.params.get("follow"))


def _ranking(name: str, value: object) -> list[str]:
    """The words on a command line for an option of `ranking_options`."""
    if name == "by" and value is not None:
        return ["--by", str(value)]
    if name == "largest" and value is not None:
        return ["--largest" if value else "--smallest"]
    return []


def _resubmit(passed: passing.Passed, words: list[str]) -> int:
    """Resubmit on the other machine, with the values that the variables in `env_from` have on this one."""
    from castoff.launcher.cli.resubmit import command
    from castoff.launcher.remote.messages import Names, NamesOf
    from castoff.launcher.runs.secrets import secrets

    context = command.make_context("castoff resubmit", list(words), resilient_parsing=True)
    run = context.params.get("run")
    variables: dict[str, bytes] = {}
    if run is not None:
        with passed.machine.session(passed.typed) as session:
            answer = session.ask(NamesOf(run), "castoff asked which variables the run takes")
        names = answer.names if isinstance(answer, Names) else []
        secrets(names, os.environ)
        _check_given(passed.machine, run, names)
        variables = {name: os.fsencode(os.environ[name]) for name in names}
    return passing.run(passed, os.environ, variables=variables)


def _check_given(machine: Machine, run: str, names: list[str]) -> None:
    """Ask the user before this machine sends a variable that none of its jobs has sent to that machine
    before.

    Raises:
        CastoffError: the user does not agree, or cannot be asked.
    """
    from castoff.launcher.remote.remembered import remember_variables, variables_given

    name = machine.entry.name
    if new := printable(", ".join(sorted({*names} - variables_given(machine.entry, os.environ)))):
        if not (is_terminal(sys.stdin) and is_terminal(sys.stderr)):
            raise CastoffError(
                f"{name}: {run} takes {new} from your environment, which no job from this machine has sent "
                "there; call the command in a terminal, where castoff asks whether to send this"
            )
        if not click.confirm(f"Send {new} of your environment to {name}, for {run}?", err=True):
            raise CastoffError("nothing was resubmitted")
        remember_variables(machine.entry, names, os.environ)


def _check_paths(machine: Machine, verb: str, words: list[str]) -> None:
    """Refuse relative paths that exist on this machine: on the other machine they would mean other files."""
    name = machine.entry.name
    for index, word in enumerate(words):
        option, equals, value = word.partition("=")
        if option in ("-o", "--output"):
            value = value if equals else "".join(words[index + 1 : index + 2])
            if value != "-":
                raise WrongWords(
                    f"{verb}: {option} would write a file on {name}: print it and redirect it here, as in "
                    f"castoff --on {name} {verb} … > FILE",
                    2,
                )
        path = value if equals and option.startswith("--") else word
        looks_local = not path.startswith(("-", "/", "~")) and (
            "/" in path or path.endswith((".yaml", ".yml"))
        )
        if looks_local and (path in (".", "./", "..") or Path(path).exists()):
            raise WrongWords(
                f"{verb}: {path} is a file or folder on this machine, but {verb} runs on {name}: "
                f"name a run by its id, or give an absolute path on {name}",
                2,
            )


def _with_castoff(machine: Machine, do: Callable[[], int]) -> int:
    """Call `do`; if castoff is missing on the machine, offer to install it, and call `do` again."""
    try:
        return do()
    except NotInstalled as missing:
        if machine.entry.castoff is not None or not (is_terminal(sys.stdin) and is_terminal(sys.stderr)):
            raise
        from castoff.launcher.remote.install import install_castoff

        def agrees(question: str) -> bool:
            return click.confirm(question, default=True, err=True)

        report(str(missing).partition(";")[0])
        if not install_castoff(machine, os.environ, report, agrees):
            raise
        return do()


def _interrupted(machine: Machine, rest: list[str]) -> None:
    """Report what Ctrl-C has ended, and what continues on the machine."""
    name, verb = machine.entry.name, rest[0]
    if verb in ("logs", "wait", "top", "status", "list", "report", "pull", "stacks"):
        again = " ".join(map(visible_word, machine.command(*rest)))
        report(f"{name}: the runs there are unaffected; `{again}` continues")
    elif verb == "submit":
        report(f"{name}: interrupted; if the job was submitted, the same command finds it, else submits it")
    else:
        runs = " ".join(machine.command("list"))
        report(f"{name}: castoff {verb} was interrupted; `{runs}` lists the runs there")
