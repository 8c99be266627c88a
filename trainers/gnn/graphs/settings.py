"""The `data` section of a configuration, with `files` or with `causets`."""

# No `from __future__ import annotations` here: msgspec would compile each of them at every start.

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec

from castoff.trainers.configuration.fields import ConfigError, convert
from castoff.trainers.configuration.paths import expanded
from castoff.trainers.configuration.pyobject import PyObject, resolved
from castoff.trainers.configuration.section import Imported, NotNegative, Positive, Section

Parts = tuple[float, float, float]
TypeName = Annotated[Any, msgspec.Meta(extra={"takes": "a name or !pyobject"})]
Fields = Annotated[Any, msgspec.Meta(extra={"takes": "fields by name"})]

FLOATS = ("float16", "bfloat16", "float32", "float64")
INTEGERS = ("int16", "int32", "int64")
_CALLABLES = ("reader", "pre_filter", "pre_transform", "transform")
_BUILT_IN = (
    *("targets", "features", "graph_features", "edges"),
    *("adjacency", "sizes", "transposed", "missing"),
)
"""Fields for the built-in reader only."""


class Files(Section, frozen=True, kw_only=True):
    """Graphs from stores."""

    files: Annotated[list[str], msgspec.Meta(min_length=1)]
    """Stores, read in this order. `~` and environment variables are expanded."""
    output: str | None = None
    """Folder for the written graphs; by default `graphs` in `training.path`."""
    reader: Imported = None
    """A function that returns one sample; by default the built-in reader."""
    pre_filter: Imported = None
    """A function that is called with each sample and returns whether to keep it."""
    pre_transform: Imported = None
    """A function that turns each sample into a graph, once, before the graph is written."""
    transform: Imported = None
    """A function that is applied to a written graph each time it is read."""
    validate_data: bool = True
    """Check each graph before it is written, for edges to missing elements, NaN and infinity."""
    n_processes: NotNegative = 1
    """Processes that read samples and build graphs; 0 means 1."""
    chunksize: Positive = 100
    """Samples that each process handles, and holds in memory, at a time. No effect with one process."""
    shuffle: bool = True
    """Draw the three parts at random, from `training.seed`. If false, they are cut in order."""
    subset: float | None = None
    """Graphs to use: a share if at most 1, else a number; drawn from `training.seed`. By default all."""
    split: Parts = (0.8, 0.1, 0.1)
    """Shares for training, validation and test; they add up to 1. Rounding favours training."""
    float_type: TypeName = "float32"
    """float16, bfloat16, float32 or float64, as a name or as `!pyobject torch.float64`."""
    int_type: TypeName = "int64"
    """int16, int32 or int64, in the same way."""
    targets: tuple[str, ...] = ()
    """Columns of `y`: arrays with one number per sample. The built-in reader needs at least one."""
    features: tuple[str, ...] | None = None
    """Columns of `x`: arrays with one or more numbers per element, or computed features; by default all
    computed ones."""
    graph_features: tuple[str, ...] = ()
    """Columns of `graph_features`: arrays with one number per sample, or computed features."""
    edges: Literal["links", "relations"] = "links"
    """Pairs joined by edges, in both directions: those with no element in between, or all related ones."""
    adjacency: str | None = None
    """The array with the matrices; by default the first of adjacency_matrix, adjacency, adj, causal_matrix,
    link_matrix and links. If a matrix holds links only, the other relations are added."""
    sizes: str | None = None
    """The array with the number of elements, if a matrix has room for more; by default the first of
    cset_size, atomcount, num_atoms, num_elements and num_points, if there is one."""
    transposed: bool | None = None
    """Whether entry [i, j] means that j precedes i, as in Julia's matrices, which appear transposed in
    Python. By default castoff infers it; for that, elements must be numbered in time."""
    missing: float | None = None
    """The number that replaces NaN in features; by default NaN is an error."""


class Generated(Section, frozen=True, kw_only=True):
    """Graphs of generated causal sets."""

    causets: Fields
    """Which sets to generate."""
    output: str | None = None
    """Folder for the written graphs; by default `graphs` in `training.path`."""
    pre_filter: Imported = None
    """A function that is called with each graph and returns whether to keep it."""
    pre_transform: Imported = None
    """A function that changes each graph, once, before it is written."""
    transform: Imported = None
    """A function that is applied to a written graph each time it is read."""
    validate_data: bool = True
    """Check each graph before it is written."""
    n_processes: NotNegative = 1
    """Processes that generate sets; 0 means 1."""
    chunksize: Positive = 100
    """Sets that each process generates at a time. No effect with one process."""
    split: Parts = (0.8, 0.1, 0.1)
    """Shares for training, validation and test, cut in order; they add up to 1."""


