"""The files that are copied to each node's own disk before the ranks start. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import PurePosixPath

import msgspec

from castoff.launcher.config.job_fields import Stage

_ARCHIVE = re.compile(r"(?P<name>.+)\.(tar|tar\.gz|tgz|tar\.bz2|tbz2|tar\.xz|txz|tar\.zst|tzst|zip)")


def decided(item: Stage) -> Stage:
    """Return an item with its defaults filled in, and its source as a path that is absolute or begins with
    `./`.
    """
    archive = _archive(item)
    place = archive["name"] if archive and item.unpack is not False else PurePosixPath(item.source).name
    return msgspec.structs.replace(
        item,
        source=item.source if item.source.startswith("/") else f"./{item.source}",
        to=place if item.to is None else str(PurePosixPath(item.to)),
        unpack=archive is not None if item.unpack is None else item.unpack,
        sha256=item.sha256 and item.sha256.lower(),
    )


def _archive(item: Stage) -> re.Match[str] | None:
    return _ARCHIVE.fullmatch(PurePosixPath(item.source).name)


def stage_problems(items: list[Stage]) -> Iterator[tuple[str, str]]:
    """Yield why these items, with their defaults filled in, cannot be staged."""
    places: list[str] = []
    for number, item in enumerate(items):
        place, source, field = str(item.to), item.source.removeprefix("./"), f"stage.{number}"
        parts = PurePosixPath(place).parts
        within = [f"{a}/".startswith(f"{place}/") or f"{place}/".startswith(f"{a}/") for a in places]
        if place.startswith("/") or ".." in parts or not parts or parts[0].startswith(".castoff"):
            takes = "takes a place under CASTOFF_STAGE_DIR, such as data/shards"
            yield f"{field}.to", f"is {place!r}, but {takes}"
        elif item.activate and ":" in place:
            yield f"{field}.to", f"is {place!r}, but is put on PATH, which cannot hold a :"
        elif any(within):
            other = within.index(True)
            both = f"is {place!r}, and stage.{other} goes to {places[other]!r}"
            yield f"{field}.to", f"{both}: neither may lie in the other"
        if item.unpack and _archive(item) is None:
            endings = ".zip, .tar, .tar.gz, .tar.bz2, .tar.xz and .tar.zst"
            ends = f"does not end as an archive does: {endings} are known"
            yield f"{field}.unpack", f"is true, but {source!r} {ends}"
        if item.unpack and source.endswith(".zip") and re.search(r"[*?\[\\]", source):
            pattern = "unzip takes * ? [ and \\ for a pattern"
            yield f"{field}.from", f"is {source!r}, but {pattern}: choose another name"
        places.append(place)
