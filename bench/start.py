"""What eight ranks cost from their start to the first all-reduce: `python -m bench.start [ROUNDS]`.

With preload, plainly, under torchrun, and under MPICH's mpiexec where that is installed, in turn. CPU time is
that of all processes, an agent among them, to the end of the last; so is the wall time.
"""

from __future__ import annotations

import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

RANKS = 8
ROUNDS = 5
CPU_BAR, WALL_BAR = 0.15, 0.30
"""Of torchrun's."""
BIN = Path(sys.executable).parent

PROGRAMS = {
    "all-reduce": """\
import torch
import torch.distributed as dist

dist.init_process_group("gloo")
dist.all_reduce(torch.ones(1))
dist.destroy_process_group()
""",
    # torch 2.13 aborts at times as it takes a DDP model apart at the end of Python.
    "a step of DDP": """\
import os
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
model = DistributedDataParallel(torch.nn.Linear(4, 4))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
model(torch.ones(2, 4)).sum().backward()
optimizer.step()
dist.barrier()
os._exit(0)
""",
}

_OF_MPI = 'RANK=$PMI_RANK LOCAL_RANK=$PMI_RANK WORLD_SIZE=$PMI_SIZE exec "$@"'


class Cost(NamedTuple):
    """In seconds."""

    wall: float
    cpu: float


def ways() -> dict[str, list[str]]:
    """The command line of each way to start ranks, up to the program."""
    castoff = [str(BIN / "castoff"), "launch", "--here", "-n", str(RANKS)]
    found = {
        "preload": [*castoff, "--preload", "torch", "--", sys.executable],
        "torchrun": [str(BIN / "torchrun"), "--nproc-per-node", str(RANKS), "--master-port", "29511"],
        "plain": [*castoff, "--preload", "none", "--", sys.executable],
    }
    if mpiexec := shutil.which("mpiexec.hydra"):
        found["mpiexec"] = [mpiexec, "-n", str(RANKS), "sh", "-c", _OF_MPI, "sh", sys.executable]
    return found


def cost(argv: list[str], folder: Path) -> Cost:
    """Run it to its end."""
    env = {"PATH": f"{BIN}:{os.environ['PATH']}", "HOME": str(folder), "OMP_NUM_THREADS": "1"}
    env |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29512"}
    begin = time.perf_counter()
    with (folder / "output").open("wb") as output:
        process = subprocess.Popen(
            argv, cwd=folder, env=env, stdin=subprocess.DEVNULL, stdout=output, stderr=output
        )
        _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(
            f"{' '.join(argv)} exited with {process.returncode}: {(folder / 'output').read_text()}"
        )
    return Cost(time.perf_counter() - begin, usage.ru_utime + usage.ru_stime)


def main(rounds: int) -> None:
    """Measure each program by each way, and print medians, and the smallest and the largest."""
    print(f"{RANKS} ranks on {os.cpu_count()} CPUs, {rounds} rounds; seconds: median (smallest to largest)")
    with tempfile.TemporaryDirectory() as name:
        for title, text in PROGRAMS.items():
            script = Path(name) / "program.py"
            script.write_text(text)
            costs: dict[str, list[Cost]] = {way: [] for way in ways()}
            for number in range(rounds + 1):
                for way, argv in ways().items():
                    one = cost([*argv, str(script)], Path(name))
                    if number:  # the first round fills caches
                        costs[way].append(one)
            _report(title, costs)


def _report(title: str, costs: dict[str, list[Cost]]) -> None:
    print(f"\nTo the end of {title:18} {'CPU':>22} {'wall':>22}   of torchrun's")
    middle = {
        way: Cost(*map(statistics.median, zip(*all_of_it, strict=True))) for way, all_of_it in costs.items()
    }
    for way, own in costs.items():
        spread = [
            f"{statistics.median(one):6.2f} ({min(one):.2f} to {max(one):.2f})"
            for one in zip(*own, strict=True)
        ]
        wall, cpu = (part / whole for part, whole in zip(middle[way], middle["torchrun"], strict=True))
        print(f"{way:32} {spread[1]:>22} {spread[0]:>22}   CPU {cpu:.3f}, wall {wall:.3f}")
    wall, cpu = (part / whole for part, whole in zip(middle["preload"], middle["torchrun"], strict=True))
    met = "met" if cpu <= CPU_BAR and wall <= WALL_BAR else "NOT MET"
    print(f"bars of preload: CPU {CPU_BAR}, wall {WALL_BAR}: {met}")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else ROUNDS)
