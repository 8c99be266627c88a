"""What one machine can show of ten thousand: `python -m bench.at_scale [PART ...]`.

PART is hosts, together, array, runs, group, logs, files or slow; without one, all are measured. With
CASTOFF_BENCH_MEMBERS=100000 the largest array takes half a million files.

Answers of hosts and schedulers are made up and fed through the real code. The growth is the exponent of the
CPU time between the two largest sizes: 1 is linear. `slow` needs gcc.
"""

from __future__ import annotations

import math
import os
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from castoff import JobSpec, Site, plan, render
from castoff.launcher.history.attempts import early_ranks
from castoff.launcher.ranks.hostlist import expand
from castoff.launcher.runs.groups import GroupJob
from castoff.launcher.runs.index import Index
from castoff.launcher.runs.run import RunDirectory
from castoff.launcher.runs.states import AttemptStatus

from .many_runs import make_runs
from .scale import machinery, measuring, ranks, runs

SIZES = (100, 1_000, 10_000)
MEMBERS = int(os.environ.get("CASTOFF_BENCH_MEMBERS", "10000"))
GIGABYTES = (0.1, 1, 10)
MILLISECONDS = 20

TOP = """\
import os, time
from castoff.launcher.runs.groups import GroupJob
from castoff.launcher.runs.index import Index
from castoff.launcher.screen.looking import Looker
looker = Looker(Index.of(os.environ))
looker.start()
while looker.seen.time is None:
    time.sleep(0.01)
looker.stop()
"""
"""What `castoff top` reads before it draws its first screen."""

READING = {
    "list": ["list"],
    "status": ["status", "sweep"],
    "status --json": ["status", "sweep", "--json"],
    "results": ["results", "sweep"],
    "report": ["report", "sweep", "--output", "page.html"],
    "logs": ["logs", "sweep"],
    "logs --member 0": ["logs", "sweep", "--member", "0"],
    "usage": ["usage"],
    "top": [sys.executable, "-c", TOP],
}
"""The verbs that read a run, by name."""

CHANGING = {
    "stop": ["stop", "sweep"],
    "wait --timeout 0": ["wait", "sweep", "--timeout", "0"],
    "clean --dry-run": ["clean", "sweep", "--dry-run"],
    "cancel": ["cancel", "sweep"],
}
"""Other verbs; what refuses a run that is active exits with 1, and wait with 124."""


def row(name: str, took: list[machinery.Time], sizes: tuple[int, ...]) -> None:
    """Print wall and CPU time at each size, and the growth between the last two."""
    growth = math.log(took[-1].cpu / took[-2].cpu) / math.log(sizes[-1] / sizes[-2])
    cells = "".join(f"{one.wall:9.3f}{one.cpu:9.3f}" for one in took)
    print(f"{name:44}{cells}{growth:8.2f}", flush=True)


def header(title: str, sizes: tuple[int, ...]) -> None:
    """Print the names of columns."""
    print(
        f"\n{title}; seconds, wall and CPU\n{'':44}" + "".join(f"{size:18,}" for size in sizes) + "  growth"
    )


def timed(work: Callable[[], object]) -> machinery.Time:
    """What a function of this process takes."""
    wall, cpu = time.perf_counter(), time.process_time()
    work()
    return machinery.Time(time.perf_counter() - wall, time.process_time() - cpu)


def hosts() -> None:
    """The answers of all hosts, and their ranks."""
    header(f"Hosts, with {machinery.EACH} ranks each", SIZES)
    for step in machinery.STEPS:
        took = []
        for size in SIZES:
            with tempfile.TemporaryDirectory() as folder:
                took.append(machinery.took(Path(folder), size, step))
        row(step, took, SIZES)
    site = Site.load("slurm")

    def planned(size: int) -> str:
        return render(plan(JobSpec.of({"command": ["x"], "nodes": size, "ranks_per_node": 12}), site))

    planned(1)
    row("plan and script", [timed(lambda size=size: planned(size)) for size in SIZES], SIZES)  # type: ignore[misc]
    lists = [",".join(f"n{2 * number:06d}" for number in range(size)) for size in SIZES]
    row("a list of hosts, read", [timed(lambda text=text: expand(text)) for text in lists], SIZES)  # type: ignore[misc]
    row("ranks that ended early, read", [_early(size) for size in SIZES], SIZES)


def _early(size: int) -> machinery.Time:
    with tempfile.TemporaryDirectory() as folder:
        path, each = Path(folder), machinery.EACH
        path.joinpath("plan.json").write_text(f'{{"ranks": {each * size}, "layout": [[{each}, {size}]]}}')
        ended = path / "attempts" / "0.0" / "ended"
        ended.mkdir(parents=True)
        for host in range(size):
            lines = (f"{rank} 1790000000\n" for rank in range(each * host, each * host + each - host % 2))
            (ended / f"ranks-{host}").write_text("".join(lines))
        logs = f"{folder}/logs/0.0"
        now = AttemptStatus(0, "running", None, None, None, "n", 1789999999.0, None, None, logs)
        return timed(lambda: early_ranks(RunDirectory(path), now))


def together() -> None:
    """The members of an array that share one job, whose programs do nothing."""
    took = []
    for size in SIZES:
        with tempfile.TemporaryDirectory() as folder:
            took.append(machinery.dispatched(Path(folder), size))
    header("Members that share a job, 64 at a time", SIZES)
    row("the dispatcher, and a stand-in for each script", took, SIZES)


