"""Words of Slurm, PBS, submitit and other launchers, and what says the same here.

For error messages: each gives the field's own name and an example with the user's own value. Nothing that
is read takes these words.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple, TypeAlias

from launcher.config.quantities import CPULISTS_PATTERN, DURATION_PATTERN, MEMORY_PATTERN
from launcher.errors import printable
from launcher.quoting import yaml_field


class Instead(NamedTuple):
    """What to write instead of a word."""

    fields: list[tuple[str, Any]]
    """Fields, dotted as `--set` spells them, each with what it holds then; None where that is not known."""
    note: str = ""
    """What else there is to know, in words."""


Entry: TypeAlias = "str | Instead | Callable[[Any], Instead]"


class Synonyms:
    """Words of others for one kind of struct."""

    def __init__(self, table: Mapping[str, Entry]):
        self.table = table

    def find(self, word: str, value: Any) -> Instead | None:
        """What to write instead of a word that has this value; None where it is nobody's."""
        entry = self.table.get(_key(word))
        if entry is None or isinstance(entry, Instead):
            return entry
        if isinstance(entry, str):
            return Instead([(entry, value)])
        try:
            return entry(value)
        except (ValueError, TypeError, AttributeError):  # the value is none that their word takes
            blank = entry(None)
            return Instead([(path, None) for path, _ in blank.fields], blank.note)

    def hint(self, word: str, value: Any) -> str | None:
        """The same as the end of a message about a field that does not exist."""
        found = self.find(word, value)
        return None if found is None else in_words(found, yaml_field)

    def words(self) -> Iterable[str]:
        """The words that are known, for near misses."""
        return self.table


def in_words(instead: Instead, line: Callable[[str, Any], str]) -> str:
    """`write queue: gpu`, each field spelled by `line`, and the note."""
    written = [line(path, value) if value is not None else path for path, value in instead.fields]
    proposal = f"write {' and '.join(written)}" if written else ""
    return "; ".join(part for part in (proposal, instead.note) if part)


def _key(word: str) -> str:
    return word.strip("-").replace("-", "_").casefold()


# --- How the value of one becomes that of the other ----------------------------------------------------


def _to(path: str, convert: Callable[[Any], Any], note: str = "") -> Callable[[Any], Instead]:
    def instead(value: Any) -> Instead:
        return Instead([(path, None if value is None else convert(value))], note)

    return instead


def _list(value: Any) -> list[str]:
    return [str(item) for item in value] if isinstance(value, list) else [str(value)]


def _words(value: Any) -> list[str]:
    return [str(item) for item in value] if isinstance(value, list) else shlex.split(str(value))


def _names(value: Any) -> list[str]:
    return _list(value) if isinstance(value, list) else re.split(r"[,\s]+", str(value).strip())


def _number(value: Any) -> int:
    return int(str(value))


def _duration(value: Any) -> str:
    """Slurm's time (sbatch(1), --time): minutes, M:S, H:M:S, D-H, D-H:M or D-H:M:S."""
    text = str(value)
    if re.search(DURATION_PATTERN, text):
        return text
    found = re.fullmatch(r"(?:([0-9]+)-)?([0-9]+)(?::([0-9]+))?(?::([0-9]+))?", text)
    if found is None:
        raise ValueError(text)
    days, *rest = found.groups()
    numbers = [int(number) for number in rest if number is not None]
    units = "hms" if days else {1: "m", 2: "ms", 3: "hms"}[len(numbers)]
    parts = [f"{int(days)}d"] if days else []
    parts += [f"{number}{unit}" for number, unit in zip(numbers, units, strict=False) if number]
    return "".join(parts) or "0s"


def _in_units(unit: str) -> Callable[[Any], str]:
    return lambda value: f"{_number(value)}{unit}"


def _size(value: Any) -> str:
    """A size with a unit; Slurm's own is M."""
    text = re.sub(r"\s|i?b$", "", str(value), flags=re.IGNORECASE).upper()
    text = f"{text}M" if text.isdecimal() else text
    if not re.search(MEMORY_PATTERN, text):
        raise ValueError(text)
    return text


def _gigabytes(value: Any) -> str:
    return f"{round(value * 1024)}M" if isinstance(value, float) else f"{_number(value)}G"


def _modules(value: Any) -> list[str]:
    return [f"module load {name}" for name in _list(value)]


def _program(value: Any) -> list[str]:
    words = _words(value)
    return ["python", *words] if words and words[0].endswith(".py") else words


