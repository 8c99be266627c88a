"""What is copied to each node's own disk before the ranks start: places and kinds. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import PurePosixPath

from launcher.config.job import Stage
from launcher.runs.plan import StagePlan

_ARCHIVE = re.compile(r"(?P<name>.+)\.(tar|tar\.gz|tgz|tar\.bz2|tbz2|tar\.xz|txz|tar\.zst|tzst|zip)")


def decide(items: list[Stage]) -> list[StagePlan]:
    """The items with what they leave out filled in."""
    return [
        StagePlan(
            source=item.source if item.source.startswith("/") else f"./{item.source}",
            to=_place(item),
            unpack=item.unpack if item.unpack is not None else _archive(item) is not None,
            sha256=item.sha256.lower() if item.sha256 else None,
            activate=item.activate,
        )
        for item in items
    ]


def _place(item: Stage) -> str:
    if item.to is not None:
        return str(PurePosixPath(item.to))
    archive = _archive(item)
    return archive["name"] if archive and item.unpack is not False else PurePosixPath(item.source).name


def _archive(item: Stage) -> re.Match[str] | None:
    return _ARCHIVE.fullmatch(PurePosixPath(item.source).name)


def stage_problems(items: list[Stage]) -> Iterator[tuple[str, str]]:
    """Why these items cannot be staged."""
    places: list[str] = []
    for number, (item, decided) in enumerate(zip(items, decide(items), strict=True)):
        found = {
            "to": _place_problem(item, decided.to, places),
            "unpack": _unpack_problem(item),
            "from": _zip_problem(item, decided),
        }
        for field, message in found.items():
            if message is not None:
                yield f"stage.{number}.{field}", message
        places.append(decided.to)


def _place_problem(item: Stage, place: str, taken: list[str]) -> str | None:
    parts = PurePosixPath(place).parts
    if place.startswith("/") or ".." in parts or not parts or parts[0].startswith(".castoff"):
        return f"is {place!r}, but takes a place under CASTOFF_STAGE_DIR, such as data/shards"
    if item.activate and ":" in place:
        return f"is {place!r}, but is to stand on PATH, which cannot hold a :"
    for number, other in enumerate(taken):
        if f"{place}/".startswith(f"{other}/") or f"{other}/".startswith(f"{place}/"):
            return f"is {place!r}, and stage.{number} goes to {other!r}: neither may lie in the other"
    return None


def _unpack_problem(item: Stage) -> str | None:
    if item.unpack and _archive(item) is None:
        endings = ".zip, .tar, .tar.gz, .tar.bz2, .tar.xz and .tar.zst"
        return f"is true, but {item.source!r} does not end as an archive does: {endings} are known"
    return None


def _zip_problem(item: Stage, decided: StagePlan) -> str | None:
    if decided.unpack and item.source.endswith(".zip") and re.search(r"[*?\[\\]", item.source):
        return f"is {item.source!r}, but unzip takes * ? [ and \\ for a pattern: name it otherwise"
    return None
