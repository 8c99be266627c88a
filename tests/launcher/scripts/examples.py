"""The jobs whose scripts are kept as golden files."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from launcher import JobSpec, Plan, Site, plan

GOLDEN = Path(__file__).parents[1] / "golden"

TRAINING: dict[str, Any] = {
    "name": "causets",
    "command": ["python", "-m", "trainers.gnn", "--config", "causets.yaml"],
}
NEEDED: dict[str, dict[str, Any]] = {
    "aurora": {
        "account": "MyProject",
        "queue": "debug",
        "walltime": "00:30:00",
        "setup": ["module load frameworks"],
        "directives": {"filesystems": "home:flare"},
    },
    "slurm": {
        "account": "my-project",
        "queue": "gpu",
        "walltime": "00:30:00",
        "ranks_per_node": 4,
        "cores_per_rank": 8,
        "devices_per_rank": 1,
        "setup": ["module load python"],
    },
    "pbs": {"queue": "workq", "walltime": "00:30:00", "ranks_per_node": 4, "cores_per_rank": 8},
    "local": {"ranks_per_node": 2},
}


class Example(NamedTuple):
    """A job on a site."""

    site: str
    fields: dict[str, Any]
    function: bool = False
    changes: dict[str, Any] | None = None
    """What another profile of that site would say."""

    def spec(self) -> JobSpec:
        return JobSpec.of({**TRAINING, **NEEDED[self.site], **self.fields})

    def on(self) -> Site:
        return msgspec.structs.replace(Site.load(self.site), **(self.changes or {}))

    def plan(self) -> Plan:
        return plan(self.spec(), self.on(), function=self.function)


def of_every_site() -> dict[str, Example]:
    """1 node, 2 nodes, array, dependency, function."""
    examples = {}
    for site in NEEDED:
        examples[f"{site}-1-node"] = Example(site, {})
        if site != "local":
            examples[f"{site}-2-nodes"] = Example(site, {"nodes": 2})
        queue = {"queue": "capacity"} if site == "aurora" else {}
        count = 4 if site == "aurora" else 8
        examples[f"{site}-array"] = Example(site, {"array": {"count": count, "at_most": 2}, **queue})
        ids = ["101"] if site == "slurm" else ["101.head"] if site != "local" else ["preprocess"]
        examples[f"{site}-dependency"] = Example(site, {"after": {"afterok": ids}})
        examples[f"{site}-function"] = Example(site, {}, function=True)
    return examples


EXAMPLES: dict[str, Example] = {
    **of_every_site(),
    "slurm-dependency-by-name": Example("slurm", {"after": {"afterok": ["preprocess"], "afterany": ["9"]}}),
    "aurora-6-ranks": Example("aurora", {"ranks_per_node": 6, "nodes": 2}),
    "aurora-24-ranks": Example("aurora", {"ranks_per_node": 24}),
    "aurora-torchrun": Example("aurora", {"nodes": 2, "start": {"torchrun": True}}),
    "aurora-uneven": Example("aurora", {"nodes": 2, "ranks": 23}),
    "aurora-256-nodes": Example("aurora", {"nodes": 256, "queue": "prod", "walltime": "6h"}),
    "aurora-requeue": Example(
        "aurora", {"queue": "capacity", "requeue": {"max": 3}, "env_from": ["WANDB_API_KEY"]}
    ),
    "slurm-requeue": Example(
        "slurm", {"requeue": {"max": 3}, "array": {"count": 8}, "env_from": ["WANDB_API_KEY"]}
    ),
    "slurm-uneven": Example("slurm", {"nodes": 3, "ranks_per_node": None, "ranks": 8}),
    "slurm-torchrun": Example("slurm", {"nodes": 2, "start": {"torchrun": True}}),
    "slurm-gpus-per-task": Example("slurm", {}, changes={"gpu_request": "gpus-per-task"}),
    "pbs-uneven": Example("pbs", {"nodes": 3, "ranks_per_node": None, "ranks": 8}),
    "pbs-openmpi": Example("pbs", {"nodes": 2, "start": {"starter": "openmpi"}}),
    "pbs-intelmpi": Example("pbs", {"nodes": 2}, changes={"starter": "intelmpi", "mpiexec": "mpiexec.hydra"}),
    "pbs-inherit": Example(
        "pbs", {"inherit": ["CONDA_PREFIX", "TERM"], "workdir": "runs/a b", "requeue": {"max": 1}}
    ),
    "local-everything": Example(
        "local",
        {
            "setup": ["module load python"],
            "env": {"GREETING": "it's five"},
            "env_from": ["WANDB_API_KEY"],
            "inherit": ["LD_LIBRARY_PATH"],
            "python": "/opt/python/bin/python",
            "walltime": "1h",
            "requeue": {"max": 2},
            "devices_per_rank": 1,
        },
    ),
    "local-torchrun": Example("local", {"start": {"torchrun": True}}),
    "aurora-own-templates": Example("aurora", {"templates": str(GOLDEN / "templates")}),
}
