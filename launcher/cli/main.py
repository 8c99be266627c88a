"""The `castoff` command: parse, call, print. Each verb is a module of castoff.launcher.cli.

The help of castoff itself needs no other module; click is imported only if there is something to parse. Words
after `--` are the program's and are never parsed.
"""

from __future__ import annotations

import gc
import io
import os
import sys
from importlib import import_module

from castoff.launcher.errors import CastoffError, Problem, report

TYPE_CHECKING = False  # importing `typing` would take as long as this whole module
if TYPE_CHECKING:
    from typing import NoReturn


def console() -> NoReturn:
    """The installed command: call `main` in a process of its own."""
    # Garbage collection and the interpreter's shutdown would be a fifth of a short command's time.
    gc.set_threshold(100_000)
    _open_streams()
    try:
        main()
    except SystemExit as end:
        if sys.stderr is not None:
            sys.stderr.flush()
        os._exit(end.code & 0xFF if isinstance(end.code, int) else 1)  # the code that sys.exit would give


def _open_streams() -> None:
    """Open /dev/null for each standard stream that the process was started without.

    Otherwise the next file that is opened would get the stream's descriptor, and whatever is written to the
    stream would go into this file.
    """
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        if getattr(sys, name) is None:
            null = os.open(os.devnull, os.O_RDWR)
            if null != number:
                os.dup2(null, number)
            os.set_inheritable(number, True)
            setattr(sys, name, open(number, "w" if number else "r", closefd=False))  # noqa: SIM115


def main(arguments: list[str] | None = None) -> NoReturn:
    """Run the command line and exit."""
    words = sys.argv[1:] if arguments is None else arguments
    program: list[str] | None = None
    if "--" in words:
        separator = words.index("--")
        words, program = words[:separator], words[separator + 1 :]
    if "_CASTOFF_COMPLETE" in os.environ:  # a shell asks for completions, and click answers
        import_module("castoff.launcher.cli.completion")
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="surrogateescape")  # so that any path is printed with its own bytes
    try:
        code = _run(words, program)
        if sys.stdout is not None:
            sys.stdout.flush()
    except OSError as error:
        if not isinstance(error, BrokenPipeError):  # a broken pipe is normal: `castoff render … | head`
            _complain(f"{error.filename or 'standard output'}: {error.strerror or error}", 1, words)
        if sys.stdout is not None:
            # Discard what is still buffered, so that the interpreter's last flush cannot fail.
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
    """Replace `help`, `help VERB` and `version` by the equivalent options."""
    if words[:1] == ["help"]:
        return [*words[1:2], "--help"]
    return ["--version"] if words == ["version"] else words


_HERE = frozenset(
    (
        *("init", "import", "schema", "completion", "launch", "train", "trust", "on", "mcp", "notify"),
        *("sites", "doctor", "explain", "--version", "-h", "--help"),
    )
)
"""Verbs that run on this machine unless `--on` precedes them; others follow CASTOFF_ON and the project's
`on:`.
"""


def may_be_elsewhere(words: list[str]) -> bool:
    """Whether a command may have to run on another machine; determined without importing any module."""
    if not words:
        return False
    if words[0] == "--on" or words[0].startswith("--on="):
        return True
    if words[0] in _HERE or "CASTOFF_RUN_DIR" in os.environ:  # a job already runs on the other machine
        return False
    return "CASTOFF_ON" in os.environ or _project_names_machine()


def _project_names_machine() -> bool:
    """Whether the config.yaml in the nearest `.castoff/` names a machine."""
    try:
        folder = os.getcwd()  # noqa: PTH109 - importing pathlib would take as long as this whole module
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
    if "_CASTOFF_COMPLETE" not in os.environ and may_be_elsewhere(words):
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
    """Report an error on standard error, as one JSON object with --json, and return the exit code.

    Looks for --json in the words themselves, since the error may be that they could not be parsed.
    """
    if "--json" not in words or words[0] == "launch":  # after launch, --json may be the program's
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
