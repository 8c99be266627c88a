"""Who else could change what will run: castoff, its configuration, a job's files, the folder of runs."""

from __future__ import annotations

import os
import shlex
import shutil
import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from castoff.launcher.config.job import JobSpec
from castoff.launcher.config.site import Site, project_folder
from castoff.launcher.config.workdir import as_path
from castoff.launcher.runs.run import runs_folder
from castoff.launcher.trust.decision import refused
from castoff.launcher.trust.granted import granted_file
from castoff.launcher.trust.paths import hiding, weaknesses
from castoff.launcher.trust.writers import Weakness


def unknown_words(kinds: Iterable[str]) -> str:
    """What nobody can tell, and for which file systems."""
    return f"who may change it by an access list is not known: {', '.join(kinds)} shows none"


class Exposed(NamedTuple):
    """Something that will run or be read."""

    what: str
    path: Path
    found: list[Weakness]
    """All that somebody else can change on the way to it."""
    refused: list[Weakness]
    """Those that the user has not allowed."""
    hidden: list[str]
    """Kinds of file systems on the way that may have access lists and show none."""


def exposures(
    job: str | None,
    spec: JobSpec | None,
    site: Site | None,
    *,
    runs_dir: Path | None,
    environ: Mapping[str, str],
) -> list[Exposed]:
    """All that runs, or is read, where a job is submitted from here; without a job, where any is.

    Raises:
        CastoffError: the list of what the user trusts cannot be used.
    """
    named = [*_of_castoff(environ), *_of_configuration(environ)]
    if job is not None:
        named.append(("job file", Path(job)))
    if spec is not None:
        named += _of_job(spec, [*(site.setup if site else []), *spec.setup], environ)
    named.append(("working directory", Path.cwd()))
    named.append(("folder of runs", runs_dir or runs_folder(environ)))
    found = []
    for what, path in dict.fromkeys(named):
        weak = weaknesses(path, is_installed=what in _INSTALLED)
        if weak or what not in _ONLY_IF_WEAK:
            found.append(Exposed(what, path, weak, refused(path, weak, environ), hiding(path)))
    return found


_INSTALLED = ("python", "castoff", "castoff's file", "on PATH", "on PYTHONPATH", "program")
"""What may be root's, whom a container does not show."""

_ONLY_IF_WEAK = ("castoff's file", "on PATH", "on PYTHONPATH")
"""What there is much of."""


def _of_castoff(environ: Mapping[str, str]) -> Iterator[tuple[str, Path]]:
    package = Path(__file__).parents[2]
    yield "python", Path(sys.executable)
    yield "castoff", package
    for path in sorted(package.rglob("*.py")):
        yield "castoff's file", path
    for name in ("PATH", "PYTHONPATH"):
        for folder in filter(None, environ.get(name, "").split(os.pathsep)):
            yield f"on {name}", Path(folder)


def _of_configuration(environ: Mapping[str, str]) -> Iterator[tuple[str, Path]]:
    trusted = granted_file(environ)
    yield "your home", Path(environ.get("HOME", "/"))
    folders = [("your profile", trusted.parent / "sites")]
    if (project := project_folder()) is not None:
        yield "project", project
        yield "project's file", project / "config.yaml"
        folders.append(("project's profile", project / "sites"))
    if trusted.exists():
        yield "whom you trust", trusted
    for what, folder in folders:
        for path in sorted(folder.glob("*.yaml")):
            yield what, path


def _of_job(spec: JobSpec, setup: list[str], environ: Mapping[str, str]) -> Iterator[tuple[str, Path]]:
    """What a job's file names: as far as it is there, and can be seen in its words."""
    here = as_path(spec.workdir)
    if spec.python is not None:
        yield "job's python", Path(spec.python)
    if spec.templates is not None:
        yield "templates", Path(spec.templates)
        for path in sorted(Path(spec.templates).rglob("*.*")):
            yield "templates", path
    command = spec.command or []
    if command and (program := shutil.which(command[0], path=environ.get("PATH"))):
        yield "program", here / program if os.sep in program else Path(program)
    for word in command[1:]:
        if word and (here / word).is_file():
            yield "program's file", here / word
    for line in setup:
        for word in _words(line):
            if os.sep in word and Path(word).is_file():
                yield "setup's file", Path(word)


def _words(line: str) -> list[str]:
    try:
        return shlex.split(line, comments=True)
    except ValueError:  # a line of several, or no shell
        return line.split()
