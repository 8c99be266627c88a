"""The command line for a login shell, which sh, bash, csh, tcsh and fish read alike. Pure.

sshd hands the command line as text to the user's login shell, whichever that is. So castoff's script stands
in it as base64, and the only quotes are single ones around text that has none.
"""

from __future__ import annotations

import base64
import posixpath
from collections.abc import Sequence
from typing import NamedTuple

from castoff.launcher.errors import CastoffError
from castoff.launcher.text.quoting import shell_word

_PIECE = 512
"""Characters of a word: old csh have a limit of about a thousand."""

_LONGEST = 120_000
"""Characters of the command: a single argument of a program has 131,071 bytes at the most on Linux."""


MARK = "\x1e"
"""The first byte of each mark. Hardly any output holds it, so hardly any is held back as a possible mark."""


class Marks(NamedTuple):
    """Words around a command's output there, which tell it from a banner that the login shell prints."""

    nonce: str

    @property
    def begin(self) -> str:
        """The command's own output begins after the line with this word."""
        return f"castoff-{self.nonce}-begin"

    @property
    def end(self) -> str:
        """The word before the exit code, at the very end."""
        return f"castoff-{self.nonce}-end"

    @property
    def failed(self) -> str:
        """The word in place of `begin`, before the reason why nothing was begun."""
        return f"castoff-{self.nonce}-failed"


NO_FOLDER, NO_CASTOFF, NO_PYTHON, SETUP, OPEN = "folder", "castoff", "python", "setup", "open"
"""Why nothing was begun: no such folder, no castoff there, no Python for one, a line of setup that failed, by
its number, or a folder on the way to castoff that others can change, by its owner, mode and path."""

_STEPS = r"""castoff_steps() { # PATH: what lies on the way to it, and itself, as ls shows them
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
      case $castoff_mode in d?????[-S]??[-T]*) break ;; esac # nobody else reaches what lies below
      continue
      ;;
    esac
    printf '%s %s %s\n' "$castoff_uid" "$castoff_mode" "/${{castoff_at#*/}}" # without size and date
    break
  done)"""
"""Sets castoff_home to its path without links, and castoff_open to the first folder on that way that others
can change, as `castoff.launcher.trust.writers` decides, as far as owners and modes show it: a `+` is a POSIX
list, whose mask is the group's bits, and lists of NFSv4 are not seen."""

_FIND_OPEN_TO_ALL = rf"""{_STEPS}
castoff_first_open_to_all() {{
  while read -r castoff_mode castoff_x castoff_uid castoff_gid castoff_at; do
    case $castoff_mode in
    -???????w* | d???????w[!tT]*) printf '%s %s %s\n' "$castoff_uid" "$castoff_mode" "/${{castoff_at#*/}}" ;;
    d????????[-T]*) ;; # not everybody reaches what lies below
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
"""Sets castoff_program to its path, and castoff_open to what everybody could change on the way to it, as
`castoff.launcher.trust.decision.check_named` decides of what the user names: a group or an owner is his
choice."""

PYTHONS = ("python3.14", "python3.13", "python3.12", "python3.11", "python3.10", "python3")
"""Names of Pythons that castoff works with, the newest first."""


def login_command(script: str) -> str:
    """The command line that has /bin/sh run a script, for any login shell.

    Raises:
        CastoffError: it is too long.
    """
    encoded = base64.b64encode(script.encode(errors="surrogateescape")).decode()
    pieces = [encoded[at : at + _PIECE] for at in range(0, len(encoded), _PIECE)]
    command = " ".join(["exec /bin/sh -c", _DECODE, "castoff", *pieces])
    if len(command) > _LONGEST:
        raise CastoffError(
            f"the command line is too long to be sent ({len(encoded) * 3 // 4:,} bytes): write what is long "
            "into a file that travels along, and name that"
        )
    return command


_DECODE = """'eval "$(printf %s "$@" | base64 -d)"'"""


def folder_word(folder: str) -> str:
    """A folder of the remote side as a shell word: `~/…` and relative ones count from its home."""
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
    """The script that runs a castoff there with these words, in `folder`, and says how it ended.

    `own`: the castoff of the entry; None: the one in `home`, of this `build` or else the last installed.
    Without `marks` its output is a terminal's, which nobody reads but people. With `replaced` it takes the
    place of the shell, and its output has no end mark.
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
        # PYTHONPATH, which modules of a cluster set, leads to packages of another Python.
        call = '"$castoff_home/bin/python" -I "$castoff_home/bin/castoff"'
        look = '[ -f "$castoff_home/complete" ]'
    lines = [
        # In the home, as when they are typed: others may have put theirs into the folder.
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
    """The script that runs a program, for a task, `folder` and `home`, with the first of these Pythons there.

    Only with the task `install` is the folder made. The program runs in the user's home.
    """
    names, place = " ".join(map(shell_word, candidates)), folder_word(folder)
    makes = f"(umask 022 && mkdir -p -- {place}) || {_obstacle(marks, NO_FOLDER)}"
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
        f'"$castoff_python" -I -c {shell_word(program)} {shell_word(task)} {place} {folder_word(home)}',
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


def _obstacle(marks: Marks | None, what: str) -> str:
    said = f"castoff: {what} is missing" if marks is None else f"{marks.failed} {what}"
    return f"{{ printf '\\036%s\\n' {shell_word(said)}; exit 1; }}"


def _open(marks: Marks | None) -> str:
    said = "castoff: others can change" if marks is None else f"{marks.failed} {OPEN}"
    return f"{{ printf '\\036%s %s\\n' {shell_word(said)} \"$castoff_open\"; exit 1; }}"


def _setup_lines(setup: Sequence[str], marks: Marks | None) -> list[str]:
    """The lines of setup, whose output is for people; the first that fails ends all."""
    lines = []
    for number, line in enumerate(setup):
        lines += ["{", line, f"}} </dev/null >&2 || {_obstacle(marks, f'{SETUP} {number}')}"]
    return lines


def _in_bash_if(setup: Sequence[str], lines: Sequence[str]) -> str:
    """The lines as a script for sh; for a login bash where there is a setup, which may need `module`."""
    text = "\n".join(lines)
    return f"exec /bin/bash --login -c {shell_word(text)} castoff" if setup else text
