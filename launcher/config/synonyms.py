"""Words of Slurm, PBS, submitit and other launchers, and what says the same here: `synonyms.yaml` has them.

For error messages: each gives the field's own name and an example with the user's own value. Nothing that
is read takes these words.
"""

from __future__ import annotations

import contextlib
import re
import shlex
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, NamedTuple

from launcher.config.document import Document
from launcher.config.job import JobSpec
from launcher.config.quantities import CPULISTS_PATTERN, DURATION_PATTERN, MEMORY_PATTERN
from launcher.config.structure import fields_of
from launcher.errors import printable
from launcher.quoting import yaml_field


class Instead(NamedTuple):
    """What to write instead of a word."""

    fields: list[tuple[str, Any]]
    """Fields, dotted as `--set` spells them, each with what it holds then; None where that is not known."""
    note: str = ""
    """What else there is to know, in words."""


class _Entry(NamedTuple):
    """A row of the table, for one of its words."""

    fields: list[str]
    conversion: str = "same"
    note: str = ""
    example: Any = None

    def instead(self, value: Any) -> Instead:
        held = self.example
        if self.conversion != "unknown" and (value is not None or not self.fields):
            with contextlib.suppress(ValueError, TypeError, AttributeError):  # not as their word takes it
                held = self._converted(value)
        if isinstance(held, Instead):
            return held
        fields = []
        for field in self.fields:
            outer, inside, inner = field.partition("[].")
            fields.append((outer, [{inner: held}] if inside and held is not None else held))
        return Instead(fields, self.note)

    def _converted(self, value: Any) -> Any:
        if "{}" in self.conversion:
            return [self.conversion.format(item) for item in _list(value)]
        return _CONVERSIONS[self.conversion](value)


class Synonyms:
    """Words of others for one kind of struct."""

    def __init__(self, rows: Iterable[list[Any]] = ()):
        self.table = {
            _key(word): _Entry(fields.replace("*", word).split(), *rest)
            for words, fields, *rest in rows
            for word in words.split()
        }

    def find(self, word: str, value: Any) -> Instead | None:
        """What to write instead of a word that has this value; None where it is nobody's."""
        entry = self.table.get(_key(word))
        return None if entry is None else entry.instead(value)

    def hint(self, word: str, value: Any) -> str | None:
        """The same as the end of a message about a field that does not exist."""
        found = self.find(word, value)
        return None if found is None else in_words(found, yaml_field)


class _OfSites(Synonyms):
    """A profile's own words; a job's fields, and other words for them, belong under `defaults`."""

    def find(self, word: str, value: Any) -> Instead | None:
        if own := super().find(word, value):
            return own
        known = _key(word) in fields_of(JobSpec)
        found = Instead([(_key(word), value)]) if known else OF_JOBS.find(word, value)
        return found and found._replace(fields=[(f"defaults.{path}", held) for path, held in found.fields])


def in_words(instead: Instead, line: Callable[[str, Any], str]) -> str:
    """`write queue: gpu`, each field spelled by `line`, and the note."""
    written = [line(path, value) if value is not None else path for path, value in instead.fields]
    proposal = f"write {' and '.join(written)}" if written else ""
    return "; ".join(part for part in (proposal, instead.note) if part)


def _key(word: str) -> str:
    return word.strip("-").replace("-", "_").casefold()


# --- How the value of one becomes that of the other; ValueError and TypeError mean that it does not ----


def _list(value: Any, split: Callable[[str], list[str]] = lambda text: [text]) -> list[str]:
    return [str(item) for item in value] if isinstance(value, list) else split(str(value))


def _words(value: Any) -> list[str]:
    return _list(value, shlex.split)


def _names(value: Any) -> list[str]:
    return _list(value, lambda text: re.split(r"[,\s]+", text.strip()))


def _number(value: Any) -> int:
    return int(str(value))


def _matching(pattern: str, value: Any) -> str:
    if not re.search(pattern, str(value)):
        raise ValueError(value)
    return str(value)


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


