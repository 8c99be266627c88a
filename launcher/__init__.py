"""castoff's launcher: from a job file to running ranks.

The names below are loaded at first use, so that `import launcher.ranks` stays cheap in every rank.
"""

from __future__ import annotations

TYPE_CHECKING = False  # `typing` alone would cost a rank more than all of launcher.ranks
if TYPE_CHECKING:
    from typing import Any

    from launcher.api.run import Run as Run
    from launcher.api.submit import submit as submit
    from launcher.config.job import JobSpec as JobSpec
    from launcher.config.site import Site as Site
    from launcher.errors import CastoffError as CastoffError
    from launcher.errors import InvalidInput as InvalidInput
    from launcher.errors import PlacementError as PlacementError
    from launcher.errors import StillRunning as StillRunning
    from launcher.executors.executor import executor as executor
    from launcher.planning.planner import plan as plan
    from launcher.planning.render import render as render
    from launcher.ranks import RankEnv as RankEnv
    from launcher.runs.plan import Plan as Plan
    from launcher.runs.states import RunStatus as RunStatus
    from launcher.submission.send import NotSent as NotSent
    from launcher.submission.send import Unclear as Unclear

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
    "RunStatus": "runs.states",
    "Site": "config.site",
    "StillRunning": "errors",
    "Unclear": "submission.send",
    "executor": "executors.executor",
    "plan": "planning.planner",
    "render": "planning.render",
    "submit": "api.submit",
}

__all__ = list(_HOMES)


def __getattr__(name: str) -> Any:
    if name == "__version__":
        from importlib.metadata import version

        return version("castoff")
    if name not in _HOMES:
        displaced = globals().get("_in_place_of")  # castoff_plugin says so
        if displaced is not None and not name.startswith("__"):
            raise ImportError(
                f"castoff's launcher has no {name}, and {displaced} is not loaded: castoff's has its name; "
                "rename that file"
            )
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"launcher.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
