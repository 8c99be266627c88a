"""The words of a command that starts Python: its options, and the program behind them.

This folder's files beside `start` run by their paths in the job's own Python, each rank's among them: they
import the standard library alone, and little of it.
"""

TYPE_CHECKING = False  # `typing` would cost each rank some time
if TYPE_CHECKING:
    from collections.abc import Sequence

_FLAGS = frozenset("bBdEIOPqsSu")
"""Options of Python's without a value which leave its program a program."""


class PythonCommand:
    """A script, or a module for -m, with Python's options before it and its own arguments behind it."""

    def __init__(self, options: "Sequence[str]", target: str, is_module: bool, arguments: "Sequence[str]"):
        self.options = [*options]
        self.target = target
        self.is_module = is_module
        self.arguments = [*arguments]


def python_command(command: "Sequence[str]") -> "PythonCommand | None":
    """What a command has Python run; None where that is no script or module, or the command is not Python's."""
    if not command or not is_python(command[0]):
        return None
    at = 1
    while at < len(command) and command[at][:1] == "-" and command[at] != "-":
        word, at = command[at], at + 1
        for place, letter in enumerate(word[1:], 1):
            value = word[place + 1 :]
            if letter == "m":
                before = [f"-{word[1:place]}"] if place > 1 else []
                options = [*command[1 : at - 1], *before]
                return _module(options, [value, *command[at:]] if value else command[at:])
            if letter in "WX":
                at += not value
                if letter == "X" and (value or "".join(command[at - 1 : at])).startswith("importtime"):
                    return None  # it is asked how long imports take
                break
            if letter not in _FLAGS:
                return None
    if at >= len(command) or command[at] == "-" or not command[at]:
        return None
    return PythonCommand(command[1:at], command[at], False, command[at + 1 :])


def is_python(program: str) -> bool:
    """Whether a program is called python, python3 or python3.11, in whatever folder."""
    name = program.rpartition("/")[2]
    return name.startswith("python") and all(part.isdigit() for part in name[6:].split(".") if name[6:])


def _module(options: "Sequence[str]", behind: "Sequence[str]") -> "PythonCommand | None":
    return PythonCommand(options, behind[0], True, behind[1:]) if behind and behind[0] else None