def _size(value: Any) -> str:
    """A size with a unit; Slurm's own is M."""
    text = re.sub(r"\s|i?b$", "", str(value), flags=re.IGNORECASE).upper()
    return _matching(MEMORY_PATTERN, f"{text}M" if text.isdecimal() else text)


def _program(value: Any) -> list[str]:
    words = _words(value)
    return ["python", *words] if words and words[0].endswith(".py") else words


def _events(value: Any) -> list[str]:
    events = [event for event in _names(str(value).lower()) if event in ("begin", "end", "fail")]
    return events or ["begin", "end", "fail"]


def _dependency(value: Any) -> dict[str, list[str]] | Instead:
    after: dict[str, list[str]] = {}
    for part in _names(value):
        condition, *ids = part.split(":")
        if condition not in ("after", "afterok", "afternotok", "afterany") or not ids:
            return Instead([("after", {"afterok": ["preprocess"]})], "with names of runs, or ids of jobs")
        after.setdefault(condition, []).extend(ids)
    return after


def _gpus(value: Any, ranks: str = "") -> Instead:
    """One rank for each, counted in the field `ranks`; without that, those of one rank."""
    kind, _, count = str(value).rpartition(":")
    fields: list[tuple[str, Any]] = [("devices_per_rank", _number(count))]
    notes = [f"the type is the site's to say, in its profile: {yaml_field('gpu_type', kind)}"] if kind else []
    if ranks and _number(count):
        fields = [(ranks, _number(count)), ("devices_per_rank", 1)]
        notes.insert(0, "that is one rank for each; a rank that has several says so with devices_per_rank")
    return Instead(fields, "; ".join(notes))


def _gres(value: Any) -> Instead:
    name, _, rest = str(value).partition(":")
    if name != "gpu" or "," in rest:
        return Instead([("directives.slurm.gres", value)])
    return _gpus(rest if rest.rpartition(":")[2].isdecimal() else f"{rest}:1", "ranks_per_node")


def _gres_of_a_site(value: Any) -> Instead:
    name, *words = str(value).split(":")
    if name != "gpu" or "," in str(value):
        raise ValueError(value)
    kind = [("gpu_type", word) for word in words if not word.isdecimal()]
    return Instead([("gpu_request", "gres"), *kind], "how many there are follows from each job")


def _select(value: Any) -> Instead:
    count, *resources = str(value).split(":")
    named = dict(resource.split("=", 1) for resource in resources)
    ours = {"mpiprocs": ("ranks_per_node", _number), "mem": ("memory", _size)}
    fields = [(field, convert(named[name])) for name, (field, convert) in ours.items() if name in named]
    return Instead([("nodes", _number(count)), *fields])


def _nodes_by_ranks(value: Any) -> Instead:
    """torchx's -j: NODESxRANKS, or ranks alone."""
    nodes, _, ranks = str(value).rpartition("x")
    return Instead([("nodes", _number(nodes or 1)), ("ranks_per_node", _number(ranks))])


def _binding(value: Any) -> str:
    """From PALS's list: or srun's map_cpu:, which has one core for each rank."""
    text = str(value)
    lists = text.removeprefix("map_cpu:").replace(",", ":") if text.startswith("map_cpu:") else text
    return _matching(CPULISTS_PATTERN, lists.removeprefix("list:"))


def _inherited(value: Any) -> str | list[str]:
    return str(value).lower() if str(value).lower() in ("all", "none") else _names(value)


def _site_named(value: Any) -> Instead:
    name = f"--site {printable(value)}" if isinstance(value, str) else "--site NAME"
    return Instead([], f"which machine it is, the command line says: {name}")


def array(value: Any) -> Instead:
    """sbatch's --array, and qsub's -J: 0-7%2, or how many there are."""
    found = re.fullmatch("([0-9]+)(?:-([0-9]*))?(?:%([0-9]*))?", str(value or ""))
    if found is None:
        return Instead([("array.count", None)])
    first, last, at_most = (int(part) if part else None for part in found.groups())
    count = first if last is None or first is None else last - first + 1
    held = {"count": count, "at_most": at_most} if at_most is not None else {"count": count}
    return Instead([("array", held)], "members count from 0, in CASTOFF_ARRAY_INDEX")


