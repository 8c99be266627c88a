"""The subject that doctor checks, a job on a site, and its findings: facts, their status, and remedies."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeAlias

from castoff.launcher.config.defaults import effective_job
from castoff.launcher.config.job import JobSpec
from castoff.launcher.config.site import Site
from castoff.launcher.errors import InvalidInput, Problem
from castoff.launcher.planning.planner import decide
from castoff.launcher.planning.render import rendered
from castoff.launcher.runs.plan import Plan
from castoff.launcher.text.quoting import visible_word

Status: TypeAlias = Literal["ok", "warning", "problem", "unknown"]
"""`unknown`: a query gave no answer."""


class Finding(NamedTuple):
    """One fact about what a job needs."""

    about: str
    """Its topic in one word: account, queue, quota, …"""
    status: Status
    fact: str
    remedy: str = ""
    """A remedy, with the user's own values; empty if all is well."""
    values: Mapping[str, Any] | None = None
    """Measurements, for programs."""


Findings: TypeAlias = Iterator[Finding]


def has_problem(findings: Iterable[Finding]) -> bool:
    """Whether something would keep a job from running."""
    return any(finding.status == "problem" for finding in findings)


class Subject(NamedTuple):
    """A job on a site, or any job there, and where it is submitted from."""

    site: Site
    given: JobSpec
    """The job as it was written; without a command, it represents any job."""
    spec: JobSpec
    """The job with the site's defaults."""
    plan: Plan | None
    """None if the job has no command or cannot be planned."""
    script: str
    """The job's script; empty without a plan."""
    problems: Sequence[Problem]
    """Why the job cannot be planned."""
    source: str | None
    """The job file's name."""
    directory: Path
    """The directory that the job is submitted from."""
    runs: Path
    """The folder of runs."""
    environ: Mapping[str, str]

    @classmethod
    def of(
        cls,
        site: Site,
        spec: JobSpec,
        *,
        source: str | None,
        directory: Path,
        runs: Path,
        environ: Mapping[str, str],
    ) -> Subject:
        """A job on a site, with its plan if it can be planned."""
        plan, script, problems = None, "", []
        if spec.command:
            try:
                plan, scheduler = decide(spec, site)
                script = rendered(plan, scheduler).text
            except InvalidInput as error:
                problems = error.problems
        effective = effective_job(spec, site).spec
        return cls(site, spec, effective, plan, script, problems, source, directory, runs, environ)

    @property
    def words(self) -> str:
        """The arguments that name the job on castoff's command line."""
        site = f"--site {visible_word(self.site.name)}"
        return f"{visible_word(self.source)} {site}" if self.source else f"{site} …"

    def setting(self, field: str, value: str) -> str:
        """How the user sets a field to a value, in YAML: in the job file, or else by its flag."""
        source = self.given.source
        if self.source and not (source and source.where((field,)).startswith("--")):
            return f"`{field}: {value}` in {self.source}"
        plain = value.strip('"')
        return f"--{field.replace('_', '-')} {plain}"
