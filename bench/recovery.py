"""How soon eight ranks are back after one was killed: `python -m bench.recovery [ROUNDS]`.

From a rank's SIGKILL to the end of the first step that all ranks make again: by `restart` on this machine,
by `torchrun --max-restarts`, and by `ft_launcher --max-restarts` where that is on PATH, in turn. ft_launcher
(nvidia-resiliency-ext) may have an environment of its own: its ranks then run by that one's Python and torch.
"""

from __future__ import annotations

import os
import shutil
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

RANKS = 8
ROUNDS = 5
BAR = 0.30
"""Of the others'."""
BIN = Path(sys.executable).parent

PROGRAM = """\
import os
import signal
import time
from pathlib import Path

import torch
import torch.distributed as dist

rank, folder = int(os.environ["RANK"]), Path(os.environ["FOLDER"])
again = int(os.environ.get("TORCHELASTIC_RESTART_COUNT", os.environ.get("CASTOFF_ATTEMPT", "0")))
dist.init_process_group("gloo")
for step in range(5):
    dist.all_reduce(torch.ones(1))
    if again and step == 0 and rank == 0:
        (folder / "back").write_text(str(time.time()))
    if not again and step == 3 and rank == 1:
        (folder / "killed").write_text(str(time.time()))
        os.kill(os.getpid(), signal.SIGKILL)
dist.destroy_process_group()
"""

JOB = f"""\
name: recovery
command: [python, program.py]
ranks_per_node: {RANKS}
restart: {{max: 1, progress: none}}
"""

_AS_TORCHRUN = ["--nproc-per-node", str(RANKS), "--max-restarts=1", "--standalone", "program.py"]


def ways() -> dict[str, list[str]]:
    """The command line of each way to restart ranks."""
    found = {
        "restart": [str(BIN / "castoff"), "submit", "-f", "job.yaml", "--site", "local"],
        "torchrun": [str(BIN / "torchrun"), *_AS_TORCHRUN],
    }
    if ft_launcher := shutil.which("ft_launcher"):
        found["ft_launcher"] = [ft_launcher, *_AS_TORCHRUN]
    return found


def recovery(argv: list[str]) -> float:
    """Seconds between the kill and the next step."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "program.py").write_text(PROGRAM)
        (folder / "job.yaml").write_text(JOB)
        env = {"PATH": f"{BIN}:{os.environ['PATH']}", "HOME": name, "FOLDER": name, "OMP_NUM_THREADS": "1"}
        # With a store that it shares, gloo meets addresses of the attempt before, and torchrun fails (2.13).
        env["TORCH_DISABLE_SHARE_RDZV_TCP_STORE"] = "1"
        ended = subprocess.run(argv, cwd=folder, env=env, capture_output=True, text=True, check=False)
        if ended.returncode:
            raise SystemExit(f"{' '.join(argv)} exited with {ended.returncode}: {ended.stdout}{ended.stderr}")
        killed, back = (float((folder / what).read_text()) for what in ("killed", "back"))
        return back - killed


def main(rounds: int) -> None:
    """Measure in turn, and print what came out."""
    took: dict[str, list[float]] = {way: [] for way in ways()}
    for _ in range(rounds):
        for way, argv in ways().items():
            took[way].append(recovery(argv))
    print(f"From SIGKILL of one of {RANKS} ranks to the next step; {rounds} rounds, seconds, medians")
    for way, all_of_it in took.items():
        print(f"{way:12} {statistics.median(all_of_it):6.2f} ({min(all_of_it):.2f} to {max(all_of_it):.2f})")
    own = took.pop("restart")
    for way, others in took.items():
        ratio = statistics.median(one / other for one, other in zip(own, others, strict=True))
        print(f"of {way}'s {ratio:.2f}, bar {BAR}: {'met' if ratio <= BAR else 'NOT MET'}")
    if "ft_launcher" not in took:
        print("ft_launcher is not on PATH: pip install nvidia-resiliency-ext, in an environment of its own")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else ROUNDS)
