"""The `castoff` command: parse, call, print. Each verb is a module of castoff.launcher.cli.

Its own help needs nothing else, and click is imported where there is something to parse. What stands after
`--` never meets the parser.
"""

from __future__ import annotations

import gc
import io
import os
import sys
from importlib import import_module

from castoff.launcher.errors import CastoffError, Problem, report

TYPE_CHECKING = False  # `typing` would cost as much as all that is here
if TYPE_CHECKING:
    from typing import NoReturn


def console() -> NoReturn:
    """The installed command: `main` for a process of its own, which may skip what such a one can.

    Collecting garbage and taking the interpreter apart cost a short command a fifth of its time.
    """
    gc.set_threshold(100_000)
    _open_streams()
    try:
        main()
    except SystemExit as end:
        if sys.stderr is not None:
            sys.stderr.flush()
        os._exit(end.code & 0xFF if isinstance(end.code, int) else 1)  # as the system does with any other


def _open_streams() -> None:
    """Give a process that was started without a standard stream one that leads nowhere.

    Else the next file that is opened takes its descriptor, and what is written to the stream goes there.
    """
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        if getattr(sys, name) is None:
            nowhere = os.open(os.devnull, os.O_RDWR)
            if nowhere != number:
                os.dup2(nowhere, number)
            os.set_inheritable(number, True)
            setattr(sys, name, open(number, "w" if number else "r", closefd=False))  # noqa: SIM115


def main(arguments: list[str] | None = None) -> NoReturn:
    """Run the command line and exit."""
    words = sys.argv[1:] if arguments is None else arguments
    program: list[str] | None = None
    if "--" in words:
        at = words.index("--")
        words, program = words[:at], words[at + 1 :]
    if "_CASTOFF_COMPLETE" in os.environ:  # a shell asks what may stand next, and click answers
        import_module("castoff.launcher.cli.completion")
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="surrogateescape")  # a path's bytes leave as they came
    try:
        code = _run(words, program)
        if sys.stdout is not None:
            sys.stdout.flush()
    except OSError as error:
        if not isinstance(error, BrokenPipeError):  # the reader has gone, as in `castoff render … | head`
            _complain(f"{error.filename or 'standard output'}: {error.strerror or error}", 1, words)
        if sys.stdout is not None:
            # What is still buffered goes nowhere: the interpreter's last flush succeeds.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = 1
    sys.exit(code)


def _run(words: list[str], program: list[str] | None) -> int:
    words = _as_options(words)
    if program is None and words in ([], ["-h"], ["--help"]) and "_CASTOFF_COMPLETE" not in os.environ:
        from castoff.launcher.cli.help import help_text

        print(help_text())
        return 0
    try:
        return _call(words, program)
    except CastoffError as error:
        return _complain(str(error), error.exit_code, words, getattr(error, "problems", []))


def _as_options(words: list[str]) -> list[str]:
    """`castoff help`, `castoff help VERB` and `castoff version` as the options that say the same."""
    if words[:1] == ["help"]:
        return [*words[1:2], "--help"]
    return ["--version"] if words == ["version"] else words


_HERE = frozenset(
    (
        *("init", "import", "schema", "completion", "launch", "train", "trust", "on"),
        *("sites", "doctor", "explain", "--version", "-h", "--help"),
    )
)
"""Verbs that run here unless `--on` stands before them; others follow CASTOFF_ON and the project's `on:`."""


def _may_be_elsewhere(words: list[str]) -> bool:
    """Whether a verb may be for another machine, seen from what costs nothing."""
    if not words or "_CASTOFF_COMPLETE" in os.environ:
        return False
    if words[0] == "--on" or words[0].startswith("--on="):
        return True
    if words[0] in _HERE or "CASTOFF_RUN_DIR" in os.environ:  # in a job, here is where it runs
        return False
    return "CASTOFF_ON" in os.environ or _project_names_machine()


def _project_names_machine() -> bool:
    """Whether the nearest `.castoff/` has a config.yaml that names a machine."""
    try:
        folder = os.getcwd()  # noqa: PTH109 - pathlib would cost as much as all that is here
    except OSError:
        return False
    while not os.path.isdir(f"{folder}/.castoff"):  # noqa: PTH112
        folder, name = os.path.split(folder)
        if not name:
            return False
    try:
        with open(f"{folder}/.castoff/config.yaml", "rb") as file:  # noqa: PTH123
            return b"\non:" in b"\n" + file.read(1_000_000)
    except OSError:
        return False


def _call(words: list[str], program: list[str] | None) -> int:
    if _may_be_elsewhere(words):
        from castoff.launcher.cli import elsewhere

        return elsewhere.call(words, program)
    if words[:2] == ["launch", "--here"]:
        from castoff.launcher.cli import here

        try:
            if request := here.read(words, program):
                return here.run(request)
        except KeyboardInterrupt:
            print(file=sys.stderr)  # as click does
            return 130
    from castoff.launcher.cli.group import call

    return call(words, program)


def _complain(message: str, code: int, words: list[str], problems: list[Problem] | None = None) -> int:
    """Say what is wrong on standard error, and return the exit code; with --json, as one JSON object.

    Whether --json is meant is seen from the words alone, for they may be what is wrong.
    """
    if "--json" not in words or words[0] == "launch":  # whose words may be a program's
        report(message)
        return code
    import json

    answer: dict[str, object] = {"error": message, "exit_code": code}
    if problems:
        answer["problems"] = [
            {"where": problem.where, "field": problem.path, "message": problem.message}
            for problem in problems
        ]
    if sys.stderr is not None:
        print(json.dumps(answer), file=sys.stderr)
    return code


if __name__ == "__main__":
    console()
