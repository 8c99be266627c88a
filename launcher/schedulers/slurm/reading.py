"""sbatch's directives in scripts that castoff has not written, as sbatch(1) reads them."""

from __future__ import annotations

import re
from collections.abc import Mapping

from launcher.config.quantities import clock
from launcher.launchers.foreign.asked import Asked
from launcher.launchers.foreign.line import LOGS
from launcher.launchers.foreign.options import Option, Table
from launcher.launchers.foreign.srun import devices
from launcher.schedulers.reading import ScriptReader, raw
from launcher.schedulers.slurm import NAME
from launcher.schedulers.slurm.directives import DIALECT
from launcher.typed.suggestion import did_you_mean

_TABLE = Table(
    values="""
        nodes,N ntasks,n ntasks-per-node,tasks-per-node ntasks-per-socket ntasks-per-core
        ntasks-per-gpu cpus-per-task,c mem mem-per-cpu mem-per-gpu mem-bind gpus,G gpus-per-node
        gpus-per-task gpus-per-socket gpu-bind gpu-freq cpus-per-gpu gres gres-flags
        distribution,m hint export export-file output,o error,e input,i time,t time-min
        partition,p account,A qos,q constraint,C cluster-constraint reservation nodelist,w
        exclude,x nodefile,F job-name,J chdir,workdir,D threads-per-core network licenses,L
        priority signal dependency,d array,a begin,b deadline delay-boot mail-type mail-user
        comment wckey tmp switches clusters,M acctg-freq cpu-freq profile core-spec,S
        thread-spec sockets-per-node cores-per-socket extra-node-info,B open-mode power prefer
        tres-per-task wait-all-nodes batch bb bbf burst-buffer image volume module wrap
        container-image container-mounts container-workdir container-name container uid gid
        mcs-label ntasks-per-tres
    """,
    flags="""
        exclusive-user requeue no-requeue contiguous overcommit,O oversubscribe,share,s hold,H
        verbose,v quiet,Q parsable test-only wait,W spread-job use-min-nodes reboot ignore-pbs
        no-kill,k kill-on-bad-exit container-mount-home no-container-mount-home
        container-writable container-remap-root stepmgr x11-all
    """,
    optional="exclusive nice get-user-env propagate kill-on-invalid-dep x11",
)

_COUNTS = {"ntasks": "ranks", "ntasks-per-node": "ranks_per_node", "cpus-per-task": "cpus_per_rank"}
_COUNTS |= {"cpus-per-gpu": "device_cpus"}
_FIELDS = {
    "partition": "queue",
    "account": "account",
    "qos": "qos",
    "constraint": "constraint",
    "reservation": "reservation",
    "exclude": "exclude",
    "job-name": "name",
    "chdir": "workdir",
}
_DROPPED = {
    **dict.fromkeys(("output", "error"), LOGS),
    "open-mode": "castoff's logs add to what is there",
    "no-requeue": "castoff's scripts have it, too",
    "input": "castoff's scripts read no input",
    "get-user-env": "castoff's scripts run in a login shell",
    "kill-on-bad-exit": "castoff ends the job at the first rank that fails",
    **dict.fromkeys(
        ("verbose", "quiet", "parsable", "wait", "ignore-pbs"), "it is for the command that submits"
    ),
}
_EVENTS = {"BEGIN": "begin", "END": "end", "FAIL": "fail"}


def read(rest: str, asked: Asked) -> None:
    """What stands behind `#SBATCH`."""
    options, left = _TABLE.read(_arguments(rest))
    for option in options:
        _option(option, asked)
    if left[:1] in (["hetjob"], ["packjob"]):
        asked.refuse("a heterogeneous job has components of several kinds, and a job file describes one")
    elif left:
        asked.refuse(f"{left[0]!r} is no option: sbatch reads nothing from there on")


