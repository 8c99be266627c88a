"""The line that starts a script's ranks: which launcher, what it asks for, and the program behind it. Pure.

Words are as the shell would hand them over where that is known, and as they are written where it is not.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import PurePosixPath
from typing import NamedTuple

from launcher.config.job_fields import LauncherName
from launcher.launchers.foreign.asked import Asked
from launcher.launchers.foreign.options import Option, Table

LOGS = "castoff keeps each rank's log itself; castoff logs shows them"
OF_THE_JOB = "the job's own says it"
_ENDS = "castoff ends the job at the first rank that fails"
_HOSTS = "castoff starts ranks on all hosts of the job"
_LABELS = "castoff logs shows which rank a line is from"


class Launch(NamedTuple):
    """A command line of a launcher, read."""

    launcher: str
    """What it is called by."""
    asked: Asked
    program: list[str]
    nodes_only: bool = False
    """Whether it starts one process on each node where nothing says how many."""


def read(words: list[str]) -> Launch | None:
    """What such a line asks for; None: its first word is no launcher."""
    program = PurePosixPath(words[0]).name if words else ""
    reader = _READERS.get(program)
    if reader is None:
        return None
    launch = reader(words)
    return launch and launch._replace(launcher=program)


# srun

_SRUN = Table(
    values="nodes,N ntasks,n ntasks-per-node,tasks-per-node ntasks-per-socket ntasks-per-core ntasks-per-gpu "
    "cpus-per-task,c cpu-bind,cpu_bind mem-bind,mem_bind mem mem-per-cpu mem-per-gpu gpus,G gpus-per-node "
    "gpus-per-task gpus-per-socket gpu-bind gpu-freq cpus-per-gpu gres distribution,m hint mpi export output,o "
    "error,e input,i time,t partition,p account,A qos,q constraint,C reservation nodelist,w exclude,x "
    "job-name,J chdir,D jobid threads-per-core wait,W relative,r het-group,pack-group tres-per-task network "
    "licenses,L priority signal task-prolog task-epilog prolog epilog container-image container-mounts "
    "container-name container-workdir container-env container core-spec,S sockets-per-node "
    "cores-per-socket comment tmp mail-type mail-user open-mode clusters,M acctg-freq cpu-freq profile "
    "extra-node-info,B dependency,d immediate,I switches time-min bb bbf cluster-constraint deadline delay-boot "
    "export-file gres-flags image volume module threads,T slurmd-debug",
    flags="label,l unbuffered,u overlap exact overcommit,O quiet,Q verbose,v multi-prog no-kill,k preserve-env,E "
    "pty contiguous disable-status,X whole no-allocate,Z container-remap-root container-mount-home spread-job "
    "no-container-remap-root no-container-mount-home container-writable no-container-entrypoint hold,H "
    "container-entrypoint debugger-test use-min-nodes oversubscribe,s reboot",
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
    **dict.fromkeys(("kill-on-bad-exit", "wait", "no-kill"), _ENDS),
    **dict.fromkeys(("output", "error", "open-mode"), LOGS),
    **dict.fromkeys(("label", "unbuffered", "quiet", "verbose"), _LABELS),
    **dict.fromkeys(("nodelist", "relative", "exclude"), _HOSTS),
    **dict.fromkeys(("time", "partition", "account", "qos", "constraint", "reservation", "mem"), OF_THE_JOB),
    **dict.fromkeys(("mem-per-cpu", "mem-per-gpu", "job-name", "jobid", "exclusive", "licenses"), OF_THE_JOB),
    **dict.fromkeys(("comment", "mail-type", "mail-user", "tmp", "signal", "nice", "priority"), OF_THE_JOB),
    "pty": "ranks have no terminal",
}


def _srun(words: list[str]) -> Launch:
    options, program = _SRUN.read(words[1:])
    asked = Asked()
    for one in options:
        _srun_option(one, asked)
    return Launch("", asked, program, nodes_only=True)


def _srun_option(option: Option, asked: Asked) -> None:
    name, value = option.name, option.value or ""
    if name in _SRUN_COUNTS:
        # nodes may be a range: -N 2-4
        text = value.partition("-")[0] if name == "nodes" and re.fullmatch(r"\d+-\d+", value) else value
        asked.count(_SRUN_COUNTS[name], text, f"--{name}")
    elif name in ("gpus-per-node", "gpus-per-task", "gpus", "gres"):
        devices(name, value, asked)
    elif name in _SRUN_KEPT or not option.known:
        asked.fields.setdefault("launcher.args", []).append(_written(option))
    elif name == "export":
        _exported(value, asked)
    elif name.startswith("container-") or name.startswith("no-container-"):
        _pyxis(option, asked)
    elif name == "chdir":
        asked.fields["workdir"] = value
    elif name in ("multi-prog", "het-group"):
        why = "starts different programs" if name == "multi-prog" else "is of a heterogeneous job"
        asked.refuse(f"--{name} {why}, and a job file has one program in all ranks")
    else:
        asked.drop(f"--{name}: {_SRUN_DROPPED.get(name, OF_THE_JOB)}")


def _written(option: Option) -> str:
    dashes = "-" if len(option.name) == 1 else "--"
    return f"{dashes}{option.name}" + ("" if option.value is None else f"={option.value}")


def devices(name: str, value: str, asked: Asked) -> None:
    """A request for GPUs, as in `gpu:a100:4`, `a100:2` or `4`; of --gres other things may be asked, too."""
    for part in value.split(","):
        one = part.removeprefix("gres/").removeprefix("gres:")
        kind, *rest = one.split(":")
        if name == "gres":
            if kind not in ("gpu", "gpu_mem") or kind == "gpu_mem":
                asked.directives["gres"] = (
                    one if "gres" not in asked.directives else f"{asked.directives['gres']},{one}"
                )
                continue
            rest = rest or ["1"]
        else:
            rest = [kind, *rest]
        number = re.sub(r"\(.*\)$", "", rest[-1])
        gpu_type = rest[0] if len(rest) > 1 else "" if number.isdecimal() else number
        number = (
            number
            if number.isdecimal()
            else "1"
            if name == "gres" and gpu_type and "$" not in number
            else number
        )
        if gpu_type and gpu_type != number and "$" not in gpu_type:
            asked.profile[f"gpu_type: {gpu_type}"] = f"from --{name}={value}"
        field = {"gpus": "devices", "gpus-per-task": "rank_devices"}.get(name, "node_devices")
        if number == "0":
            asked.note(f"--{name}={value} asks for no GPU")
            continue
        asked.count(field, number, f"the number of GPUs in --{name}")


def _exported(value: str, asked: Asked) -> None:
    for part in value.split(","):
        name, equals, text = part.partition("=")
        if equals and "$" not in text:
            asked.env[name] = text
        elif equals:
            asked.refuse(f"--export sets {name} to {text}, which is not known before the job runs")
        elif name not in ("ALL", "NONE", "NIL"):
            asked.drop(f"--export={name}: ranks see all that setup exports")
    if "NONE" in value or "NIL" in value:
        asked.note("--export=NONE: ranks see what setup exports, all the same")


def _pyxis(option: Option, asked: Asked) -> None:
    value = option.value or ""
    if option.name == "container-image" and "$" not in value:
        asked.fields |= {"container.runtime": "pyxis", "container.image": value}
    elif option.name == "container-mounts" and "$" not in value:
        binds = [re.sub(r":rw$", "", one) for one in value.split(",")]
        asked.fields["container.binds"] = [one.partition(":")[0] if _same(one) else one for one in binds]
    else:
        asked.fields.setdefault("container.args", []).append(_written(option))


def _same(bind: str) -> bool:
    parts = bind.split(":")
    return len(parts) == 2 and parts[0] == parts[1]


# An mpiexec

_MPIEXEC = Table(
    values="n,np,c ppn,npernode,N,perhost depth,d cpu-bind,bind-to map-by rank-by hostfile,f,machinefile,hosts,host,H "
    "env genv,x mca wdir,wd host gpu-bind mem-bind genvlist envlist configfile path prefix timeout "
    "report-child-jobs-separately tag app oversubscribe-limit prepend-rank rmk bootstrap launcher iface "
    "hostlist j cc pmi output-filename ranks-per-proc cpus-per-proc cpus-per-rank gpus-per-rank pernode-limit",
    flags="line-buffer label,l no-vni genvall envall genvnone oversubscribe allow-run-as-root bind-to-core "
    "report-bindings display-map tag-output quiet,q v,verbose nooversubscribe pernode exclusive nolocal",
    one_dash=True,
)


def _mpiexec(words: list[str]) -> Launch:
    asked = Asked()
    options, program = _MPIEXEC.read(_pairs(words[1:]))
    signs: set[LauncherName] = set()
    for option in options:
        _mpiexec_option(option, asked, words, signs)
    if ":" in program:
        asked.refuse("several programs joined by :, and a job file has one program in all ranks")
        program = program[: program.index(":")]
    for name in _SIGNS:
        if name in signs:
            asked.fields["launcher.name"] = name
            break
    return Launch("", asked, program)


def _pairs(words: list[str]) -> list[str]:
    """Words where those options that take two values have one: `-mca NAME VALUE`, `-genv NAME VALUE`."""
    found: list[str] = []
    at = 0
    while at < len(words):
        word = words[at]
        if word.lstrip("-") in ("mca", "genv", "env") and word.startswith("-") and at + 1 < len(words):
            two = "=" not in words[at + 1] and at + 2 < len(words)
            joined = f"{words[at + 1]}={words[at + 2]}" if two else words[at + 1]
            found.append(f"--{word.lstrip('-')}={joined}")
            at += 3 if two else 2
            continue
        found.append(word)
        at += 1
        if not word.startswith("-") and not (found[-2:-1] and found[-2].startswith("-")):
            return found + words[at:]
    return found


_SIGNS: tuple[LauncherName, ...] = ("pals", "openmpi", "hydra")
"""In the order in which flags that only one of them has are believed."""


def _mpiexec_option(option: Option, asked: Asked, words: list[str], signs: set[LauncherName]) -> None:
    name, value = option.name, option.value or ""
    if (
        name in ("depth", "line-buffer", "no-vni", "mem-bind", "gpu-bind", "exclusive")
        or "--cpu-bind" in words
    ):
        signs.add("pals")
    elif name in (
        "map-by",
        "rank-by",
        "mca",
        "oversubscribe",
        "report-bindings",
        "allow-run-as-root",
        "pernode",
    ):
        signs.add("openmpi")
    elif name in ("genv", "genvall", "genvlist", "rmk", "bootstrap", "iface"):
        signs.add("hydra")
    if name == "n":
        asked.count("ranks", value, "the number of ranks")
    elif name == "ppn":
        asked.count("ranks_per_node", value, "the number of ranks on a node")
    elif name == "pernode":
        asked.ranks_per_node = 1
    elif name == "map-by" and (mapped := re.fullmatch(r"ppr:(\d+):(?:node|host)(?::PE=(\d+))?", value, re.I)):
        asked.ranks_per_node = int(mapped[1])
        if mapped[2]:
            asked.cpus_per_rank = int(mapped[2])
    elif name == "depth":
        asked.fields.setdefault("launcher.args", []).append(f"--depth={value}")
        asked.note(
            "--depth counts what PALS binds each rank to; cores_per_rank would say it for every launcher"
        )
    elif name in ("env", "genv"):
        _variable(value, asked)
    elif name in ("hostfile", "wdir"):
        asked.drop(f"--{name}: {_HOSTS}" if name == "hostfile" else "--wdir: workdir says it")
    elif name in (
        "line-buffer",
        "label",
        "tag",
        "tag-output",
        "quiet",
        "v",
        "output-filename",
        "prepend-rank",
    ):
        asked.drop(f"--{name}: {_LABELS}")
    elif name in ("genvall", "envall", "genvlist", "envlist", "genvnone"):
        asked.drop(f"--{name}: ranks see all that setup exports")
    elif name in ("configfile", "app"):
        asked.refuse(f"--{name} reads the ranks' programs from a file, and a job file has one program")
    else:
        asked.fields.setdefault("launcher.args", []).extend(_as_given(name, value, option, words))


def _as_given(name: str, value: str, option: Option, words: list[str]) -> list[str]:
    """An option in the words in which it was given, as an mpiexec minds how many dashes it has."""
    spelled = {word.partition("=")[0]: word for word in words if word.lstrip("-").partition("=")[0] == name}
    spelling = next(iter(spelled), None)
    if spelling is None:  # by another of its names
        others = [word for word in words if _MPIEXEC.meant.get(word.lstrip("-").partition("=")[0]) == name]
        spelling = others[0].partition("=")[0] if others else f"--{name}"
    if option.value is None:
        return [spelling]
    if name == "mca":
        return [spelling, *value.partition("=")[::2]]
    return [f"{spelling}={value}"] if f"{spelling}={value}" in words else [spelling, value]


def _variable(text: str, asked: Asked) -> None:
    name, equals, value = text.partition("=")
    if not equals:
        asked.drop(f"the variable {name}: ranks see all that setup exports")
    elif "$" in value or "`" in value:
        asked.refuse(f"sets {name} to {value}, which is not known before the job runs")
    else:
        asked.env[name] = value


# flux run, aprun, jsrun and ibrun

_FLUX = Table(
    values="nodes,N nslots,ntasks,n cores-per-slot,cores-per-task,c gpus-per-slot,gpus-per-task,g tasks-per-node "
    "cores gpus-per-node tasks-per-core setopt,o setattr,S env env-remove env-file time-limit,t queue,q bank,B "
    "job-name,name output error input cwd requires dependency begin-time urgency taskmap rlimit signal conf "
    "label-io-format broker-opts with-slots",
    flags="exclusive,x label-io,l unbuffered,u verbose,v wait quiet",
)


def _flux(words: list[str]) -> Launch | None:
    rest = words[1:]
    if rest[:1] == ["mini"]:
        rest = rest[1:]
    if rest[:1] not in (["run"], ["submit"]):
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
            _variable(value, asked)
        else:
            asked.drop(f"--{name}: {LOGS if name in ('output', 'error') else OF_THE_JOB}")
    return Launch("", asked, program)


_APRUN = Table(
    values="n N d j cc S sn F r p L m e b,bypass",
    flags="q ss B a",
)


def _aprun(words: list[str]) -> Launch:
    asked = Asked()
    options, program = _APRUN.read(words[1:])
    for option in options:
        fields = {"n": "ranks", "N": "ranks_per_node", "d": "cpus_per_rank"}
        if option.name in fields:
            asked.count(fields[option.name], option.value, f"-{option.name}")
        elif option.name == "e":
            _variable(option.value or "", asked)
        else:
            asked.refuse(f"-{option.name} of aprun, which the machine's launcher may say otherwise")
    return Launch("", asked, program)


_JSRUN = Table(
    values="nrs,n tasks_per_rs,a cpu_per_rs,c gpu_per_rs,g rs_per_host,r bind,b launch_distribution,d latency_priority,l "
    "env,E smpiargs stdio_stdout,o stdio_stderr,k nproc,p",
    flags="immediate,i",
)


def _jsrun(words: list[str]) -> Launch:
    asked = Asked()
    options, program = _JSRUN.read(words[1:])
    given = {option.name: option.value or "" for option in options}
    sets, of_set = given.get("nrs", given.get("nproc", "1")), given.get("tasks_per_rs", "1")
    if sets.isdecimal() and of_set.isdecimal():
        asked.ranks = int(sets) * int(of_set)
        hosts = given.get("rs_per_host", "")
        asked.ranks_per_node = int(hosts) * int(of_set) if hosts.isdecimal() else None
        for name, field in (("cpu_per_rs", "cpus_per_rank"), ("gpu_per_rs", "rank_devices")):
            if given.get(name, "").isdecimal():
                setattr(asked, field, max(int(given[name]) // int(of_set), 1))
    else:
        asked.refuse("the number of resource sets is not known before the job runs")
    for name in {*given} - {"nrs", "nproc", "tasks_per_rs", "rs_per_host", "cpu_per_rs", "gpu_per_rs"}:
        asked.drop(f"--{name} of jsrun: castoff binds and places ranks itself")
    return Launch("", asked, program)


_IBRUN = Table(values="n,np o", flags="v", one_dash=True)


def _ibrun(words: list[str]) -> Launch:
    asked = Asked()
    rest = words[1:]
    if rest[:1] and rest[0] in ("tacc_affinity", "tacc_xrun"):
        rest = rest[1:]
        asked.drop(f"{words[1]}: castoff binds ranks itself")
    options, program = _IBRUN.read(rest)
    for option in options:
        if option.name == "n":
            asked.count("ranks", option.value, "the number of ranks")
        elif option.name == "o":
            asked.refuse("ibrun -o starts a part of the job's ranks, and a job file has one program in all")
    return Launch("", asked, program)


_READERS: dict[str, Callable[[list[str]], Launch | None]] = {
    "srun": _srun,
    **dict.fromkeys(("mpiexec", "mpirun", "mpiexec.hydra", "orterun", "mpirun_rsh"), _mpiexec),
    "flux": _flux,
    "aprun": _aprun,
    "jsrun": _jsrun,
    "ibrun": _ibrun,
}
