"""Reads flux batch's directives in scripts that castoff has not written, as flux-batch(1) does."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from pathlib import PurePosixPath

from castoff.launcher.config.quantities import SIGNAL_PATTERN
from castoff.launcher.launchers.foreign.asked import Asked
from castoff.launcher.launchers.foreign.options import Option, Table
from castoff.launcher.schedulers.flux import NAME
from castoff.launcher.schedulers.flux.batch_directives import DIALECT, OF_LOGIN
from castoff.launcher.schedulers.script_reader import SUBMITS, ScriptReader, as_written, raw, read_field

_TABLE = Table(
    values="""
        nodes,N nslots,n cores-per-slot,c gpus-per-slot,g setopt,o setattr,S env env-remove
        env-file time-limit,t queue,q bank,B job-name output error cwd requires dependency
        begin-time urgency rlimit signal conf broker-opts dump priority
    """,
    flags="exclusive,x verbose,v quiet unbuffered,u label-io,l wait",
)


def read(rest: str, asked: Asked) -> None:
    """Read the text after `# flux:`."""
    try:
        words = shlex.split(rest, comments=True)
    except ValueError:
        words = rest.split()
    options, left = _TABLE.read(words)
    for option in options:
        _option(option, asked)
    if left:
        asked.refuse(f"{left[0]!r} is not an option of flux batch")


def _option(option: Option, asked: Asked) -> None:
    name, text = option.name, option.value or ""
    counts = {
        "nodes": "nodes",
        "nslots": "ranks",
        "cores-per-slot": "cpus_per_rank",
        "gpus-per-slot": "rank_devices",
    }
    if name in counts:
        plain = text.removeprefix("=")
        if asked.count(counts[name], plain, f"--{name}"):
            as_written(name, plain, DIALECT, asked, f"--{name}")
    elif read_field(name, True if option.value is None else text, DIALECT, asked, f"--{name}"):
        pass
    elif name in ("output", "error", "label-io", "unbuffered"):
        as_written(name, True if option.value is None else text, DIALECT, asked, f"--{name}")
    elif name in ("verbose", "quiet", "wait", "dump"):
        asked.drop(f"--{name}: {SUBMITS}")
    elif name == "env" and "=" in text and "$" not in text:
        variable, _, value = text.partition("=")
        asked.env[variable] = value
    elif name == "env-remove" and text == "*":
        asked.fields["inherit"] = "none"
    elif name == "env" and re.fullmatch(r"[A-Za-z_]\w*", text):
        if (inherited := asked.fields.get("inherit")) is not None and text not in OF_LOGIN:
            asked.fields["inherit"] = [*(inherited if isinstance(inherited, list) else []), text]
    elif name == "dependency" and (
        match := re.fullmatch(r"(after|afterstart|afterok|afterany|afternotok):(\S+)", text)
    ):
        condition = "after" if match[1] == "afterstart" else "afterany" if match[1] == "after" else match[1]
        asked.fields.setdefault("after", {}).setdefault(condition, []).append(match[2])
    elif name == "signal":
        field = re.sub("^SIG", "", text if "@" in text else f"{text}@60")
        asked.is_unclear("--signal sends a signal to the script itself")
        if re.fullmatch(SIGNAL_PATTERN, field):
            asked.fields["signal"] = field
        else:
            asked.refuse(f"--signal={text}: castoff sends USR1, USR2, TERM, INT or HUP")
    elif name in ("setopt", "setattr") and isinstance(before := asked.directives.get(name), str):
        asked.directives[name] = asked.raw[name] = f"{before} {text}"
    else:
        raw(name, True if option.value is None else text, DIALECT, asked, f"--{name}")


def finish(asked: Asked) -> None:
    """Apply flux batch's defaults: a job gets the submitter's environment unless a directive forbids it."""
    if asked.fields.setdefault("inherit", "all") == "none":
        del asked.fields["inherit"]
    if "workdir" in asked.fields:  # Flux resolves paths from this folder; castoff's scripts enter it later
        asked.raw.setdefault("output", "flux-{{id}}.out")
        for name in ("output", "error"):
            if name in asked.raw:
                path = PurePosixPath(asked.fields["workdir"]) / str(asked.raw[name])
                as_written(name, str(path), DIALECT, asked, f"--{name}")
    if asked.nodes is None:
        if (asked.ranks or 1) > 1:
            asked.is_unclear("the directives leave the number of nodes to Flux")
        asked.nodes = 1


def variables(asked: Asked) -> Mapping[str, str | None]:
    """Return no variables: Flux sets none for the resources of a batch job."""
    return {}


READER = ScriptReader(
    name=NAME,
    directive=re.compile(r"[^\w\n]*[ \t]*(?:flux|FLUX):[ \t]*(.*)"),
    mistaken=re.compile(r"(?!x)x"),
    ends_at_command=False,
    read=read,
    finish=finish,
    variables=variables,
    sizes=re.compile(r"FLUX_JOB_SIZE"),
    same_in_ranks=re.compile(r"FLUX_JOB_ID_PATH"),
    own=re.compile(r"\bFLUX_\w*|(?<![\w./-])flux(?![\w.:-])"),
    mark="#flux:",
    title="flux batch",
    scheduler="Flux",
    needs_shebang=True,
)
"""The reader of flux batch's scripts."""