def _arguments(rest: str) -> list[str]:
    """Words as sbatch has them: a backslash works in quotes too, an unquoted # begins a comment."""
    found: list[str] = []
    word: list[str] | None = None
    quote, at = "", 0
    while at < len(rest):
        char = rest[at]
        at += 1
        if char == "\\" and at < len(rest):
            word = [*(word or []), rest[at]]
            at += 1
        elif quote:
            if char == quote:
                quote = ""
            else:
                word = [*(word or []), char]
        elif char in "\"'":
            quote, word = char, word or []
        elif char == "#":
            break
        elif char.isspace():
            if word is not None:
                found.append("".join(word))
            word = None
        else:
            word = [*(word or []), char]
    return found if word is None else [*found, "".join(word)]


def _option(option: Option, asked: Asked) -> None:
    name, value = option.name, option.value
    text, spelled = value or "", f"--{option.name}"
    if value == "" and option.known:
        asked.refuse(f"{spelled} has no value")
    elif "$" in text:
        asked.refuse(f"{spelled} is {text}, and sbatch replaces no variable in a directive")
    elif name == "nodes":
        least, dash, most = text.partition("-")
        asked.count("nodes", most or least, spelled)
        if dash:
            asked.note(f"--nodes={text}: castoff asks for {most or least}, the most of them")
    elif name in _COUNTS:
        asked.count(_COUNTS[name], text, spelled)
    elif name in ("gpus", "gpus-per-node", "gpus-per-task", "gres"):
        devices(name, text, asked)
    elif name in _FIELDS:
        asked.fields[_FIELDS[name]] = text
    elif name in _DROPPED:
        asked.drop(f"{spelled}: {_DROPPED[name]}")
    elif name in _SPECIAL:
        _SPECIAL[name](text, asked, value)
    elif name.startswith(("container-", "no-container-")):
        asked.refuse(
            f"{spelled}: the whole script would run in the container; container.image is for the ranks"
        )
    elif name in ("image", "volume", "module"):
        _shifter(name, text, asked)
    elif not option.known and (hint := did_you_mean(name, _TABLE.takes)):
        asked.refuse(f"sbatch has no option {spelled}{hint}")
    else:
        raw(name, True if value is None else text, DIALECT, asked, spelled)


def _time(text: str, asked: Asked, _: str | None) -> None:
    total = minutes(text)
    if re.fullmatch(r"\d+:\d+", text):
        asked.note(f"--time={text} is minutes and seconds to Slurm; {text}:00 would be hours")
    if total is None:
        asked.refuse(f"--time is {text}, which is no duration that castoff knows")
    else:
        asked.fields["walltime"] = clock(total)


def minutes(text: str) -> int | None:
    """Seconds of a time as Slurm has it: minutes, minutes:seconds, days-hours …; None: it is none."""
    found = re.fullmatch(r"(?:(\d+)-)?(\d+)(?::(\d+))?(?::(\d+))?", text)
    if found is None:
        return None
    days, first, second, third = found.groups()
    if days is not None:
        hours, mins, secs = int(first), int(second or 0), int(third or 0)
    elif third is not None:
        hours, mins, secs = int(first), int(second), int(third)
    else:
        hours, mins, secs = 0, int(first), int(second or 0)
    total = ((int(days or 0) * 24 + hours) * 60 + mins) * 60 + secs
    return total or None


def _memory(text: str, asked: Asked, _: str | None) -> None:
    found = re.fullmatch(r"(\d+)([KMGT]?)B?", text, re.IGNORECASE)
    if found is None:
        asked.refuse(f"--mem is {text}, which is no whole number of K, M, G or T")
    elif int(found[1]) == 0:
        asked.directives["mem"] = "0"
    else:
        number, unit = int(found[1]), found[2].upper() or "M"
        if unit == "M" and number % 1024 == 0:
            number, unit = number // 1024, "G"
        asked.fields["memory"] = f"{number}{unit}"


