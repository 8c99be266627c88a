"""Two attempts of a job never run at once, and what PBS starts is PBS's to end."""

from __future__ import annotations

from pathlib import Path

from tests.cluster import healing

from .cluster import PbsCluster


def test_a_first_host_whose_mom_is_gone_runs_no_two_attempts(pbs: PbsCluster, tmp_path: Path) -> None:
    """PBS starts the job again, while the ranks of its first attempt are well."""
    try:
        healing.no_two_attempts_run_at_once(pbs, tmp_path / "fence", pbs.kill_mom)
    finally:
        pbs.resume()