def _events(value: Any) -> list[str]:
    events = [event for event in _names(str(value).lower()) if event in ("begin", "end", "fail")]
    return events or ["begin", "end", "fail"]


def _dependency(value: Any) -> Instead:
    if value is None:
        return Instead([("after", None)])
    after: dict[str, list[str]] = {}
    for part in _names(value):
        condition, *ids = part.split(":")
        if condition not in ("after", "afterok", "afternotok", "afterany") or not ids:
            return Instead([("after", {"afterok": ["preprocess"]})], "with names of runs, or ids of jobs")
        after.setdefault(condition, []).extend(ids)
    return Instead([("after", after)])


_EACH = "that is one rank for each; a rank that has several says so with devices_per_rank"


def _type_of_site(kind: str) -> str:
    return f"the type is the site's to say, in its profile: {yaml_field('gpu_type', kind)}"


def _gpus_of_a_node(value: Any) -> Instead:
    kind, _, count = str(value).rpartition(":")
    number = None if value is None else _number(count)
    note = f"{_EACH}; {_type_of_site(kind)}" if kind else _EACH
    if number == 0:
        return Instead([("devices_per_rank", 0)])
    return Instead([("ranks_per_node", number), ("devices_per_rank", number and 1)], note)


def _gres(value: Any) -> Instead:
    if value is None:
        return _gpus_of_a_node(None)
    name, _, rest = str(value).partition(":")
    if name != "gpu" or "," in rest:
        return Instead([("directives.slurm.gres", value)])
    return _gpus_of_a_node(rest if rest.rpartition(":")[2].isdecimal() else f"{rest}:1" if rest else 1)


def _gpus_of_a_job(value: Any) -> Instead:
    found = _gpus_of_a_node(value)
    return Instead(
        [({"ranks_per_node": "ranks"}.get(path, path), held) for path, held in found.fields], found.note
    )


def _gpus_of_a_rank(value: Any) -> Instead:
    kind, _, count = str(value).rpartition(":")
    note = _type_of_site(kind) if kind else ""
    return Instead([("devices_per_rank", None if value is None else _number(count))], note)


def _select(value: Any) -> Instead:
    if value is None:
        return Instead([("nodes", None)])
    count, *resources = str(value).split(":")
    named = dict(resource.split("=", 1) for resource in resources)
    fields: list[tuple[str, Any]] = [("nodes", _number(count))]
    if "mpiprocs" in named:
        fields.append(("ranks_per_node", _number(named["mpiprocs"])))
    if "mem" in named:
        fields.append(("memory", _size(named["mem"])))
    return Instead(fields)


def _nodes_by_ranks(value: Any) -> Instead:
    """torchx's -j: NODESxRANKS, or ranks alone."""
    if value is None:
        return Instead([("nodes", None), ("ranks_per_node", None)])
    nodes, _, ranks = str(value).rpartition("x")
    return Instead([("nodes", _number(nodes or 1)), ("ranks_per_node", _number(ranks))])


def _binding(value: Any) -> str:
    """From PALS's list: or srun's map_cpu:, which has one core for each rank."""
    text = str(value)
    lists = text.removeprefix("map_cpu:").replace(",", ":") if text.startswith("map_cpu:") else text
    lists = lists.removeprefix("list:")
    if not re.search(CPULISTS_PATTERN, lists):
        raise ValueError(value)
    return lists


def _raw(directive: str, note: str = "") -> Callable[[Any], Instead]:
    return _to(f"directives.{directive}", lambda value: value, note)


def _events_beside(value: Any) -> Instead:
    return Instead([("mail.on", None if value is None else _events(value))], "beside mail.to")


def _inherited(value: Any) -> str | list[str]:
    return str(value).lower() if str(value).lower() in ("all", "none") else _names(value)


def _starter(value: Any) -> str:
    if value not in ("srun", "pals", "hydra", "intelmpi", "openmpi"):
        raise ValueError(value)
    return str(value)


def _site_named(value: Any) -> Instead:
    name = f"--site {printable(value)}" if isinstance(value, str) else "--site NAME"
    return Instead([], f"which machine it is, the command line says: {name}")


def _given_duration(value: Any) -> str:
    """One whose unit is said."""
    if not re.search(DURATION_PATTERN, str(value)):
        raise ValueError(value)
    return str(value)


def _signal(value: Any) -> str:
    return f"{_number(str(value).rpartition('@')[2])}s"


