"""Several jobs in one file: YAML documents separated by `---`, or `jobs:` by name. Pure, once it is read."""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from castoff.launcher.config import earlier_runs
from castoff.launcher.config.job import JobSpec
from castoff.launcher.errors import InvalidInput, Problem, printable, shown
from castoff.launcher.trust.decision import check_named
from castoff.launcher.typed.document import Document, FieldPath, invalid
from castoff.launcher.typed.structure import fields_of
from castoff.launcher.typed.suggestion import suggestion

_OF_GROUP = ("name", "defaults", "jobs")


class JobGroup(NamedTuple):
    """The jobs of one file."""

    name: str
    jobs: list[JobSpec]
    """In the order of their `after`, each with a name."""
    file: Path | None = None
    """None: the group was made in Python."""

    @property
    def names(self) -> list[str]:
        """The names of the jobs."""
        return [name_of(spec) for spec in self.jobs]


def name_of(spec: JobSpec) -> str:
    """The name of a job in a group."""
    assert spec.name is not None
    return spec.name


def load(
    path: str | Path,
    *,
    overrides: Iterable[str] = (),
    flags: Mapping[str, Any] | None = None,
    only: Sequence[str] = (),
    since: Sequence[str] = (),
) -> JobSpec | JobGroup:
    """Read a file with one job or several.

    `overrides` that begin with a job's name and a point, as in `train.nodes=4`, apply to that job; others,
    and `flags`, to all. `only`: the jobs to keep. `since`: keep these jobs and all that wait for them.

    Raises:
        CastoffError: the file cannot be read.
        InvalidInput: with every problem of the jobs.
    """
    path = Path(path)
    check_named(path)
    documents = Document.read_all(path)
    parts = _parts(documents)
    if parts is None:
        document = documents[0] if documents else Document(None, printable(str(path)))
        if only or since:
            raise invalid(document.origin, "holds one job, so --only and --from have nothing to select")
        return JobSpec.read_from(document, overrides=overrides, flags=flags, path=path)
    name, jobs = parts
    if flags and "name" in flags:
        raise InvalidInput([Problem("--name", "", "is for a file with one job; each of several has its own")])
    common, of_jobs = _by_job(overrides, jobs)
    problems: list[Problem] = []
    specs = []
    for job, document in jobs.items():
        try:
            for assignment in of_jobs.get(job, ()):
                document.override(assignment, f"{job}.")
            specs.append(JobSpec.read_from(document, overrides=common, flags=flags, path=path))
        except InvalidInput as error:
            problems += error.problems
    if problems:
        raise InvalidInput(list(dict.fromkeys(problems)))
    group = made(name or path.stem, specs, path)
    return _selected(group, only, since)


def made(name: str, specs: Iterable[JobSpec], file: Path | None = None) -> JobGroup:
    """Make a group of jobs that have names, in the order of their `after`.

    Raises:
        InvalidInput: two jobs have the same name, jobs wait for one another in a circle, or a job refers to a
            run for which it does not wait.
    """
    jobs: dict[str, JobSpec] = {}
    problems = []
    for spec in specs:
        if problem := _name_problem(spec.name, jobs):
            problems.append(_problem(spec, ("name",), problem))
        else:
            jobs[name_of(spec)] = spec
    if earlier_runs.NAME.fullmatch(name) is None:
        origin = str(file) if file else name
        problems.append(Problem(origin, "", f"the group's name, {shown(name)}, {_TAKES}: add name: pipeline"))
    elif name in jobs:
        other = "give the group a name of its own, as in name: pipeline, or rename the file"
        problems.append(_problem(jobs[name], ("name",), f"is {name}, and so is the group's: {other}"))
    if problems:
        raise InvalidInput(problems)
    ordered = _ordered(jobs)
    return JobGroup(name, _with_references(ordered), file)


def before(spec: JobSpec, jobs: Mapping[str, Any]) -> list[str]:
    """The jobs among `jobs` for which a job waits."""
    return list(dict.fromkeys(name for names in spec.after.values() for name in names if name in jobs))


_TAKES = "but takes up to 60 letters, digits, and _ . + -, beginning with a letter"


