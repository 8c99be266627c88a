"""Reads sbatch's directives in scripts that castoff has not written, as sbatch(1) does."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import PurePosixPath

from castoff.launcher.config.quantities import SIGNAL_PATTERN
from castoff.launcher.launchers.foreign.asked import Asked
from castoff.launcher.launchers.foreign.options import Option, Table
from castoff.launcher.launchers.foreign.srun import ALONE, devices
from castoff.launcher.schedulers.script_reader import (
    REQUEUE,
    SUBMITS,
    ScriptReader,
    as_written,
    raw,
    read_field,
)
from castoff.launcher.schedulers.slurm import NAME
from castoff.launcher.schedulers.slurm.sbatch_directives import DIALECT
from castoff.launcher.typed.suggestion import did_you_mean

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
_AS_WRITTEN = ("output", "error", "open-mode", "input")
"""Directives for the script's own input and output; ranks have separate logs."""
_DROPPED = {
    "no-requeue": "castoff's scripts have it, too",
    **dict.fromkeys(("verbose", "quiet", "parsable", "wait", "ignore-pbs", "test-only"), SUBMITS),
}
_SHARES = re.compile(
    r"(?:ntasks|gpus|cpus|sockets|cores|threads)-per-(?!node$|task$)|overcommit$|use-min-nodes|input$|hint$"
    r"|distribution$|\w+-bind$|(?:core|thread)-spec$|nodefile$|extra-node-info$"
)
"""Matches directives about ranks that castoff's fields cannot express."""
_EVENTS = {"BEGIN": "begin", "END": "end", "FAIL": "fail"}


def read(rest: str, asked: Asked) -> None:
    """Read the text after `#SBATCH`."""
    options, left = _TABLE.read(_arguments(rest))
    for option in options:
        _option(option, asked)
    if left[:1] in (["hetjob"], ["packjob"]):
        asked.refuse("a heterogeneous job has components of several kinds, and a job file describes one")
    elif left:
        asked.refuse(f"{left[0]!r} is not an option: sbatch ignores the rest of the line")


def _arguments(rest: str) -> list[str]:
    """Split a text into words like sbatch: a backslash also works in quotes, and an unquoted # begins a
    comment.
    """
    words: list[str] = []
    word: list[str] | None = None
    quote, position = "", 0
    while position < len(rest):
        char = rest[position]
        position += 1
        if char == "\\" and position < len(rest):
            word = [*(word or []), rest[position]]
            position += 1
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
                words.append("".join(word))
            word = None
        else:
            word = [*(word or []), char]
    return words if word is None else [*words, "".join(word)]


def _option(option: Option, asked: Asked) -> None:
    name, value = option.name, option.value
    text, spelled = value or "", f"--{option.name}"
    if _SHARES.match(name):
        asked.is_unclear(f"castoff has no field for {spelled}")
    if value == "" and option.known:
        asked.refuse(f"{spelled} has no value")
    elif name in _AS_WRITTEN:
        as_written(name, text, DIALECT, asked, spelled)
    elif "$" in text:
        asked.refuse(f"{spelled} is {text}, and sbatch replaces no variable in a directive")
    elif name in _COUNTS:
        if asked.count(_COUNTS[name], text, spelled):
            as_written(name, text, DIALECT, asked, spelled)
    elif name in ("gpus", "gpus-per-node", "gpus-per-task", "gres"):
        devices(name, text, asked)
        as_written(name, text, DIALECT, asked, spelled)
    elif name == "chdir":
        asked.fields["workdir"] = text
    elif name in _DROPPED:
        asked.drop(f"{spelled}: {_DROPPED[name]}")
    elif name in _SPECIAL:
        _SPECIAL[name](text, asked)
    elif read_field(name, True if value is None else text, DIALECT, asked, spelled):
        if name == "time" and re.fullmatch(r"\d+:\d+", text):
            asked.note(f"--time={text} is minutes and seconds to Slurm; {text}:00 would be hours")
    elif name.startswith(("container", "no-container-")):
        asked.refuse(f"{spelled}: the whole script, and castoff's part of it, would run in the container")
    elif not option.known and (hint := did_you_mean(name, _TABLE.takes)):
        asked.refuse(f"sbatch has no option {spelled}{hint}")
    else:
        raw(name, True if value is None else text, DIALECT, asked, spelled)


def _nodes(text: str, asked: Asked) -> None:
    least, dash, most = text.partition("-")
    if asked.count("nodes", most or least, "--nodes"):
        as_written("nodes", text, DIALECT, asked, "--nodes")
    if dash and most != least:
        asked.is_unclear(_CHOOSES)


def _export(text: str, asked: Asked) -> None:
    names: list[str] = []
    for part in text.split(","):
        name, equals, value = part.partition("=")
        if equals:
            asked.env[name] = value
        elif name not in ("ALL", "NONE", "NIL", ""):
            names.append(name)
    everything = "ALL" in text.split(",")
    asked.fields["inherit"] = "all" if everything else names or "none"
    if text != "ALL":  # without ALL, sbatch also loads the environment of a login (sbatch.c, 22.05)
        as_written("export", text, DIALECT, asked, "--export")
    if not everything:
        asked.is_unclear(f"--export={text} hides the script's variables from srun's ranks")


def _requeue(_text: str, asked: Asked) -> None:
    asked.fields["requeue"] = dict(REQUEUE)