def _after(value: Any) -> dict[str, list[str]] | Instead:
    return _dependency(value) if ":" in str(value) else {"afterok": _names(value)}


def _without_unit(value: Any) -> Instead:
    note = "a number alone is minutes to Slurm, but seconds to PBS" if str(value).isdecimal() else ""
    return Instead([("walltime", _duration(value))], note)


def _start(value: Any) -> str | Instead:
    return Instead([("start.torchrun", True)]) if value == "torchrun" else _starter(value)


def _starter(value: Any) -> str:
    if value not in ("srun", "pals", "hydra", "intelmpi", "openmpi"):
        raise ValueError(value)
    return str(value)


def _pairs(items: Any, prefix: str, equals: str) -> dict[str, str]:
    """`A=1` as a name and a text."""
    pattern = rf"^{prefix}([A-Za-z_][A-Za-z0-9_-]*){equals}(.+)\Z"
    return dict(re.findall(pattern, _matching(pattern, item))[0] for item in _list(items))


def _only_text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(value)
    return value


_CONVERSIONS: dict[str, Callable[[Any], Any]] = {
    "address": lambda value: _matching("@", value),
    "after": _after,
    "args_of_a_program": lambda value: ["python", "train.py", *_words(value)],
    "array": array,
    "assignments": lambda value: _pairs(value, "", "="),
    "binding": _binding,
    "commas": lambda value: ",".join(_list(value)),
    "cores": lambda value: [f"0-{_number(value) - 1}"],
    "dependency": _dependency,
    "devices": lambda value: [_number(value)],
    "duration": _duration,
    "events": _events,
    "gigabytes": lambda value: (
        f"{round(value * 1024)}M" if isinstance(value, float) else f"{_number(value)}G"
    ),
    "given_duration": lambda value: _matching(DURATION_PATTERN, value),
    "gpus_of_a_job": lambda value: _gpus(value, "ranks"),
    "gpus_of_a_node": lambda value: _gpus(value, "ranks_per_node"),
    "gpus_of_a_rank": _gpus,
    "gres": _gres,
    "gres_of_a_site": _gres_of_a_site,
    "hours": lambda value: f"{_number(value)}h",
    "inherited": _inherited,
    "mapping": dict,
    "minutes": lambda value: f"{_number(value)}m",
    "names": _names,
    "nodes_by_ranks": _nodes_by_ranks,
    "number": _number,
    "only_text": _only_text,
    "options": lambda value: _pairs(value, "--", "[= ]"),
    "program": _program,
    "quoted_number": lambda value: int(_matching(r"^ *[1-9][0-9]{0,17} *$", _only_text(value))),
    "same": lambda value: value,
    "seconds": lambda value: f"{_number(value)}s",
    "select": _select,
    "signal": lambda value: f"{_number(str(value).rpartition('@')[2])}s",
    "site_named": _site_named,
    "size": _size,
    "size_with_unit": lambda value: _size(_matching(r"[^0-9]", value)),
    "start": _start,
    "starter": _starter,
    "text": str,
    "times": lambda value: int(value) if isinstance(value, bool) else _number(value),  # `true` is once
    "truth": bool,
    "without_unit": _without_unit,
    "words": _words,
}

_TABLE = Document.read(Path(__file__).with_suffix(".yaml")).data
_KINDS = {kind: Synonyms(rows) for kind, rows in _TABLE["fields"].items()}

OF_JOBS = _KINDS["JobSpec"]
"""For a job file's fields, and an executor's parameters."""

OF = {**_KINDS, "Site": _OfSites(_TABLE["fields"]["Site"])}
"""By the name of the struct that has the fields."""

VALUES = {kind: Synonyms(rows) for kind, rows in _TABLE["values"].items()}
"""By the name of the struct, its own fields: how to write what holds a value that they do not take."""

VERBS: dict[str, str] = {word: verb for verb, words in _TABLE["verbs"].items() for word in words.split()}
"""Verbs of others, and castoff's: one or two."""

OPTION_LETTERS: dict[str, str] = _TABLE["letters"]
"""Short options of sbatch, and the fields that say the same."""
