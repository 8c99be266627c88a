"""A job that holds a batch script, as the planner takes it: a driver, whose script says its size. Pure."""

from __future__ import annotations

import msgspec

from castoff.launcher.config.batch_script import OF_RANKS, interpreter
from castoff.launcher.config.defaults import EffectiveJob
from castoff.launcher.config.job import JobSpec
from castoff.launcher.schedulers.base import Scheduler
from castoff.launcher.schedulers.dialect import says_its_size

DELIMITER = "CASTOFF_SCRIPT"


def as_driver(agreed: EffectiveJob, given: JobSpec, scheduler: Scheduler) -> EffectiveJob:
    """The job with its script's interpreter as command; `given`: without its site's defaults.

    What a site sets up for ranks is not for a script. A size in the scheduler's own words replaces that of
    the fields, which are for other schedulers.
    """
    if given.script is None:
        return agreed
    own = {name: getattr(given, name) for name in OF_RANKS}
    launcher = msgspec.structs.replace(given.launcher, driver=True)
    as_one = {"launcher": launcher, "command": interpreter(given.script), "name": given.name or "script"}
    spec = msgspec.structs.replace(agreed.spec, **own | as_one, env=dict(given.env))
    if scheduler.dialect and says_its_size(spec, scheduler.dialect, scheduler.name):
        spec = msgspec.structs.replace(
            spec, cores_per_rank=None, devices_per_rank=0, device_type=None, memory=None, exclusive=None
        )
    shell = " ".join(word for word in agreed.site.shell.split() if word not in ("-l", "--login"))
    site = msgspec.structs.replace(agreed.site, env={}, teardown=[], shell=shell)
    return EffectiveJob(spec, site, [])


def delimiter(script: str) -> str:
    """A word that no line of the script is, to end a here-document with."""
    lines, word = {*script.split("\n")}, DELIMITER
    while word in lines:
        word += "_"
    return word
