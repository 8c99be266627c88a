"""Whole jobs with hostile text in every field at once, and what surrounds them: a profile, secrets,
the submitter's environment and folder.

A job is clean, and then it has to run, or one of its fields holds what no script could express, and
then it has to be refused. `FIELDS` has a row for every field of a job file.
"""

from __future__ import annotations

import json
import re
import reprlib
import shlex
from collections.abc import Callable
from functools import cache
from typing import Any, Literal, NamedTuple, TypeAlias

import yaml
from hypothesis import strategies as st

from castoff import JobSpec
from castoff.launcher.schedulers.fields import without_effect
from castoff.launcher.schedulers.registry import scheduler_of
from tests.hostile import (
    BYTES,
    FILE_NAMES,
    HERE,
    LINE_FILE_NAMES,
    LINES,
    NAMES_OF_VARIABLES,
    RESOURCES,
    SHELL_TEXTS,
    TEXTS,
    WORDS,
)
from tests.launcher.fields_of_jobs import leaves, type_of

from . import hostile_surroundings as surroundings
from .hostile_poison import poisoned

Kind: TypeAlias = Literal["slurm", "pbs", "flux", "local"]
Fields: TypeAlias = "dict[str, Any]"

LAUNCHERS: dict[Kind, list[str]] = {
    "slurm": ["srun", "srun", "hydra", "openmpi", "intelmpi"],
    "pbs": ["hydra", "pals", "openmpi", "intelmpi"],
    "flux": ["flux"],
    "local": ["local"],
}

BARE_NAMES = ["a program", "a=b", "echo", "test", "eval", "exit", "if", "refuse", "[", "$(canary)", "*"]
"""Programs on PATH: some are called as a shell's builtins, keywords and the scripts' functions are."""


def _fits_flux(text: str) -> bool:
    return text.isprintable() and "'''" not in text and '"""' not in text


FLUX_LINES = LINES.filter(_fits_flux)


def _command(kind: Kind) -> st.SearchStrategy[list[str]]:
    program = st.one_of(
        FILE_NAMES.map(lambda name: f"{HERE}/programs/{name}"),
        FILE_NAMES.map(lambda name: f"./{name}"),
        st.sampled_from(BARE_NAMES),
    )
    return st.builds(lambda first, words: [first, *words], program, st.lists(WORDS, max_size=6))


def _name(kind: Kind) -> st.SearchStrategy[str]:
    if kind == "pbs":
        return st.text("aZ09_.+-", max_size=20).map(lambda rest: f"j{rest}")
    return LINE_FILE_NAMES.filter(_fits_flux) if kind == "flux" else LINE_FILE_NAMES


def _setup(kind: Kind) -> st.SearchStrategy[list[str]]:
    """Lines that set variables SETUP_0 … to hostile texts, and harmless ones between them."""
    harmless = st.sampled_from(["", "true", "# it's a \"comment", "if true; then :; fi", ": $UNSET"])

    def lines(values: list[str], between: str) -> list[str]:
        exports = [f"export SETUP_{at}={shlex.quote(value)}" for at, value in enumerate(values)]
        return [between, *exports, between]

    return st.builds(lines, st.lists(SHELL_TEXTS, max_size=3), harmless)


def _directives(kind: Kind) -> st.SearchStrategy[Fields]:
    """Some for whatever scheduler the site has, and some under the schedulers' names."""
    plain = st.just({}) if kind == "local" else _of_scheduler(kind)
    others: tuple[Kind, ...] = ("slurm", "pbs", "flux")
    sections = st.fixed_dictionaries({}, optional={other: _of_scheduler(other) for other in others})
    return st.builds(_once, plain, sections)


def _once(plain: Fields, sections: dict[str, Fields]) -> Fields:
    """Directives of which none stands twice."""
    apart = {
        scheduler: {name: value for name, value in section.items() if name not in plain}
        for scheduler, section in sections.items()
    }
    return {**plain, **apart}


def _of_scheduler(kind: Kind) -> st.SearchStrategy[Fields]:
    flags = st.sampled_from([True, False, None])
    if kind == "slurm":
        return st.dictionaries(
            st.sampled_from(["comment", "wckey", "licenses", "network", "x-site_1"]),
            LINES | flags,
            max_size=4,
        )
    if kind == "flux":
        names = st.sampled_from(["begin-time", "conf", "x-site_1"])
        return st.dictionaries(names, FLUX_LINES | flags, max_size=4)
    letters = st.dictionaries(st.sampled_from(["P", "S", "u", "k"]), LINES | flags, max_size=2)
    words = st.dictionaries(st.sampled_from(["site", "software", "eagle_fs"]), RESOURCES | flags, max_size=2)
    return st.builds(lambda some, others: {**some, **others}, letters, words)