def _many(words: str, entry: Entry) -> dict[str, Entry]:
    return dict.fromkeys(words.split(), entry)


def _without(note: str) -> Instead:
    return Instead([], note)


# --- The words -----------------------------------------------------------------------------------------

_STARTERS = "one of srun, pals, hydra, intelmpi and openmpi; a site has its own"
_CORES = Instead([("cores_per_rank", None)], "those of each rank; without it, a rank's share of the node")
_NODES = _to("nodes", _number)
_RANKS = _to("ranks", _number)
_RANKS_PER_NODE = _to("ranks_per_node", _number)
_OF_SBATCH = "comment licenses wckey network hold begin nice switches hint nodelist mem_per_cpu mem_per_gpu"

OF_JOBS = Synonyms(
    {
        # Where and for whom
        **_many("partition partitions q p", _to("queue", lambda value: ",".join(_list(value)))),
        **_many("project project_id allocation charge account_name bank", "account"),
        **_many("job_name jobname run_name experiment_name exp_name", "name"),
        **_many("constraints features feature", "constraint"),
        **_many("exclude_nodes", "exclude"),
        **_many("mail_user email mail_to notify notifications", _to("mail.to", str)),
        **_many("mail_type mail_events mail_on", _events_beside),
        **_many("scheduler site cluster machine system", _site_named),
        # How much of the machine
        **_many("nnodes num_nodes n_nodes number_of_nodes node_count max_nodes min_nodes nhosts", _NODES),
        **_many("num_hosts replicas num_replicas", _NODES),
        **_many("ntasks num_tasks tasks np nprocs num_procs world_size n_ranks num_ranks", _RANKS),
        **_many("ntasks_per_node tasks_per_node ppn procs_per_node processes_per_node", _RANKS_PER_NODE),
        **_many("nproc_per_node nprocs_per_node num_proc_per_node mpiprocs", _RANKS_PER_NODE),
        **_many("nproc_per_host processes_per_host tasks_per_host workers_per_node", _RANKS_PER_NODE),
        **_many("cpus_per_task cpus_per_rank cores_per_task", _to("cores_per_rank", _number)),
        **_many("cpus ncpus num_cpus cores cpu threads cpus_per_gpu cores_per_node", _CORES),
        "gres": _gres,
        **_many("gpus num_gpus ngpus gpu", _gpus_of_a_job),
        **_many("gpus_per_node gpus_per_host ngpu_per_host ngpus_per_host", _gpus_of_a_node),
        **_many("devices devices_per_node accelerators", _gpus_of_a_node),
        **_many("gpus_per_task gpus_per_rank devices_per_task", _gpus_of_a_rank),
        **_many("visible_gpus", Instead([("devices_per_rank", None)])),
        **_many("gpu_type gpu_model", _without("the type of GPU is the site's: gpu_type in its profile")),
        **_many("mem memory_per_node ram mem_per_node", _to("memory", _size)),
        **_many("mem_gb memory_gb ram_gb", _to("memory", _gigabytes, "of each node")),
        **_many("time time_limit timelimit t", _to("walltime", _duration)),
        **_many("wall_time wallclock max_time max_walltime duration", _to("walltime", _given_duration)),
        **_many("timeout max_runtime", _to("walltime", _given_duration)),
        **_many("timeout_min minutes time_min", _to("walltime", _in_units("m"))),
        **_many("hours walltime_hours", _to("walltime", _in_units("h"))),
        "select": _select,
        "j": _nodes_by_ranks,
        # What to run
        **_many("script cmd program entrypoint executable run python_script", _to("command", _program)),
        "args": _to("command", lambda value: ["python", "train.py", *_words(value)]),
        **_many("cwd chdir working_dir working_directory work_dir workspace directory folder", "workdir"),
        **_many("environment environ env_vars envs environment_variables", "env"),
        **_many("secrets secret env_secrets", _to("env_from", _names)),
        **_many("export inherit_env", _to("inherit", _inherited)),
        **_many("module modules module_load", _to("setup", _modules)),
        **_many("conda conda_env conda_environment", _to("setup", lambda name: [f"conda activate {name}"])),
        "conda_file": Instead([("setup", ["conda activate …"])]),
        **_many("venv virtualenv virtual_env", _to("setup", lambda path: [f"source {path}/bin/activate"])),
        **_many("setup_commands setup_lines pre_commands prologue preamble pre_run", _to("setup", _list)),
        # How it starts
        **_many("launcher starter mpi mpirun mpiexec", _to("start.starter", _starter, _STARTERS)),
        "torchrun": _to("start.torchrun", bool),
        **_many("srun_args mpi_args mpiexec_args launcher_args start_args", _to("start.args", _words)),
        **_many("image container_image docker_image sif", _to("container.image", str)),
        **_many("container_mounts mounts volumes", _to("container.binds", _names)),
        **_many("cpu_bind cpu_binding bind bind_to", _to("binding", _binding)),
        # Many and again
        **_many("dependency dependencies depends depends_on", _dependency),
        **_many("array_parallelism max_parallel array_limit concurrency", _to("array.at_most", _number)),
        **_many("array_size array_count num_jobs", _to("array.count", _number)),
        **_many("max_requeue max_requeues max_num_timeout retries retry", _to("requeue.max", _number)),
        **_many("max_retries max_restarts", _to("requeue.max", _number)),
        **_many("signal_delay_s", _to("grace", _in_units("s"))),
        "signal": _to("grace", _signal, "castoff chooses the signal; so long before its end the job gets it"),
        # The scheduler's own
        **{name: _raw("slurm." + name.replace("_", "-")) for name in _OF_SBATCH.split()},
        **_many("filesystems file_systems", _raw("pbs.filesystems")),
        "place": _raw("pbs.place"),
        **_many("slurm sbatch", _to("directives.slurm", dict)),
        **_many("pbs qsub", _to("directives.pbs", dict)),
        **_many(
            "additional_parameters slurm_params extra_args sbatch_args",
            Instead([("directives.slurm", {"licenses": "ansys:2"})], "with the option's own name and value"),
        ),
        # What there is no field for
        **_many("hostfile hosts host nodefile", _without("the scheduler says which hosts the job has")),
        **_many(
            "master_addr master_port rdzv_endpoint rdzv_backend rdzv_id",
            _without(
                "the job script chooses where ranks meet, and tells them in MASTER_ADDR and MASTER_PORT"
            ),
        ),
        **_many(
            "output error stdout stderr log logs log_dir log_file",
            _without("logs are in the run's directory, and castoff logs shows them"),
        ),
        "stderr_to_stdout": _without("a rank's log always holds both"),
        "teardown": _without("none is needed here: the program's own exit code is the job's"),
        "use_srun": _without("without srun only one rank starts, and nothing tells it to stop"),
    }
)
"""For a job file's fields, and an executor's parameters."""

