"""The files that a job's ranks leave: the wrapper of each rank, run for real, as srun starts it."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from castoff import JobSpec, Site, plan, render
from castoff.launcher.runs.script import head_of

EACH = 32
"""Ranks on each host."""
AT_ONCE = 16


def files(folder: Path, hosts: int, program: str) -> int:
    """The number of files after all ranks have run a program of sh."""
    fields = {"command": ["x"], "nodes": hosts, "ranks_per_node": EACH, "restart": {"hang": "15m"}}
    script = render(plan(JobSpec.of(fields), Site.load("slurm")))
    head = head_of(script)
    assigned = head.partition("\ncastoff_nodes=")[2].partition("\nexport CASTOFF_ARRAY_COUNT=")[0]
    for name in ("logs", "ended", "tmp"):
        (folder / name).mkdir()
    lines = [script.removeprefix(head), f"castoff_nodes={assigned}", "castoff_local_stacks=stacks"]
    env = {
        **{"PATH": os.environ["PATH"], "TMPDIR": f"{folder}/tmp", "CASTOFF_ATTEMPT_DIR": str(folder)},
        **{"CASTOFF_LOG_DIR": f"{folder}/logs", "CASTOFF_STACK_DIR": f"{folder}/logs"},
        **{"CASTOFF_FAILURE_FILE": f"{folder}/failure.json", "castoff_meeting_names": "localhost"},
    }
    subprocess.run(["bash", "-euc", "\n".join([*lines, "castoff_write_rank"])], env=env, check=True)
    text = (folder / "rank.sh").read_text()
    (folder / "rank.sh").write_text(text.replace("command -v bash", "false"))  # no process guards the ranks
    ranks: list[subprocess.Popen[bytes]] = []
    for rank in range(hosts * EACH):
        slurm = {
            "PROCID": rank,
            "LOCALID": rank % EACH,
            "NODEID": rank // EACH,
            "STEP_NUM_TASKS": hosts * EACH,
        }
        own = {f"SLURM_{name}": str(value) for name, value in slurm.items()}
        words = ["sh", f"{folder}/rank.sh", "sh", "-c", program]
        ranks.append(subprocess.Popen(words, env={**env, **own}))
        if len(ranks) == AT_ONCE:
            ranks.pop(0).wait()
    for process in ranks:
        process.wait()
    return sum(len(names) for _, _, names in os.walk(folder)) - 1  # but rank.sh