def _chunks() -> st.SearchStrategy[Fields]:
    """What chunks may ask for: quotes, & and + are refused, spaces at the ends dropped."""
    values = RESOURCES.map(lambda text: re.sub("['\"&+]", "", text).strip(" ,") or "x")
    return st.dictionaries(
        st.sampled_from(["model", "gpu_type", "x-site_1"]), values | st.booleans(), max_size=2
    )


def _after(kind: Kind) -> st.SearchStrategy[Fields]:
    ids = st.sampled_from(["101", "12_3", "7[].head", "33.a-b.c"])
    names = LINES | st.sampled_from(["١٢٣", "$CASTOFF_RUN_DIR$(touch CANARY)"])
    conditions = st.sampled_from(["after", "afterok", "afternotok", "afterany"])
    lists = st.lists(ids, min_size=1, max_size=3) | st.lists(names, min_size=1, max_size=3)
    return st.dictionaries(conditions, lists, min_size=1, max_size=2)


def _inherit(kind: Kind) -> st.SearchStrategy[Any]:
    names = st.lists(st.sampled_from(["INHERITED_0", "INHERITED_1", "NOT_THERE"]), max_size=3, unique=True)
    return st.sampled_from(["none", "all"]) | names


def _workdir(kind: Kind) -> st.SearchStrategy[str]:
    return st.one_of(
        LINE_FILE_NAMES.map(lambda name: f"{HERE}/data/{name}"),
        LINE_FILE_NAMES.filter(lambda name: name != "~"),  # which is the home folder
        LINE_FILE_NAMES.map(lambda name: f"a b/{name}"),
        st.sampled_from(["-", "-P", "--", "~x", "elsewhere"]),
    )


def _python(kind: Kind) -> st.SearchStrategy[str]:
    return LINE_FILE_NAMES.map(lambda name: f"{HERE}/pythons/{name.replace(':', '')}_/python3")


def _among(*values: Any) -> Callable[[Kind], st.SearchStrategy[Any]]:
    return lambda kind: st.sampled_from(values)


def _lines(kind: Kind) -> st.SearchStrategy[str]:
    return FLUX_LINES if kind == "flux" else LINES


def _not_flux(values: st.SearchStrategy[Any]) -> Callable[[Kind], st.SearchStrategy[Any] | None]:
    return lambda kind: None if kind == "flux" else values


def _every(values: st.SearchStrategy[Any]) -> Callable[[Kind], st.SearchStrategy[Any]]:
    return lambda kind: values


def _teardown(kind: Kind) -> st.SearchStrategy[list[str]]:
    return SHELL_TEXTS.map(lambda text: [f"printf %s {shlex.quote(text)} >'{HERE}/seen/torn'"])


FIELDS: dict[str, Callable[[Kind], st.SearchStrategy[Any] | None]] = {
    "command": _command,
    "name": _name,
    "nodes": lambda kind: st.just(1) if kind == "local" else st.integers(1, 2),
    "ranks_per_node": lambda kind: st.integers(1, 2),
    "ranks": lambda kind: st.integers(1, 3),
    "cores_per_rank": lambda kind: st.integers(1, 4),
    "devices_per_rank": lambda kind: st.integers(0, 2),
    "binding": lambda kind: None if kind in ("flux", "local") else st.sampled_from(["0", "0-1", "1,3-4"]),
    "memory": _not_flux(st.sampled_from(["4G", "100M"])),
    "walltime": _among("00:30:00", "2h", "1-00:00:00"),
    "mail.on": _not_flux(st.sampled_from([["begin"], ["end", "fail"]])),
    "notify.to": lambda kind: st.sampled_from(["phone", ["a-b", "me@example.org"], ["me@example.org"]]),
    "notify.on": lambda kind: st.sampled_from([["end"], ["fail"], ["end", "fail"]]),
    "setup": _setup,
    "teardown": _teardown,
    "env": lambda kind: st.dictionaries(NAMES_OF_VARIABLES, TEXTS, max_size=5),
    "env_from": lambda kind: st.lists(st.sampled_from(["TOKEN", "KEY", "CDPATH"]), max_size=3, unique=True),
    "inherit": _inherit,
    "workdir": _workdir,
    "python": _python,
    "select": lambda kind: _chunks() if kind == "pbs" else None,
    "directives": _directives,
    "container.image": _every(surroundings.IMAGES),
    "container.runtime": _every(surroundings.RUNTIME_NAMES),
    "container.binds": _every(surroundings.BINDS),
    "container.env": lambda kind: st.dictionaries(NAMES_OF_VARIABLES, TEXTS, max_size=2),
    "container.gpus": _among(None, "nvidia", "amd", "intel", "none"),
    "container.args": lambda kind: st.lists(LINES, max_size=3),
    "stage.from": _every(surroundings.SOURCES),
    "stage.to": _every(surroundings.PLACES),
    "stage.unpack": _every(surroundings.UNPACKED),
    "stage.sha256": _every(surroundings.SUMS),
    "stage.activate": _every(surroundings.ACTIVATED),
    "launcher.name": lambda kind: st.sampled_from(LAUNCHERS[kind]),
    "launcher.torchrun": _among(False, False, True),
    "launcher.timeout": _among("10m", "1h"),
    "launcher.args": lambda kind: st.lists(LINES, max_size=3),
    "array.count": _not_flux(st.integers(1, 4)),
    "array.max_concurrent": _not_flux(st.integers(1, 4)),
    "after": _after,
    "requeue.max": lambda kind: st.integers(0, 3),
    "requeue.how": lambda kind: st.sampled_from(["copy", "chain"]) if kind in ("pbs", "flux") else None,
    "grace": _among("10s", "1m"),
    "templates": lambda kind: LINE_FILE_NAMES,
}
"""What a field may hold on a scheduler where that is not all of its type; None where that scheduler knows no
such field. Those of `stage` are lists, with a value for each item."""