def _name_problem(name: str | None, others: Mapping[str, JobSpec]) -> str | None:
    if name is None:
        return "is missing: each of several jobs needs a name"
    if earlier_runs.NAME.fullmatch(name) is None:
        return f"is {shown(name)}, {_TAKES}"
    if name in others:
        return f"is {name}, as that of an earlier job of the group; each needs its own"
    if name in fields_of(JobSpec):
        return f"is {name}, which is also a field, so that --set {name}.… would be ambiguous; choose another"
    return None


def _problem(spec: JobSpec, path: FieldPath, message: str) -> Problem:
    if spec.source is not None:
        return spec.source.problem(path, message)
    return Problem(spec.name or "job", ".".join(map(str, path)), message)


def _parts(documents: list[Document]) -> tuple[str | None, dict[str, Document]] | None:
    """The group's name, if the file has one, and each job's document by name; None: the file has one job."""
    first = documents[0] if documents else None
    has_head = (
        first is not None and isinstance(first.data, dict) and not {"jobs", "defaults"}.isdisjoint(first.data)
    )
    if len(documents) < 2 and not has_head:
        return None
    assert first is not None
    head = first if has_head else Document({}, first.origin)
    others = documents[1:] if has_head else documents
    problems = [
        first.problem(
            (field,),
            f"is not a field of a group{suggestion(field, _OF_GROUP)}; a job's fields go below jobs",
        )
        for field in head.data
        if field not in _OF_GROUP
    ]
    defaults, given, name = (head.data.get(field) for field in ("defaults", "jobs", "name"))
    for field, value in (("defaults", defaults), ("jobs", given)):
        if value is not None and not isinstance(value, dict):
            problems.append(first.problem((field,), f"is {shown(value)}, but takes a mapping"))
    if name is not None and not isinstance(name, (str, int)):
        problems.append(first.problem(("name",), f"is {shown(name)}, but takes a name"))
    if isinstance(defaults, dict) and "name" in defaults:
        problems.append(first.problem(("defaults", "name"), "is for single jobs: drop it here"))
    if others and given is not None:
        problems.append(first.problem(("jobs",), "excludes further documents: write all jobs below it"))
    if problems:
        raise InvalidInput(problems)
    jobs: dict[str, Document] = {}
    sections = first.parts() if has_head else {}
    for job, document in (sections["jobs"].parts() if given else {}).items():
        if isinstance(document.data, dict) and "name" in document.data:
            problems.append(document.problem(("name",), f"is already {job}, its key below jobs: drop it"))
        jobs[job] = _named(document, job)
    for number, document in enumerate(others):
        own = document.data.get("name") if isinstance(document.data, dict) else None
        # Jobs without a name, or with the name of another, keep a place of their own until they are checked.
        jobs[f"{number}:" if own is None or str(own) in jobs else str(own)] = document
    if not jobs:
        problems.append(first.problem(("jobs",), "is missing: name the jobs, as in jobs: {train: {…}}"))
    if problems:
        raise InvalidInput(problems)
    if defaults:
        shared = sections["defaults"]
        jobs = {job: _with_defaults(document, shared.copied()) for job, document in jobs.items()}
    return None if name is None else str(name), jobs


def _named(document: Document, name: str) -> Document:
    if document.data is None:
        document.data = {}
    if isinstance(document.data, dict):
        place = document.where(())
        document.put(["name"], Document(name, place), place)
    return document


def _with_defaults(document: Document, defaults: Document) -> Document:
    """A job's document on top of what all jobs share."""
    if not isinstance(document.data, dict):
        return document
    for one, other in (("ranks", "ranks_per_node"), ("ranks_per_node", "ranks")):
        if one in document.data and other not in document.data:
            defaults.data.pop(other, None)
    place = document.where(())
    defaults.merge(document)
    defaults.record((), place)
    return defaults


def _by_job(overrides: Iterable[str], jobs: Mapping[str, object]) -> tuple[list[str], dict[str, list[str]]]:
    """Sort arguments of --set into those for all jobs and those for one."""
    common: list[str] = []
    of_jobs: dict[str, list[str]] = {}
    for assignment in overrides:
        job, point, rest = assignment.partition(".")
        if point and job in jobs:
            of_jobs.setdefault(job, []).append(rest)
        else:
            common.append(assignment)
    return common, of_jobs


