"""Command lines for a login shell: sh, bash, csh, tcsh and fish read them alike. Pure functions.

sshd passes the command line as text to the user's login shell, which may be any. So castoff's script is
encoded in base64, and the only quotes are single quotes around text without quotes.
"""

from __future__ import annotations

import base64
import posixpath
from collections.abc import Sequence
from typing import NamedTuple

from castoff.launcher.errors import CastoffError
from castoff.launcher.text.quoting import shell_word

_PIECE = 512
"""Limit of a word's length in characters: old versions of csh allow about a thousand."""

_LONGEST = 120_000
"""Limit of the command's length in characters: Linux allows an argument of a program 131,071 bytes."""


MARK = "\x1e"
"""The first byte of each mark. It is rare in output, so output is rarely held back as a possible mark."""


class Marks(NamedTuple):
    """Marks around the output of a command on the machine, to separate it from the login shell's banner."""

    nonce: str

    @property
    def begin(self) -> str:
        """The word on the line before the command's output."""
        return f"castoff-{self.nonce}-begin"

    @property
    def end(self) -> str:
        """The word before the exit code, after the command's output."""
        return f"castoff-{self.nonce}-end"

    @property
    def failed(self) -> str:
        """The word that replaces `begin` if the command cannot start; the reason follows it."""
        return f"castoff-{self.nonce}-failed"


NO_FOLDER, NO_CASTOFF, NO_PYTHON, SETUP, OPEN = "folder", "castoff", "python", "setup", "open"
"""The obstacles: no such folder, castoff not installed, no suitable Python, a setup line that failed (its
number follows), or a folder on the path to castoff that others can change (its owner, mode and path follow).
"""

_STEPS = r"""castoff_steps() { # PATH: show PATH and every folder above it, as ls -l does
  castoff_at=$1
  set --
  while [ -n "$castoff_at" ]; do
    set -- "$castoff_at" "$@"
    castoff_at=${castoff_at%/*}
  done
  LC_ALL=C ls -ldnq -- / "$@"
}"""

_FIND_OPEN = rf"""{_STEPS}
castoff_home=$(cd -P -- "$castoff_home" && pwd -P)
castoff_us=$(id -u)
castoff_ours=none # a group with no member but the user
if [ "$(id -gn)" = "$(id -un)" ]; then
  case $(getent group "$(id -g)") in *: | *:"$(id -un)") castoff_ours=$(id -g) ;; esac
fi
castoff_open=$(castoff_steps "$castoff_home" |
  while read -r castoff_mode castoff_x castoff_uid castoff_gid castoff_at; do
    case $castoff_uid in
    0 | "$castoff_us") ;;
    *) castoff_gid=open ;;
    esac
    case $castoff_gid,$castoff_mode in
    open,*) ;;
    *,d????-??-* | *,d????????[tT]* | "$castoff_ours",d????w??-? | "$castoff_ours",d????w??-?.)
      case $castoff_mode in d?????[-S]??[-T]*) break ;; esac # others cannot enter this folder
      continue
      ;;
    esac
    printf '%s %s %s\n' "$castoff_uid" "$castoff_mode" "/${{castoff_at#*/}}" # without size and date
    break
  done)"""
"""Sets castoff_home to its path without links, and castoff_open to the first folder on that path that others
can change. It decides as `castoff.launcher.trust.writers` does, from owners and modes only: a `+` is a POSIX
access list, whose mask is the group's bits; NFSv4 lists are not seen.
"""

_FIND_OPEN_TO_ALL = rf"""{_STEPS}
castoff_first_open_to_all() {{
  while read -r castoff_mode castoff_x castoff_uid castoff_gid castoff_at; do
    case $castoff_mode in
    -???????w* | d???????w[!tT]*) printf '%s %s %s\n' "$castoff_uid" "$castoff_mode" "/${{castoff_at#*/}}" ;;
    d????????[-T]*) ;; # not everybody can enter this folder
    *) continue ;;
    esac
    break
  done
}}
castoff_open=
castoff_program=$(command -v "$castoff_program")
case $castoff_program in
*/*) # else it is a function of setup
  castoff_program=$(cd -P -- "${{castoff_program%/*}}/" && pwd -P)/${{castoff_program##*/}}
  for castoff_one in "$castoff_program" "$(readlink -f -- "$castoff_program")"; do
    castoff_open=$(castoff_steps "$castoff_one" | castoff_first_open_to_all)
    [ -z "$castoff_open" ] || break
  done
  ;;
esac"""
"""Sets castoff_program to its path, and castoff_open to the first folder or file on that path that everybody
can change. It decides as `castoff.launcher.trust.decision.check_named` does for paths that the user names,
whose owner and group are the user's choice.
"""

PYTHONS = ("python3.14", "python3.13", "python3.12", "python3.11", "python3.10", "python3")
"""Names of Python versions that castoff supports, the newest first."""


def login_command(script: str) -> str:
    """The command line that makes any login shell run a script with /bin/sh.

    Raises:
        CastoffError: the command line is too long.
    """
    encoded = base64.b64encode(script.encode(errors="surrogateescape")).decode()
    pieces = [encoded[start : start + _PIECE] for start in range(0, len(encoded), _PIECE)]
    command = " ".join(["exec /bin/sh -c", _DECODE, "castoff", *pieces])
    if len(command) > _LONGEST:
        raise CastoffError(
            f"the command line is too long to be sent ({len(encoded) * 3 // 4:,} bytes): write long "
            "arguments into a file of the code, and name that file"
        )
    return command


