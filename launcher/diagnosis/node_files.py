"""Files that the job of `castoff doctor --nodes` left in its run directory."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from castoff.launcher.runs.run import RunDirectory

STAGES = ("start", "door", "reach", "torch", "rendezvous", "group", "sum", "pairs", "done")
"""What a rank comes to, in this order."""


class RankFile(NamedTuple):
    """One rank's lines."""

    rank: int
    host: str
    said: Mapping[str, Mapping[str, Any]]
    """By stage; `failed` and `stuck` are among them."""

    @property
    def last(self) -> str:
        """The last stage that it came to."""
        return next((stage for stage in reversed(STAGES) if stage in self.said), STAGES[0])

    @property
    def spent(self) -> float:
        """Seconds between that and the end that it reports."""
        end = self.said.get("stuck") or self.said.get("failed") or self.said[self.last]
        return float(end["time"]) - float(self.said[self.last]["time"])


def read(run: RunDirectory) -> tuple[list[RankFile], list[str]]:
    """The ranks of a run's newest attempt, and the hosts of its job, as far as its script wrote them."""
    attempts = run.attempts()
    if not attempts:
        return [], []
    folder = attempts[-1][2]
    try:
        hosts = (folder / "hosts").read_text(encoding="utf-8", errors="replace").split()
    except OSError:
        hosts = []
    found = [one for path in (folder / "doctor").glob("rank-*.jsonl") if (one := _rank(path))]
    return sorted(found, key=lambda one: one.rank), list(dict.fromkeys(hosts))


def _rank(path: Path) -> RankFile | None:
    said: dict[str, Mapping[str, Any]] = {}
    for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
        if (one := _object(line)) and {"stage", "rank", "host", "time"} <= one.keys():
            said[str(one["stage"])] = one
    first = next(iter(said.values()), None)
    return RankFile(int(first["rank"]), str(first["host"]), said) if first else None


def read_preflight(run: RunDirectory) -> tuple[list[str], dict[str, str]]:
    """The hosts that were fit for ranks, and those that were not, each with the reason."""
    unfit = {}
    for path in sorted((run.path / "set-aside").glob("*.json")):
        if one := _object(path.read_text(encoding="utf-8", errors="replace")):
            unfit[str(one.get("host", path.stem))] = str(one.get("reason", "no reason was recorded"))
    answers: list[str] = []
    for _, _, folder in run.attempts()[-1:]:
        path = folder / "host.sh.answers"  # each line behind the time at which it came
        if path.exists():
            answers = path.read_text(encoding="utf-8", errors="replace").splitlines()
    found = (_object(line.partition(" ")[2]) for line in answers)
    hosts = dict.fromkeys(str(one["host"]) for one in found if one and "host" in one)
    return [host for host in hosts if host not in unfit], unfit


def _object(text: str) -> Mapping[str, Any] | None:
    """A JSON object; None where it is none, as what was just being written when the job ended."""
    try:
        found = json.loads(text)
    except ValueError:
        return None
    return found if isinstance(found, dict) else None
