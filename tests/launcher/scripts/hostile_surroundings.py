"""Containers and staged copies of hostile jobs: their fields, which only some runtimes and files can
hold, and the files themselves."""

from __future__ import annotations

import hashlib
import io
import re
import tarfile
from pathlib import Path, PurePosixPath
from typing import Any

from hypothesis import strategies as st

from castoff.launcher.planning.containers import RUNTIMES
from tests.hostile import FILE_NAMES, HERE, LINE_FILE_NAMES, LINES

Fields = dict[str, Any]

STAGED_IMAGE = "stage/"
"""Drawn for an image that one of the copies is."""

UPPER, LOWER = "SUM", "sum"
"""Drawn for the SHA-256 sum of whatever is copied."""

IMAGES: st.SearchStrategy[str] = st.one_of(
    LINES,
    LINE_FILE_NAMES.map(lambda name: f"{HERE}/images/{name}"),
    st.just(STAGED_IMAGE),
)

_FOLDERS = LINE_FILE_NAMES.map(lambda name: f"{HERE}/bound/{name}") | LINES.map(lambda text: f"/{text}")

BINDS: st.SearchStrategy[list[str]] = st.lists(
    st.builds(
        lambda paths, mode: ":".join([*paths, *mode[: len(paths) - 1]]),
        st.lists(_FOLDERS.map(lambda path: path.replace(":", "_")), min_size=1, max_size=2),
        st.sampled_from([[], ["ro"], ["rw"]]),
    ),
    max_size=3,
)

RUNTIME_NAMES: st.SearchStrategy[str | None] = st.sampled_from([None, *RUNTIMES])

_KINDS = ["file", "folder", "archive"]

SOURCES: st.SearchStrategy[list[str]] = st.sampled_from([0, 0, 0, 1, 2]).flatmap(
    lambda count: st.lists(
        st.builds(
            lambda root, kind, name: f"{root}to stage/{kind}/{name}{'.tar' if kind == 'archive' else ''}",
            st.sampled_from(["", f"{HERE}/"]),
            st.sampled_from(_KINDS),
            LINE_FILE_NAMES,
        ),
        min_size=count,
        max_size=count,
    )
)
"""Half of all jobs copy nothing: what copies them asks for many processes."""

PLACES = st.lists(
    st.one_of(
        st.none(),
        FILE_NAMES.map(lambda name: name.replace("\n", "_").replace("\r", "_")),
        LINE_FILE_NAMES.map(lambda name: f"a b/{name}/"),
        LINE_FILE_NAMES.map(lambda name: f"./{name}"),
    ),
    min_size=2,
    max_size=2,
)
UNPACKED = st.lists(st.sampled_from([None, True, False]), min_size=2, max_size=2)
SUMS = st.lists(st.sampled_from([None, UPPER, LOWER]), min_size=2, max_size=2)
ACTIVATED = st.lists(st.booleans(), min_size=2, max_size=2)

# --- What lies there ----------------------------------------------------------------------------------

_TREE = {"inner": b"it lies in a folder\n", "bin/program": b"#!/bin/sh\n"}
_FILE = b"it is a file\n"


def _archived() -> bytes:
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w") as archive:
        for name, data in _TREE.items():
            member = tarfile.TarInfo(name)
            member.size = len(data)
            archive.addfile(member, io.BytesIO(data))
    return stream.getvalue()


_ARCHIVE = _archived()
_SUMS = {"file": hashlib.sha256(_FILE).hexdigest(), "archive": hashlib.sha256(_ARCHIVE).hexdigest()}


def write_source(path: Path) -> None:
    """What an item of `stage` names."""
    kind = path.parent.name
    files = {path / name: data for name, data in _TREE.items()}
    if kind != "folder":
        files = {path: _FILE if kind == "file" else _ARCHIVE}
    for file, data in files.items():
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(data)


