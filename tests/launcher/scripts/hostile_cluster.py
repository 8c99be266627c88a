"""Stand-ins for what a cluster has, quick enough for thousands of jobs: each only writes down how it
was called, and the launchers start the ranks.

All are shell scripts with the folder of their case, `here`, written into them: a job's environment may
hold anything, or nothing. What they note lies in `here`/seen.
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

MARK = b"\0== and ==\0"
"""What divides a record of the program."""

_TOOLS = [
    *("awk", "bash", "cat", "chmod", "cksum", "cmp", "cp", "cut", "date", "df", "env", "find", "grep"),
    "hostname",
    *(
        "id",
        "ls",
        "mkdir",
        "mktemp",
        "mv",
        "rm",
        "rmdir",
        "sed",
        "sh",
        "sha256sum",
        "sleep",
        "sort",
        "stat",
        "tar",
        "wc",
        "xargs",
    ),
]
"""What a script may call besides these stand-ins; anything else is `command not found`."""

_WAITING = ["tail", "timeout"]
"""Likewise, but with less patience: for the launcher's end, and for the name of a host."""

_ESCAPED = """#!/bin/sh
: >{here}/escaped
"""

_RECORDER = """#!/bin/sh
printf '%s\\0' "${{0##*/}}" "$@" >{here}/seen/call.$$
"""

_SCONTROL = """#!/bin/sh
if [ "$1" = show ]; then exec cat {here}/hosts; fi
printf '%s\\0' scontrol "$@" >{here}/seen/requeue.$$
"""

_QSUB = """#!/bin/sh
kind=call
if [ "$1" = -v ]; then kind=requeue; fi # castoff submit begins with -f
printf '%s\\0' qsub "$@" >{here}/seen/$kind.$$
[ $kind = call ] || echo 8.head
"""

_FLUX = """#!/bin/sh
if [ "$1" = --parent ]; then shift; fi
case "$1 $2" in
  "run "*) exec {here}/bin/flux-run "$@" ;;
  "getattr jobid-path") echo / ;;
  "job id") case $4 in f7) echo 7 ;; f8) echo 8 ;; *) exit 1 ;; esac ;;
  "job timeleft") exit 1 ;;
  "hostlist "*) cat {here}/hosts ;;
  "batch "*)
    kind=call
    if [ -e {here}/again ] && [ -n "${{CASTOFF_ATTEMPT-}}" ]; then kind=requeue; fi
    printf '%s\\0' flux "$@" >{here}/seen/$kind.$$
    [ $kind = call ] || echo f8
    ;;
  *) exit 1 ;;
esac
"""

_TORCHRUN = f"""#!{sys.executable} -SE
import os, string, sys
told = open("/proc/self/environ", "rb").read().split(b"\\0")[:-1]  # Python itself adds LC_CTYPE
environ = dict(one.partition(b"=")[::2] for one in told)
with open(f"{{here}}/seen/python.{{{{os.getpid()}}}}", "w") as seen:
    seen.write(sys.argv[0] + "\\0")
words = sys.argv[sys.argv.index("--no-python") + 1 :]
words[1:] = [string.Template(word).safe_substitute(local_rank=0) for word in words[1:]]
os.execvpe(words[0], words, {{{{**environ, b"RANK": b"0"}}}})
"""

_CONTAINER = """#!/bin/sh
printf '%s\\0' "$@" >{here}/seen/container.$$
until [ "$2" = "$CASTOFF_ATTEMPT_DIR/inside.sh" ]; do shift; done
{image}
exec "$@"
"""

