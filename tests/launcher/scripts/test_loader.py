"""LD_PRELOAD, LC_ALL, PYTHONHOME and their like, which change every program: the ranks' alone get them."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from castoff import JobSpec, Site, plan, render
from castoff.launcher.planning.loading import for_program_alone
from tests.cases import others_long

from .conftest import Benches
from .harness import marked

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


@pytest.mark.everyday("local")
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


CHANGING = {"PYTHONHOME": "/none", "PYTHONOPTIMIZE": "2", "LC_ALL": "C.UTF-8", "TZ": "Asia/Tokyo"}
CHANGING |= {"BASH_ENV": "/none/env.sh", "ENV": "/none/env.sh", "CDPATH": "/", "TAR_OPTIONS": "--none"}


@pytest.mark.everyday("local-plain")
@pytest.mark.parametrize("inherited", [{}, {"TZ": "UTC", "PYTHONOPTIMIZE": "1"}], ids=["plain", "inherited"])
@pytest.mark.parametrize("kind", ["hydra", "openmpi", "local"])
def test_none_of_the_others_begins_with_what_would_change_it(
    kind: str, inherited: dict[str, str], bench: Benches
) -> None:
    """No process but the programs and their children; teardown has the job's variables, too."""
    here = bench(kind)
    says = 'echo "$PYTHONHOME $PYTHONOPTIMIZE $LC_ALL $TZ $BASH_ENV $ENV $CDPATH $TAR_OPTIONS"'
    program = f'{says} >says-$RANK; echo $$ >"$PROBE_FOLDER/at-$RANK"; until [ -e go ]; do sleep 0.1; done'
    decided = here.plan_of(
        command=["sh", "-c", program],
        ranks_per_node=2,
        env=CHANGING,
        inherit="all",
        teardown=[f"{says} >says-teardown"],
    )
    started = here.start_plan(decided, env=inherited)
    started.wait_for("at", 2)
    programs = {int((here.seen / f"at-{rank}").read_text()) for rank in range(2)}
    found = {one.pid: one.environ() for one in marked(started.mark) if one.ppid() not in programs}
    having = {pid for pid, environ in found.items() if CHANGING.items() & environ.items()}
    assert programs <= found.keys() and having == programs
    (here.folder / "go").touch()
    ended = started.end()
    assert ended.code == 0, ended.output
    said = {path.read_text().strip() for path in here.folder.glob("says-*")}
    assert said == {" ".join(CHANGING.values())} and len([*here.folder.glob("says-*")]) == 3


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
    names += ["LC_NUMERIC", "LANG", "TZ", "BASH_ENV", "BLOCKSIZE", "LS_BLOCK_SIZE", "GREP_COLORS", "UNZIP"]
    pythons = ["PYTHONHOME", "PYTHONWARNINGS"]
    others = ["LD_LIBRARY_PATH", "PATH", "OLD_PRELOAD", "LD", "NCCL_DEBUG", "PYTHONPATH", "TMPDIR", "HOME"]
    others += ["HYDRA_IFACE", "OMPI_MCA_btl", "SRUN_CPUS_PER_TASK", "http_proxy", "SLURM_HINT", "ENVIRONMENT"]
    given = dict.fromkeys([*names, *pythons, *others], "1")
    assert for_program_alone(given, torchrun=False) == [*names, *pythons]
    assert for_program_alone(given, torchrun=True) == names, "it is the user's Python itself"
    assert for_program_alone(dict.fromkeys(names), torchrun=False) == []


def test_those_of_an_option_are_too() -> None:
    """Aurora's pil4dfs sets LD_PRELOAD."""
    job = {"account": "p", "walltime": "30m", "directives": {"filesystems": "home"}, "command": ["true"]}
    text = render(plan(JobSpec.of({**job, "options": ["pil4dfs"]}), Site.load("aurora")))
    assert "\ncastoff_for_program LD_PRELOAD /usr/lib64/libpil4dfs.so\n" in text
    assert "LD_PRELOAD" not in render(plan(JobSpec.of(job), Site.load("aurora")))
