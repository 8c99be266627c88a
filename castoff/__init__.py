"""castoff: from a job file to running ranks.

The names below are loaded at first use, so that `import castoff.launcher.ranks` stays cheap in every rank.
"""

from __future__ import annotations

TYPE_CHECKING = False  # importing `typing` would cost a rank more than all of castoff.launcher.ranks
if TYPE_CHECKING:
    from typing import Any

    from castoff import trainers as trainers
    from castoff.launcher.api.group import RunGroup as RunGroup
    from castoff.launcher.api.group import submit_all as submit_all
    from castoff.launcher.api.run import Run as Run
    from castoff.launcher.api.submit import submit as submit
    from castoff.launcher.config.job import JobSpec as JobSpec
    from castoff.launcher.config.site import Site as Site
    from castoff.launcher.errors import CastoffError as CastoffError
    from castoff.launcher.errors import InvalidInput as InvalidInput
    from castoff.launcher.errors import PlacementError as PlacementError
    from castoff.launcher.errors import StillRunning as StillRunning
    from castoff.launcher.executors.executor import executor as executor
    from castoff.launcher.planning.planner import plan as plan
    from castoff.launcher.planning.render import render as render
    from castoff.launcher.ranks import RankEnv as RankEnv
    from castoff.launcher.runs.plan import Plan as Plan
    from castoff.launcher.runs.states import RunStatus as RunStatus
    from castoff.launcher.submission.send import NotSent as NotSent
    from castoff.launcher.submission.send import Unclear as Unclear

    __version__: str

_HOMES = {
    "CastoffError": "errors",
    "InvalidInput": "errors",
    "JobSpec": "config.job",
    "NotSent": "submission.send",
    "PlacementError": "errors",
    "Plan": "runs.plan",
    "RankEnv": "ranks",
    "Run": "api.run",
    "RunGroup": "api.group",
    "RunStatus": "runs.states",
    "Site": "config.site",
    "StillRunning": "errors",
    "Unclear": "submission.send",
    "executor": "executors.executor",
    "plan": "planning.planner",
    "render": "planning.render",
    "submit": "api.submit",
    "submit_all": "api.group",
}
"""The module in castoff.launcher that each name comes from."""

__all__ = list(_HOMES)


if not TYPE_CHECKING:  # with this function, a type checker would accept every name

    def __getattr__(name: str) -> Any:
        from importlib import import_module

        if name == "__version__":
            from importlib.metadata import version

            return version("castoff")
        if name == "trainers":
            return import_module("castoff.trainers")
        if name not in _HOMES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return getattr(import_module(f"castoff.launcher.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return [*__all__, "__version__", "trainers"]
