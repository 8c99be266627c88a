"""Golden scripts, and what holds for every one of them."""

from __future__ import annotations

import functools
import json
import os
import re
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from castoff import JobSpec, Site, plan, render
from castoff.launcher.planning.machinery import machinery
from castoff.launcher.planning.render import example_job
from castoff.launcher.runs.script import head_of
from castoff.launcher.schedulers.lsf.bsub_directives import dependency
from castoff.launcher.submission.submit import dry_run
from tests.command_line import Castoff

from .examples import EXAMPLES, GOLDEN, NEEDED
from .harness import CHECKOUT
from .readers import read_flux, read_lsf, read_pbs, read_slurm

Compare = Callable[[str, str], None]


@functools.cache
def rendered(name: str) -> str:
    return render(EXAMPLES[name].plan())


def head(name: str) -> str:
    return head_of(rendered(name))


KEPT = [
    "aurora-2-nodes",
    "aurora-array-requeue",
    "aurora-driver",
    "aurora-options",
    "aurora-restart",
    "aurora-stage",
    "aurora-torchrun",
    "crux-1-node",
    "flux-2-nodes",
    "flux-requeue",
    "frontier-2-nodes",
    "local-1-node",
    "lsf-array-requeue",
    "local-everything",
    "pbs-2-nodes",
    "pbs-openmpi",
    "pbs-parameters-torchrun",
    "pbs-sparse-array",
    "perlmutter-2-nodes",
    "polaris-2-nodes",
    "slurm-1-node",
    "slurm-dependency-by-name",
    "slurm-function",
    "slurm-parameters",
    "slurm-pyxis",
    "slurm-requeue",
    "slurm-restart",
    "slurm-script",
    "slurm-teardown",
    "slurm-torchrun",
    "slurm-uneven",
    "sophia-1-node",
    "tuolumne-2-nodes",
]
"""Those whose heads are kept as files, to be read; other tests read and run the heads of all examples."""

COMMANDS = ["aurora-dependency", "flux-dependency", "local-dependency", "slurm-dependency-by-name"]
"""Those whose command lines are kept."""


@pytest.mark.parametrize("name", KEPT)
def test_golden_head(name: str, same_as_golden: Compare) -> None:
    same_as_golden(f"{name}.sh", head(name))


def test_golden_machinery(same_as_golden: Compare) -> None:
    """Which files it is made of, in order; they are read, and tried, by themselves."""
    lines = []
    for name in ("aurora-2-nodes", "aurora-array-requeue", "slurm-requeue", "slurm-torchrun", "slurm-pyxis"):
        found = machinery(*EXAMPLES[name].decided())
        lines += [f"{name}: {', '.join(sorted(found.features))}", *found.parts]
    same_as_golden("machinery.parts", "\n".join(lines) + "\n")


def test_a_plain_script_is_short() -> None:
    script = render(plan(JobSpec.of({"command": ["python", "train.py"]}), Site.load("slurm")))
    assert script.count("\n") <= 515


def test_a_head_is_short() -> None:
    """Beside what the user says: setup, environment and the program's arguments."""
    for name, example in EXAMPLES.items():
        decided = example.plan()
        program = head(name).partition('"$castoff_rank"' if decided.scheduler != "local" else " -- ")[2]
        theirs = (
            len(decided.setup)
            + len(decided.teardown)
            + len(decided.default_env)
            + len(decided.env)
            + program.partition("\ncastoff_end")[0].count("\n")
        )
        assert head(name).count("\n") - theirs <= 60, name


@pytest.mark.parametrize("name", COMMANDS)
def test_golden_command_line(name: str, same_as_golden: Compare) -> None:
    example = EXAMPLES[name]
    would = dry_run(example.spec(), example.on())
    assert would.script == rendered(name)
    python = rf"{re.escape(sys.executable)}(?: -P)?"  # -P from Python 3.11 on
    command = re.sub(python, "PYTHON", would.command)
    same_as_golden(f"{name}.command", f"{command}\n")


def test_no_golden_file_is_left_over() -> None:
    kept = {path.name for path in GOLDEN.iterdir() if path.is_file()}
    expected = {"machinery.parts", *(f"{name}.sh" for name in KEPT)}
    assert kept == expected | {f"{name}.command" for name in COMMANDS}


def test_a_missing_or_other_golden_file_fails(
    same_as_golden: Compare, request: pytest.FixtureRequest
) -> None:
    if request.config.getoption("--update-golden", default=False):
        return
    with pytest.raises(AssertionError, match="no golden file never-there"):
        same_as_golden("never-there.sh", "text")
    assert not (GOLDEN / "never-there.sh").exists()
    with pytest.raises(AssertionError, match="has changed"):
        same_as_golden("local-1-node.sh", head("local-1-node") + "\n")


def test_directives_read_back_are_the_plans() -> None:
    for name, example in EXAMPLES.items():
        decided = example.plan()
        if decided.scheduler == "local":
            assert decided.directives == [], name
            continue
        readers = {"slurm": read_slurm, "pbs": read_pbs, "flux": read_flux, "lsf": read_lsf}
        assert decided.directives, name
        # What bsub reads as a dependency is written in its own words.
        written = [
            (one, dependency(str(value)) if one == "w" else value) for one, value in decided.directives
        ]
        wanted = written if decided.scheduler == "lsf" else decided.directives
        assert readers[decided.scheduler](rendered(name)) == wanted, name


