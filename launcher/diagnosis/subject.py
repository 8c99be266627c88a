"""What doctor checks: a site, a job with its defaults, and where it would be submitted."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from castoff.launcher.config.defaults import effective_job
from castoff.launcher.config.job import JobSpec
from castoff.launcher.config.site import Site
from castoff.launcher.errors import InvalidInput, Problem
from castoff.launcher.planning.planner import decide
from castoff.launcher.planning.render import rendered
from castoff.launcher.runs.plan import Plan
from castoff.launcher.text.quoting import visible_word


class Subject(NamedTuple):
    """A job, or any job, on a site."""

    site: Site
    given: JobSpec
    """As it was written; one that has no command stands for any job."""
    spec: JobSpec
    """With the site's defaults."""
    plan: Plan | None
    """None: it cannot be planned, or there is none."""
    script: str
    """Empty without a plan."""
    problems: Sequence[Problem]
    """Why it cannot be planned."""
    source: str | None
    """The job file's name."""
    directory: Path
    runs: Path
    """Where run directories go."""
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
        """A job on a site, planned as far as that is possible."""
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
        """What names the job behind a verb."""
        site = f"--site {visible_word(self.site.name)}"
        return f"{visible_word(self.source)} {site}" if self.source else f"{site} …"

    def setting(self, field: str, value: str) -> str:
        """How to give a field another value: in the job file, else by its flag; `value` being YAML."""
        source = self.given.source
        if self.source and not (source and source.where((field,)).startswith("--")):
            return f"`{field}: {value}` in {self.source}"
        plain = value.strip('"')
        return f"--{field.replace('_', '-')} {plain}"