OF_ARRAYS = Synonyms(
    {
        **_many("size members n tasks num_jobs length", "count"),
        **_many("parallel max_parallel limit concurrency parallelism at_once", "at_most"),
    }
)
OF_REQUEUES = Synonyms(_many("count times retries restarts", "max"))
OF_MAIL = Synonyms(
    {**_many("user address email", "to"), **_many("type types events when", _to("on", _events))}
)
OF_STARTS = Synonyms(
    {
        **_many("launcher type mpi with", "starter"),
        **_many("flags options extra_args arguments", _to("args", _words)),
    }
)
OF_CONTAINERS = Synonyms(
    {
        **_many("name path sif", "image"),
        **_many("engine type kind", "runtime"),
        **_many("mounts volumes bind mount", _to("binds", _names)),
        **_many("environment env_vars", "env"),
        **_many("flags options", _to("args", _words)),
    }
)
OF_STAGES = Synonyms(
    {
        **_many("source src path file", "from"),
        **_many("target dest destination", "to"),
        **_many("extract untar unzip", "unpack"),
        **_many("checksum sha hash", "sha256"),
    }
)

_RANGES = "limits that belong together stand in one of them"


def _range(name: str) -> Callable[[Any], Instead]:
    return _to("ranges", lambda value: [{name: value}], _RANGES)


OF_QUEUES = Synonyms(
    {
        **{name: _range(name) for name in ("min_nodes", "max_nodes", "min_walltime", "max_walltime")},
        **_many("nodes", _to("ranges", lambda value: [{"max_nodes": value}], _RANGES)),
        **_many(
            "walltime time time_limit max_time limit timelimit",
            _to("ranges", lambda value: [{"max_walltime": _duration(value)}], _RANGES),
        ),
        **_many("gpus max_gpus gpus_per_node", "max_devices"),
        **_many("max_running max_queued jobs jobs_per_user", "max_jobs"),
    }
)
OF_RANGES = Synonyms(
    {
        **_many("nodes", "max_nodes"),
        **_many("walltime time time_limit max_time", _to("max_walltime", _duration)),
    }
)
OF_NODES = Synonyms(
    {
        **_many("cores cpus cores_per_node cpus_per_node", _to("sockets", lambda n: [f"0-{_number(n) - 1}"])),
        **_many(
            "gpus gpus_per_node num_gpus",
            _to("devices", lambda n: [_number(n)], "with one number for each socket"),
        ),
        **_many("mem ram", _to("memory", _size)),
        **_many("reserved", "reserved_cores"),
    }
)


