"""What planning reports: problems, each with the line that set the value, and notes on decisions."""

from __future__ import annotations

import msgspec

from castoff.launcher.config import directives
from castoff.launcher.config.job import JobSpec
from castoff.launcher.config.job_fields import Directives
from castoff.launcher.config.site import Site
from castoff.launcher.errors import Problem
from castoff.launcher.launchers.base import Layout
from castoff.launcher.typed.document import Document, FieldPath


class Findings:
    """The problems and notes of one plan, in the order in which they were found."""

    def __init__(self, name: str, site: Site, source: Document | None, given: Directives):
        """`name`: the job's name; `source`: its file; `given`: its directives as written."""
        self._name, self._site, self._source, self._given = name, site, source, given
        self.problems: list[Problem] = []
        self.notes: list[str] = []

    def report(self, field: str, message: str) -> None:
        """Report a problem of a job's field, whether the job file, a flag or the site's defaults set it."""
        field = directives.place(field, self._given, self._site.scheduler)
        self.problems.append(Problem(self._where(field), field, message))

    def report_ranks(self, spec: JobSpec, layout: Layout, message: str) -> None:
        """Report a wrong number of ranks, under the field that sets the number."""
        in_all = spec.ranks is not None
        count = layout.processes if in_all else layout.max_per_node
        self.report("ranks" if in_all else "ranks_per_node", f"is {count}, but {message}")

    def report_site(self, field: str, message: str) -> None:
        """Report a problem of a field of the site's profile."""
        self.problems.append(Problem(f"site {self._site.name}", field, message))

    def _where(self, field: str) -> str:
        """Return the source of a field's value: the line of the job file, a flag, or the site's defaults."""
        if self._source is None:
            return f"{self._name} on {self._site.name}"
        path: FieldPath = tuple(int(key) if key.isdecimal() else key for key in field.split("."))
        mine = self._source.data.get(path[0]) if isinstance(self._source.data, dict) else None
        if mine is None and path[0] in msgspec.to_builtins(self._site.defaults):
            return f"defaults of site {self._site.name}"
        return self._source.where(path)
