"""Fields read from a script, in the form of job files, or removed and reported. Pure."""

from __future__ import annotations

import re

from launcher.importing.imported import Imported
from launcher.planning.containers import bind_of


def settle_fields(result: Imported) -> None:
    """Bring fields into the form that job files have, or take them away."""
    _array(result)
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
        why = f"the container: {what}; `container` takes plain paths (docs/how-to/containers.md)"
        result.account.add(one.first, one.last, "not expressed", one.text, why)