def _exclusive(text: str, asked: Asked, value: str | None) -> None:
    if value is None:
        asked.fields["exclusive"] = True
    else:
        asked.directives["exclusive"] = text


def _array(text: str, asked: Asked, _: str | None) -> None:
    indices, _percent, most = text.partition("%")
    if not re.fullmatch(r"\d+(?:-\d+(?::\d+)?)?(?:,\d+(?:-\d+(?::\d+)?)?)*", indices):
        asked.refuse(f"--array is {text}, which are no indices")
        return
    asked.fields["array"] = {"indices": indices}
    if most.isdecimal() and int(most):
        asked.fields["array"]["max_concurrent"] = int(most)


def _dependency(text: str, asked: Asked, _: str | None) -> None:
    after: dict[str, list[str]] = {}
    for part in text.split(","):
        condition, *jobs = part.split(":")
        if condition not in ("after", "afterok", "afternotok", "afterany") or not jobs or "?" in text:
            asked.refuse(
                f"--dependency={text}: `after` knows after, afterok, afternotok and afterany of job ids"
            )
            return
        after.setdefault(condition, []).extend(job.partition("+")[0] for job in jobs)
    asked.fields["after"] = after


def _export(text: str, asked: Asked, _: str | None) -> None:
    names: list[str] = []
    for part in text.split(","):
        name, equals, value = part.partition("=")
        if equals:
            asked.env[name] = value
        elif name not in ("ALL", "NONE", "NIL", ""):
            names.append(name)
    everything = "ALL" in text.split(",")
    asked.fields["inherit"] = "all" if everything else names or "none"


def _requeue(_text: str, asked: Asked, _: str | None) -> None:
    asked.fields["requeue.max"] = 1
    asked.note(
        "--requeue: castoff starts a run again at most requeue.max times, when its program stopped early and "
        "said so by the outcome `resume` (docs/how-to/resume.md)"
    )


def _signal(text: str, asked: Asked, _: str | None) -> None:
    found = re.fullmatch(r"(?:[BR]{1,2}:)?(\w+)(?:@(\d+))?", text)
    if found is None:
        asked.refuse(f"--signal is {text}, which is no signal and time")
        return
    asked.fields["grace"] = f"{found[2] or 60}s"
    asked.note(
        f"--signal={text}: castoff asks for a stop that long before the walltime, by CASTOFF_STOP_FILE; "
        f"ranks get no {found[1]}"
    )


def _mail_to(text: str, asked: Asked, _: str | None) -> None:
    asked.fields["mail.to"] = text


def _mail_on(text: str, asked: Asked, _: str | None) -> None:
    kinds = [kind.strip().upper() for kind in text.split(",")]
    on = list(_EVENTS.values()) if "ALL" in kinds else [_EVENTS[kind] for kind in kinds if kind in _EVENTS]
    others = [kind for kind in kinds if kind not in _EVENTS and kind not in ("ALL", "NONE")]
    if others:
        asked.refuse(f"--mail-type={','.join(others)}: mail.on knows begin, end and fail")
    before = asked.fields.get("mail.on", [])
    if on:
        asked.fields["mail.on"] = [event for event in _EVENTS.values() if event in (*before, *on)]
    elif not others:
        asked.drop(f"--mail-type={text}: no mail is the default")


def _shifter(name: str, text: str, asked: Asked) -> None:
    if name == "image":
        asked.fields["container.image"] = re.sub(r"^docker:", "", text) if "/" in text else text
    elif name == "volume":
        asked.fields["container.binds"] = text.split(";")
    else:
        asked.fields["container.args"] = [f"--module={text}"]


_SPECIAL = {
    "time": _time,
    "mem": _memory,
    "exclusive": _exclusive,
    "array": _array,
    "dependency": _dependency,
    "export": _export,
    "requeue": _requeue,
    "signal": _signal,
    "mail-user": _mail_to,
    "mail-type": _mail_on,
}


