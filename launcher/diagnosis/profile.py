"""The site profile: the age of its limits, and where the scheduler now differs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import date

from castoff.launcher.config.site import Site
from castoff.launcher.config.site_fields import Fact
from castoff.launcher.diagnosis.finding import Finding, Findings
from castoff.launcher.diagnosis.subject import Subject
from castoff.launcher.schedulers.choice import not_described
from castoff.launcher.schedulers.machine_info import Difference
from castoff.launcher.schedulers.registry import queued, title_of
from castoff.launcher.text.quoting import visible_word

_OLD = 365
"""Days."""

_SHOWN = 3


def findings(subject: Subject, differences: Sequence[Difference] | None, today: date) -> Findings:
    """What is to be said of the profile.

    `differences`: where the scheduler differs from it now; None if the scheduler has not answered.
    """
    site = subject.site
    if queued(site.scheduler) is None:
        return
    check = f"castoff sites check {visible_word(site.name)}"
    if what := not_described(site):
        fact, _, fix = what.removeprefix(f"site {site.name}: ").partition("; ")
        yield Finding("profile", "warning", f"{site.name} {fact}", fix)
        return
    for one in (differences or [])[:_SHOWN]:
        fact = f"{one.field}: {site.name} has {one.profile}, and {title_of(site.scheduler)} {one.scheduler}"
        yield Finding("profile", "warning", fact, f"{check} --update")
    if differences and len(differences) > _SHOWN:
        yield Finding("profile", "warning", f"{len(differences) - _SHOWN} further differences", check)
    oldest = min((fact.date for fact in _facts(site)), default=None)
    if differences:
        return
    if oldest is None:
        yield Finding("profile", "ok", f"{site.name}: {site.description}")
    elif (today - date.fromisoformat(oldest)).days > _OLD and differences is None:
        fact = f"some limits of {site.name} are of {oldest}"
        yield Finding("profile", "warning", fact, f"{check}, or read the site's pages again")
    else:
        agrees = (
            "and the scheduler says the same"
            if differences is not None
            else "not compared with the scheduler"
        )
        yield Finding("profile", "ok", f"{site.name}: its limits are of {oldest} or later, {agrees}")


def _facts(site: Site) -> Iterator[Fact]:
    yield from site.queues.values()
    yield from site.qos.values()
    yield from site.required
    yield from (one for one in (site.node, site.array) if one is not None)
    yield from site.directive_values.values()