FLAGS = (
    *("command", "name", "nodes", "ranks_per_node", "ranks", "cores_per_rank", "devices_per_rank", "memory"),
    *("walltime", "account", "queue", "qos", "constraint", "reservation", "exclude", "workdir", "python"),
)
"""Fields that have a flag of the command line; the others come by --set."""

EXEMPT: dict[str, str] = dict.fromkeys(
    (f"snapshot.{name}" for name in ("paths", "link", "limit")),
    "they enter no script; test_snapshot copies hostile names",
) | {
    "script": "it excludes most of the others; test_batch_script has its own",
    "sample_use": "it only decides whether use.py is added to a run directory",
    "shell": "it enters a script as a site's shell does",
    "options": "names of what a site has; it enters a script as the site's own fields of these names do",
    "device_type": "it takes letters, digits, - _ and . alone",
    "array.indices": "none of what it takes is hostile: test_array_indices",
    "array.parameters": "it excludes the count: test_parameters has its own hostile values",
    "array.commands": "reading the job turns it into parameters",
    **dict.fromkeys(
        ("array.together.nodes", "array.together.members", "array.together.per_node"),
        "they are numbers, and test_together runs members that share jobs",
    ),
    "launcher.preload": "it is for Python's commands alone; test_preload has its own",
    **dict.fromkeys(
        ("preflight", *(f"restart.{name}" for name in ("max", "spare_nodes", "hang", "never", "progress"))),
        "they change how a script runs its ranks: test_restarts has its own",
    ),
    **dict.fromkeys(
        ("requeue.on", "requeue.progress", "signal"),
        "what they do takes a walltime: test_requeues has its own",
    ),
    "launcher.driver": "it excludes most of the others; test_driver has its own",
}
"""Fields that are left out here, and why."""


_brief = reprlib.Repr()
_brief.maxlevel, _brief.maxdict, _brief.maxlist, _brief.maxstring, _brief.maxother = 9, 99, 99, 200, 200


class Case(NamedTuple):
    """A job, what surrounds it, and how it is brought to run. Paths begin with `HERE`."""

    kind: Kind
    fields: Fields
    profile: Fields | None
    """What a site's own profile says beside `extends`; None: the built-in site."""
    site: str
    secrets: dict[str, bytes]
    """The variables that `env_from` names, where the job is submitted."""
    inherited: dict[str, bytes]
    """Other variables there."""
    folder: str
    """The name of the folder where it is submitted."""
    writing: str
    """How the job file is spelled: `WRITERS`."""
    on_the_command_line: bool
    """Whether every second field comes as a flag or --set instead of in the file."""
    submitted: bool
    """Whether the script runs in a run directory that a submission made, with its secrets.sh."""
    rank_shell: str
    """What runs rank.sh as sh: "" is this machine's."""
    language: str
    """LANG, where it is set: shells read text by it."""
    again: bool
    """Whether the program asks to be started once more."""
    blamed: str | None
    """The field that holds what cannot be; None: nothing does, and the job has to run."""

    def __repr__(self) -> str:
        """With long texts cut short; the job file in the case's folder has them whole."""
        return f"Case({', '.join(f'{name}={_brief.repr(value)}' for name, value in self._asdict().items())})"

    @property
    def member(self) -> int:
        """The array's member that runs."""
        return int(self.fields.get("array", {}).get("count", 1)) - 1

    @property
    def chain(self) -> bool:
        """Whether the job is the first of a chain."""
        return bool(self.fields.get("requeue", {}).get("how") == "chain")


