"""What a script's directives ask for, as sbatch, qsub and flux batch read them: of originals and conversions.

After the manuals sbatch(1), qsub(1B), pbs_resources(7B) and flux-batch(1), and not after castoff's readers.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from tests.launcher.scripts import readers

Options = dict[str, str]


class Resources(NamedTuple):
    """What a job gets."""

    nodes: int | None
    """None: as many as the scheduler likes."""
    cpus: int
    """In total."""
    tasks: int
    tasks_per_node: str
    gpus: int
    gpu_type: str
    memory: str
    exclusive: bool
    walltime: int | None
    """In seconds."""
    others: tuple[tuple[str, str], ...]
    """What is only compared, by its name."""


class Head(NamedTuple):
    """The directives of a script."""

    options: Options
    resources: Resources


# --- Slurm

_SHORT = {
    **{
        "A": "account",
        "a": "array",
        "b": "begin",
        "B": "extra-node-info",
        "c": "cpus-per-task",
        "C": "constraint",
    },
    **{
        "d": "dependency",
        "D": "chdir",
        "e": "error",
        "F": "nodefile",
        "G": "gpus",
        "H": "hold",
        "i": "input",
    },
    **{"J": "job-name", "k": "no-kill", "L": "licenses", "M": "clusters", "m": "distribution", "N": "nodes"},
    **{"n": "ntasks", "O": "overcommit", "o": "output", "p": "partition", "q": "qos", "Q": "quiet"},
    **{"s": "oversubscribe", "S": "core-spec", "t": "time", "v": "verbose", "w": "nodelist", "W": "wait"},
    **{"x": "exclude"},
}
_ALONE = set(
    re.findall(
        r"\S+",
        """
    hold no-kill overcommit quiet oversubscribe verbose wait requeue no-requeue contiguous
    spread-job exclusive use-min-nodes get-user-env reboot parsable nice propagate
    """,
    )
)
"""Without a value, unless = joins one to them."""

_OURS = {
    "job-name",
    "output",
    "error",
    "open-mode",
    "signal",
    "requeue",
    "no-requeue",
    "export",
    "get-user-env",
    "comment",
}
"""Of Slurm's options, what is compared otherwise, or may differ."""


def slurm_options(text: str) -> Options:
    """The options of sbatch by their long names; the last of several counts."""
    found: Options = {}
    for line in text.split("\n"):
        if line.startswith("#SBATCH") and line[7:8] in (" ", "\t", ""):
            words = readers.slurm_arguments(line.removeprefix("#SBATCH"))
            while words:
                word = words.pop(0)
                if word.startswith("--"):
                    name, joined, value = word[2:].partition("=")
                else:
                    assert word.startswith("-") and word[1:2] in _SHORT, f"sbatch: {word}"
                    name, joined, value = _SHORT[word[1]], word[2:], word[2:]
                if not joined and name not in _ALONE:
                    assert words, f"sbatch: {word} without a value"
                    value = words.pop(0)
                found[{"tasks-per-node": "ntasks-per-node"}.get(name, name)] = value
        elif line.strip() and not line.lstrip().startswith("#"):
            break
    return found


