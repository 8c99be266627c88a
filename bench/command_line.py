"""CPU time of short commands beside a reference: `python -m bench.command_line [ROUNDS [OTHER …]]`.

`castoff render` is held against importing Jinja, YAML, click and msgspec, in turn, so that the ratio hardly
depends on the machine. OTHER is a command for `castoff --help` to be held against, as `ezpz --help`; without
it, that is Python's own start.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
import time

from castoff.launcher.config.job import JobSpec
from castoff.launcher.config.site import Site
from castoff.launcher.planning.planner import plan
from castoff.launcher.planning.render import render

from .__main__ import BARE, CASTOFF, CHECKOUT, timed

ROUNDS = 21
IMPORTS = [sys.executable, "-c", "import jinja2, yaml, click, msgspec"]
RENDER = [CASTOFF, "render", str(CHECKOUT / "examples" / "digits.yaml"), "--site", "aurora"]
RENDER_BAR = 1.10
HELP_BAR = 0.50
LARGEST = 10_624
"""Nodes of Aurora, with 12 ranks each."""
LARGEST_BAR = 0.010
"""Seconds for the largest job's plan and script, in a process that has imported what it needs."""


def ratio(ours: list[str], reference: list[str], rounds: int) -> tuple[float, float]:
    """The CPU time of a command in seconds, and over the reference's; medians."""
    pairs = []
    with tempfile.TemporaryDirectory() as folder:
        for number in range(rounds + 1):
            pair = timed([ours], folder).cpu, timed([reference], folder).cpu
            pairs += [pair] if number else []  # the first round fills caches
    return statistics.median(a for a, _ in pairs), statistics.median(a / b for a, b in pairs)


def largest(rounds: int) -> float:
    """Seconds of CPU time for plan and script of a job on all of Aurora."""
    fields = {"command": ["python", "train.py"], "nodes": LARGEST, "walltime": "6h", "account": "me"}
    spec = JobSpec.of({**fields, "queue": "prod", "directives": {"filesystems": "flare"}})
    site, took = Site.load("aurora"), []
    for _ in range(rounds + 1):
        begin = time.process_time()
        render(plan(spec, site))
        took.append(time.process_time() - begin)
    return statistics.median(took[1:])


def main(rounds: int, other: list[str]) -> None:
    """Measure, and print what came out."""
    print(f"\nCPU time in ms; medians of {rounds} rounds")
    for name, ours, reference, bar in (
        ("castoff render (aurora)", RENDER, IMPORTS, RENDER_BAR),
        ("castoff --help", [CASTOFF, "--help"], other or BARE, HELP_BAR if other else None),
    ):
        seconds, over = ratio(ours, reference, rounds)
        verdict = "" if bar is None else f"; bar {bar:.2f}: {'met' if over <= bar else 'NOT MET'}"
        print(f"{name:28} {seconds * 1e3:7.1f}, {over:.2f} of {' '.join(reference)}{verdict}")
    seconds = largest(rounds)
    verdict = "met" if seconds <= LARGEST_BAR else "NOT MET"
    print(f"{'plan, render 127,488 ranks':28} {seconds * 1e3:7.1f}; bar {LARGEST_BAR * 1e3:.0f}: {verdict}")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else ROUNDS, sys.argv[2:])