def read(data: Any, problems: list[str]) -> Files | Generated | None:
    """Read the section `data`; None if it is wrong, and the reasons in `problems`."""
    before = len(problems)
    if not isinstance(data, Mapping):
        problems.append(f"data: holds {data!r}, but takes a section of fields")
        return None
    both = "files" in data and "causets" in data
    if both:
        problems.append(
            "data.causets: is set, and data.files, too; graphs are either generated or read, so drop "
            "one of them"
        )
    if "files" not in data and "causets" not in data:
        problems.append("data: has neither files (stores to read) nor causets (what to generate); write one")
    if both or len(problems) > before:
        return None
    kind = Files if "files" in data else Generated
    type_problems: list[str] = []
    settings: Files | Generated | None = convert({**data, **_plain(data)}, kind, "data", type_problems)
    problems += type_problems
    problems += _wrong_parts(data.get("split"))
    problems += _wrong_callables(data)
    if kind is Files:
        problems += _wrong_files(data)
    elif "causets" in data:
        causets = _causets(data["causets"], problems)
        settings = settings and msgspec.structs.replace(settings, causets=causets)
    return settings if len(problems) == before else None


def _plain(data: Mapping[str, Any]) -> dict[str, Any]:
    """Convert paths to text and tuples to lists, where Python code has set them."""
    files = data.get("files")
    listed = (
        {"files": [str(file) if hasattr(file, "__fspath__") else file for file in files]}
        if (isinstance(files, (list, tuple)))
        else {}
    )
    output = data.get("output")
    return {**listed, **({"output": str(output)} if hasattr(output, "__fspath__") else {})}


def _causets(data: Any, problems: list[str]) -> Any:
    from castoff.trainers.gnn.causets.settings import read as read_causets

    return read_causets(data, "data.causets", problems)


def _wrong_parts(split: Any) -> list[str]:
    """What is wrong with a split into three numbers; values of other types are reported elsewhere."""
    if (
        not isinstance(split, (list, tuple))
        or len(split) != 3
        or not all(isinstance(each, (int, float)) and not isinstance(each, bool) for each in split)
    ):
        return []
    if min(split) < 0 or abs(math.fsum(split) - 1) > 1e-6:
        total = f"{math.fsum(split):g}"
        return [
            f"data.split: is {list(split)}, with the sum {total}, but takes three shares of at least 0 "
            "that add up to 1: training, validation, test"
        ]
    if not split[0] > 0:
        return [
            f"data.split: is {list(split)}, which leaves nothing to train on; the first share must be above 0"
        ]
    return []


def _wrong_callables(data: Mapping[str, Any]) -> list[str]:
    problems = []
    for name in _CALLABLES:
        value = data.get(name)
        if value is None:
            continue
        try:
            function = resolved(value)
        except ConfigError as error:
            problems += [f"data.{name}: {problem}" for problem in error.problems]
            continue
        if not callable(function):
            problems.append(f"data.{name}: is {value!r}; write !pyobject my_module.{name}, a function")
    return problems


def _wrong_files(data: Mapping[str, Any]) -> list[str]:
    problems = _missing(data.get("files"))
    for name, known in (("float_type", FLOATS), ("int_type", INTEGERS)):
        if name in data and dtype_name(data[name]) not in known:
            problems.append(f"data.{name}: is {data[name]!r}, but takes one of {', '.join(known)}")
    subset: Any = data.get("subset")
    number = isinstance(subset, (int, float)) and not isinstance(subset, bool)
    if number and (not 0 < subset < math.inf or (subset > 1 and subset != int(subset))):
        problems.append(
            f"data.subset: is {subset!r}, but takes a share above 0 and up to 1, or a whole number of graphs"
        )
    if data.get("reader") is not None:
        beside = [name for name in _BUILT_IN if data.get(name) not in (None, [], ())]
        if beside:
            problems.append(
                f"data.{beside[0]}: is for the built-in reader, but data.reader names another; drop "
                f"{' and '.join(beside)}, or drop reader"
            )
    elif data.get("targets") in (None, []):
        problems.append(
            "data.targets: is missing; name the arrays of the properties to learn, such as "
            "[manifold_like, dimension], or write your own data.reader"
        )
    return problems


def _missing(files: Any) -> list[str]:
    """Which files do not exist, or are listed twice."""
    if not isinstance(files, (list, tuple)) or not all(
        isinstance(each, str) or hasattr(each, "__fspath__") for each in files
    ):
        return []
    problems: list[str] = []
    seen: dict[Path, int] = {}
    for number, file in enumerate(files):
        field = f"data.files[{number}]"
        try:
            path = expanded(str(file), field)
        except ConfigError as error:
            problems += error.problems
            continue
        first = seen.setdefault(path.resolve(), number)
        if not path.exists():
            problems.append(f"{field}: is {str(file)!r}, but there is nothing at {path.absolute()}")
        elif first != number:
            problems.append(
                f"{field}: is {str(file)!r}, which is data.files[{first}] already; a graph could be both "
                "trained on and tested with, so drop one"
            )
    return _few(problems)


def _few(problems: list[str], most: int = 5) -> list[str]:
    remaining = len(problems) - most
    return problems if remaining <= 0 else [*problems[:most], f"data.files: and {remaining} more like these"]


def dtype_name(value: Any) -> str:
    """The name of a torch type, which is given as a type, a `!pyobject` or a name."""
    if isinstance(value, PyObject):
        value = value.path
    return str(value).removeprefix("torch.")
