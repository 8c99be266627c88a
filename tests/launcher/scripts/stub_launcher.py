"""Stands in for srun or for PALS's mpiexec: starts the ranks on this machine and tells each what
the real one would (facts of both: SLURM_* as measured, PALS_* as documented).

As srun it ends all ranks when one fails, and then says 143, a victim's code; on TERM it kills them, and
it hands USR1 on to all their processes. As PALS it goes on after an exit code, and ends all when a rank
dies of a signal, with a code of its own.

With STUB_LOCAL_STORAGE, a folder, each node but the first has one of its own in that place: the
folder beside it with the node's number at its end, or a file system of 64 KiB where there is none.
The node's name is then its number too.

With STUB_DOWN_NODE, a host's name, srun starts nothing on lists of hosts that name it: Slurm has taken it out
of the job.

With STUB_HUNG_NODE, a node's number, that node starts its ranks once there is the file STUB_GO.

After a TERM, srun starts nothing any more, since Slurm does not in a job that is being ended.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from tests.launcher.scripts import pals


def parse(words: list[str], launcher: str) -> tuple[dict[str, str], list[str]]:
    """The options, and the program. PALS takes only its documented ones, as the real one does."""
    if launcher == "mpiexec":
        return pals.parse(words)
    options: dict[str, str] = {}
    while words and words[0].startswith("-"):
        word = words.pop(0)
        name, _, value = word.partition("=")
        options[name] = value
    return options, words


def placement(options: dict[str, str], launcher: str) -> list[tuple[int, int, int]]:
    """(node, local rank, ranks on that node) of each rank."""
    if launcher == "srun" and os.environ.get("SLURM_HOSTFILE"):
        hosts = Path(os.environ["SLURM_HOSTFILE"]).read_text().split()
        names = list(dict.fromkeys(hosts))
        nodes = [names.index(host) for host in hosts]
    else:
        count = int(options["-n" if launcher == "mpiexec" else "--ntasks"])
        each = int(options["--ppn" if launcher == "mpiexec" else "--ntasks-per-node"])
        nodes = [rank // each for rank in range(count)]
    return [(node, nodes[:rank].count(node), nodes.count(node)) for rank, node in enumerate(nodes)]


def hosts_of(options: dict[str, str]) -> list[str]:
    """Those of --nodelist: a file, or else a host's name."""
    listed = options.get("--nodelist", "")
    return Path(listed).read_text().split() if "/" in listed else [listed]


def reported(
    launcher: str, rank: int, size: int, where: tuple[int, int, int], options: dict[str, str]
) -> dict[str, str]:
    node, local, here = where
    if launcher == "srun":
        names = {"PROCID": rank, "LOCALID": local, "NODEID": node, "STEP_NUM_TASKS": size}
        environ = {f"SLURM_{name}": str(value) for name, value in {**names, "STEP_ID": 0}.items()}
        if "--nodelist" in options:
            environ["SLURMD_NODENAME"] = hosts_of(options)[node]
        if options.get("--gpus-per-task") == "1":  # whichever it is, the rank's library numbers it 0
            environ["ROCR_VISIBLE_DEVICES"] = str(local)
        return environ
    names = {"RANKID": rank, "LOCAL_RANKID": local, "NODEID": node, "LOCAL_SIZE": here}
    environ = {f"PALS_{name}": str(value) for name, value in names.items()}
    if options.get("--pmi") == "pmix":  # which tells no size
        return {**environ, "PMIX_RANK": str(rank)}
    names = {"RANK": rank, "SIZE": size, "LOCAL_RANK": local, "LOCAL_SIZE": here}
    return {**environ, **{f"PMI_{name}": str(value) for name, value in names.items()}}


NODE = """
hostname "$1"
if [ -d "$2.$3" ]; then mount --bind "$2.$3" "$2"; else mount -t tmpfs -o size=64k tmpfs "$2"; fi
shift 3
exec "$@"
"""


GO = 'until [ -e "$STUB_GO" ]; do sleep 0.05; done; exec "$@"'


def on_node(node: int, program: list[str]) -> list[str]:
    if os.environ.get("STUB_HUNG_NODE") == str(node):
        return ["sh", "-c", GO, "sh", *program]
    storage = os.environ.get("STUB_LOCAL_STORAGE")
    if not storage or node == 0:
        return program
    own = ["unshare", "--mount", "--uts", "--propagation", "private", "sh", "-euc", NODE, "sh"]
    return [*own, f"x{node}", storage, str(node), *program]


def in_pyxis(options: dict[str, str], program: list[str]) -> list[str]:
    flags = [f"{name}={value}" for name, value in options.items() if name.startswith("--container-")]
    return [str(Path(sys.argv[0]).with_name("pyxis")), *flags, "--", *program] if flags else program


def main() -> int:
    launcher = Path(sys.argv[0]).name
    if sys.argv[1:] == ["--help"]:
        print("--nodes --cpu-bind --distribution --hint --mem --mem-per-cpu")
        if Path(sys.argv[0]).with_name("pyxis").exists():
            print("--container-image")
        return 0
    ended = Path(os.environ["STUB_CALLS"]).with_name("ended")
    if launcher == "srun" and ended.exists():
        print("srun: error: Slurm job 12 has expired", file=sys.stderr)
        return 1
    try:
        options, program = parse(sys.argv[1:], launcher)
    except pals.UsageError as error:
        print(f"mpiexec: {error}", file=sys.stderr)
        return 2
    program = in_pyxis(options, program)
    with Path(os.environ["STUB_CALLS"]).open("a") as calls:
        calls.write(json.dumps([launcher, *sys.argv[1:]]) + "\n")
    if (down := os.environ.get("STUB_DOWN_NODE")) and down in hosts_of(options):
        print("srun: error: Requested node configuration is not available", file=sys.stderr)
        return 1
    places = placement(options, launcher)
    asked: list[int] = []  # a rank may end its job at once
    for number in (signal.SIGUSR1, signal.SIGTERM) if launcher == "srun" else (signal.SIGTERM,):
        signal.signal(number, lambda number, _: asked.append(number))
    ranks = [
        subprocess.Popen(
            on_node(where[0], program),
            env={**os.environ, **reported(launcher, rank, len(places), where, options)},
            start_new_session=True,
        )
        for rank, where in enumerate(places)
    ]

    def send(number: int) -> None:
        for rank in ranks:
            if rank.poll() is None:
                os.killpg(rank.pid, number)

    def end() -> None:
        if not Path(os.environ["CASTOFF_ATTEMPT_DIR"], "hang").exists():  # then the job goes on
            ended.touch()
        send(signal.SIGKILL if launcher == "srun" else signal.SIGTERM)

    while None in (codes := [rank.poll() for rank in ranks]):
        while asked:
            if asked.pop(0) == signal.SIGTERM:
                end()
            else:
                send(signal.SIGUSR1)
        if launcher == "srun" and any(codes):
            send(signal.SIGKILL)
            return 143
        if any(code is not None and code < 0 for code in codes):
            send(signal.SIGKILL)
            return 255
        time.sleep(0.02)
    return 1 if any(rank.returncode for rank in ranks) else 0


if __name__ == "__main__":
    sys.exit(main())
