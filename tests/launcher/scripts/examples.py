"""The jobs whose scripts are kept as golden files."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from castoff import JobSpec, Plan, Site
from castoff.launcher.config.site_fields import Node
from castoff.launcher.planning.planner import decide
from castoff.launcher.schedulers.base import Scheduler
from castoff.launcher.schedulers.registry import scheduler_of

GOLDEN = Path(__file__).parents[1] / "golden"

TRAINING: dict[str, Any] = {
    "name": "causets",
    "command": ["python", "-m", "castoff.trainers.gnn", "--config", "causets.yaml"],
}
NEEDED: dict[str, dict[str, Any]] = {
    "aurora": {
        "account": "MyProject",
        "queue": "debug",
        "walltime": "00:30:00",
        "setup": ["module load frameworks"],
        "directives": {"filesystems": "home:flare"},
    },
    "polaris": {
        "account": "MyProject",
        "queue": "debug",
        "walltime": "00:30:00",
        "setup": ["module load conda", "conda activate"],
        "directives": {"filesystems": "home:eagle"},
    },
    "crux": {
        "account": "MyProject",
        "queue": "debug",
        "walltime": "00:30:00",
        "ranks_per_node": 8,
        "directives": {"filesystems": "home:eagle"},
    },
    "sophia": {
        "account": "MyProject",
        "walltime": "00:30:00",
        "ranks_per_node": 4,
        "setup": ["module load compilers/openmpi", "module load conda", "conda activate base"],
        "directives": {"filesystems": "home:eagle"},
    },
    "perlmutter": {
        "account": "m1234",
        "qos": "regular",
        "walltime": "00:30:00",
        "setup": ["module load python"],
    },
    "frontier": {
        "account": "abc123",
        "queue": "batch",
        "walltime": "00:30:00",
        "setup": ["module load rocm/7.1.1 rccl-net-plugin", "conda activate /path/to/my_env"],
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
    "flux": {
        "account": "bank",
        "queue": "batch",
        "walltime": "00:30:00",
        "ranks_per_node": 4,
        "cores_per_rank": 8,
        "devices_per_rank": 1,
    },
    "tuolumne": {
        "account": "bank",
        "queue": "pbatch",
        "walltime": "00:30:00",
        "setup": [". /p/lustre5/me/venv/bin/activate"],
    },
    "lsf": {
        "account": "project",
        "queue": "gpu",
        "walltime": "00:30:00",
        "ranks_per_node": 4,
        "cores_per_rank": 8,
        "devices_per_rank": 1,
    },
    "local": {"ranks_per_node": 2},
}
STAGE: list[dict[str, Any]] = [
    {"from": "env.tar.gz", "activate": True},
    {"from": "/data/shards", "to": "data/shards"},
    {"from": "/data/it's words.txt", "sha256": "ab" * 32},
]


@cache  # each test process reads them all as it collects the tests
def site_of(name: str) -> Site:
    return Site.load(name)


TWO_SOCKETS = Node(
    sockets=["0-23", "24-47"],
    devices=[2, 2],
    device_variable="CUDA_VISIBLE_DEVICES",
    exclusive=True,
    source="lscpu",
    date="2026-11-26",
)


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
        return msgspec.structs.replace(site_of(self.site), **(self.changes or {}))

    def plan(self) -> Plan:
        return self.decided()[0]

    def decided(self) -> tuple[Plan, Scheduler]:
        return decide(self.spec(), self.on(), function=self.function)


# Queues that take an array, where the first one does not, and how many members.
ARRAYS: dict[str, tuple[dict[str, Any], int]] = {
    "aurora": ({"queue": "capacity"}, 4),
    "crux": ({"queue": "workq-route"}, 8),
    "polaris": ({"queue": "preemptable"}, 8),
}


def of_every_site() -> dict[str, Example]:
    """1 node, 2 nodes, array, dependency, function."""
    examples = {}
    for site in NEEDED:
        examples[f"{site}-1-node"] = Example(site, {})
        if site != "local":
            examples[f"{site}-2-nodes"] = Example(site, {"nodes": 2})
        queue, count = ARRAYS.get(site, ({}, 8))
        scheduler = scheduler_of(site_of(site).scheduler)
        if "array.count" in scheduler.handles:
            examples[f"{site}-array"] = Example(
                site, {"array": {"count": count, "max_concurrent": 2}, **queue}
            )
        ids = {"pbs": ["101.head"], "local": ["preprocess"]}.get(scheduler.name, ["101"])
        examples[f"{site}-dependency"] = Example(site, {"after": {"afterok": ids}})
        examples[f"{site}-function"] = Example(site, {}, function=True)
    return examples


EXAMPLES: dict[str, Example] = {
    **of_every_site(),
    "slurm-script": Example(
        "slurm",
        {
            "command": [],
            "setup": [],
            **dict.fromkeys(("ranks_per_node", "cores_per_rank", "devices_per_rank")),
            "script": "#!/bin/bash\ncd data\nsrun python train.py\n",
            "directives": {"slurm": {"nodes": "2", "ntasks-per-node": "4", "gres": "gpu:a100:4"}},
        },
    ),
    "flux-uneven": Example("flux", {"nodes": 3, "ranks_per_node": None, "ranks": 8}),
    "flux-torchrun": Example("flux", {"nodes": 2, "launcher": {"torchrun": True}}),
    "flux-requeue": Example("flux", {"requeue": {"max": 3}, "env_from": ["WANDB_API_KEY"]}),
    "flux-signal": Example("flux", {"signal": "USR1@5m", "launcher": {"torchrun": True}}),
    "flux-chain": Example("flux", {"requeue": {"max": 3, "how": "chain"}}),
    "lsf-array-requeue": Example(
        "lsf",
        {
            "nodes": 2,
            "array": {"count": 8, "max_concurrent": 2},
            "requeue": {"max": 3},
            "exclude": "n[1-2]",
            "constraint": "bigmem",
        },
    ),
    "slurm-parameters": Example(
        "slurm",
        {
            "command": ["python", "train.py", "--lr={lr}", "--note", "{note}", '{"seed": {seed}}', "{{lr}}"],
            "env": {"OUT": "out/{seed}"},
            "workdir": "runs/{lr}",
            "name": "sweep-{lr}",
            "array": {
                "parameters": {"zip": {"lr": ["1e-3", "1e-4"], "note": ["a\tb", '"$x"']}, "seed": ["0", "1"]}
            },
        },
    ),
    "pbs-parameters-torchrun": Example(
        "pbs",
        {
            "nodes": 2,
            "command": ["train", "--name", "$HOME-{a}"],
            "launcher": {"torchrun": True},
            "array": {"parameters": [{"a": "x"}, {"a": "$5"}]},
        },
    ),
    "flux-templates": Example("flux", {"command": ["train", "--name={{id}}", ":", "{{{"]}),
    "slurm-dependency-by-name": Example("slurm", {"after": {"afterok": ["preprocess"], "afterany": ["9"]}}),
    "slurm-references": Example(
        "slurm",
        {
            "after": {"afterok": ["prepare", "base-model"]},
            "command": ["train", "--data={prepare.dir}/it's", "{base-model.dir}", "{other.dir}", '{"a": 1}'],
            "env": {"DATA": "{prepare.dir}"},
            "workdir": "{prepare.dir}/code",
            "setup": ['source "{prepare.dir}/env"'],
            "teardown": ['cp log "{base-model.dir}/"'],
        },
    ),
    "aurora-6-ranks": Example("aurora", {"ranks_per_node": 6, "nodes": 2}),
    "aurora-24-ranks": Example("aurora", {"ranks_per_node": 24}),
    "aurora-48-ranks": Example("aurora", {"options": ["ccs"]}),
    "aurora-composite": Example(
        "aurora", {"options": ["composite"], "env": {"CCL_PROCESS_LAUNCHER": None}, "ranks_per_node": 6}
    ),
    "aurora-options": Example(
        "aurora",
        {
            "nodes": 2,
            "queue": "debug",
            "options": ["copper", "proxy", "no-vni", "ddp-cores"],
        },
    ),
    "aurora-ccl": Example(
        "aurora", {"setup": [], "options": ["ccl-workers", "ccl-tuning", "event-queues", "ccl-application"]}
    ),
    "aurora-2048-nodes": Example("aurora", {"nodes": 2048, "queue": "prod", "walltime": "12h"}),
    "aurora-stage": Example("aurora", {"nodes": 2, "queue": "debug", "stage": STAGE}),
    "polaris-options": Example("polaris", {"nodes": 2, "options": ["proxy", "nccl-ofi"]}),
    "aurora-torchrun": Example("aurora", {"nodes": 2, "launcher": {"torchrun": True}}),
    "aurora-uneven": Example("aurora", {"nodes": 2, "ranks": 23}),
    "aurora-256-nodes": Example("aurora", {"nodes": 256, "queue": "prod", "walltime": "6h"}),
    "aurora-requeue": Example(
        "aurora", {"queue": "capacity", "requeue": {"max": 3}, "env_from": ["WANDB_API_KEY"]}
    ),
    "aurora-chain": Example("aurora", {"queue": "capacity", "requeue": {"max": 3, "how": "chain"}}),
    "aurora-array-requeue": Example(
        "aurora",
        {
            "queue": "prod",
            "nodes": 256,
            "walltime": "6h",
            "array": {"count": 4, "max_concurrent": 2},
            "after": {"afterok": ["101"]},
            "requeue": {"max": 3},
        },
    ),
    "polaris-1-rank": Example("polaris", {"ranks_per_node": 1}),
    "polaris-torchrun": Example("polaris", {"nodes": 2, "launcher": {"torchrun": True}}),
    "perlmutter-2-ranks": Example("perlmutter", {"ranks_per_node": 2, "constraint": "gpu&hbm80g"}),
    "perlmutter-shared": Example("perlmutter", {"qos": "shared"}),
    "perlmutter-torchrun": Example("perlmutter", {"nodes": 2, "launcher": {"torchrun": True}}),
    "frontier-4-ranks": Example("frontier", {"ranks_per_node": 4}),
    "frontier-6-ranks": Example("frontier", {"ranks_per_node": 6}),
    "frontier-debug": Example("frontier", {"nodes": 100, "qos": "debug", "requeue": {"max": 2}}),
    "frontier-torchrun": Example("frontier", {"nodes": 2, "launcher": {"torchrun": True}}),
    "slurm-signal": Example(
        "slurm", {"signal": "USR1@300", "requeue": {"max": 2, "on": ["walltime"], "progress": "a b"}}
    ),
    "pbs-signal": Example(
        "pbs", {"signal": "TERM@5m", "requeue": {"max": 2, "on": ["stop"], "how": "chain"}}
    ),
    "local-signal": Example(
        "local", {"walltime": "1h", "signal": "USR1@300", "requeue": {"max": 2}, "teardown": ["true"]}
    ),
    "slurm-requeue": Example(
        "slurm", {"requeue": {"max": 3}, "array": {"count": 8}, "env_from": ["WANDB_API_KEY"]}
    ),
    "slurm-together": Example(
        "slurm",
        {
            "requeue": {"max": 3},
            "env_from": ["WANDB_API_KEY"],
            "ranks_per_node": 1,
            "array": {"count": 64, "together": {"members": 16, "per_node": 4}},
        },
    ),
    "perlmutter-together": Example(
        "perlmutter", {"ranks_per_node": 1, "array": {"indices": "1-9:2", "together": "node"}}
    ),
    "frontier-together": Example(
        "frontier", {"nodes": 2, "restart": {"max": 2}, "array": {"count": 100, "together": {"nodes": 4}}}
    ),
    "aurora-together": Example(
        "aurora",
        {
            "ranks_per_node": 3,
            "queue": "prod",
            "walltime": "6h",
            "array": {"count": 4000, "together": {"nodes": 256}},
        },
    ),
    "pbs-together": Example("pbs", {"array": {"count": 8, "together": "job"}}),
    "flux-together": Example("flux", {"array": {"count": 8, "together": {"nodes": 2, "per_node": 2}}}),
    "slurm-uneven": Example("slurm", {"nodes": 3, "ranks_per_node": None, "ranks": 8}),
    "slurm-cyclic": Example(
        "slurm",
        {"nodes": 3, "ranks_per_node": None, "ranks": 8, "launcher": {"args": ["--distribution=cyclic"]}},
    ),
    "slurm-arbitrary": Example(
        "slurm", {"nodes": 2, "ranks_per_node": 2, "launcher": {"args": ["--distribution=arbitrary"]}}
    ),
    "slurm-torchrun": Example("slurm", {"nodes": 2, "launcher": {"torchrun": True}}),
    "slurm-snapshot": Example("slurm", {"snapshot": True, "workdir": "src"}),
    **{
        f"{site}-driver": Example(
            site,
            {
                "ranks_per_node": None,
                "nodes": 1 if site == "local" else 2,
                "launcher": {"driver": True},
                "command": ["python", "search.py", ":", "it's"],
                "walltime": "30m",
                **more,
            },
        )
        for site, more in {
            "slurm": {"stage": STAGE[1:2], "devices_per_rank": 4},
            **{key: {} for key in ("aurora", "pbs", "flux", "local")},
        }.items()
    },
    **{
        f"{site}-sparse-array": Example(
            site, {"array": {"indices": indices, "max_concurrent": 4}, "env_from": ["TOKEN"], **more}
        )
        for site, indices, more in [
            ("slurm", "0-4:2,6-7", {}),
            ("pbs", "1,3-5,10-20:2", {"requeue": {"max": 2}}),
            ("local", "1,3-5,10-20:2", {}),
        ]
    },
    "slurm-teardown": Example(
        "slurm",
        {
            "nodes": 2,
            "stage": STAGE[1:2],
            "teardown": ['cp "$CASTOFF_STAGE_DIR/best.pt" results/', "cat <<X", "it's $CASTOFF_OUTCOME", "X"],
            "requeue": {"max": 2},
        },
        changes={"teardown": ["stop_tools"]},
    ),
    "slurm-restart": Example(
        "slurm",
        {
            "nodes": 2,
            "restart": {"max": 3, "spare_nodes": 1, "hang": "15m"},
            "preflight": ["! grep -q it's /etc/hosts"],
            "requeue": {"max": 2},
        },
    ),
    "pbs-restart": Example(
        "pbs", {"nodes": 2, "restart": {"max": 3, "spare_nodes": 1}, "requeue": {"max": 2}}
    ),
    "pbs-openmpi-restart": Example(
        "pbs", {"nodes": 2, "restart": {"max": 1, "never": [2, 3]}, "launcher": {"name": "openmpi"}}
    ),
    "aurora-restart": Example(
        "aurora",
        {
            "nodes": 2,
            "queue": "capacity",
            "stage": STAGE[1:2],
            "restart": {"max": 2, "progress": "ckpt"},
            "preflight": True,
        },
    ),
    "slurm-preload-restart": Example(
        "slurm",
        {
            "nodes": 2,
            "command": ["python", "train.py"],
            "launcher": {"preload": ["torch"]},
            "restart": {"max": 1},
        },
    ),
    "pbs-preload-module": Example(
        "pbs", {"nodes": 2, "command": ["python", "-m", "train"], "launcher": {"preload": ["torch"]}}
    ),
    "flux-hang": Example("flux", {"nodes": 2, "restart": {"hang": "20m", "progress": None}}),
    "slurm-notify": Example(
        "slurm",
        {"restart": {"max": 2, "hang": "15m"}, "notify": {"to": ["phone", "team"], "on": ["end", "hang"]}},
    ),
    "local-restart": Example("local", {"restart": {"max": 2, "hang": "10m", "progress": "none"}}),
    "slurm-two-sockets": Example("slurm", {"ranks_per_node": None}, changes={"node": TWO_SOCKETS}),
    "slurm-gpus-per-task": Example("slurm", {}, changes={"gpu_request": "gpus-per-task"}),
    "pbs-uneven": Example("pbs", {"nodes": 3, "ranks_per_node": None, "ranks": 8}),
    "pbs-kinds": Example(
        "pbs",
        {
            "select": [
                {"ranks_per_node": 1, "memory": "64G", "model": "cpu"},
                {"nodes": 2, "model": "gpu", "scratch_local": "10gb"},
            ],
            "directives": {"W": "group_list=lab,umask=027"},
            "after": {"afterok": ["101.head"]},
        },
    ),
    "pbs-totals": Example(
        "pbs",
        {"memory": "190G", "directives": {"storage": "gdata/ab1", "wd": True}},
        changes={"request_form": "totals", "launcher": "openmpi"},
    ),
    "pbs-nodes": Example(
        "pbs",
        {"nodes": 2, "select": {"a100": True}},
        changes={"request_form": "nodes", "launcher": "openmpi"},
    ),
    "pbs-openmpi": Example("pbs", {"nodes": 2, "launcher": {"name": "openmpi"}}),
    "pbs-intelmpi": Example(
        "pbs", {"nodes": 2}, changes={"launcher": "intelmpi", "mpiexec": "mpiexec.hydra"}
    ),
    "pbs-inherit": Example(
        "pbs", {"inherit": ["CONDA_PREFIX", "TERM"], "workdir": "runs/a b", "requeue": {"max": 1}}
    ),
    "local-everything": Example(
        "local",
        {
            "setup": ["module load python"],
            "env": {"GREETING": "it's five", "LD_PRELOAD": "/opt/it's/lib.so"},
            "env_from": ["WANDB_API_KEY"],
            "inherit": ["LD_LIBRARY_PATH"],
            "python": "/opt/python/bin/python",
            "walltime": "1h",
            "requeue": {"max": 2},
            "devices_per_rank": 1,
        },
    ),
    "slurm-torchrun-loader": Example(
        "slurm",
        {"launcher": {"torchrun": True}, "signal": "USR1@300", "env": {"LD_AUDIT": "/opt/lib.so"}},
    ),
    "local-torchrun": Example("local", {"launcher": {"torchrun": True}}),
    "local-hydra": Example(
        "local",
        {
            "launcher": {"name": "hydra", "args": ["-l"], "preload": ["torch"]},
            "stage": STAGE,
            "inherit": "none",
            "walltime": "1h",
        },
    ),
    "aurora-apptainer": Example(
        "aurora",
        {
            "nodes": 2,
            "setup": ["module load apptainer"],
            "env": {"LD_PRELOAD": "/opt/lib.so", "MALLOC_ARENA_MAX": "2"},
            "container": {
                "runtime": "apptainer",
                "image": "/lus/flare/me/torch.sif",
                "binds": ["/lus/flare", "/opt/data:/data:ro"],
                "env": {"HF_HOME": "/data/it's here"},
                "args": ["--fakeroot"],
            },
        },
    ),
    "slurm-shifter": Example(
        "slurm",
        {
            "env_from": ["WANDB_API_KEY"],
            "container": {"image": "docker:nersc/pytorch:24.08", "gpus": "nvidia"},
        },
        changes={"defaults": JobSpec.of({"command": ["x"], "container": {"runtime": "shifter"}})},
    ),
    "slurm-podman-hpc": Example(
        "slurm",
        {
            "nodes": 2,
            "launcher": {"torchrun": True},
            "container": {
                "runtime": "podman-hpc",
                "image": "nersc/pytorch:24.08",
                "gpus": "nvidia",
                "binds": ["/global/cfs", "/pscratch/sd/m/me/shards:/data:ro"],
                "args": ["--nccl"],
            },
        },
    ),
    "slurm-pyxis": Example(
        "slurm",
        {
            "container": {
                "runtime": "pyxis",
                "image": "nvcr.io#nvidia/pytorch:24.08-py3",
                "gpus": "nvidia",
                "binds": ["/lustre", "/lustre/shards:/data:ro"],
                "args": ["--no-container-mount-home"],
            },
        },
    ),
    "slurm-preload": Example(
        "slurm",
        {
            "nodes": 2,
            "env": {"LD_PRELOAD": "/opt/lib.so"},
            "launcher": {"preload": ["torch"]},
            "stage": [{"from": "env.tar", "activate": True}],
        },
    ),
    "pbs-preload": Example(
        "pbs", {"nodes": 2, "launcher": {"preload": ["torch"]}}, changes={"launcher": "openmpi"}
    ),
    "local-preload": Example("local", {"launcher": {"preload": ["torch"]}}),
    "pbs-stage": Example("pbs", {"nodes": 2, "stage": STAGE}, changes={"local_storage": "/local/scratch"}),
    "slurm-stage-container": Example(
        "slurm",
        {
            "nodes": 3,
            "ranks_per_node": None,
            "ranks": 8,
            "stage": [
                {"from": "/lustre/me/torch.sif"},
                {"from": "/lustre/me/tools.tar.zst", "activate": True},
            ],
            "container": {"runtime": "apptainer", "image": "stage/torch.sif", "gpus": "amd"},
        },
    ),
    "local-stage": Example("local", {"stage": STAGE}),
    "local-container": Example(
        "local",
        {
            "container": {"runtime": "apptainer", "image": "/images/torch.sif"},
            "python": "/opt/conda/bin/python",
        },
    ),
    "aurora-own-templates": Example("aurora", {"templates": str(GOLDEN / "templates")}),
}
