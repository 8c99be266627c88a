"""Where a script with a snapshot runs on a cluster; the local one is in tests/launcher/runs."""

from __future__ import annotations

from pathlib import Path

import pytest

from castoff import render
from tests import patience
from tests.cases import others_long

from .conftest import Benches
from .harness import Bench, Ended


def submitted(here: Bench, **fields: object) -> Ended:
    """Run a script from a run directory as a submission would have made it, snapshot of `sub` included."""
    run = here.folder / "castoff-runs" / "r"
    (run / "code" / "sub" / "inner").mkdir(parents=True)
    (run / "attempts").mkdir()
    (run / "logs").mkdir()
    (run / "code.json").write_text("{}")
    (run / "code.workdir").symlink_to("code/sub")
    decided = here.plan_of(**fields)
    (run / "job.sh").write_text(render(decided))
    started = here.start_plan(decided, env={"CASTOFF_RUN_DIR": str(run)})
    output, _ = started.process.communicate(timeout=patience.SECONDS)
    return Ended(started.process.returncode, output, run)


@pytest.mark.everyday("None-sub-pals")
@pytest.mark.parametrize("kind", others_long(["hydra", "openmpi", "pals", "srun"], ["pals", "srun"]))
@pytest.mark.parametrize(("workdir", "where"), [(None, "sub"), ("inner", "sub/inner")])
def test_in_the_snapshot(kind: str, workdir: str | None, where: str, bench: Benches) -> None:
    here = bench(kind, folder="with 'quotes' and spaces")
    ended = submitted(here, snapshot=True, workdir=workdir, ranks_per_node=2, setup=['echo "setup in $PWD"'])
    assert ended.code == 0, ended.output
    assert f"setup in {here.folder}\n" in ended.output
    for rank in here.ranks():
        assert rank["cwd"] == str(ended.run_dir / "code" / where)
        assert rank["environ"]["CASTOFF_CODE_DIR"] == str(ended.run_dir / "code.workdir")
        assert rank["environ"]["CASTOFF_SUBMIT_DIR"] == str(here.folder)


@pytest.mark.everyday("local")
@pytest.mark.parametrize("kind", ["local", "pals", "srun"])
def test_without_anybody_who_took_one(kind: str, bench: Benches) -> None:
    here = bench(kind)
    ended = here.run(snapshot=True, ranks_per_node=1)
    assert ended.code == 0, ended.output
    assert "castoff: no snapshot was taken for this script: the ranks run the code in " in ended.output
    assert here.ranks()[0]["cwd"] == str(here.folder) == here.ranks()[0]["environ"]["CASTOFF_CODE_DIR"]


def test_a_snapshot_that_is_gone(bench: Benches, monkeypatch: pytest.MonkeyPatch) -> None:
    """The code of today must not run in its place."""
    here = bench("srun")
    real = Path.symlink_to
    monkeypatch.setattr(Path, "symlink_to", lambda self, target: real(self, "gone"))
    ended = submitted(here, snapshot=True, ranks_per_node=1)
    assert ended.code == 1 and "code.workdir: No such file or directory" in ended.output
    assert ended.ending == ("failed", 1) and here.ranks() == []
