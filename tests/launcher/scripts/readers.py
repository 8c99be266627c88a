"""How sbatch and qsub read the directives of a script, written after their sources and not after ours.

Slurm: get_argument() and _opt_batch_script() in src/sbatch/opt.c. OpenPBS: get_script() in
src/cmds/qsub_sup.c, make_argv() in src/cmds/qsub.c, pbs_quote_parse() in src/lib/Libifl.
"""

from __future__ import annotations

Read = list[tuple[str, str | bool]]


def slurm_arguments(line: str) -> list[str]:
    """What stands after #SBATCH, as argv."""
    arguments: list[str] = []
    current: str | None = None
    quote = ""
    escaped = False
    for character in line:
        if escaped:
            current, escaped = (current or "") + character, False
        elif character == "\\":
            escaped = True
        elif quote:
            if character == quote:
                quote = ""
            else:
                current = (current or "") + character
        elif character in "\"'":
            quote = character
            current = current or ""
        elif character == "#":
            break
        elif character in " \t\v\f\r\n":
            if current is not None:
                arguments.append(current)
            current = None
        else:
            current = (current or "") + character
    assert not quote, f"sbatch: unmatched {quote}"
    return arguments if current is None else [*arguments, current]


def read_slurm(script: str) -> Read:
    """Every option of a script: sbatch looks until the first line that is no comment."""
    found: Read = []
    assert "\r\n" not in script, "sbatch: batch script contains DOS line breaks"
    for line in script.split("\n"):
        if line.startswith("#SBATCH"):
            for argument in slurm_arguments(line.removeprefix("#SBATCH")):
                assert argument.startswith("--"), argument
                name, joined, value = argument[2:].partition("=")
                found.append((name, value if joined else True))
        elif line.strip() and not line.lstrip().startswith("#"):
            break
    return found


def pbs_arguments(line: str) -> list[str]:
    """What stands after #PBS, as argv."""
    arguments: list[str] = []
    rest = line.strip()
    current, begun = "", False
    position = 0
    while position < len(rest):
        character = rest[position]
        position += 1
        if character in "\"'":
            end = rest.index(character, position)  # ValueError: qsub: unmatched
            current, begun = current + rest[position:end], True
            position = end + 1
        elif character == "\\":
            current, begun = current + rest[position], True
            position += 1
        elif character.isspace():
            if begun:
                arguments.append(current)
            current, begun = "", False
        else:
            current, begun = current + character, True
    return [*arguments, current] if begun else arguments


def pbs_resources(text: str) -> Read:
    """What -l holds: name=value, with commas between."""
    found: Read = []
    while text:
        end = min((at for at in (text.find("="), text.find(",")) if at >= 0), default=len(text))
        name, text = text[:end], text[end:]
        value: str | bool = True
        if text.startswith("="):
            value, text = _pbs_value(text[1:])
        found.append((name, value))
        text = text.removeprefix(",")
    return found


def _pbs_value(text: str) -> tuple[str, str]:
    value, mark, quoting = "", "", False
    for position, character in enumerate(text):
        assert character.isascii() and character.isprintable() and character != "&", "qsub: illegal"
        if quoting:
            if character == mark:
                quoting = False
            else:
                value += character
        elif character in "\"'" and mark in ("", character):
            mark, quoting = character, True
        elif character == "," or character.isspace():
            return value, text[position:]
        else:
            value += character
    assert not quoting, "qsub: invalid quoting"
    return value, ""


def read_pbs(script: str) -> Read:
    """Every option and resource of a script: qsub looks until the first line that is no comment."""
    found: Read = []
    for line in script.split("\n"):
        assert not line.endswith("\r"), "qsub: script contains cr, lf"
    for line in script.split("\n"):
        if line.startswith("#PBS"):
            assert not line.endswith("\\"), "qsub would join the next line to it"
            arguments = pbs_arguments(line.removeprefix("#PBS"))
            option, values = arguments[0], arguments[1:]
            assert option.startswith("-") and len(option) == 2 and len(values) <= 1, arguments
            if option == "-l":
                found += pbs_resources(values[0])
            else:
                found.append((option[1], values[0] if values else True))
        elif line.strip() and not line.lstrip().startswith("#"):
            break
    return found