@st.composite
def cases(draw: st.DrawFn, kind: Kind) -> Case:
    """A job for a scheduler with everything around it."""
    clean = _agreeing(_nested(_drawn(draw, kind)), kind)
    profile = draw(st.none() | _profiles(kind))
    if profile is not None:
        _keep_apart(clean, profile)
    if kind == "flux":  # no line of a script ends with it
        clean, profile = _without(clean, "\r"), _without(profile, "\r")
    container = clean.get("container")
    again = bool(clean.get("requeue", {}).get("max")) and kind != "local" and draw(st.booleans())
    fields, blamed = clean, None
    if draw(st.integers(1, 5)) == 5:
        fields, profile, blamed = draw(poisoned(clean, profile, kind))
    return Case(
        kind=kind,
        fields=fields,
        profile=profile,
        site=kind if profile is None else draw(LINE_FILE_NAMES),
        secrets={name: draw(BYTES) for name in clean.get("env_from", [])},
        inherited={"INHERITED_0": draw(BYTES), "INHERITED_1": b"it's", "OTHER": draw(BYTES)},
        folder=surroundings.bindable(draw(FILE_NAMES), container) + draw(st.sampled_from(["", "", "\udcff"])),
        # YAML's own writer would not write some of the poison.
        writing="json" if blamed else draw(st.sampled_from(list(WRITERS))),
        on_the_command_line=draw(st.booleans()),
        submitted=draw(st.booleans()),
        rank_shell=draw(st.sampled_from(["", "bash"])),
        language=draw(st.sampled_from(["", "C.UTF-8"])),
        again=again,
        blamed=blamed,
    )


def _drawn(draw: st.DrawFn, kind: Kind) -> dict[str, Any]:
    """A value for every field, or for three of four."""
    everything = draw(st.booleans())
    chosen = {}
    for field, values in strategies(kind).items():
        if field == "command" or everything or draw(_ONE_OF_FOUR):
            chosen[field] = draw(values)
    return chosen


_ONE_OF_FOUR = st.integers(0, 3)


@cache
def strategies(kind: Kind) -> dict[str, st.SearchStrategy[Any]]:
    """What is drawn for each field, made once: to make a strategy takes longer than to draw from it."""
    names = set(leaves(JobSpec)) - EXEMPT.keys()
    made = {name: FIELDS[name](kind) if name in FIELDS else _by_type(name, kind) for name in sorted(names)}
    return {name: values for name, values in made.items() if values is not None}


def _by_type(name: str, kind: Kind) -> st.SearchStrategy[Any] | None:
    scheduler = scheduler_of(kind)
    if name not in scheduler.handles | without_effect(scheduler):
        return None
    rows = scheduler.dialect.fields if scheduler.dialect else ()
    least, most = next((row.bounds for row in rows if row.field == name and row.bounds), (-1000, 1000))
    return {bool: st.booleans(), int: st.integers(least, most), str: _lines(kind)}[type_of(name)]


def _nested(dotted: dict[str, Any]) -> Fields:
    fields: Fields = {}
    for field, value in dotted.items():
        outer, _, inner = field.partition(".")
        if inner:
            fields.setdefault(outer, {})[inner] = value
        else:
            fields[outer] = value
    return fields


def _agreeing(fields: Fields, kind: Kind) -> Fields:
    """Without what excludes something else."""
    if "ranks" in fields:
        if "nodes" in fields:
            fields.pop("ranks_per_node", None)
        elif "ranks_per_node" in fields:
            del fields["ranks"]
    if "ranks" in fields:
        fields["ranks"] = max(fields["ranks"], fields.get("nodes", 1))
    for outer, inner in (("mail", "to"), ("notify", "to"), ("array", "count")):
        if inner not in fields.get(outer, {inner: 0}):
            del fields[outer]
    if fields.get("array", {}).get("count", 1) > 1:
        fields.get("requeue", {}).pop("how", None)
    launcher = fields.get("launcher", {})
    if launcher.get("torchrun") or launcher.get("name") == "openmpi":
        fields.pop("binding", None)
    if "binding" in fields:  # a list for each rank, of a whole node's cores
        fields |= {"ranks_per_node": 1, "exclusive": True}
        fields.pop("ranks", None)
        fields.pop("cores_per_rank", None)
    _agree_on_surroundings(fields, kind)
    taken = {*fields.get("env", {}), *fields.get("container", {}).get("env", {})}
    fields["env_from"] = [name for name in fields.get("env_from", []) if name not in taken]
    return fields