def test_nothing_comes_between_directives() -> None:
    for name, example in EXAMPLES.items():
        if example.plan().scheduler == "local":
            continue
        lines = rendered(name).split("\n")
        found = [
            at for at, line in enumerate(lines) if line.startswith(("#PBS", "#SBATCH", "#flux:", "#BSUB"))
        ]
        assert lines[0].startswith("#!"), name
        assert found == list(range(1, len(found) + 1)), name


def test_aurora_as_alcf_asks_for_it() -> None:
    script = rendered("aurora-2-nodes")
    assert script.startswith(
        "#!/bin/bash -l\n#PBS -N causets\n#PBS -A MyProject\n#PBS -q debug\n#PBS -l select=2\n"
    )
    for line in ("#PBS -l filesystems=home:flare", "#PBS -l place=scatter", "#PBS -k doe"):
        assert f"\n{line}\n" in script


def test_the_request_of_each_new_site_as_its_guide_shows_it() -> None:
    script = rendered("polaris-2-nodes")
    assert "\n#PBS -l filesystems=home:eagle\n" in script
    assert " mpiexec -n 8 --ppn 4 --cpu-bind list:0-7:8-15:16-23:24-31 --line-buffer \\\n" in script
    assert "\ncastoff_device_variable=CUDA_VISIBLE_DEVICES castoff_visible=3,2,1,0\n" in script
    script = rendered("perlmutter-2-nodes")
    for line in ("--constraint=gpu", "--ntasks-per-node=4", "--gpus-per-node=4", "--cpus-per-task=32"):
        assert f"\n#SBATCH {line}\n" in script
    script = rendered("frontier-2-nodes")
    assert "\n#SBATCH --network=disable_rdzv_get\n" in script
    assert " --cpus-per-task=7 --gpus-per-task=1 \\\n  --gpu-bind=closest " in script
    assert "VISIBLE_DEVICES" not in head("frontier-2-nodes"), "srun shows each rank its own"


def test_a_script_follows_from_job_and_site_alone(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    names = ["aurora-2-nodes", "slurm-requeue", "local-everything"]
    before = [rendered(name) for name in names]
    monkeypatch.chdir(tmp_path)
    for name in list(os.environ):
        monkeypatch.delenv(name)
    assert [render(EXAMPLES[name].plan()) for name in names] == before


def test_lines_fit_a_window() -> None:
    """But for one that holds a word which cannot be broken."""
    for name in EXAMPLES:
        for line in rendered(name).split("\n"):
            assert len(line) <= 120 or max(map(len, line.split())) > 60, (name, line)


def test_no_function_is_defined_twice() -> None:
    """Nor by a part within a function or a subshell: bash refuses it, for the first is read-only."""
    for name in EXAMPLES:
        outside = re.sub(r"<<'(\w+)'\n.*?\n\1\n", "", rendered(name), flags=re.DOTALL)  # what nodes run
        names = re.findall(r"^ *(\w+)\(\) ", outside, re.MULTILINE)
        assert len(names) > 10, name
        assert sorted(names) == sorted(set(names)), name


def test_words_are_not_divided_from_their_flags() -> None:
    command = ["python", "train.py"] + [word for n in range(12) for word in (f"--option-{n}", f"value-{n}")]
    script = render(plan(JobSpec.of({"command": command}), Site.load("local")))
    program = head_of(script).partition(" -- \\\n  ")[2].partition("\ncastoff_end")[0]
    assert program.replace(" \\\n ", "").split() == command
    assert all(line.split()[0].startswith("--option") for line in program.split(" \\\n")[1:])
    assert all(len(line) <= 100 for line in program.split("\n"))


@pytest.mark.parametrize("site", NEEDED)
def test_the_first_job_file_works(site: str, tmp_path: Path) -> None:
    profile = Site.load(site)
    job = tmp_path / "job.yaml"
    job.write_text(example_job(profile))
    decided = plan(JobSpec.load(job), profile)
    assert decided.command == ["python", "train.py"]
    assert render(decided)


def test_render_prints_what_submit_writes(castoff: Castoff, tmp_path: Path) -> None:
    job = tmp_path / "job.yaml"
    job.write_text('command: [sh, -c, "true \'$HOME\' \\u00fc"]\nenv: {A: "it\'s"}\nranks_per_node: 2\n')
    shown = castoff("render", job, "--site", "local")
    assert shown.returncode == 0, shown.stderr
    decided = plan(JobSpec.load(job), Site.load("local"))
    assert shown.stdout == render(decided)
    assert castoff("render", job, "--site", "local", "-o", "script.sh").returncode == 0
    assert (tmp_path / "script.sh").read_bytes() == render(decided).encode()
    submitted = castoff("submit", job, "--site", "local", "--json")
    run_dir = Path(json.loads(submitted.stdout)["directory"])
    assert castoff("wait", run_dir).returncode == 0
    assert (run_dir / "job.sh").read_bytes() == render(decided).encode()
    assert castoff("submit", job, "--site", "local", "--dry-run").stdout == render(decided)


def test_the_script_that_a_page_reads_line_by_line() -> None:
    page = (CHECKOUT / "docs" / "explanation" / "script.md").read_text()
    blocks = re.findall(r"^```(\w+)\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    (job,) = (yaml.safe_load(text) for language, text in blocks if language == "yaml")
    shown = "".join(text for language, text in blocks if language == "bash")
    decided = plan(JobSpec.of({**job, "queue": "capacity"}), Site.load("aurora"))
    assert shown == head_of(render(decided))
