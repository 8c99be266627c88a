"""castoff's launcher: from a job file to ranks that know who they are.

The names below are loaded at first use, so that `import launcher.ranks` stays cheap in every rank.
"""

from __future__ import annotations

TYPE_CHECKING = False  # `typing` alone would cost a rank more than all of launcher.ranks
if TYPE_CHECKING:
    from typing import Any

    from launcher.errors import CastoffError, InvalidInput, PlacementError
    from launcher.executors import executor
    from launcher.planning import Plan, plan
    from launcher.ranks import RankEnv
    from launcher.rendering import render
    from launcher.runs import Run
    from launcher.site import Site
    from launcher.spec import JobSpec
    from launcher.submission import submit

_HOMES = {
    "CastoffError": "errors",
    "InvalidInput": "errors",
    "JobSpec": "spec",
    "PlacementError": "errors",
    "Plan": "planning",
    "RankEnv": "ranks",
    "Run": "runs",
    "Site": "site",
    "executor": "executors",
    "plan": "planning",
    "render": "rendering",
    "submit": "submission",
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
