"""From one job file to a script for each scheduler, ranks on nodes, and their ending; narrow, for phones."""

from __future__ import annotations

import yaml

from castoff import JobSpec, Site, plan, render
from castoff.launcher.text.svg import arrow, document, rect, text

JOB = """\
command: [python, train.py]
nodes: 2
ranks_per_node: 4
walltime: 1h
"""
SCHEDULERS = {"slurm": "Slurm", "pbs": "PBS", "flux": "Flux"}
_ENDINGS = {"done": "#7fc98f", "resume": "#8ec7f2", "failed": "#f0937e"}
_WIDTH, _EDGE, _HALF = 420, 16, 186


def overview() -> str:
    """Four rows, each with what leads to the next."""
    parts = [rect(_EDGE, 16, 388, 112, kind="box", round_by=6), text(30, 40, "One job file", "title")]
    parts += [text(30, 62 + at * 17, line, "code") for at, line in enumerate(JOB.splitlines())]
    parts += _leads_on(128, "castoff render: a script for any machine")
    for at, (name, request) in enumerate(requests().items()):
        x, y = _column(at % 2), 168 + at // 2 * 62
        parts += [rect(x, y, _HALF, 52, kind="box", round_by=6), text(x + 12, y + 21, name, "title")]
        parts.append(text(x + 12, y + 41, request, "code"))
    parts += _leads_on(282, "castoff submit: once, from your laptop too")
    for node in range(2):
        x = _column(node)
        parts += [rect(x, 322, _HALF, 76, kind="box", round_by=6), text(x + 12, 343, f"node {node + 1}")]
        for slot in range(4):
            parts.append(rect(x + 12 + slot * 42, 354, 36, 32, fill="#8ec7f2"))
            parts.append(text(x + 30 + slot * 42, 375, str(node * 4 + slot), "ink", "middle"))
    parts += _leads_on(398, "castoff status, logs, top, report")
    for at, (ending, colour) in enumerate(_ENDINGS.items()):
        parts.append(rect(_EDGE + at * 132, 438, 124, 32, fill=colour))
        parts.append(text(_EDGE + 62 + at * 132, 459, ending, "ink", "middle"))
    asked = ", ".join(f"{name} ({request})" for name, request in requests().items())
    words = f"One job file becomes a script for {asked}; eight ranks run; they end as {' or '.join(_ENDINGS)}"
    return document(_WIDTH, 490, words, parts)


def requests() -> dict[str, str]:
    """What each scheduler's script asks for, and what needs no scheduler."""
    job, found = JobSpec.of(yaml.safe_load(JOB)), {}
    for site, name in SCHEDULERS.items():
        script = render(plan(job, Site.load(site))).splitlines()
        request = next(line for line in script if line.startswith("#") and "=2" in line)
        found[name] = request.partition(":ncpus")[0]
    return {**found, "Your machine": "no scheduler needed"}


def _column(number: int) -> int:
    return _EDGE + number * (_HALF + 16)


def _leads_on(y: int, words: str) -> list[str]:
    return [arrow((40, y + 4), (40, y + 36)), text(56, y + 25, words)]