def finish(asked: Asked) -> None:
    """sbatch hands a job the submitter's environment unless a directive says otherwise."""
    if "mail.on" in asked.fields and "mail.to" not in asked.fields:
        asked.directives["mail-type"] = ",".join(asked.fields.pop("mail.on")).upper()
    if "mail.to" in asked.fields and "mail.on" not in asked.fields:
        del asked.fields["mail.to"]
        asked.note("--mail-user without --mail-type: sbatch sends no mail")
    asked.fields.setdefault("inherit", "all")
    if asked.fields["inherit"] == "none":
        del asked.fields["inherit"]
    if asked.nodes is None and asked.ranks is not None and asked.ranks_per_node is not None:
        asked.nodes = -(-asked.ranks // asked.ranks_per_node)


def variables(asked: Asked) -> Mapping[str, str]:
    """What Slurm's variables will hold (sbatch(1), OUTPUT ENVIRONMENT VARIABLES)."""
    nodes = asked.nodes or 1
    ranks = asked.ranks or nodes * (asked.ranks_per_node or 1)
    per_node = asked.node_devices or (asked.rank_devices or 0) * (asked.ranks_per_node or 1)
    if not per_node and asked.devices and asked.devices % nodes == 0:
        per_node = asked.devices // nodes
    known: dict[str, int | None] = {
        "SLURM_NNODES": nodes,
        "SLURM_JOB_NUM_NODES": nodes,
        "SLURM_NTASKS": ranks,
        "SLURM_NPROCS": ranks,
        "SLURM_NTASKS_PER_NODE": asked.ranks_per_node,
        "SLURM_TASKS_PER_NODE": asked.ranks_per_node,
        "SLURM_CPUS_PER_TASK": asked.cpus_per_rank,
        "SLURM_GPUS_PER_NODE": per_node or None,
        "SLURM_GPUS_ON_NODE": per_node or None,
        "SLURM_GPUS": asked.devices,
        "SLURM_GPUS_PER_TASK": asked.rank_devices,
        "SLURM_NODEID": 0,  # the script runs on the first node
        "SLURM_PROCID": 0,
        "SLURM_LOCALID": 0,
    }
    return {name: str(value) for name, value in known.items() if value is not None}


def output_of(command: str, asked: Asked) -> str | None:
    """The number of nodes, counted by scontrol; and of devices by nvidia-smi."""
    if re.fullmatch(r"scontrol\s+show\s+hostnames?\b[^|;&]*\|\s*(?:sort -u\s*\|\s*)?wc -l", command):
        return str(asked.nodes or 1)
    if re.fullmatch(r"(?:nvidia-smi|rocm-smi)\b[^;&]*\|\s*wc -l", command):
        return variables(asked).get("SLURM_GPUS_ON_NODE")
    return None


READER = ScriptReader(
    name=NAME,
    directive=re.compile(r"#SBATCH\b[ \t]*(.*)"),
    mistaken=re.compile(r"#[ \t]+SBATCH[ \t]+-|#[Ss]batch[ \t]+-|#SBACTH|#SBTACH"),
    ends_at_command=True,
    read=read,
    finish=finish,
    variables=variables,
    output_of=output_of,
    places=re.compile(
        r"scontrol\s+show\s+(?:--\S+\s+)?host|SLURM(?:_JOB|_STEP)?_NODELIST|SLURM_(?:JOB_)?(?:NNODES|NUM_NODES)"
        r"|SLURM_(?:NTASKS|NPROCS|PROCID|LOCALID|NODEID|TASKS_PER_NODE|GPUS|GTIDS|LAUNCH_NODE|SRUN_COMM)"
        r"|SLURMD_NODENAME|SLURM_STEP"
    ),
    submit_dir=("SLURM_SUBMIT_DIR",),
    title="sbatch",
    array_index=("SLURM_ARRAY_TASK_ID",),
)
"""How sbatch's scripts are read."""
