"""What restarts cost a job of Slurm in which nothing fails: `python -m bench.restarts [ROUNDS]`, as root.

Two hosts, a rank on each, which is `true`: with `restart`, a spare host and the preflight, and without. What
is measured is the time between a script's first record and its last.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
from pathlib import Path
from typing import Any

from tests.cluster.jobs import Submitted
from tests.cluster.slurm import SlurmCluster

ROUNDS = 9
BAR = 1.0
"""Seconds a job."""

HEALING: dict[str, Any] = {"restart": {"max": 3, "spare_nodes": 1, "hang": "15m"}}


def seconds(cluster: SlurmCluster, folder: Path, **fields: Any) -> float:
    """How long a job's script ran."""
    job = Submitted(cluster, folder, command=["true"], nodes=2, ranks_per_node=1, **fields)
    ending = job.ending()
    if ending != ("done", 0):
        raise SystemExit(f"a job ended as {ending}:\n{job.output()}")
    began, ended = (
        (job.run_dir / "attempts" / "0.0" / f"{name}.json").stat().st_mtime for name in ("start", "ending")
    )
    return ended - began


def main(rounds: int) -> None:
    """Measure, in turn, and print what came out."""
    with tempfile.TemporaryDirectory() as root:
        cluster = SlurmCluster(Path(root))
        try:
            plain, healing = [], []
            for number in range(rounds):
                plain.append(seconds(cluster, Path(root, f"plain-{number}")))
                healing.append(seconds(cluster, Path(root, f"healing-{number}"), **HEALING))
        finally:
            cluster.close()
    more = [with_it - without for with_it, without in zip(healing, plain, strict=True)]
    print(f"\nA job of Slurm without a fault; medians of {rounds} rounds, in seconds")
    rows = {"without restart": plain, "with restart, spare, preflight": healing, "more": more}
    for name, took in rows.items():
        print(f"{name:34} {statistics.median(took):6.2f} ({min(took):.2f} to {max(took):.2f})")
    print(f"bar for what is more {BAR}: {'met' if statistics.median(more) <= BAR else 'NOT MET'}")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else ROUNDS)
