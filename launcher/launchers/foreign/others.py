"""The command lines of flux run, aprun, jsrun and ibrun."""

from __future__ import annotations

from launcher.launchers.foreign.asked import Asked
from launcher.launchers.foreign.line import LOGS, OF_THE_JOB, Launch, variable
from launcher.launchers.foreign.options import Table

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
    """What it asks for."""
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
            variable(value, asked)
        else:
            asked.drop(f"--{name}: {LOGS if name in ('output', 'error') else OF_THE_JOB}")
    return Launch("", asked, program)


_APRUN = Table(
    values="n N d j cc S sn F r p L m e b,bypass",
    flags="q ss B a",
)


def read_aprun(words: list[str]) -> Launch:
    """What it asks for."""
    asked = Asked()
    options, program = _APRUN.read(words[1:])
    for option in options:
        fields = {"n": "ranks", "N": "ranks_per_node", "d": "cpus_per_rank"}
        if option.name in fields:
            asked.count(fields[option.name], option.value, f"-{option.name}")
        elif option.name == "e":
            variable(option.value or "", asked)
        else:
            asked.refuse(f"-{option.name} of aprun, which the machine's launcher may say otherwise")
    return Launch("", asked, program)


_JSRUN = Table(
    values="""
        nrs,n tasks_per_rs,a cpu_per_rs,c gpu_per_rs,g rs_per_host,r bind,b
        launch_distribution,d latency_priority,l env,E smpiargs stdio_stdout,o stdio_stderr,k
        nproc,p
    """,
    flags="immediate,i",
)


def read_jsrun(words: list[str]) -> Launch:
    """What it asks for."""
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


def read_ibrun(words: list[str]) -> Launch:
    """What it asks for."""
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