def _signal(text: str, asked: Asked) -> None:
    match = re.fullmatch(r"(?:([BR]{1,2}):)?(\w+)(?:@(\d+))?", text)
    if match is None:
        asked.refuse(f"--signal is {text}, which is not a signal and time")
        return
    flags, signal, before = match.groups()
    field = f"{signal}@{before or 60}"
    taken = re.fullmatch(SIGNAL_PATTERN, field) is not None
    if not taken or "R" in (flags or ""):
        asked.is_unclear(f"castoff has no field for --signal={text}")
    if "B" not in (flags or ""):
        as_written("signal", text, DIALECT, asked, "--signal")
        asked.of_ranks["signal"] = field
        return
    asked.is_unclear(f"--signal={text} sends a signal to the script itself")
    if taken:
        asked.fields["signal"] = field
    else:
        asked.refuse(f"--signal={text}: castoff sends USR1, USR2, TERM, INT or HUP")


def _mail_on(text: str, asked: Asked) -> None:
    asked.fields["mail.on"] = [*asked.fields.get("mail.on", []), *text.upper().replace(" ", "").split(",")]


_SPECIAL = {
    "nodes": _nodes,
    "export": _export,
    "requeue": _requeue,
    "signal": _signal,
    "mail-type": _mail_on,
}


def finish(asked: Asked) -> None:
    """Apply sbatch's defaults: it passes on the submitter's environment, and chooses the number of nodes."""
    kinds = asked.fields.pop("mail.on", None)
    if kinds and "ALL" in kinds:
        kinds = [*_EVENTS] if {*kinds} <= {*_EVENTS, "ALL"} else kinds
    if kinds and kinds != ["NONE"]:
        if "mail.to" in asked.fields and {*kinds} <= {*_EVENTS}:
            asked.fields["mail.on"] = [event for kind, event in _EVENTS.items() if kind in kinds]
        else:
            raw("mail-type", ",".join(dict.fromkeys(kinds)), DIALECT, asked, "--mail-type")
            if "mail.to" in asked.fields:
                raw("mail-user", asked.fields.pop("mail.to"), DIALECT, asked, "--mail-user")
    elif asked.fields.pop("mail.to", None):
        asked.drop("--mail-user: without --mail-type sbatch sends no mail")
    asked.fields.setdefault("inherit", "all")
    if asked.fields["inherit"] == "none":
        del asked.fields["inherit"]
    if asked.rank_devices and ((asked.ranks_per_node or 1) > 1 or (asked.ranks or 1) > (asked.nodes or 1)):
        asked.is_unclear(ALONE)
    if "workdir" in asked.fields:
        _output_there(asked)
    if (asked.nodes or 1) > 1 and asked.ranks and not asked.ranks_per_node:
        # Slurm 22.05 gives one node 7 of 8 tasks.
        asked.is_unclear("the directives leave the tasks of each node to Slurm")
    if asked.nodes is None:
        if (asked.ranks or 1) > 1 or (asked.devices or 1) > 1:
            asked.is_unclear(_CHOOSES)
        asked.nodes = -(-(asked.ranks or 1) // asked.ranks_per_node) if asked.ranks_per_node else 1
        if asked.ranks is None:
            asked.nodes = 1


def _output_there(asked: Asked) -> None:
    """Make paths relative to the folder of --chdir, like Slurm, since castoff's scripts enter that folder
    only later.
    """
    folder = PurePosixPath(asked.fields["workdir"].replace("%", "%%"))
    asked.raw.setdefault("output", "slurm-%A_%a.out" if "array" in asked.fields else "slurm-%j.out")
    for name in ("output", "error", "input"):
        if name in asked.raw:
            as_written(name, str(folder / str(asked.raw[name])), DIALECT, asked, f"--{name}")


_CHOOSES = "the directives leave the number of nodes to Slurm"


def variables(asked: Asked) -> Mapping[str, str | None]:
    """Return the values that Slurm's variables will have, as seen with Slurm 22.05."""
    ranks = asked.ranks or (asked.ranks_per_node and asked.ranks_per_node * (asked.nodes or 1))
    values: dict[str, int | None] = {
        "SLURM_NNODES": asked.nodes,
        "SLURM_JOB_NUM_NODES": asked.nodes,
        "SLURM_NTASKS": ranks,
        "SLURM_NPROCS": ranks,
        "SLURM_NTASKS_PER_NODE": asked.ranks_per_node,
        "SLURM_CPUS_PER_TASK": asked.cpus_per_rank,
    }
    return {name: None if value is None else str(value) for name, value in values.items()}


READER = ScriptReader(
    name=NAME,
    directive=re.compile(r"#SBATCH\b[ \t]*(.*)"),
    mistaken=re.compile(r"#[ \t]+SBATCH[ \t]+-|#[Ss]batch[ \t]+-|#SBACTH|#SBTACH"),
    ends_at_command=True,
    read=read,
    finish=finish,
    variables=variables,
    sizes=re.compile(r"SLURM_(?:NTASKS|NPROCS|TASKS_PER_NODE|CPUS_PER_TASK|GPUS(?!_ON_NODE))\w*"),
    same_in_ranks=re.compile(
        r"SLURM_(?:JOB_?ID|JOB_NAME|JOB_NODELIST|JOB_NUM_NODES|NNODES|SUBMIT_DIR|ARRAY_\w+|JOB_ACCOUNT"
        r"|JOB_PARTITION|CLUSTER_NAME|SUBMIT_HOST)"
    ),
    own=re.compile(
        r"\bSLURM(?:D|_|\b)\w*|(?<![\w./-])(?:srun|sbatch|salloc|scontrol|squeue|scancel|sacct|sstat|sbcast|sinfo"
        r"|sattach)(?![\w.-])"
    ),
    mark="#SBATCH",
    title="sbatch",
    scheduler="Slurm",
    submit_dir="SLURM_SUBMIT_DIR",
    array_index="SLURM_ARRAY_TASK_ID",
    needs_shebang=True,
    requeues=re.compile(r"^[^#\n]*\bscontrol\s+requeue\b", re.MULTILINE),
)
"""The reader of sbatch's scripts."""
