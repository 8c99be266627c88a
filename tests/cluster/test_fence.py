"""Two attempts of a job of Slurm never run at once."""

from __future__ import annotations

from pathlib import Path

from . import healing
from .slurm import SlurmCluster


def test_a_first_host_whose_slurmd_is_gone_runs_no_two_attempts(slurm: SlurmCluster, tmp_path: Path) -> None:
    """Slurm starts the job again once it gives the host up, and the ranks there are well."""

    def lose(host: str) -> None:
        slurm.kill_slurmd(host)
        slurm.set_down(host)

    try:
        healing.no_two_attempts_run_at_once(slurm, tmp_path / "fence", lose)
    finally:
        slurm.resume()
