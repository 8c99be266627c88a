"""Every field of a job, and of a profile, on every scheduler: it has an effect, or is refused and named."""

from __future__ import annotations

import contextlib
import json
from functools import cache
from pathlib import Path
from typing import Any

import msgspec
import pytest

from castoff import JobSpec, Site
from castoff.launcher.config.job_fields import Array, Word
from castoff.launcher.errors import InvalidInput
from castoff.launcher.planning import limits, planner
from castoff.launcher.runs.plan import OF_EVERY_SCRIPT
from castoff.launcher.schedulers import choice, fields
from castoff.launcher.schedulers.registry import NAMES, scheduler_of
from castoff.launcher.submission.submit import DryRun, dry_run
from castoff.launcher.typed.structure import fields_of
from tests.launcher.fields_of_jobs import leaves, type_of

GOLDEN = Path(__file__).parents[1] / "golden"


class Defaults(msgspec.Struct):
    """Fields whose defaults are nothing, something, or an empty list."""

    number: int | None = None
    switch: bool | None = None
    text: str | None = None
    words: list[str] = []
    always: int = 1


def test_a_field_that_asks_for_nothing_is_not_given() -> None:
    def names(**values: Any) -> list[str]:
        return [one.name for one in fields.given(Defaults(**values))]

    assert names() == names(number=0) == names(switch=False) == names(words=[]) == []
    # Nothing, where the default is something, is a wish like any other.
    assert names(always=0) == ["always"] and names(text="") == ["text"]
    assert names(number=1, switch=True, words=["b"]) == ["number", "switch", "words"]


LAUNCHERS = {"slurm": "hydra", "pbs": "openmpi", "lsf": "openmpi"}

VALUES: dict[str, Any] = {
    "ranks": 3,
    "ranks_per_node": 3,
    "device_type": "a100",
    "binding": "0-3:4-7",
    "memory": "4G",
    "walltime": "2h",
    "grace": "7m",
    "signal": "USR1@300",
    "select": {"model": "mil_ait"},
    "mail.to": "other@example.org",
    "mail.on": ["begin"],
    "notify.to": ["team"],
    "notify.on": ["fail"],
    "command": ["other"],
    "script": "#!/bin/sh\nprog\n",
    "shell": "/opt/bash",
    "setup": ["module load gcc"],
    "teardown": ["cp out here"],
    "env": {"GREETING": "hello"},
    "options": ["proxy"],
    "env_from": ["TOKEN"],
    "inherit": ["TERM"],
    "workdir": "/elsewhere",
    "python": "/opt/python/bin/python",
    "directives": {"comment": "text"},
    "templates": str(GOLDEN / "templates"),
    "snapshot.paths": ["src"],
    "snapshot.link": ["data"],
    "snapshot.limit": "1G",
    "launcher.args": ["--label"],
    "launcher.timeout": "3m",
    "launcher.preload": ["torch"],
    "container.image": "/images/other.sif",
    "container.runtime": "apptainer",
    "container.binds": ["/data"],
    "container.env": {"INSIDE": "1"},
    "container.gpus": "amd",
    "container.args": ["--fakeroot"],
    "stage.from": "/data/other.tar",
    "stage.to": "place",
    "stage.unpack": False,
    "stage.sha256": "ab" * 32,
    "array.count": 5,
    "array.indices": "1-7:2",
    "array.parameters": {"size": ["1", "2"], "seed": ["0"]},
    "after": {"afterok": ["123"]},
    "requeue.max": 3,
    "requeue.how": "chain",
    "requeue.on": ["stop"],
    "requeue.progress": "checkpoints",
    "restart.max": 3,
    "restart.spare_nodes": 1,
    "restart.hang": "7m",
    "restart.never": [3],
    "restart.progress": "checkpoints",
    "preflight": True,
    "sample_use": False,
}
"""Another value of a field than the one in `job`, where not every value of its type is one."""


def value_of(name: str) -> Any:
    """Another value of a field."""
    if name in VALUES:
        return VALUES[name]
    return {bool: True, int: 2, str: "other"}[type_of(name)]


BESIDE: dict[str, dict[str, Any]] = {
    **{f"requeue.{name}": {"requeue": {"max": 2}} for name in ("how", "on", "progress")},
    "device_type": {"devices_per_rank": 1},
    "ranks": {"ranks_per_node": None},
    "launcher.driver": {"ranks_per_node": None},
    "binding": {"cores_per_rank": None, "exclusive": True},
    "launcher.preload": {"command": ["python", "train.py"]},
    **{f"restart.{name}": {"restart": {"max": 2}} for name in ("spare_nodes", "hang", "never", "progress")},
}
"""What a job must have besides for a field to make sense."""

