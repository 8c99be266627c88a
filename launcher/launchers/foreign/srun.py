"""Reads srun's command line as srun(1) does."""

from __future__ import annotations

import re

from castoff.launcher.launchers.foreign.asked import Asked
from castoff.launcher.launchers.foreign.line import ENDS, HOSTS, LABELS, LOGS, OF_THE_JOB, Launch
from castoff.launcher.launchers.foreign.options import Option, Table

_SRUN = Table(
    values="""
        nodes,N ntasks,n ntasks-per-node,tasks-per-node ntasks-per-socket ntasks-per-core
        ntasks-per-gpu cpus-per-task,c cpu-bind,cpu_bind mem-bind,mem_bind mem mem-per-cpu
        mem-per-gpu gpus,G gpus-per-node gpus-per-task gpus-per-socket gpu-bind gpu-freq
        cpus-per-gpu gres distribution,m hint mpi export output,o error,e input,i time,t
        partition,p account,A qos,q constraint,C reservation nodelist,w exclude,x job-name,J
        chdir,D jobid threads-per-core wait,W relative,r het-group,pack-group tres-per-task
        network licenses,L priority signal task-prolog task-epilog prolog epilog container-image
        container-mounts container-name container-workdir container-env container core-spec,S
        sockets-per-node cores-per-socket comment tmp mail-type mail-user open-mode clusters,M
        acctg-freq cpu-freq profile extra-node-info,B dependency,d immediate,I switches time-min
        bb bbf cluster-constraint deadline delay-boot export-file gres-flags image volume module
        threads,T slurmd-debug
    """,
    flags="""
        label,l unbuffered,u overlap exact overcommit,O quiet,Q verbose,v multi-prog no-kill,k
        preserve-env,E pty contiguous disable-status,X whole no-allocate,Z container-remap-root
        container-mount-home spread-job no-container-remap-root no-container-mount-home
        container-writable no-container-entrypoint hold,H container-entrypoint debugger-test
        use-min-nodes oversubscribe,s reboot
    """,
    optional="kill-on-bad-exit,K exclusive bcast nice propagate mcs-label",
)

_SRUN_COUNTS = {
    "nodes": "nodes",
    "ntasks": "ranks",
    "ntasks-per-node": "ranks_per_node",
    "cpus-per-task": "cpus_per_rank",
    "cpus-per-gpu": "device_cpus",
}
_SRUN_KEPT = {
    *("cpu-bind", "mem-bind", "gpu-bind", "hint", "distribution", "mpi", "ntasks-per-socket", "gpu-freq"),
    *("ntasks-per-core", "threads-per-core", "network", "core-spec", "cpu-freq", "propagate", "gres-flags"),
    *(
        "exact",
        "overcommit",
        "acctg-freq",
        "profile",
        "task-prolog",
        "task-epilog",
        "prolog",
        "epilog",
        "bcast",
    ),
    *("extra-node-info", "sockets-per-node", "cores-per-socket", "tres-per-task", "overlap", "spread-job"),
}
_SRUN_DROPPED = {
    **dict.fromkeys(("kill-on-bad-exit", "wait", "no-kill"), ENDS),
    **dict.fromkeys(("output", "error", "open-mode"), LOGS),
    **dict.fromkeys(("label", "unbuffered", "quiet", "verbose"), LABELS),
    **dict.fromkeys(("nodelist", "relative", "exclude"), HOSTS),
    **dict.fromkeys(("time", "partition", "account", "qos", "constraint", "reservation", "mem"), OF_THE_JOB),
    **dict.fromkeys(("mem-per-cpu", "mem-per-gpu", "job-name", "jobid", "exclusive", "licenses"), OF_THE_JOB),
    **dict.fromkeys(("comment", "mail-type", "mail-user", "tmp", "signal", "nice", "priority"), OF_THE_JOB),
    "pty": "ranks have no terminal",
}

ALONE = "--gpus-per-task hides the other GPUs of its node from each rank"


def read_srun(words: list[str]) -> Launch:
    """Read what an srun command requests."""
    options, program = _SRUN.read(words[1:])
    asked = Asked()
    for option in options:
        _srun_option(option, asked)
    if ":" in program:
        asked.refuse("several programs joined by :, and a job file has one program in all ranks")
        program = program[: program.index(":")]
    ends = [option.value != "0" for option in options if option.name == "kill-on-bad-exit"]
    goes_on = "" if ends and ends[-1] else "--kill-on-bad-exit=0"
    return Launch("", asked, program, own="srun", goes_on=goes_on)


def _srun_option(option: Option, asked: Asked) -> None:
    name, value = option.name, option.value or ""
    if name in _SRUN_COUNTS:
        # nodes may be a range: -N 2-4
        text = value.partition("-")[0] if name == "nodes" and re.fullmatch(r"\d+-\d+", value) else value
        asked.count(_SRUN_COUNTS[name], text, f"--{name}")
    elif name in ("gpus-per-node", "gpus-per-task", "gpus", "gres"):
        devices(name, value, asked)
        if name == "gpus-per-task":
            asked.is_unclear(ALONE)
    elif not option.known:
        asked.refuse(f"castoff does not know {_written(option)}")
    elif name in _SRUN_KEPT:
        asked.fields.setdefault("launcher.args", []).append(_written(option))
    elif name == "export":
        _exported(value, asked)
    elif name.startswith(("container", "no-container-")):
        asked.refuse(f"--{name} starts the ranks in a container")
    elif name == "chdir":
        asked.fields["workdir"] = value
    elif name in ("multi-prog", "het-group"):
        reason = "starts different programs" if name == "multi-prog" else "is of a heterogeneous job"
        asked.refuse(f"--{name} {reason}, and a job file has one program in all ranks")
    else:
        asked.drop(f"--{name}: {_SRUN_DROPPED.get(name, OF_THE_JOB)}")


def _written(option: Option) -> str:
    dashes = "-" if len(option.name) == 1 else "--"
    return f"{dashes}{option.name}" + ("" if option.value is None else f"={option.value}")


def devices(name: str, value: str, asked: Asked) -> None:
    """Read a request for GPUs, such as `gpu:a100:4`, `a100:2` or `4`; --gres may request other resources."""
    field = {"gpus": "devices", "gpus-per-task": "rank_devices"}.get(name, "node_devices")
    setattr(asked, field, None)
    for part in value.split(","):
        words = re.sub(r"\(.*\)$", "", part.removeprefix("gres/").removeprefix("gres:")).split(":")
        if name == "gres" and words.pop(0) != "gpu":
            asked.directives["gres"] = ",".join(filter(None, [str(asked.directives.get("gres", "")), part]))
            continue
        number = words.pop() if len(words) > 1 or (words and not words[0][:1].isalpha()) else "1"
        if getattr(asked, field) is not None or len(words) > 1:
            asked.is_unclear(f"--{name}={value} asks for GPUs of several kinds")
        if words and number != "0":
            asked.fields["device_type"] = words[0]
        before = getattr(asked, field) or 0
        if number != "0" and asked.count(field, number, f"the number of GPUs in --{name}"):
            setattr(asked, field, before + int(number))


def _exported(value: str, asked: Asked) -> None:
    for part in value.split(","):
        name, equals, text = part.partition("=")
        if equals and "$" not in text:
            asked.env[name] = text
        elif equals:
            asked.exports[name] = text
        elif name not in ("ALL", "NONE", "NIL"):
            asked.drop(f"--export={name}: ranks see all that setup exports")
    if "ALL" not in value.split(","):
        asked.note(f"--export={value}: ranks see what setup exports, all the same")
