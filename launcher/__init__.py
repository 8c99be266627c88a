"""castoff's launcher: from a job file to ranks that know who they are.

The names below are loaded at first use, so that `import launcher.ranks` stays cheap in every rank.
"""

from __future__ import annotations

TYPE_CHECKING = False  # `typing` alone would cost a rank more than all of launcher.ranks
if TYPE_CHECKING:
    from typing import Any

    from launcher.config.job import JobSpec
    from launcher.config.site import Site
    from launcher.errors import CastoffError, InvalidInput, PlacementError
    from launcher.executors.executor import executor
    from launcher.planning.planner import plan
    from launcher.planning.render import render
    from launcher.ranks import RankEnv
    from launcher.runs.plan import Plan
    from launcher.runs.run import Run
    from launcher.submission.submit import submit

_HOMES = {
    "CastoffError": "errors",
    "InvalidInput": "errors",
    "JobSpec": "config.job",
    "PlacementError": "errors",
    "Plan": "runs.plan",
    "RankEnv": "ranks",
    "Run": "runs.run",
    "Site": "config.site",
    "executor": "executors.executor",
    "plan": "planning.planner",
    "render": "planning.render",
    "submit": "submission.submit",
}

__all__ = [
    "CastoffError",
    "InvalidInput",
    "JobSpec",
    "PlacementError",
    "Plan",
    "RankEnv",
    "Run",
    "Site",
    "executor",
    "plan",
    "render",
    "submit",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"launcher.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)