def _of_site() -> dict[str, Entry]:
    own: dict[str, Entry] = {
        **_many("partitions", "queues"),
        **_many("default_partition", "default_queue"),
        **_many("type batch_system resource_manager", "scheduler"),
        **_many("launcher mpi", "starter"),
        **_many("mpirun mpiexec_path", "mpiexec"),
        **_many("srun_args mpi_args mpiexec_args launcher_args", _to("start_args", _words)),
        **_many("module modules module_load", _to("setup", _modules)),
        **_many("prologue", _to("setup", _list)),
        **_many("epilogue", _to("teardown", _list)),
        **_many("base inherits parent template", "extends"),
        **_many("scratch local_disk tmp tmpdir", "local_storage"),
        **_many("environment env_vars environ", "env"),
        **_many("domain suffix", "master_suffix"),
        "gres": _gres_of_site,
        **_many("cores cpus cores_per_node", _to("node.sockets", lambda n: [f"0-{_number(n) - 1}"])),
        **_many(
            "gpus gpus_per_node devices",
            _to("node.devices", lambda n: [_number(n)], "with one number for each socket"),
        ),
        **_many("memory mem", _to("node.memory", _size)),
    }
    for name in ("max_nodes", "max_walltime", "max_jobs", "time_limit"):
        limit = OF_QUEUES.table.get(name, name)
        own[name] = _of_a_queue(limit)
    return own


def _of_a_queue(entry: Entry) -> Callable[[Any], Instead]:
    def instead(value: Any) -> Instead:
        found = Synonyms({"x": entry}).find("x", value)
        return Instead([(f"queues.NAME.{path}", held) for path, held in found.fields] if found else [])

    return instead


def _gres_of_site(value: Any) -> Instead:
    words = str(value).split(":")
    if value is None or words[0] != "gpu" or "," in str(value):
        return Instead([("gpu_request", "gres")])
    kind = [("gpu_type", word) for word in words[1:] if not word.isdecimal()]
    return Instead([("gpu_request", "gres"), *kind], "how many there are follows from each job")


class _OfSites(Synonyms):
    """A profile's own words; a job's fields, and other words for them, belong under `defaults`."""

    def __init__(self, table: Mapping[str, Entry], of_jobs: Synonyms):
        super().__init__(table)
        self.of_jobs = of_jobs

    def find(self, word: str, value: Any) -> Instead | None:
        own = super().find(word, value)
        if own is not None or _key(word) in _SAME_IN_DEFAULTS:
            return own or Instead([(f"defaults.{_key(word)}", value)])
        found = self.of_jobs.find(word, value)
        if found is None or not found.fields:
            return found
        return Instead([(f"defaults.{path}", held) for path, held in found.fields], found.note)


_SAME_IN_DEFAULTS = frozenset(
    {
        *(
            "account",
            "queue",
            "walltime",
            "nodes",
            "ranks",
            "ranks_per_node",
            "cores_per_rank",
            "array",
            "stage",
        ),
        *(
            "devices_per_rank",
            "constraint",
            "reservation",
            "exclude",
            "exclusive",
            "mail",
            "env_from",
            "inherit",
        ),
        *("workdir", "snapshot", "python", "container", "requeue", "grace", "command", "start", "after"),
        *("templates", "memory", "binding"),
    }
)
"""A job file's fields that a profile has not."""

OF_SITES = _OfSites(_of_site(), OF_JOBS)

OF = {
    "JobSpec": OF_JOBS,
    "Site": OF_SITES,
    "Node": OF_NODES,
    "Queue": OF_QUEUES,
    "Range": OF_RANGES,
    "Array": OF_ARRAYS,
    "Requeue": OF_REQUEUES,
    "Mail": OF_MAIL,
    "Start": OF_STARTS,
    "Container": OF_CONTAINERS,
    "Stage": OF_STAGES,
}
"""By the name of the struct that has the fields."""


# --- What is written into a field as others would ------------------------------------------------------


