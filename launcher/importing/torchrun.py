"""torchrun's command line. Pure."""

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
"""Options about where ranks meet, which castoff chooses."""
_AS_VARIABLES = ("max-restarts", "monitor-interval", "start-method", "role")


class Torchrun(NamedTuple):
    """A command line of torchrun's, read."""

    asked: Asked
    """`ranks_per_node`, and `nodes` if it says how many there are."""
    per_device: bool
    """Whether it starts a rank on each device."""
    before: list[str]
    """The interpreter that stands before the program's words."""
    program: int
    """How many words the program has, at the end of the line."""


def read_torchrun(words: list[str]) -> Torchrun | None:
    """What it asks for; None: these words are not torchrun's."""
    name = PurePosixPath(words[0]).name if words else ""
    if name == "torchrun":
        interpreter, rest = ["python"], words[1:]
    elif re.fullmatch(r"python[0-9.]*", name):
        at = next((n for n, word in enumerate(words[1:], 1) if word not in ("-u", "-B", "-I")), 0)
        if words[at : at + 2] != ["-m", "torch.distributed.run"]:
            return None
        interpreter, rest = words[:at], words[at + 2 :]
    else:
        return None
    asked = Asked()
    plain = [re.sub("^--[^=]+", lambda one: one.group().replace("_", "-"), word) for word in rest]
    options, program = _TORCHRUN.read(plain)
    given = {option.name: option.value or "" for option in options}
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
    if "nproc-per-node" not in given:
        asked.ranks_per_node = 1
    before = [] if "no-python" in given else [*interpreter, "-m"] if "module" in given else interpreter
    return Torchrun(asked, given.get("nproc-per-node") in ("gpu", "auto"), before, len(program))