_LAUNCHER = """#!/bin/sh
if [ "$*" = --help ]; then echo --container-image; exit; fi
for word; do
  case $word in
    "$CASTOFF_ATTEMPT_DIR/rank.sh") break ;;
    "$CASTOFF_ATTEMPT_DIR/stage.sh")
      printf '%s\\0' "$@" >{here}/seen/staging.$$
      until [ "$1" = "$word" ]; do shift; done
      exec "$@"
      ;;
  esac
done
printf '%s\\0' "$@" >{here}/seen/launcher.$$
case ${{0##*/}} in castoff) first=-- ;; *) first=$CASTOFF_ATTEMPT_DIR/rank.sh ;; esac
given=
while [ $# -gt 0 ]; do
  case $1 in
    "$first") break ;;
    --given) given=$2 ;;
  esac
  shift
done
if [ "$first" = -- ]; then
  shift
  for name in $(IFS=,; echo $given); do
    eval "export $name=\\"\\$CASTOFF_GIVEN_$name\\""
    unset -v "CASTOFF_GIVEN_$name"
  done
fi
code=0
pids=
{ranks}
for pid in $pids; do wait "$pid" || code=$?; done
exit "$code"
"""

_PROGRAM = """#!/bin/sh
{{
  /bin/cat "/proc/$$/cmdline" {here}/mark "/proc/$$/environ" {here}/mark
  pwd -P
}} >{here}/seen/rank.$$
if [ -n "${{CASTOFF_STAGE_DIR-}}" ] && cd "$CASTOFF_STAGE_DIR"; then
  /usr/bin/find . -name '.castoff*' -prune -o -type f -printf '%P\\0%s\\0' >{here}/seen/copies.$$
fi
if [ -e {here}/again ]; then echo resume >"$CASTOFF_OUTCOME_FILE"; fi
"""

_IN_A_HURRY = """#!/bin/sh
for word; do
  shift
  case $word in 0.2) word=0.01 ;; 5) word=0.5 ;; esac
  set -- "$@" "$word"
done
exec {program} "$@"
"""


def make_tools(folder: Path) -> Path:
    """A folder for PATH with the few programs that a script may need."""
    folder.mkdir()
    for name in (*_TOOLS, *_WAITING):
        found = shutil.which(name, path="/usr/bin:/bin")
        assert found is not None, f"{name} is missing"
        if name in _WAITING:
            write_program(folder / name, _IN_A_HURRY.format(program=found))
        else:
            (folder / name).symlink_to(found)
    return folder


def write_program(path: Path, text: str) -> None:
    """A file that can be run."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)


def write_stand_ins(here: Path, ranks: list[str], hosts: int, image: str) -> None:
    """The cluster of a case; `ranks`: a line of shell that starts each process of a launcher; `image`: one
    that sets what a container's image does."""
    binaries = here / "bin"
    (here / "mark").write_bytes(MARK)
    (here / "hosts").write_text("".join(["localhost\n", "other\n"][:hosts]))
    for name in ("canary", "touch"):
        write_program(binaries / name, _ESCAPED.format(here=here))
    write_program(binaries / "sbatch", _RECORDER.format(here=here))
    write_program(binaries / "qsub", _QSUB.format(here=here))
    write_program(binaries / "flux", _FLUX.format(here=here))
    write_program(binaries / "scontrol", _SCONTROL.format(here=here))
    write_program(binaries / "squeue", "#!/bin/sh\n")
    write_torchrun(here, binaries / "python")
    for name in ("srun", "mpiexec", "flux-run", "castoff"):
        write_launcher(here, binaries / name, ranks)
    for name in ("apptainer", "shifter", "podman-hpc"):
        write_program(binaries / name, _CONTAINER.format(here=here, image=image))
    (here / "as").mkdir()
    (here / "as" / "sh").symlink_to("/bin/bash")


def write_launcher(here: Path, path: Path, ranks: list[str]) -> None:
    """srun, an mpiexec or `castoff launch`, by whatever name."""
    write_program(path, _LAUNCHER.format(here=here, ranks="\n".join(ranks)))


def write_torchrun(here: Path, path: Path) -> None:
    """A python that knows torchrun alone, which starts one rank."""
    write_program(path, _TORCHRUN.format(here=here))


def write_the_program(here: Path, path: Path) -> None:
    """The job's program: it writes down its words, its environment and its folder as the kernel has them."""
    write_program(path, _PROGRAM.format(here=here))
