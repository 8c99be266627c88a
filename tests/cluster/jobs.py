"""Scripts that stand alone, submitted by hand to a cluster."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from castoff import JobSpec, Site, plan, render
from tests.cluster import HEAD
from tests.cluster.base import Cluster
from tests.launcher.scripts.harness import PROBE
from tests.patience import until


class Submitted:
    """A job whose rendered script was given to sbatch or qsub."""

    def __init__(
        self,
        cluster: Cluster,
        folder: Path,
        *,
        env: Mapping[str, str] | None = None,
        site: Site | None = None,
        **fields: Any,
    ):
        """Render a job in a folder of its own and submit it; its program is the probe unless it says so."""
        self.cluster, self.folder, self.seen = cluster, folder, folder / "seen"
        self.seen.mkdir(parents=True)
        reported = {"PROBE_FOLDER": str(self.seen), **fields.pop("probe_env", {})}
        job = {"name": folder.name, "command": PROBE, "env": reported, **fields}
        (folder / "job.sh").write_text(render(plan(JobSpec.of(job), site or Site.load(cluster.site))))
        environ = {**os.environ, **(env or {})}
        answer = cluster.run(HEAD, [*cluster.sends, "job.sh"], cwd=folder, env=environ)
        assert answer.returncode == 0, answer.stderr
        self.id = answer.stdout.strip()

    @property
    def run_dir(self) -> Path:
        """What the script makes where it was submitted."""
        return self.folder / f"castoff-{self.id}"

    def output(self) -> str:
        """What the script wrote."""
        return "\n".join(path.read_text() for path in sorted(self.folder.glob(self.cluster.outputs)))

    def record(self, name: str, attempt: str = "0.0") -> dict[str, Any]:
        """A record of an attempt."""
        record: dict[str, Any] = json.loads(self._record(name, attempt).read_text())
        return record

    def _record(self, name: str, attempt: str) -> Path:
        return self.run_dir / "attempts" / attempt / f"{name}.json"

    def ending(self, attempt: str = "0.0") -> tuple[str, int]:
        """How an attempt ended, once it has."""
        until(self._record("ending", attempt).exists, f"an ending of {attempt}:\n{self.output()}")
        record = self.record("ending", attempt)
        return record["ending"], record["code"]

    def accounted(self, job: str | None = None) -> tuple[str, str]:
        """The state and the exit code that Slurm keeps, once this or another job is over."""
        job = job or self.id

        def over() -> tuple[str, str] | None:
            reported = ["sacct", "--noheader", "--parsable2", "--allocations", f"--jobs={job}"]
            line = self.cluster.run(HEAD, [*reported, "--format=State,ExitCode"]).stdout.strip()
            state, _, code = line.partition("|")
            return None if state in ("", "PENDING", "RUNNING", "REQUEUED") else (state, code)

        found: tuple[str, str] = until(over, f"the end of job {job}")
        return found

    def ranks(self) -> list[dict[str, Any]]:
        """What each rank saw, by rank."""
        files = {int(path.stem[5:]): path for path in self.seen.glob("rank-*.json")}
        return [json.loads(files[rank].read_text()) for rank in sorted(files)]

    def signal(self, name: str) -> None:
        """Signal the batch script alone."""
        answer = self.cluster.run(HEAD, ["scancel", "--batch", f"--signal={name}", self.id])
        assert answer.returncode == 0, answer.stderr

    def wait_for(self, name: str, ranks: int) -> None:
        """Until every rank has said so."""
        until(lambda: len(list(self.seen.glob(f"{name}-*"))) == ranks, f"{name}:\n{self.output()}")