OUTER: dict[str, dict[str, Any]] = {
    "notify": {"to": ["phone"]},
    "mail": {"to": "me@example.org"},
    "array": {"count": 4},
    "container": {"image": "/images/torch.sif", "runtime": "apptainer"},
    "stage": {"from": "/data/set.tar"},
}
"""What a field with required fields of its own holds beside the one in question."""


@cache
def site_of(scheduler: str) -> Site:
    """One where jobs share nodes, and whatever a scheduler can be asked for is asked for."""
    site = Site.load(scheduler)
    changed: dict[str, Any] = {}
    if scheduler != "local":
        cores = {"source": "s", "date": "2026-01-01", "sockets": ["0-15"], "devices": [4]}
        if scheduler == "pbs":
            changed["device_type_resource"] = "gpu_type"
        changed["node"] = {**cores, "device_variable": "CUDA_VISIBLE_DEVICES"}
        changed["options"] = {
            "proxy": {
                "source": "s",
                "date": "2026-01-01",
                "description": "d",
                "env": {"http_proxy": "http://p"},
            }
        }
    kinds = {name: fields_of(Site)[name].type for name in changed}
    return msgspec.structs.replace(
        site, **{name: msgspec.convert(value, kinds[name]) for name, value in changed.items()}
    )


def jobs(name: str, scheduler: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """A job without a field, and the same with it."""
    plain: dict[str, Any] = {"command": ["x"], "walltime": "1h", "ranks_per_node": 2, "cores_per_rank": 4}
    plain |= BESIDE.get(name, {})
    value = LAUNCHERS.get(scheduler, "hydra") if name == "launcher.name" else value_of(name)
    outer, _, inner = name.partition(".")
    if name == "script":  # instead of a command
        return {**plain, "ranks_per_node": None}, {"script": value, "walltime": "1h"}
    if name in ("array.indices", "array.parameters"):  # instead of the count
        return {**plain, outer: OUTER[outer]}, {**plain, outer: {inner: value}}
    if inner.startswith("together."):
        array = {**OUTER[outer], "together": {inner.partition(".")[2]: value}}
        return plain if scheduler == "flux" else {**plain, outer: OUTER[outer]}, {**plain, outer: array}
    if not inner:
        return plain, {**plain, outer: value}
    before = {**OUTER.get(outer, {}), **plain.get(outer, {})}
    given: Any = {**before, inner: value}
    if outer in plain or (before and inner not in before):
        plain |= {outer: [before] if outer == "stage" else before}
    return plain, {**plain, outer: [given] if outer == "stage" else given}


REFUSED_VALUES = {
    ("launcher.preload", "flux"),
    ("binding", "flux"),
    ("launcher.name", "flux"),
    ("nodes", "local"),
}
"""Handled there, but not with these values: Flux has one launcher, without CPU lists, alone on its cores."""


@cache
def submission(scheduler: str, fields: str) -> DryRun:
    """What a submission of a job would do, whose fields are given as JSON."""
    return dry_run(JobSpec.of(json.loads(fields)), site_of(scheduler))


def effect(found: DryRun) -> tuple[str, str]:
    """A submission's script, without the lines that only tell what was decided, and its command."""
    notes = {f"# {note}" for note in found.plan.notes}
    return "\n".join(line for line in found.script.splitlines() if line not in notes), found.command


OF_FILES = {"array.commands"}
"""Fields that reading a job file turns into others."""


@pytest.mark.parametrize("scheduler", NAMES)
@pytest.mark.parametrize("name", sorted({*leaves(JobSpec)} - OF_FILES))
def test_a_field_of_a_job_has_an_effect_or_is_refused(name: str, scheduler: str) -> None:
    own = scheduler_of(scheduler)
    plain, given = jobs(name, scheduler)
    outer = name.partition(".")[0]
    try:
        found = submission(scheduler, json.dumps(given))
    except InvalidInput as error:
        (problem,) = error.problems
        assert f"{name}.".startswith(f"{problem.path}.")
        assert name not in OF_EVERY_SCRIPT | own.handles or (name, scheduler) in REFUSED_VALUES
        return
    before = submission(scheduler, json.dumps(plain))
    if name in fields.without_effect(own):
        assert effect(found) == effect(before)
        assert any(note.startswith((f"{name}: ", f"{outer}: ")) for note in found.plan.notes)
    elif name in OF_EVERY_SCRIPT or not own.has_queue:
        assert found.plan != before.plan
    else:  # it has to reach the scheduler: that the plan holds it is not enough
        assert effect(found) != effect(before)


def test_fields_are_listed_by_their_names_and_once() -> None:
    of_jobs, of_sites = {*leaves(JobSpec)}, {*leaves(Site)}
    for own in map(scheduler_of, NAMES):
        assert own.handles | fields.without_effect(own) <= of_jobs - OF_EVERY_SCRIPT
        assert not own.handles & fields.without_effect(own)
        assert own.handles_of_site <= of_sites - fields.OF_SITES - fields.OF_QUEUED_SITES
        assert own.instead.keys() <= of_jobs | {name.partition(".")[0] for name in of_jobs}
    assert of_jobs == OF_EVERY_SCRIPT.union(*(scheduler_of(name).handles for name in NAMES))
    of_none = {"qos.select_counts"}  # of PBS alone, which has no QOS
    handled = frozenset().union(*(fields.of_sites(scheduler_of(name)) for name in NAMES))
    assert of_sites - of_none == handled


class _Array(Array, frozen=True, forbid_unknown_fields=True):
    step: int | None = None


class _Job(JobSpec, frozen=True, forbid_unknown_fields=True, omit_defaults=True, dict=True):
    colour: Word | None = None
    array: _Array | None = None


@pytest.mark.parametrize("scheduler", NAMES)
@pytest.mark.parametrize(
    ("given", "place"),
    [({"colour": "red"}, "colour"), ({"array": _Array(count=2, step=2)}, "array.step")],
    ids=["of a job", "of its array"],
)
def test_a_new_field_that_nobody_lists_is_refused(given: dict[str, Any], place: str, scheduler: str) -> None:
    own, site = scheduler_of(scheduler), Site.load(scheduler)
    assert not limits.site_problems(_Job(command=["x"]), site, own, "x", None, 120)
    wrong = dict(limits.site_problems(_Job(command=["x"], **given), site, own, "x", None, 120))
    place = "array" if scheduler == "flux" and place.startswith("array") else place
    assert wrong.keys() == {place}
    assert wrong[place].startswith(f"is not supported by {own.title}, which {scheduler} runs: ")


class _Site(Site, frozen=True, forbid_unknown_fields=True, kw_only=True):
    colour: Word | None = None


@pytest.mark.parametrize("fields", [{"preflight": False}, {"restart": {"max": 1, "spare_nodes": 0}}])
def test_a_field_that_is_off_asks_for_nothing(fields: dict[str, Any]) -> None:
    """One file for a cluster and a laptop, where `--set restart.spare_nodes=0` turns that off."""
    assert planner.plan(JobSpec.of({"command": ["x"], **fields}), Site.load("local")).preflight is None


def test_a_new_field_of_a_profile_that_nobody_lists_is_refused() -> None:
    for name in NAMES:
        held = {field: getattr(Site.load(name), field) for field in Site.__struct_fields__}
        assert choice.check_profile(_Site(**held)) is scheduler_of(name)
        with pytest.raises(InvalidInput, match="colour: is not supported by"):
            choice.check_profile(_Site(**held, colour="red"))


@pytest.mark.parametrize(
    ("changed", "on"),
    [
        ({"requested_resources": ["mem"]}, {"pbs"}),
        ({"request_form": "ncpus"}, {"pbs"}),
        ({"gpu_request": "gres"}, {"slurm", "flux"}),
        ({"device_type_resource": "gpu_type"}, {"pbs"}),
        ({"gpu_bind": "none"}, {"slurm"}),
        ({"other_qos": False}, {"slurm"}),
        ({"other_queues": False}, {"slurm", "pbs", "flux", "lsf"}),
        ({"launcher_args": ["--label"]}, {"slurm", "pbs", "flux", "lsf"}),
    ],
)
def test_a_field_of_a_profile_for_another_scheduler(changed: dict[str, Any], on: set[str]) -> None:
    taken = set()
    for name in NAMES:
        with contextlib.suppress(InvalidInput):
            choice.check_profile(msgspec.structs.replace(Site.load(name), **changed))
            taken.add(name)
    assert taken == on


def test_memory_that_a_chunk_of_pbs_does_not_ask_for() -> None:
    shared = msgspec.structs.replace(Site.load("pbs"), requested_resources=["ncpus"])
    with pytest.raises(InvalidInput, match="memory: is 4G, but pbs asks PBS for no memory: drop it, or add"):
        planner.plan(JobSpec.of({"command": ["x"], "memory": "4G"}), shared)
    assert planner.plan(JobSpec.of({"command": ["x"], "memory": "4G", "exclusive": True}), shared)
