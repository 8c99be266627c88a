"""Stands in for srun or for PALS's mpiexec: starts the ranks on this machine and tells each what
the real one would (facts of both: SLURM_* as measured, PALS_* as documented).

As srun it ends all ranks when one fails, and then says 143, a victim's code. As PALS it goes on
after an exit code, and ends all when a rank dies of a signal, with a code of its own.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

VALUED = ("-n", "--ppn", "--cpu-bind", "-d", "--depth")


def parse(words: list[str]) -> tuple[dict[str, str], list[str]]:
    options: dict[str, str] = {}
    while words and words[0].startswith("-"):
        word = words.pop(0)
        name, joined, value = word.partition("=")
        options[name] = value if joined else words.pop(0) if name in VALUED else ""
    return options, words


def placement(options: dict[str, str], starter: str) -> list[tuple[int, int, int]]:
    """(node, local rank, ranks on that node) of each rank."""
    if starter == "srun" and os.environ.get("SLURM_HOSTFILE"):
        hosts = Path(os.environ["SLURM_HOSTFILE"]).read_text().split()
        names = list(dict.fromkeys(hosts))
        nodes = [names.index(host) for host in hosts]
    else:
        count = int(options["-n" if starter == "mpiexec" else "--ntasks"])
        each = int(options["--ppn" if starter == "mpiexec" else "--ntasks-per-node"])
        nodes = [rank // each for rank in range(count)]
    return [(node, nodes[:rank].count(node), nodes.count(node)) for rank, node in enumerate(nodes)]


def told(starter: str, rank: int, size: int, where: tuple[int, int, int]) -> dict[str, str]:
    node, local, here = where
    if starter == "srun":
        names = {"PROCID": rank, "LOCALID": local, "NODEID": node, "STEP_NUM_TASKS": size}
        return {f"SLURM_{name}": str(value) for name, value in {**names, "STEP_ID": 0}.items()}
    names = {"RANKID": rank, "LOCAL_RANKID": local, "NODEID": node, "LOCAL_SIZE": here}
    return {f"PALS_{name}": str(value) for name, value in names.items()}


def main() -> int:
    starter = Path(sys.argv[0]).name
    options, program = parse(sys.argv[1:])
    with Path(os.environ["STUB_CALLS"]).open("a") as calls:
        calls.write(json.dumps([starter, *sys.argv[1:]]) + "\n")
    places = placement(options, starter)
    ranks = [
        subprocess.Popen(
            program,
            env={**os.environ, **told(starter, rank, len(places), where)},
            start_new_session=True,
        )
        for rank, where in enumerate(places)
    ]

    def send(number: int) -> None:
        for rank in ranks:
            if rank.poll() is None:
                os.killpg(rank.pid, number)

    signal.signal(signal.SIGTERM, lambda *_: send(signal.SIGTERM))
    while None in (codes := [rank.poll() for rank in ranks]):
        if starter == "srun" and any(codes):
            send(signal.SIGKILL)
            return 143
        if any(code is not None and code < 0 for code in codes):
            send(signal.SIGKILL)
            return 255
        time.sleep(0.02)
    return 1 if any(rank.returncode for rank in ranks) else 0


if __name__ == "__main__":
    sys.exit(main())
