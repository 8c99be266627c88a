"""Reads a command that starts Python: its options, and the program that follows them.

All files of this folder except `start` run by their paths in the job's own Python, some of them in each rank:
they import only the standard library, and little of it.
"""

TYPE_CHECKING = False  # `typing` would cost each rank some time
if TYPE_CHECKING:
    from collections.abc import Sequence

_FLAGS = frozenset("bBdEIOPqsSu")
"""Options of Python that take no value and do not keep Python from running a program."""


class PythonCommand:
    """A command that runs Python, split into Python's options, the script, module (-m) or text (-c), and the
    arguments.
    """

    def __init__(self, options: "Sequence[str]", letter: str, target: str, arguments: "Sequence[str]"):
        self.options = [*options]
        self.letter = letter
        """The letter m for a module, c for text, or empty for a script."""
        self.target = target
        self.arguments = [*arguments]


def python_command(command: "Sequence[str]") -> "PythonCommand | None":
    """Return the Python program that a command runs; None if the command does not run Python, or Python only
    prints something.
    """
    if not command or not is_python(command[0]):
        return None
    position = 1
    while position < len(command) and command[position][:1] == "-" and command[position] != "-":
        word, position = command[position], position + 1
        for place, letter in enumerate(word[1:], 1):
            value = word[place + 1 :]
            if letter in "mc":
                before = [f"-{word[1:place]}"] if place > 1 else []
                rest = [value, *command[position:]] if value else command[position:]
                return _command([*command[1 : position - 1], *before], letter, rest)
            if letter in "WX":
                position += not value
                if letter == "X" and (value or "".join(command[position - 1 : position])).startswith(
                    "importtime"
                ):
                    return None
                break
            if letter not in _FLAGS:
                return None
    return (
        None
        if command[position : position + 1] == ["-"]
        else _command(command[1:position], "", command[position:])
    )


def _command(options: "Sequence[str]", letter: str, behind: "Sequence[str]") -> "PythonCommand | None":
    return PythonCommand(options, letter, behind[0], behind[1:]) if behind and behind[0] else None


def is_python(program: str) -> bool:
    """Whether a program in any folder is called python, python3, python3.11 or similar."""
    name = program.rpartition("/")[2]
    return name.startswith("python") and all(part.isdigit() for part in name[6:].split(".") if name[6:])
