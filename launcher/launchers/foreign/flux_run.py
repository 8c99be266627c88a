"""Reads the command line of flux run."""

from __future__ import annotations

from castoff.launcher.launchers.foreign.asked import Asked
from castoff.launcher.launchers.foreign.line import LOGS, OF_THE_JOB, Launch, variable
from castoff.launcher.launchers.foreign.options import Table

_FLUX = Table(
    values="""
        nodes,N nslots,ntasks,n cores-per-slot,cores-per-task,c gpus-per-slot,gpus-per-task,g
        tasks-per-node cores gpus-per-node tasks-per-core setopt,o setattr,S env env-remove
        env-file time-limit,t queue,q bank,B job-name,name output error input cwd requires
        dependency begin-time urgency taskmap rlimit signal conf label-io-format broker-opts
        with-slots
    """,
    flags="exclusive,x label-io,l unbuffered,u verbose,v wait quiet",
)


def read_flux(words: list[str]) -> Launch | None:
    """Read what a `flux run` command requests; None: the words are another flux command."""
    rest = words[1:]
    if rest[:1] == ["mini"]:
        rest = rest[1:]
    if rest[:1] != ["run"]:
        return None
    asked = Asked()
    options, program = _FLUX.read(rest[1:])
    counts = {"nodes": "nodes", "nslots": "ranks", "cores-per-slot": "cpus_per_rank"}
    counts |= {
        "gpus-per-slot": "rank_devices",
        "tasks-per-node": "ranks_per_node",
        "gpus-per-node": "node_devices",
    }
    for option in options:
        name, value = option.name, option.value or ""
        if name in counts:
            asked.count(counts[name], value, f"--{name}")
        elif name in ("setopt", "taskmap", "rlimit"):
            asked.fields.setdefault("launcher.args", []).append(f"--{name}={value}")
        elif name == "env":
            variable(value, asked)
        else:
            asked.drop(f"--{name}: {LOGS if name in ('output', 'error') else OF_THE_JOB}")
    return Launch("", asked, program, own="flux")
