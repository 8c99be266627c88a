"""What a submission through castoff.executor costs beside sbatch itself, within one Python process.

sbatch is a stand-in that answers at once, so that what is left is castoff's. The functions are submitted
from a git repository of a hundred files, whose state each submission writes down.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import castoff

BAR = 0.050
"""Seconds that a submission may take beyond sbatch."""
MEMBERS = 1_000
LARGEST = 400
"""MaxArraySize of the stand-in."""

_SBATCH = """#!/bin/sh
echo call >>"$HOME/calls"
echo 4711
"""
_SCONTROL = f"""#!/bin/sh
echo "MaxArraySize = {LARGEST}"
"""


def main(rounds: int) -> None:
    """Submit, and print what it took."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        _prepare(folder)
        before, here = dict(os.environ), Path.cwd()
        os.environ.update(HOME=name, PATH=f"{folder}/bin:{before['PATH']}")
        for variable in ("XDG_STATE_HOME", "XDG_CACHE_HOME", "XDG_CONFIG_HOME"):
            os.environ.pop(variable, None)
        os.chdir(folder / "project")
        try:
            _measure(folder, rounds)
        finally:
            os.chdir(here)
            os.environ.clear()
            os.environ.update(before)


def _prepare(folder: Path) -> None:
    project = folder / "project"
    for made in (folder / "bin", project):
        made.mkdir()
    for program, text in (("sbatch", _SBATCH), ("scontrol", _SCONTROL)):
        (folder / "bin" / program).write_text(text)
        (folder / "bin" / program).chmod(0o755)
    for number in range(100):
        (project / f"module_{number}.py").write_text(f"number = {number}\n")
    who = ["-c", "user.name=bench", "-c", "user.email=bench@example.org"]
    for words in (["init", "-q"], ["add", "."], [*who, "commit", "-qm", "modules"]):
        subprocess.run(["git", *words], cwd=project, check=True)


def _measure(folder: Path, rounds: int) -> None:
    executor = castoff.executor({}, "slurm", folder / "runs")
    ours: list[float] = []
    sbatch: list[float] = []
    for number in range(rounds + 1):
        pair = (
            _timed(lambda: subprocess.run(["sbatch"], capture_output=True, check=True)),
            _timed(lambda: executor.submit(abs, -1)),
        )
        if number:  # the first round imports
            sbatch.append(pair[0])
            ours.append(pair[1])
    over = statistics.median(a - b for a, b in zip(ours, sbatch, strict=True))
    (folder / "calls").write_text("")
    took = _timed(lambda: executor.map_array(abs, range(MEMBERS)))
    calls = len((folder / "calls").read_text().splitlines())
    fewest = -(-MEMBERS // LARGEST)
    print(f"\nSubmitting functions; medians of {rounds} rounds in ms, sbatch being a stand-in")
    print(
        f"{'executor.submit':28} {statistics.median(ours) * 1e3:7.1f}, sbatch alone "
        f"{statistics.median(sbatch) * 1e3:.1f}; beyond it {over * 1e3:.1f}, bar {BAR * 1e3:.0f}: "
        f"{'met' if over <= BAR else 'NOT MET'}"
    )
    print(
        f"{f'map_array of {MEMBERS:,}':28} {took * 1e3:7.1f}, with {calls} calls of sbatch where "
        f"MaxArraySize is {LARGEST}: {'met' if calls == fewest else 'NOT MET'}"
    )


def _timed(work: Callable[[], object]) -> float:
    begin = time.perf_counter()
    work()
    return time.perf_counter() - begin