def array(value: Any) -> Instead:
    """sbatch's --array, and qsub's -J: 0-7%2, or how many there are."""
    span, _, at_most = str(value or "").partition("%")
    first, _, last = span.partition("-")
    if not (first.isdecimal() and (last.isdecimal() or not last)) or not (at_most.isdecimal() or not at_most):
        return Instead([("array.count", None)])
    count = int(last) - int(first) + 1 if last else int(first)
    held = {"count": count, "at_most": int(at_most)} if at_most else {"count": count}
    return Instead([("array", held)], "members count from 0, in CASTOFF_ARRAY_INDEX")


def _quoted_number(value: Any) -> int:
    if not isinstance(value, str) or not re.fullmatch(r" *[1-9][0-9]{0,17} *", value):
        raise ValueError(value)
    return int(value)


def _without_unit(value: Any) -> Instead:
    note = "a number alone is minutes to Slurm, but seconds to PBS" if str(value).isdecimal() else ""
    return Instead([("walltime", None if value is None else _duration(value))], note)


def _with_unit(value: Any) -> str:
    if str(value).isdecimal():
        raise ValueError(value)
    return _size(value)


def _after(value: Any) -> Instead:
    if value is None or ":" in str(value):
        return _dependency(value)
    return Instead([("after", {"afterok": _names(value)})])


def _of_text(text: Any, what: str, end: str = "=") -> tuple[str, str]:
    found = re.fullmatch(rf"{what}([A-Za-z_][A-Za-z0-9_-]*){end}(.+)", str(text))
    if found is None:
        raise ValueError(text)
    return found[1], found[2]


def _start(value: Any) -> Instead:
    if value == "torchrun":
        return Instead([("start.torchrun", True)])
    return Instead([("start.starter", _starter(value) if value is not None else None)])


def _times(value: Any) -> int:
    """How often: `requeue: true` is once."""
    return int(str(value)) if not isinstance(value, bool) else int(value)


def _address(value: Any) -> str:
    if "@" not in str(value):
        raise ValueError(value)
    return str(value)


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(value)
    return value


VALUES = {
    "JobSpec": Synonyms(
        {
            **{name: _to(name, _quoted_number) for name in ("nodes", "ranks", "ranks_per_node")},
            **{name: _to(name, _quoted_number) for name in ("cores_per_rank", "devices_per_rank")},
            "walltime": _without_unit,
            "memory": _to("memory", _with_unit),
            "array": array,
            "after": _after,
            "requeue": _to("requeue.max", _times),
            "start": _start,
            "container": _to("container.image", _text),
            "mail": _to("mail.to", _address),
            "env": _to("env", lambda items: dict(_of_text(item, "") for item in _list(items))),
            "directives": _to(
                "directives", lambda items: dict(_of_text(item, "--", "[= ]") for item in _list(items))
            ),
        }
    ),
    "Array": Synonyms({name: _to(name, _quoted_number) for name in ("count", "at_most")}),
    "Requeue": Synonyms({"max": _to("max", _quoted_number)}),
}
"""By the name of the struct, its own fields: how to write what holds a value that they do not take."""


def _verbs(words: str, verb: str) -> dict[str, str]:
    return dict.fromkeys(words.split(), verb)


VERBS: dict[str, str] = {
    **_verbs("ls ps squeue qstat jobs queue runs history top", "list"),
    **_verbs("sacct info state", "status"),
    **_verbs("show describe inspect", "status render"),
    **_verbs("kill scancel qdel delete del abort terminate", "cancel"),
    **_verbs("rm remove prune purge gc cleanup", "clean"),
    **_verbs("sbatch qsub", "submit"),
    **_verbs("run start", "launch submit"),
    **_verbs("exec srun mpiexec mpirun torchrun", "launch"),
    **_verbs("log tail cat follow output", "logs"),
    **_verbs("requeue restart resume continue retry rerun", "resubmit"),
    **_verbs("check validate preview dry_run dryrun script print generate", "render"),
    **_verbs("new create template", "init"),
    **_verbs("site machines clusters systems profiles", "sites"),
    **_verbs("whoami rank", "explain"),
    **_verbs("fit", "train"),
}
"""Verbs of others, and castoff's: one or two."""

_LETTERS = {"p": "queue", "q": "queue", "A": "account", "t": "walltime", "N": "nodes", "J": "name"}
OPTION_LETTERS = {**_LETTERS, "C": "constraint", "x": "exclude", "c": "cores_per_rank", "D": "workdir"}
"""Short options of sbatch, and the fields that say the same."""
