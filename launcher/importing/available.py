"""Fields that were read, and whether a job file can have them as they are; each that cannot is said. Pure."""

from __future__ import annotations

import re

from launcher.config.job import JobSpec
from launcher.config.job_fields import Array, LauncherOptions
from launcher.importing.imported import Imported
from launcher.planning.containers import bind_of
from launcher.typed.structure import fields_of

_HOLD = {"launcher": LauncherOptions, "array": Array}


def has_field(path: str) -> bool:
    """Whether job files have a field, as in `teardown` or `launcher.driver`."""
    outer, _, inner = path.partition(".")
    return outer in fields_of(JobSpec) and (not inner or inner in fields_of(_HOLD[outer]))


def settle_fields(result: Imported) -> None:
    """Bring fields into the form that job files have, or take them away."""
    _array(result)
    _select(result)
    _container(result)


def _array(result: Imported) -> None:
    """Members that are numbered from 0 need no indices."""
    array = result.fields.get("array")
    if array is None:
        return
    counted = re.fullmatch(r"(?:0-)?(\d+)", array["indices"])
    if counted and (counted[1] == "0" or array["indices"].startswith("0-")):
        del array["indices"]
        result.fields["array"] = {"count": int(counted[1]) + 1, **array}
    elif not has_field("array.indices"):
        why = f"members are numbered from 0, and not {array['indices']}"
        _cannot(result, "array", r"array|-[aJt]\b", why)


def _select(result: Imported) -> None:
    """A list of chunks of several kinds says itself how many nodes there are."""
    select = result.fields.get("select")
    if select is None:
        return
    if not has_field("select"):
        kinds = select if isinstance(select, list) else [select]
        rest = "+".join(":".join(f"{name}={text}" for name, text in one.items()) for one in kinds)
        only = "; only the first kind of chunk is taken" if isinstance(select, list) else ""
        why = f"{rest} in select, and a job file has no field for other resources{only}"
        _cannot(result, "select", "select", why)
    elif isinstance(select, list):
        for name in (*("nodes", "ranks", "ranks_per_node", "cores_per_rank"), "devices_per_rank", "memory"):
            result.fields.pop(name, None)  # of the first kind
        for kind in select:
            kind.setdefault("ranks_per_node", "1")  # as PBS counts


def _container(result: Imported) -> None:
    """A container without an image, or with folders that depend on the job, is none."""
    ours = [name for name in result.fields if name.startswith("container.")]
    binds = result.fields.get("container.binds", [])
    args = result.fields.get("container.args", [])
    bad = [one for one in binds if bind_of(one) is None] + [one for one in args if "$" in one]
    if not ours or ({"container.image", "container.runtime"} <= {*ours} and not bad):
        return
    for name in ours:
        del result.fields[name]
    what = f"{bad[0]} is no absolute path" if bad else "its image is not known before the job runs"
    for one in result.account.of("launch")[:1]:
        why = f"the container: {what}; `container` takes plain paths (docs/containers.md)"
        result.account.add(one.first, one.last, "not expressed", one.text, why)


def _cannot(result: Imported, name: str, words: str, why: str) -> None:
    """Take a field away that cannot stand, and say so at the directive that it is from."""
    del result.fields[name]
    for one in [one for one in result.account.of("directive") if re.search(words, one.text)][:1]:
        result.account.add(one.first, one.last, "not expressed", one.text, why)