def copies(items: list[Fields]) -> dict[bytes, int]:
    """The size of each file that the ranks have to find under CASTOFF_STAGE_DIR."""
    found: dict[bytes, int] = {}
    for item in items:
        place = _place(item)
        if _kind(item) == "folder" or _unpacked(item):
            found |= {f"{place}/{name}".encode(): len(data) for name, data in _TREE.items()}
        else:
            found[place.encode()] = len(_FILE if _kind(item) == "file" else _ARCHIVE)
    return found


def activated(items: list[Fields]) -> list[str]:
    """The places that stand on PATH, under CASTOFF_STAGE_DIR."""
    return [f"{_place(item)}/bin" for item in items if item["activate"]]


def _kind(item: Fields) -> str:
    return PurePosixPath(item["from"]).parent.name


def _unpacked(item: Fields) -> bool:
    return _kind(item) == "archive" and item.get("unpack") is not False


def _place(item: Fields) -> str:
    if "to" in item:
        return str(PurePosixPath(item["to"]))
    path = PurePosixPath(item["from"])
    return path.stem if _unpacked(item) else path.name


# --- What fits together -------------------------------------------------------------------------------


def items_of(drawn: dict[str, list[Any]]) -> list[Fields]:
    """The items of `stage`, of which each field was drawn as a list; none lies in another."""
    items: list[Fields] = []
    for at, source in enumerate(drawn.get("from", [])):
        chosen: Fields = {
            name: drawn[name][at] for name in ("to", "unpack", "sha256", "activate") if name in drawn
        }
        item: Fields = {
            "from": source,
            **{name: value for name, value in chosen.items() if value is not None},
        }
        kind = _kind(item)
        if kind != "archive":
            item.pop("unpack", None)
        if kind == "folder":
            item.pop("sha256", None)
        if "sha256" in item:
            item["sha256"] = _SUMS[kind] if item["sha256"] == LOWER else _SUMS[kind].upper()
        item["activate"] = bool(
            item.get("activate") and (kind == "folder" or _unpacked(item)) and ":" not in _place(item)
        )
        if not any(_within(_place(item), _place(other)) for other in items):
            items.append(item)
    return items


def _within(one: str, other: str) -> bool:
    return f"{one}/".startswith(f"{other}/") or f"{other}/".startswith(f"{one}/")


def fitting_container(drawn: Fields, kind: str, launcher: str | None, stage: list[Fields]) -> Fields | None:
    """A container whose runtime can hold all that was drawn; None if no image or no runtime was."""
    container = {name: value for name, value in drawn.items() if value is not None}
    if not {"runtime", "image"} <= container.keys():
        return None
    if container["runtime"] == "pyxis" and (kind != "slurm" or launcher not in (None, "srun")):
        container["runtime"] = "podman-hpc"
    runtime = container["runtime"]
    container["image"] = _fitting_image(container["image"], runtime, stage)
    if "binds" in container:
        container["binds"] = [_fitting_bind(text, runtime) for text in container["binds"]]
    return container


def _fitting_image(image: str, runtime: str, stage: list[Fields]) -> str:
    if image == STAGED_IMAGE and stage and runtime in ("apptainer", "pyxis"):
        return f"stage/{_place(stage[0])}"
    if image == STAGED_IMAGE:
        image = "image"
    if runtime == "apptainer" and not image.startswith(HERE):
        return f"{HERE}/images/{image.replace('/', '_').encode()[:120].decode(errors='ignore')}"
    if runtime == "shifter":
        return re.sub(r"[^A-Za-z0-9_:.+/-]", "", image) or "image"
    return image


def _fitting_bind(text: str, runtime: str) -> str:
    unfit = RUNTIMES[runtime].unbindable.replace(":", "")  # type: ignore[index]
    if runtime == "shifter":
        parts = text.split(HERE)
        return HERE.join(re.sub(r"[^A-Za-z0-9_.+/:-]|\.\.", "_", part) for part in parts)
    return "".join("_" if character in unfit else character for character in text)


def bindable(name: str, container: Fields | None) -> str:
    """A folder's name as a container's runtime can bind it."""
    if container is None or container["runtime"] == "shifter":
        return name
    unfit = RUNTIMES[container["runtime"]].unbindable + "\n"
    return "".join("_" if character in unfit else character for character in name)