def _agree_on_surroundings(fields: Fields, kind: Kind) -> None:
    """What is copied, and the container, with folders that its runtime can bind."""
    fields["stage"] = surroundings.items_of(fields.get("stage", {}))
    if fields["stage"]:
        fields.pop("nodes", None)  # all nodes are this machine, and have one disk
        fields.get("env", {}).pop("TMPDIR", None)  # where the copies go
    launcher = fields.get("launcher", {}).get("name")
    container = surroundings.fitting_container(fields.pop("container", {}), kind, launcher, fields["stage"])
    if container is not None:
        fields["container"] = container
        if "workdir" in fields:
            above, slash, name = fields["workdir"].rpartition("/")
            fields["workdir"] = above + slash + surroundings.bindable(name, container)


def _without(value: Any, character: str) -> Any:
    """All texts with another instead of a character; no name in a mapping holds one."""
    if isinstance(value, str):
        return value.replace(character, "r")  # not left out: it may be all there is of a file's name
    if isinstance(value, list):
        return [_without(item, character) for item in value]
    if isinstance(value, dict):
        return {key: _without(item, character) for key, item in value.items()}
    return value


@cache
def _profiles(kind: Kind) -> st.SearchStrategy[Fields]:
    """Text that a site's profile may hold."""
    default_env = st.fixed_dictionaries({}, optional={"DEFAULTED": TEXTS})
    optional: dict[str, st.SearchStrategy[Any]] = {
        "env": st.fixed_dictionaries({}, optional={"SITE_TEXT": TEXTS, "GREETING": TEXTS}),
        "setup": SHELL_TEXTS.map(lambda text: [f"export SITE_SETUP={shlex.quote(text)}"]),
        "mpiexec": LINE_FILE_NAMES.map(lambda name: f"{HERE}/mpi/{name}"),
        "master_suffix": st.from_regex(r"[A-Za-z0-9._-]{0,20}", fullmatch=True),
        "local_storage": LINE_FILE_NAMES.map(lambda name: f"{HERE}/disk/{name}"),
        "shell": st.sampled_from(["/bin/bash", "/opt/a b/bash -l", "/bin/bash $(touch CANARY)"]),
        "defaults": st.fixed_dictionaries({"env": default_env}, optional={"account": _lines(kind)}),
        "description": TEXTS,
    }
    if kind != "local":
        optional["launcher_args"] = st.lists(LINES, max_size=2)
    if kind == "slurm":
        optional["directives"] = st.fixed_dictionaries({}, optional={"comment": LINES, "x-other": LINES})
    if kind == "flux":
        optional["directives"] = st.fixed_dictionaries({}, optional={"conf": FLUX_LINES})
    if kind == "pbs":
        optional["directives"] = st.fixed_dictionaries({}, optional={"P": LINES, "other": RESOURCES})
    return st.fixed_dictionaries({}, optional=optional)


def _keep_apart(fields: Fields, profile: Fields) -> None:
    if "local_storage" in profile:
        above, slash, name = profile["local_storage"].rpartition("/")
        profile["local_storage"] = above + slash + surroundings.bindable(name, fields.get("container"))
    taken = {*profile.get("env", {}), *profile.get("defaults", {}).get("env", {})}
    fields["env_from"] = [name for name in fields["env_from"] if name not in taken]


# --- How a job file may be spelled ------------------------------------------------------------------

_NOT_RAW = re.compile(r"[^\x20-\x7e]")


def _as_json(fields: Fields) -> str:
    """As a program writes it; JSON is YAML, but for its two escapes for one character."""

    def escaped(found: re.Match[str]) -> str:
        character = found.group()
        if character.isprintable():
            return character
        return f"\\u{ord(character):04x}" if ord(character) < 0x10000 else f"\\U{ord(character):08x}"

    return _NOT_RAW.sub(escaped, json.dumps(fields, ensure_ascii=False))


def _as_yaml(**style: Any) -> Callable[[Fields], str]:
    return lambda fields: str(yaml.dump(fields, Dumper=yaml.CSafeDumper, sort_keys=False, **style))


WRITERS: dict[str, Callable[[Fields], str]] = {
    "json": _as_json,
    "block": _as_yaml(width=30),
    "flow": _as_yaml(default_flow_style=True, width=10_000),
    "double-quoted": _as_yaml(default_style='"'),
    "single-quoted": _as_yaml(default_style="'"),
    "literal": _as_yaml(default_style="|"),
}