def _selected(group: JobGroup, only: Sequence[str], since: Sequence[str]) -> JobGroup:
    """The group with only the selected jobs, in the same order."""
    names = group.names
    for option, given in (("--only", only), ("--from", since)):
        for name in given:
            if name not in names:
                raise InvalidInput(
                    [
                        Problem(
                            f"{option} {name}", "", f"is not a job of {group.name}{suggestion(name, names)}"
                        )
                    ]
                )
    if not (only or since):
        return group
    chosen = {*only, *since}
    follows, known = {*since}, dict.fromkeys(names)
    for spec in group.jobs:
        if not follows.isdisjoint(before(spec, known)):
            follows.add(name_of(spec))
    chosen |= follows
    return group._replace(jobs=[spec for spec in group.jobs if spec.name in chosen])


def _ordered(jobs: Mapping[str, JobSpec]) -> list[JobSpec]:
    """The jobs, each behind those for which it waits; otherwise in the given order.

    Raises:
        InvalidInput: jobs wait for one another in a circle.
    """
    places = {name: place for place, name in enumerate(jobs)}
    waits = {name: {*before(spec, jobs)} for name, spec in jobs.items()}
    followers: dict[str, list[str]] = {name: [] for name in jobs}
    for name, others in waits.items():
        for other in others:
            followers[other].append(name)
    ready = [place for name, place in places.items() if not waits[name]]
    names = list(jobs)
    ordered = []
    while ready:
        name = names[heapq.heappop(ready)]
        ordered.append(jobs[name])
        for follower in followers[name]:
            waits[follower].discard(name)
            if not waits[follower]:
                heapq.heappush(ready, places[follower])
    if len(ordered) < len(jobs):
        raise InvalidInput([_circle({name: others for name, others in waits.items() if others}, jobs)])
    return ordered


def _circle(waits: Mapping[str, set[str]], jobs: Mapping[str, JobSpec]) -> Problem:
    """The problem of jobs that wait for one another: each of `waits` waits for another of them."""
    path = [next(iter(waits))]
    while path[-1] not in path[:-1]:
        path.append(next(name for name in jobs if name in waits[path[-1]]))
    circle = path[path.index(path[-1]) :]
    words = ", ".join(f"{one} after {other}" for one, other in itertools.pairwise(circle))
    return _problem(jobs[circle[0]], ("after",), f"makes a circle, so that none could ever start: {words}")


def _with_references(ordered: list[JobSpec]) -> list[JobSpec]:
    """The jobs, each with an `after` for every job to whose run it refers.

    Raises:
        InvalidInput: a job refers to the run of a job for which it does not wait, or pairs its members with
            those of another array.
    """
    by_name = {name_of(spec): spec for spec in ordered}
    problems, completed = [], []
    for spec in ordered:
        direct = before(spec, by_name)
        indirect: list[str] = []
        for path, other in earlier_runs.named_in(spec):
            if other in by_name and other not in direct and not _is_before(other, spec, by_name):
                fix = f"does not wait for it: add after: {{afterok: [{other}]}}"
                problems.append(_problem(spec, path, f"refers to the run of {other}, but {fix}"))
            elif other in by_name and other not in direct:
                indirect.append(other)
        if indirect:  # they have begun when this job begins, so the condition changes nothing
            begun = [*spec.after.get("after", []), *dict.fromkeys(indirect)]
            waits = msgspec.structs.replace(spec, after={**spec.after, "after": begun})
            waits.__dict__.update(spec.__dict__)  # its source
            spec = waits
        completed.append(spec)
    if problems:
        raise InvalidInput(problems)
    return completed


def _is_before(name: str, spec: JobSpec, jobs: Mapping[str, JobSpec]) -> bool:
    """Whether a job waits for another, directly or indirectly."""
    seen: set[str] = set()
    left = before(spec, jobs)
    while left:
        other = left.pop()
        if other == name:
            return True
        if other not in seen:
            seen.add(other)
            left += before(jobs[other], jobs)
    return False