def array() -> None:
    """An array of many members."""
    sizes = (*(size for size in SIZES if size < MEMBERS), MEMBERS)
    took: dict[str, list[machinery.Time]] = {}
    for size in sizes:
        with tempfile.TemporaryDirectory() as folder:
            home = Path(folder)
            runs.make_array(home, size)
            for name, words in READING.items():
                cost = measuring.cost(words, runs.environment(home))
                took.setdefault(name, []).append(machinery.Time(cost.wall, cost.cpu))
    header("Members of an array on Slurm", sizes)
    for name, times in took.items():
        row(name, times, sizes)


def many() -> None:
    """A list of many runs."""
    took: dict[str, list[machinery.Time]] = {}
    for size in SIZES:
        with tempfile.TemporaryDirectory() as folder:
            make_runs(Path(folder) / "castoff-runs", Index.of({"HOME": folder}), size)
            for name in ("list", "usage", "top"):
                cost = measuring.cost(READING[name], runs.environment(Path(folder)))
                took.setdefault(name, []).append(machinery.Time(cost.wall, cost.cpu))
    header("Runs", SIZES)
    for name, times in took.items():
        row(name, times, SIZES)


def group() -> None:
    """A group of many jobs that are over: all but the first and last wait for the first."""
    took: dict[str, list[machinery.Time]] = {}
    verbs = {name: [name, "pipeline"] for name in ("status", "results")} | {"list": ["list"]}
    for size in SIZES:
        with tempfile.TemporaryDirectory() as folder:
            index = Index.of({"HOME": folder})
            made = make_runs(Path(folder) / "castoff-runs", index, size)
            jobs = [GroupJob(f"job-{at}", str(run.path), sent=True) for at, run in enumerate(made)]
            for job in jobs[1:]:
                job.after = {"afterok": [one.job for one in jobs[1:-1]] if job is jobs[-1] else ["job-0"]}
            index.groups.begin("pipeline-20261120-000000-abcd", {"name": "pipeline"}, jobs)
            for name, words in verbs.items():
                cost = measuring.cost(words, runs.environment(Path(folder)))
                took.setdefault(name, []).append(machinery.Time(cost.wall, cost.cpu))
    header("Jobs of a group", SIZES)
    for name, times in took.items():
        row(name, times, SIZES)


def logs() -> None:
    """A log of many gigabytes, of which commands read the end."""
    tail = ["--tail", "20"]
    verbs = {
        "list": ["list"],
        "status": ["status", "sweep"],
        "report": ["report", "sweep", "--output", "page.html"],
        "logs --tail 20": ["logs", "sweep", *tail],
        "logs --rank 0 --tail 20": ["logs", "sweep", "--rank", "0", *tail],
        "logs -f --tail 20": ["logs", "sweep", "-f", *tail],
    }
    read: dict[str, list[float]] = {name: [] for name in verbs}
    for size in (0, *GIGABYTES):
        with tempfile.TemporaryDirectory() as folder:
            home = Path(folder)
            runs.make_failure(runs.make_array(home, 1), int(size * 1e9))
            for name, words in verbs.items():
                read[name].append(measuring.cost(words, runs.environment(home), (0, 3)).read / 1e6)
    print(f"\nLogs of a failed run; megabytes read beyond an empty log's\n{'':44}", end="")
    print("".join(f"{f'{size:g} GB':>18}" for size in GIGABYTES))
    for name, (nothing, *each) in read.items():
        print(f"{name:44}" + "".join(f"{one - nothing:18.1f}" for one in each))


def files() -> None:
    """The files of many ranks."""
    sizes = (10, 20, 40)
    print(f"\nFiles of a run with {ranks.EACH} ranks on each host\n{'':44}", end="")
    print("".join(f"{f'{size} hosts':>18}" for size in sizes))
    opens = 'echo >"$CASTOFF_STACK_DIR/rank-$(printf %05d "$RANK").txt"'
    for name, program in {"all succeed": opens, "all fail": f"{opens}; exit 3"}.items():
        counts = []
        for size in sizes:
            with tempfile.TemporaryDirectory() as folder:
                counts.append(ranks.files(Path(folder), size, program))
        print(f"{name:44}" + "".join(f"{count:18,}" for count in counts), flush=True)


def slow() -> None:
    """What each verb asks of a file system."""
    print(f"\nQuestions to the file system; seconds if each took {MILLISECONDS} ms alone, and measured so")
    print(f"{'':20}{'members':>9}{'opened':>9}{'looked at':>11}{'listed':>9}{'changed':>9}{'seconds':>10}")
    with tempfile.TemporaryDirectory() as folder:
        built = measuring.library(Path(folder))
        for name, words in {**READING, **CHANGING}.items():
            for size in (1, 100, 1_000):
                with tempfile.TemporaryDirectory() as home:
                    runs.make_array(Path(home), size)
                    delay = MILLISECONDS if size < 1_000 else 0
                    env = runs.environment(Path(home))
                    found, cost = measuring.asked(words, env, built, milliseconds=delay, allowed=(0, 1, 124))
                numbers = f"{found.opened:9,}{found.looked_at:11,}{found.listed:9,}{found.changed:9,}"
                seconds = sum(found) * MILLISECONDS / 1e3
                measured = f"{cost.wall:10.2f}" if delay else ""
                print(f"{name:20}{size:9,}{numbers}{seconds:10.2f}{measured}", flush=True)


PARTS = {
    "hosts": hosts,
    "together": together,
    "array": array,
    "runs": many,
    "group": group,
    "logs": logs,
    "files": files,
    "slow": slow,
}


if __name__ == "__main__":
    for part in sys.argv[1:] or PARTS:
        PARTS[part]()