def slurm(text: str) -> Head:
    """The head of a script for sbatch."""
    options = slurm_options(text)
    least = re.match(r"[0-9]+", options.get("nodes", ""))
    nodes = int(least[0]) if least else None
    each = int(options.get("ntasks-per-node", 0))
    tasks = int(options.get("ntasks", 0)) or (nodes or 1) * (each or 1)
    if nodes is None and tasks == 1:
        nodes = 1  # one task is on one node
    if nodes is None and each:
        nodes = -(-tasks // each)
    per_task = int(options.get("cpus-per-task", 1))
    gpus, kind = _slurm_gpus(options, nodes or 1, tasks)
    if "cpus-per-gpu" in options:
        per_task = gpus * int(options["cpus-per-gpu"]) // tasks
    others = {name: value for name, value in options.items() if name not in _OURS | _OF_SIZE}
    memory = _slurm_memory(options, max(1, tasks * per_task // (nodes or 1)))
    resources = Resources(
        nodes=nodes,
        cpus=tasks * per_task,
        tasks=tasks,
        tasks_per_node=str(each or (-(-tasks // nodes) if nodes else "")),
        gpus=gpus,
        gpu_type=kind,
        memory=memory,
        exclusive="exclusive" in options and options["exclusive"] in ("", "user"),
        walltime=seconds(options["time"]) if "time" in options else None,
        others=tuple(sorted(others.items())),
    )
    return Head(options, resources)


_OF_SIZE = set(
    re.findall(
        r"\S+",
        """
    nodes ntasks ntasks-per-node cpus-per-task cpus-per-gpu gres gpus gpus-per-node gpus-per-task
    mem mem-per-cpu mem-per-gpu exclusive time chdir
    """,
    )
)


def _slurm_gpus(options: Options, nodes: int, tasks: int) -> tuple[int, str]:
    for name, times in {"gpus-per-node": nodes, "gpus-per-task": tasks, "gpus": 1, "gres": nodes}.items():
        for one in options.get(name, "").split(","):
            words = one.split(":") if name != "gres" else one.split(":")[1:]
            if name == "gres" and not one.startswith("gpu"):
                continue
            if one:
                count = words.pop() if words and words[-1].isdigit() else "1"
                return int(count) * times, words[0] if words else ""
    return 0, ""


def _slurm_memory(options: Options, cpus_per_node: int) -> str:
    """Of each node, in megabytes."""
    for name, times in (("mem", 1), ("mem-per-cpu", cpus_per_node)):
        if found := re.fullmatch(r"([0-9]+)([KMGT]?)B?", options.get(name, "").upper()):
            unit = {"K": 1 / 1024, "": 1, "M": 1, "G": 1024, "T": 1024**2}[found[2]]
            return str(round(int(found[1]) * unit * times))
    return options.get("mem-per-gpu", "")


def seconds(text: str) -> int:
    """Of a walltime, as Slurm writes it."""
    days, dash, rest = text.rpartition("-")
    parts = [int(part) for part in rest.split(":")]
    if dash:
        parts = [*parts, 0, 0][:3]
    elif len(parts) == 1:
        parts = [0, *parts, 0]
    elif len(parts) == 2:
        parts = [0, *parts]
    return int(days or 0) * 86400 + parts[0] * 3600 + parts[1] * 60 + parts[2]


# --- PBS


def pbs_options(text: str) -> Options:
    """The options of qsub: letters, and resources by `l.NAME`."""
    found: Options = {}
    for line in text.split("\n"):
        if line.startswith("#PBS"):
            words = readers.pbs_arguments(line.removeprefix("#PBS"))
            while words:
                letter = words[0][1:2]
                value = words.pop(0)[2:]
                if not value and letter not in "VzhXfI":
                    value = words.pop(0)
                if letter == "l":
                    for name, one in readers.pbs_resources(value):
                        found[f"l.{name}"] = str(one)
                elif letter in ("W", "v") and letter in found:
                    found[letter] += f",{value}"
                else:
                    found[letter] = value
        elif line.strip() and not line.lstrip().startswith("#"):
            break
    return found


_OURS_OF_PBS = {
    "N",
    "o",
    "e",
    "j",
    "k",
    "r",
    "V",
    "v",
    "S",
    "l.select",
    "l.walltime",
    "l.nodes",
    "l.ncpus",
    "l.mem",
}


def pbs(text: str) -> Head:
    """The head of a script for qsub."""
    options = pbs_options(text)
    chunks: list[tuple[int, dict[str, str]]] = []
    if "l.select" in options:
        for part in options["l.select"].split("+"):
            count, _, rest = part.partition(":")
            if not count.isdigit():
                count, rest = "1", part
            chunks.append((int(count), dict(one.split("=", 1) for one in rest.split(":") if "=" in one)))
    elif "l.nodes" in options:
        for part in options["l.nodes"].split("+"):
            count, _, rest = part.partition(":")
            ppn = re.search(r"ppn=([0-9]+)", rest)
            chunks.append((int(count) if count.isdigit() else 1, {"ncpus": ppn[1] if ppn else "1"}))
            chunks[-1][1]["mpiprocs"] = chunks[-1][1]["ncpus"]
    else:
        chunks.append((1, {"ncpus": options.get("l.ncpus", "1")}))
        if "l.mem" in options:
            chunks[0][1]["mem"] = options["l.mem"]

    def total(name: str, default: str) -> int:
        return sum(count * int(resources.get(name, default)) for count, resources in chunks)

    chunk = chunks[0][1]
    place = options.get("l.place", "")
    tasks = sum(count * int(one.get("mpiprocs", "1")) for count, one in chunks)
    resources = Resources(
        nodes=sum(count for count, _ in chunks),
        cpus=total("ncpus", "1"),
        tasks=tasks,
        tasks_per_node=chunk.get("mpiprocs", "1"),
        gpus=total("ngpus", "0"),
        gpu_type=chunk.get("gpu_type", chunk.get("gpu_model", "")),
        memory=chunk.get("mem", "").lower(),
        exclusive="excl" in place,
        walltime=_pbs_seconds(options.get("l.walltime", "")),
        others=tuple(
            sorted((name, one) for name, one in options.items() if name not in _OURS_OF_PBS | {"l.place"})
        ),
    )
    return Head(options, resources)


def _pbs_seconds(text: str) -> int | None:
    if not text:
        return None
    total = 0
    for part in text.split(":"):
        total = 60 * total + int(float(part))
    return total


# --- Flux

_FLUX_SHORT = {
    **{
        "N": "nodes",
        "n": "nslots",
        "c": "cores-per-slot",
        "g": "gpus-per-slot",
        "t": "time-limit",
        "q": "queue",
    },
    **{"B": "bank", "x": "exclusive"},
}
_FLUX_OURS = set(
    re.findall(
        r"\S+",
        """
    job-name output error env env-remove env-file nodes nslots cores-per-slot gpus-per-slot
    time-limit exclusive cwd label-io unbuffered
    """,
    )
)


def flux_options(text: str) -> Options:
    """The options of flux batch by their long names."""
    found: Options = {}
    for line in text.split("\n")[1:]:
        marked = re.match(r"#\s?(?:flux|FLUX):(.*)$", line)
        if not marked:
            if line.strip() and not line.startswith("#"):
                break
            continue
        words = readers.flux_arguments(marked[1])
        while words:
            word = words.pop(0)
            name, equals, value = word.removeprefix("--").partition("=")
            if not word.startswith("--"):
                name, equals, value = _FLUX_SHORT[word[1]], word[2:], word[2:]
            if not equals and name not in ("exclusive", "requeue", "label-io", "unbuffered"):
                value = words.pop(0)
            found[name] = f"{found[name]},{value}" if name in found else value
    return found


def flux(text: str) -> Head:
    """The head of a script for flux batch."""
    options = flux_options(text)
    nodes = int(options["nodes"]) if "nodes" in options else None
    exclusive = "exclusive" in options
    slots = int(options.get("nslots", nodes or 1))
    each = int(options.get("cores-per-slot", 1))
    others = {name: value for name, value in options.items() if name not in _FLUX_OURS}
    limit = options.get("time-limit", "")
    unit = {"s": 1, "m": 60, "h": 3600, "d": 86400}.get(limit[-1:], 60)
    resources = Resources(
        nodes=nodes,
        cpus=slots * each,
        tasks=slots,
        tasks_per_node=str(-(-slots // nodes)) if nodes else "",
        gpus=slots * int(options.get("gpus-per-slot", 0)),
        gpu_type="",
        memory="",
        exclusive=exclusive or ("nodes" in options and "nslots" not in options),
        walltime=int(float(limit.rstrip("smhd")) * unit) if limit else None,
        others=tuple(sorted(others.items())),
    )
    return Head(options, resources)


READERS = {"slurm": slurm, "pbs": pbs, "flux": flux}
