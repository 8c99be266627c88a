"""Read torchrun's command line. Pure functions."""

from __future__ import annotations

import re
from pathlib import PurePosixPath
from typing import NamedTuple

from castoff.launcher.launchers.foreign.asked import Asked
from castoff.launcher.launchers.foreign.options import Table

_TORCHRUN = Table(
    values="""
        nnodes nproc-per-node rdzv-backend rdzv-endpoint rdzv-id rdzv-conf max-restarts
        monitor-interval start-method role log-dir redirects,r tee,t local-ranks-filter
        node-rank master-addr master-port local-addr logs-specs numa-binding event-log-handler
        signals-to-handle duplicate-stdout-filters duplicate-stderr-filters
        virtual-local-rank-size
    """,
    flags="standalone module,m no-python run-path use-env use-agent-store virtual-local-rank",
)
_OF_CASTOFF = {
    *("rdzv-backend", "rdzv-endpoint", "rdzv-id", "node-rank", "master-addr", "master-port"),
    *("standalone", "local-addr", "use-env"),
}
"""Options about the rendezvous, which castoff sets itself."""
_AS_VARIABLES = ("max-restarts", "monitor-interval", "start-method", "role")


class Torchrun(NamedTuple):
    """A torchrun command line."""

    asked: Asked
    """`ranks_per_node`, and `nodes` if the command line gives their number."""
    per_device: bool
    """Whether torchrun starts a rank on each device."""
    before: list[str]
    """The interpreter's words, which precede the program's."""
    program: int
    """The number of words at the end of the line that belong to the program."""


def read_torchrun(words: list[str]) -> Torchrun | None:
    """Read a command line; None if it does not start torchrun."""
    name = PurePosixPath(words[0]).name if words else ""
    if name == "torchrun":
        interpreter, rest = ["python"], words[1:]
    elif re.fullmatch(r"python[0-9.]*", name):
        start = next((n for n, word in enumerate(words[1:], 1) if word not in ("-u", "-B", "-I")), 0)
        if words[start : start + 2] != ["-m", "torch.distributed.run"]:
            return None
        interpreter, rest = words[:start], words[start + 2 :]
    else:
        return None
    asked = Asked()
    plain = [re.sub("^--[^=]+", lambda match: match.group().replace("_", "-"), word) for word in rest]
    options, program = _TORCHRUN.read(plain)
    values = {option.name: option.value or "" for option in options}
    for option in options:
        name, text = option.name, option.value or ""
        if name == "nnodes":
            asked.count("nodes", text, "torchrun's --nnodes")
        elif name == "nproc-per-node" and text not in ("gpu", "auto"):
            asked.count("ranks_per_node", text, "torchrun's --nproc-per-node")
        elif name in _AS_VARIABLES and "$" not in text:
            asked.env[f"PET_{name.replace('-', '_').upper()}"] = text
        elif name not in {*_OF_CASTOFF, "module", "no-python", "nproc-per-node"}:
            asked.refuse(f"castoff does not know torchrun's --{name}")
    if "nproc-per-node" not in values:
        asked.ranks_per_node = 1
    before = [] if "no-python" in values else [*interpreter, "-m"] if "module" in values else interpreter
    return Torchrun(asked, values.get("nproc-per-node") in ("gpu", "auto"), before, len(program))
