"""Chooses the site if the user names none."""

from __future__ import annotations

from castoff.launcher.config.project import project_site
from castoff.launcher.config.site import Search, Site, project_profiles
from castoff.launcher.errors import CastoffError, InvalidInput, Problem, report
from castoff.launcher.schedulers.base import Scheduler
from castoff.launcher.schedulers.fields import refused_of_site
from castoff.launcher.schedulers.registry import HAVE_DIRECTIVES, NAMES, scheduler_of

NO_SCHEDULER = scheduler_of(NAMES[-1]).found_on({}) or ""
"""The reason for choosing `local` as the site: castoff found no scheduler."""


def choose_site(*, search: Search | None = None, inside: str | None = None) -> tuple[Site, str]:
    """Return the name of the site to use if the user names none, and why castoff chose that site.

    The site is the first of: the variable CASTOFF_SITE; `site:` in the project's .castoff/config.yaml;
    `inside`, the scheduler of the allocation that this process is in; the first scheduler whose commands are
    on PATH; local.

    Raises:
        CastoffError: there is no such profile.
        InvalidInput: with every problem that it has.
    """
    search = search or Search.here()
    name, why = _choose(search, inside)
    try:
        return site_named(name, search=search), why
    except InvalidInput:
        raise
    except CastoffError as error:
        raise CastoffError(f"{error}\nthis site was chosen because {why}") from None


def not_described(site: Site, search: Search | None = None) -> str | None:
    """Return what to do if castoff found a scheduler but nobody has named the site; None: the user has named
    it.

    castoff then uses a built-in site, which contains nothing about this machine.
    """
    search = search or Search.here()
    kinds = {kind for kind, _ in search.profiles().get(site.name, [])}
    named = "CASTOFF_SITE" in search.environ or (
        search.project is not None
        and (config := search.project / ".castoff" / "config.yaml").is_file()
        and project_site(config) is not None
    )
    if named or site.name not in HAVE_DIRECTIVES or kinds != {"built-in"}:
        return None
    about = f"site {site.name}: knows nothing of this machine's queues and nodes"
    if mine := [name for name in search.profiles() if _describes(name, site.scheduler, search)]:
        use = f"--site {mine[0]}, or for every job: export CASTOFF_SITE={mine[0]}"
        return f"{about}; your own profiles may know them ({', '.join(mine)}): {use}"
    return f"{about}; `castoff sites new NAME` makes a profile from what the scheduler reports"


def _describes(name: str, scheduler: str, search: Search) -> bool:
    """Whether a profile belongs to the user or the project, and is for that scheduler."""
    if search.profiles()[name][0][0] == "built-in":
        return False
    try:
        return Site.load(name, search=search).scheduler == scheduler
    except CastoffError:
        return False


def site_named(name: str, *, search: Search | None = None) -> Site:
    """Load the profile of that name; report on standard error which of the project's files the profile uses.

    Raises:
        CastoffError: there is none, or it extends itself in a circle.
        InvalidInput: with every problem that it has.
    """
    search = search or Search.here()
    site = profile(name, search)
    if files := project_profiles(name, search):
        report(f"site {name}: uses the project's {' and '.join(map(str, files))}")
    return site


def profile(name: str, search: Search) -> Site:
    """Load the profile of that name, and check that its scheduler supports all of its fields.

    Raises:
        CastoffError: there is none, or it extends itself in a circle.
        InvalidInput: with every problem that it has.
    """
    site = Site.load(name, search=search)
    check_profile(site)
    return site


def check_profile(site: Site) -> Scheduler:
    """Return the site's scheduler, after checking that it supports all fields of the profile.

    Raises:
        InvalidInput: the scheduler does not support a field, or castoff does not know the scheduler.
    """
    place = f"site {site.name}"
    try:
        scheduler = scheduler_of(site.scheduler)
    except CastoffError as error:
        field, _, message = str(error).partition(": ")
        raise InvalidInput([Problem(place, field, message)]) from None
    if problems := [Problem(place, field, message) for field, message in refused_of_site(site, scheduler)]:
        raise InvalidInput(problems)
    return scheduler


def _choose(search: Search, inside: str | None) -> tuple[str, str]:
    if name := search.environ.get("CASTOFF_SITE"):
        return name, "CASTOFF_SITE is set"
    if search.project is not None:
        config = search.project / ".castoff" / "config.yaml"
        if config.is_file() and (named := project_site(config)):
            return named, f"{config} names it"
    if inside is not None:
        return inside, f"this shell is in an allocation of {inside}"
    candidates = ((name, scheduler_of(name).found_on(search.environ)) for name in NAMES)
    return next((name, reason) for name, reason in candidates if reason)
