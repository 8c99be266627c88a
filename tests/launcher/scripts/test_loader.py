"""LD_PRELOAD and its like, which change every program: the ranks' programs alone get them."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from launcher import JobSpec, Site, plan, render
from launcher.planning.loading import for_program_alone
from tests.cases import others_long

from .conftest import Benches

CASES: dict[str, tuple[str, dict[str, Any]]] = {
    "hydra": ("hydra", {}),
    "openmpi": ("openmpi", {}),
    "srun": ("srun", {}),
    "pals": ("pals", {}),
    "local": ("local", {}),
    "preflight": ("srun", {"preflight": True, "restart": {"max": 1}}),
    "driver": ("hydra", {"launcher": {"driver": True}}),
    "driver-local": ("local", {"launcher": {"driver": True}}),
    "torchrun": ("hydra", {"launcher": {"torchrun": True}}),
    "torchrun-local": ("local", {"launcher": {"torchrun": True}}),
}


@pytest.mark.parametrize("case", others_long(CASES, ["hydra", "srun", "local", "torchrun"]))
def test_the_loader_changes_the_programs_alone(case: str, bench: Benches, tmp_path: Path) -> None:
    """ld.so writes a file of each process that begins with these two."""
    kind, fields = CASES[case]
    if fields.get("launcher", {}).get("torchrun"):
        pytest.importorskip("torch")
    here = bench(kind)
    reports = tmp_path / "reports"
    reports.mkdir()
    program = 'printf "%s\\n" "$$" >"$1/program.$$"; env | grep ^CASTOFF_GIVEN_ >"$1/left"; exec true'
    decided = here.plan_of(
        command=["sh", "-c", f"unset -v LD_DEBUG; {program}", "sh", str(tmp_path)],
        **({} if "driver" in case else {"ranks_per_node": 2}),
        env={"LD_DEBUG": "files", "LD_DEBUG_OUTPUT": f"{reports}/it's", "LD_BIND_NOW": None},
        **fields,
    )
    ended = here.start_plan(decided).end()
    assert (ended.code, ended.ending) == (0, ("done", 0)), ended.output
    programs = {path.suffix for path in tmp_path.glob("program.*")}
    assert len(programs) == (1 if "driver" in case else 2)
    assert {path.suffix for path in reports.iterdir()} == programs
    assert (tmp_path / "left").read_text() == ""


@pytest.mark.parametrize("kind", ["hydra", "local"])
def test_preload_is_a_copy_of_what_had_them(kind: str, bench: Benches, tmp_path: Path) -> None:
    """Or a rank would notice that it has others, and start without."""
    (tmp_path / "reports").mkdir()
    here = bench(kind)
    (here.folder / "wave.py").write_text("import os\nprint('loads', os.environ['LD_DEBUG'])\n")
    decided = here.plan_of(
        command=[sys.executable, "wave.py"],
        ranks_per_node=2,
        launcher={"preload": ["json"]},
        env={"LD_DEBUG": "files", "LD_DEBUG_OUTPUT": f"{tmp_path}/reports/of"},
    )
    ended = here.start_plan(decided).end()
    assert ended.code == 0, ended.output
    logs = [path.read_text() for path in sorted((ended.run_dir / "logs" / "0.0").glob("rank-*.log"))]
    assert logs == ["loads files\n"] * 2
    assert "without preload" not in ended.output
    assert len(list((tmp_path / "reports").iterdir())) == 3, "two ranks, and what imports for them"


def test_which_variables_are_meant() -> None:
    names = ["LD_PRELOAD", "LD_AUDIT", "GLIBC_TUNABLES", "MALLOC_ARENA_MAX", "ASAN_OPTIONS", "UBSAN_OPTIONS"]
    others = ["LD_LIBRARY_PATH", "PATH", "OLD_PRELOAD", "LD", "NCCL_DEBUG"]
    assert for_program_alone(dict.fromkeys([*names, *others], "1")) == names
    assert for_program_alone(dict.fromkeys(names)) == []


def test_those_of_an_option_are_too() -> None:
    """Aurora's pil4dfs sets LD_PRELOAD."""
    job = {"account": "p", "walltime": "30m", "directives": {"filesystems": "home"}, "command": ["true"]}
    text = render(plan(JobSpec.of({**job, "options": ["pil4dfs"]}), Site.load("aurora")))
    assert "\ncastoff_for_program LD_PRELOAD /usr/lib64/libpil4dfs.so\n" in text
    assert "LD_PRELOAD" not in render(plan(JobSpec.of(job), Site.load("aurora")))
