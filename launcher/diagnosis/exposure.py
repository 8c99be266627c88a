"""Finds the accounts that could change what will run: castoff, its configuration, a job's files, the runs."""

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
from castoff.launcher.diagnosis.finding import Finding, Findings, Subject
from castoff.launcher.errors import CastoffError
from castoff.launcher.runs.run import runs_folder
from castoff.launcher.trust.decision import fixes, refused
from castoff.launcher.trust.granted import granted_file
from castoff.launcher.trust.paths import hiding, weaknesses
from castoff.launcher.trust.writers import Weakness


def unknown_words(kinds: Iterable[str]) -> str:
    """The message that these kinds of file systems do not show their access lists."""
    return f"{', '.join(kinds)} does not show access lists, so others may be able to change it"


class Exposed(NamedTuple):
    """A file or folder that will run or be read."""

    role: str
    path: Path
    weak: list[Weakness]
    """The parts of its path that another user can change."""
    refused: list[Weakness]
    """The weaknesses that the user has not allowed."""
    hidden: list[str]
    """The kinds of file systems on its path that may have access lists but do not show them."""


def exposures(
    job: str | None,
    spec: JobSpec | None,
    site: Site | None,
    *,
    runs_dir: Path | None,
    environ: Mapping[str, str],
) -> list[Exposed]:
    """All files and folders that run or are read if the job is submitted from this directory; None: any job.

    Raises:
        CastoffError: the file of trusted folders cannot be used.
    """
    paths = [*_of_castoff(environ), *_of_configuration(environ)]
    if job is not None:
        paths.append(("job file", Path(job)))
    if spec is not None:
        paths += _of_job(spec, [*(site.setup if site else []), *spec.setup], environ)
    paths.append(("working directory", Path.cwd()))
    paths.append(("folder of runs", runs_dir or runs_folder(environ)))
    exposed = []
    for role, path in dict.fromkeys(paths):
        weak = weaknesses(path, is_installed=role in _INSTALLED)
        if weak or role not in _ONLY_IF_WEAK:
            exposed.append(Exposed(role, path, weak, refused(path, weak, environ), hiding(path)))
    return exposed


_INSTALLED = ("python", "castoff", "castoff's file", "on PATH", "on PYTHONPATH", "program")
"""Roles whose files may belong to root, even where a container does not show root's id."""

_ONLY_IF_WEAK = ("castoff's file", "on PATH", "on PYTHONPATH")
"""Roles with many files, which are listed only if somebody else can change them."""


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
    for role, folder in folders:
        for path in sorted(folder.glob("*.yaml")):
            yield role, path


def _of_job(spec: JobSpec, setup: list[str], environ: Mapping[str, str]) -> Iterator[tuple[str, Path]]:
    """The existing files that a job's fields name."""
    workdir = as_path(spec.workdir)
    if spec.python is not None:
        yield "job's python", Path(spec.python)
    if spec.templates is not None:
        yield "templates", Path(spec.templates)
        for path in sorted(Path(spec.templates).rglob("*.*")):
            yield "templates", path
    command = spec.command or []
    if command and (program := shutil.which(command[0], path=environ.get("PATH"))):
        yield "program", workdir / program if os.sep in program else Path(program)
    for word in command[1:]:
        if word and (workdir / word).is_file():
            yield "program's file", workdir / word
    for line in setup:
        for word in _words(line):
            if os.sep in word and Path(word).is_file():
                yield "setup's file", Path(word)


def _words(line: str) -> list[str]:
    try:
        return shlex.split(line, comments=True)
    except ValueError:  # part of a longer command, or not a shell line
        return line.split()


def trust(subject: Subject) -> Findings:
    """The accounts other than the user and root that could change what will run, as `--trust` lists them."""
    source = subject.source
    spec = subject.given if subject.given.command else None
    site = subject.site if spec else None
    exposed = exposures(source, spec, site, runs_dir=subject.runs, environ=subject.environ)
    refused_ones = [file for file in exposed if file.refused]
    for file in refused_ones:
        reasons = ", and ".join(f"{weakness.path} {weakness.why}" for weakness in file.refused)
        yield Finding(
            "trust", "problem", f"{file.role} {file.path}: {reasons}", "; ".join(fixes(file.refused))
        )
    if not refused_ones:
        yield Finding("trust", "ok", "only you, root and those you trust can change what will run")
    for kind in dict.fromkeys(kind for file in exposed for kind in file.hidden):
        names = [f"{file.role} {file.path}" for file in exposed if kind in file.hidden]
        others = f" and {len(names) - 1} more" if len(names) > 1 else ""
        yield Finding("trust", "unknown", f"{names[0]}{others}: {unknown_words([kind])}")


def unusable(path: Path, error: CastoffError) -> Finding:
    """A finding from an error about a file that castoff does not trust."""
    first, _, rest = str(error).partition("\n")
    return Finding("job", "problem", first or str(path), "; ".join(rest.splitlines()))