_DECODE = """'eval "$(printf %s "$@" | base64 -d)"'"""


def folder_word(folder: str) -> str:
    """A folder of the machine as a shell word; `~/…` and relative paths start at the machine's home."""
    if folder == "~" or folder.startswith("~/"):
        folder = folder[2:]
    if folder.startswith("/"):
        return shell_word(folder)
    return f'"$HOME"/{shell_word(folder)}' if folder else '"$HOME"'


def castoff_script(
    *,
    folder: str,
    home: str,
    setup: Sequence[str],
    own: str | None,
    build: str,
    words: Sequence[str],
    variables: Sequence[tuple[str, str]] = (),
    marks: Marks | None,
    replaced: bool = False,
) -> str:
    """The script that runs the machine's castoff with these words in `folder`, and reports its exit code.

    `own`: the castoff that the entry names; None: the one in `home`, with the version `build` or else the
    last installed. Without `marks` the output goes to a terminal, for people only. With `replaced` castoff
    replaces the shell, and its output has no end mark.
    """
    if own is not None:
        which = f"castoff_program={folder_word(own) if '/' in own else shell_word(own)}"
        call = '"$castoff_program"'
        look = 'command -v "$castoff_program" >/dev/null 2>&1'
    else:
        which = (
            f"castoff_home={folder_word(posixpath.join(home, build))}\n"
            f'[ -f "$castoff_home/complete" ] || castoff_home={folder_word(posixpath.join(home, "current"))}'
        )
        # -I: a cluster's modules set PYTHONPATH, which leads to packages of another Python.
        call = '"$castoff_home/bin/python" -I "$castoff_home/bin/castoff"'
        look = '[ -f "$castoff_home/complete" ]'
    lines = [
        # Setup lines run in the home, as if typed: in the folder, they could run files of other people.
        *_setup_lines(setup, marks),
        f"cd -- {folder_word(folder)} 2>/dev/null || {_obstacle(marks, NO_FOLDER)}",
        which,
        f"{look} || {_obstacle(marks, NO_CASTOFF)}",
        _FIND_OPEN if own is None else _FIND_OPEN_TO_ALL,
        f'[ -z "$castoff_open" ] || {_open(marks)}',
        *(f"export {name}={shell_word(value)}" for name, value in variables),
    ]
    call = " ".join([call, *map(shell_word, words)])
    if marks is None:
        lines.append(f"exec {call}")
    elif replaced:
        lines += [_begins(marks), f"exec {call}"]
    else:
        lines += [_begins(marks), call, *_ends(marks)]
    return _in_bash_if(setup, lines)


def python_script(
    *,
    folder: str,
    home: str,
    setup: Sequence[str],
    candidates: Sequence[str],
    program: str,
    task: str,
    marks: Marks,
) -> str:
    """The script that runs a program on the machine with the first usable Python of `candidates`.

    Its arguments are the task, `folder` and `home`. Only the task `install` creates the folder. The program
    runs in the user's home.
    """
    names, folder_text = " ".join(map(shell_word, candidates)), folder_word(folder)
    makes = f"(umask 022 && mkdir -p -- {folder_text}) || {_obstacle(marks, NO_FOLDER)}"
    lines = [
        *_setup_lines(setup, marks),
        *([makes] if task == "install" else []),
        "castoff_python=",
        f"for castoff_one in {names}; do",
        '  "$castoff_one" -c "import sys; sys.exit(sys.version_info < (3, 10))" >/dev/null 2>&1 || continue',
        "  castoff_python=$castoff_one",
        "  break",
        "done",
        f'[ -n "$castoff_python" ] || {_obstacle(marks, NO_PYTHON)}',
        _begins(marks),
        f'"$castoff_python" -I -c {shell_word(program)} {shell_word(task)} {folder_text} {folder_word(home)}',
        *_ends(marks),
    ]
    return _in_bash_if(setup, lines)


def _begins(marks: Marks) -> str:
    return f"printf '\\036%s\\n' {marks.begin}"


def _ends(marks: Marks) -> list[str]:
    return [
        "castoff_code=$?",
        f"printf '\\036%s %s\\n' {marks.end} $castoff_code",
        "exit $castoff_code",
    ]


def _obstacle(marks: Marks | None, obstacle: str) -> str:
    message = f"castoff: {obstacle} is missing" if marks is None else f"{marks.failed} {obstacle}"
    return f"{{ printf '\\036%s\\n' {shell_word(message)}; exit 1; }}"


def _open(marks: Marks | None) -> str:
    message = "castoff: others can change" if marks is None else f"{marks.failed} {OPEN}"
    return f"{{ printf '\\036%s %s\\n' {shell_word(message)} \"$castoff_open\"; exit 1; }}"


def _setup_lines(setup: Sequence[str], marks: Marks | None) -> list[str]:
    """The setup lines as shell commands that print to standard error; the first that fails ends the
    script.
    """
    lines = []
    for number, line in enumerate(setup):
        lines += ["{", line, f"}} </dev/null >&2 || {_obstacle(marks, f'{SETUP} {number}')}"]
    return lines


def _in_bash_if(setup: Sequence[str], lines: Sequence[str]) -> str:
    """The lines as a script for sh, or with setup lines, which may need `module`, for a login bash."""
    text = "\n".join(lines)
    return f"exec /bin/bash --login -c {shell_word(text)} castoff" if setup else text
