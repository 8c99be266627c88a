"""How sbatch, qsub and flux batch read the directives of a script, after their sources and not after ours.

Slurm: get_argument() and _opt_batch_script() in src/sbatch/opt.c. OpenPBS: get_script() in
src/cmds/qsub_sup.c, make_argv() in src/cmds/qsub.c, pbs_quote_parse() in src/lib/Libifl.
Flux: DirectiveParser in src/bindings/python/flux/job/directives.py. LSF: OpenLava 2.2's parseLine() and
parseScript() in lsbatch/cmd/cmd.sub.c.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator

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
    """Every option of a script: sbatch looks until the first line that is not a comment."""
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


def pbs_chunks(text: str) -> list[dict[str, str]]:
    """The resources of each chunk of -l select: parse_plus_spec_r() and parse_chunk_r() in grunt_parse.c."""
    parts, mark = [""], ""
    for character in text:
        if character in "\"'" and mark in ("", character):
            mark = "" if mark else character
        if character in "+)" and not mark:
            parts.append("")
        else:
            parts[-1] += character
    assert not mark
    return [dict(_pbs_pairs(part.lstrip(" 0123456789").removeprefix(":"))) for part in parts]


def _pbs_pairs(text: str) -> Iterator[tuple[str, str]]:
    while text:
        assert text[0].isalpha(), "qsub: Illegal attribute or resource value"
        name, _, text = text.partition("=")
        value = ""
        if text[:1] in ("'", '"'):
            value, mark, text = text[1:].partition(text[0])
            assert mark
        more, colon, text = text.partition(":")
        value = (value + more).rstrip()
        assert value and (colon or not value.endswith(",")), "qsub: Illegal attribute or resource value"
        yield name, value


def read_pbs(script: str) -> Read:
    """Every option and resource of a script: qsub looks until the first line that is not a comment."""
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


def flux_arguments(line: str) -> list[str]:
    """What stands after `#flux:`, as flux batch splits it (Directive in its job/directives.py, 0.88)."""
    assert '"""' not in line and "'''" not in line, "flux batch reads triple quotes by rules of their own"
    lexer = shlex.shlex(line, posix=True, punctuation_chars=True)
    lexer.whitespace_split = True
    lexer.escapedquotes = "\"'"
    return list(lexer)


def read_flux(script: str) -> Read:
    """Every option of a script: flux batch looks at each line, and takes directives at its top alone."""
    assert "\r" not in script, "flux batch reads it with universal newlines"
    found: dict[str, str | bool] = {}
    over = False
    for line in script.split("\n")[1:]:
        if not (marked := re.match(r"^([^\w]*)(?:flux|FLUX):(.*)$", line)):
            over = over or not line.startswith("#")
            continue
        assert marked[1] == "#" and not over, f"orphan, or another sentinel: {line}"
        for argument in flux_arguments(marked[2]):
            name, equals, value = argument.removeprefix("--").partition("=")
            assert argument.startswith("--"), argument
            join = {"env": ",", "dependency": ",", "setopt": " ", "setattr": " "}.get(name)
            assert join or name not in found, f"{name} twice"
            found[name] = f"{found[name]}{join}{value}" if name in found else value if equals else True
    return list(found.items())


def bsub_arguments(line: str) -> list[str]:
    """What stands after `#BSUB`, as argv: whichever quote comes first in the rest is its quote for a word."""
    found: list[str] = []
    while line := line.lstrip():
        quote = min("\"'", key=lambda one: line.find(one) % (len(line) + 1))
        if line.startswith(quote):
            word, closed, line = line[1:].partition(quote)
            assert closed, f"bsub: unmatched {quote}"
        else:
            word, _, line = line.partition(" ")
        if word.startswith("#"):
            break
        found.append(word)
    return found


def read_lsf(script: str) -> Read:
    """Every option of a script: bsub takes each comment that begins so, wherever it stands."""
    found: Read = []
    for line in script.split("\n"):
        if not (marked := re.match(r"[ \t]*#[ \t]*BSUB[ \t]*(-.*)", line)):
            continue
        assert not line.endswith("\\"), "bsub: the line goes on"
        name, *values = bsub_arguments(marked[1])
        assert len(values) < 2, line
        section = re.fullmatch(r"(\w+)\[(.*)\]", values[0]) if name == "-R" else None
        pair = (section[1], section[2]) if section else (name[1:], values[0] if values else True)
        found.append(pair)
    return found
