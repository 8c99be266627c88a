"""Members that share a job, under every launcher but Slurm's: places, cores, and copies that go on."""

from __future__ import annotations

import contextlib
import json
import os
from pathlib import Path
from typing import Any

import msgspec
import psutil
import pytest

from castoff import Site
from tests.cases import others_long
from tests.mounts import mount_small, with_mounts
from tests.patience import until

from . import stub_flux
from .conftest import Benches
from .harness import Bench, Ended
from .test_in_allocation import in_flux
from .test_placement import INTEL_MPI

KINDS = others_long(["hydra", "openmpi", "intelmpi", "pals", "flux"], ["hydra", "pals"])

# Each member says what its rank has, and the first two wait for one another.
_SAYS = """\
cpus=$(sed -n 's/^Cpus_allowed_list:.//p' /proc/self/status)
echo "$CASTOFF_ARRAY_INDEX $RANK/$WORLD_SIZE $MASTER_PORT $cpus" >"$PROBE_FOLDER/.$CASTOFF_ARRAY_INDEX-$RANK"
mv "$PROBE_FOLDER/.$CASTOFF_ARRAY_INDEX-$RANK" "$PROBE_FOLDER/said-$CASTOFF_ARRAY_INDEX-$RANK"
until [ -e "$PROBE_FOLDER/said-0-0" ] && [ -e "$PROBE_FOLDER/said-1-0" ]; do sleep 0.02; done
"""


def bench_of(kind: str, bench: Benches) -> Bench:
    """A bench of PBS, or of Flux, with a launcher and one node."""
    here = bench({"intelmpi": "hydra", "pals": "pals"}.get(kind, kind))
    if kind == "pals":
        here.site = msgspec.structs.replace(Site.load("pbs"), launcher="pals")
    if kind == "intelmpi":
        if not INTEL_MPI.exists():
            pytest.skip("make .venv/intelmpi/.ready")
        here.site = msgspec.structs.replace(here.site, launcher="intelmpi", mpiexec=str(INTEL_MPI))
        here.env |= {"I_MPI_ROOT": str(INTEL_MPI.parents[1]), "FI_PROVIDER": "tcp"}
    return here


def array(count: int, **together: int) -> dict[str, Any]:
    fields: dict[str, Any] = {"count": count, "together": {"nodes": 1, **together}}
    # a login shell would look for the stubs where /etc/profile says
    return {"array": fields, "cores_per_rank": 1, "ranks_per_node": 1, "shell": "/bin/bash"}


def endings(ended: Ended, count: int) -> list[tuple[str, int]]:
    found = [ended.record("ending", f"{member}.0") for member in range(count)]
    return [(one["ending"], one["code"]) for one in found]


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="two members share a node's cores")
@pytest.mark.parametrize("kind", KINDS)
def test_two_members_have_a_nodes_cores_each_its_own(kind: str, bench: Benches, tmp_path: Path) -> None:
    here = bench_of(kind, bench)
    fields = {"command": ["sh", "-c", _SAYS], "walltime": "5m", **array(4, per_node=2)}
    if kind == "flux":
        with stub_flux.instance(tmp_path) as flux:
            ended = here.run(env={**in_flux(here, flux), "STUB_NODES": "1"}, **fields)
            assert ["--requires=host:fx0" in call for call in flux.calls] == [True] * 4
    else:
        ended = here.run(**fields)
    assert ended.code == 0 and endings(ended, 4) == [("done", 0)] * 4, ended.output
    said = [path.read_text().split() for path in sorted(here.seen.glob("said-*"))]
    assert [one[:2] for one in said] == [[str(member), "0/1"] for member in range(4)]
    assert len({one[2] for one in said}) == 4
    if kind != "flux":  # Flux itself divides them
        assert len({one[3] for one in said[:2]}) == 2
        assert all(one[3].isdecimal() for one in said)


@pytest.mark.costly
def test_without_its_records_a_job_ends(bench: Benches) -> None:
    fields = {"command": ["sh", "-c", 'rm -rf "$CASTOFF_RUN_DIR"/*'], "walltime": "5m", **array(3)}
    ended = bench_of("hydra", bench).run(**fields)
    assert ended.code
    assert "nothing can be written to the run directory" in ended.output


@pytest.mark.costly
def test_no_member_starts_on_a_host_that_flux_has_lost(bench: Benches, tmp_path: Path) -> None:
    here, down = bench_of("flux", bench), tmp_path / "down"
    lost = '[ "$CASTOFF_ARRAY_INDEX" != 1 ] || { : >"$1"; kill -9 $$; }'
    loses = f'{lost}; until [ -e "$1" ]; do sleep 0.02; done'
    fields = {"command": ["sh", "-c", loses, "sh", str(down)], "walltime": "5m", **array(3, nodes=2)}
    with stub_flux.instance(tmp_path) as flux:
        ended = here.run(env={**in_flux(here, flux), "STUB_NODES": "2"}, **fields)
        places = [word for call in flux.calls for word in call if word.startswith("--requires")]
    expected = ["done", "node-failure", "done"]
    assert [ending for ending, _ in endings(ended, 3)] == expected, ended.output
    assert sorted(places) == ["--requires=host:fx0"] * 2 + ["--requires=host:fx1"]


def test_each_member_has_its_own_parameters(bench: Benches) -> None:
    here = bench_of("hydra", bench)
    shared = {"nodes": 1, "per_node": 1}
    fields = array(1) | {"array": {"parameters": {"lr": ["1e-1", "it's"]}, "together": shared}}
    ended = here.run(command=["sh", "-c", 'echo "$1"', "sh", "{lr} of {lr}"], walltime="5m", **fields)
    assert endings(ended, 2) == [("done", 0)] * 2, ended.output
    logs = [ended.run_dir / "logs" / f"{member}.0" / "rank-00000.log" for member in range(2)]
    assert [path.read_text() for path in logs] == ["1e-1 of 1e-1\n", "it's of it's\n"]


def test_each_members_ranks_see_its_devices(bench: Benches) -> None:
    """Programs such as Lightning's expect to see the devices of all their ranks on the node."""
    here = bench_of("hydra", bench)
    says = 'echo "$CUDA_VISIBLE_DEVICES $CASTOFF_DEVICE"'
    fields = array(2, per_node=2) | {"ranks_per_node": 2, "devices_per_rank": 1}
    ended = here.run(
        env={"CUDA_VISIBLE_DEVICES": "7,6,5,4"}, command=["sh", "-c", says], walltime="5m", **fields
    )
    assert endings(ended, 2) == [("done", 0)] * 2, ended.output
    logs = sorted((ended.run_dir / "logs").glob("*.0/rank-*.log"))
    assert [path.read_text() for path in logs] == ["7,6 0\n", "7,6 1\n", "5,4 0\n", "5,4 1\n"]


_AWAY = """\
#!/bin/bash
case " $* " in *castoff-guard*) exit ;; esac
(set -C && : >"$PROBE_FOLDER/away") 2>/dev/null || exec "${0%/*}/real/srun" "$@"
echo "srun: error: Unable to $WHY" >&2
exit 1
"""


class TestOnSlurm:
    """Steps that cannot be created, and scripts that are killed."""

    @pytest.mark.costly
    @pytest.mark.parametrize(
        "why",
        [
            "confirm allocation for job 12: Unable to contact slurm controller (connect failure)",
            "create step for job 12: Memory required by task is not available",
        ],
    )
    def test_while_slurmctld_is_away_members_wait(self, why: str, bench: Benches) -> None:
        here = bench_of("srun", bench)
        (here.bin / "real").mkdir()
        (here.bin / "srun").rename(here.bin / "real" / "srun")
        here.stub("srun", _AWAY)
        ended = here.run(env={"WHY": why}, command=["sh", "-c", "exit 5"], walltime="5m", **array(1))
        log = (ended.run_dir / "logs" / "job-0.log").read_text()
        assert endings(ended, 1) == [("failed", 5)], log
        assert log.count(f"castoff: srun is started again, as it started nothing: Unable to {why}\n") == 1

    def test_what_is_refused_is_not_asked_again(self, bench: Benches) -> None:
        here = bench_of("srun", bench)
        here.stub("srun", _AWAY)
        why = "create step for job 12: Requested node configuration is not available"
        ended = here.run(env={"WHY": why}, command=["true"], walltime="5m", **array(1))
        assert ended.code == 1 and endings(ended, 1) == [("failed", 1)], ended.output

    @pytest.mark.costly
    def test_a_killed_members_slot_is_free_when_its_ranks_have_ended(self, bench: Benches) -> None:
        here = bench_of("srun", bench)
        says = 'touch "$PROBE_FOLDER/begun-$CASTOFF_ARRAY_INDEX"; [ "$CASTOFF_ARRAY_INDEX" = 1 ] || sleep 100'
        fields = array(2) | {"array": {"count": 2, "together": {"nodes": 2, "per_node": 1}}, "nodes": 2}
        started = here.start(command=["sh", "-c", says], walltime="5m", **fields)
        started.wait_for("begun", 1)
        attempts = here.run_dir() / "attempts"

        def of(last: str) -> psutil.Process | None:
            for child in psutil.Process(started.process.pid).children():
                with contextlib.suppress(psutil.Error):
                    if child.cmdline()[-1:] == [last]:
                        return child
            return None

        member: psutil.Process = until(lambda: of(str(here.run_dir() / "job.sh")), "the member's script")
        member.kill()
        holder: psutil.Process = until(lambda: of("10"), "what holds its slot")
        assert [path.name for path in attempts.glob("[0-9]*")] == ["0.0"]
        holder.terminate()
        ended = started.end()
        assert ended.code == 1 and endings(ended, 2) == [("failed", 137), ("done", 0)], ended.output


@pytest.mark.costly
def test_while_the_disk_is_full_no_member_starts(bench: Benches, tmp_path: Path) -> None:
    """The second one cannot even begin, until there is room again."""

    def test() -> None:
        here = bench_of("hydra", bench)
        mount_small(here.folder, "size=600k")
        fill = 'if [ "$CASTOFF_ARRAY_INDEX" = 0 ]; then cat /dev/zero >fill; exit 3; fi 2>/dev/null'
        started = here.start(command=["sh", "-c", fill], walltime="5m", **array(3, per_node=1))
        full = "attempts/.shared-7.head.0/room"
        until(lambda: [*here.folder.glob(f"castoff-*/{full}")], "the dispatcher's wait for room")
        (here.folder / "fill").unlink()
        ended = started.end()
        begun = sorted(path.name for path in (ended.run_dir / "attempts").glob("[0-9]*"))
        assert begun == ["0.0", "1.0", "1.1", "2.0"], ended.output
        found = [ended.record("ending", attempt)["ending"] for attempt in ("0.0", "1.1", "2.0")]
        assert found == ["failed", "done", "done"]

    with_mounts(tmp_path, test)


class TestStartedAgain:
    """By the scheduler, as after a preemption."""

    def test_members_that_ended_with_the_job_go_on(self, bench: Benches) -> None:
        here, fields = bench_of("hydra", bench), {"command": ["true"], "walltime": "5m", **array(5)}
        first = here.run(**fields)
        texts = {0: '"cancelled", "code": 143', 1: '"failed", "code": 143', 2: '"failed", "code": 5'}
        texts[3] = texts[0]
        for member, text in texts.items():
            path = first.run_dir / "attempts" / f"{member}.0" / "ending.json"
            path.write_text(f'{{"ending": {text}, "time": 1}}\n')
        (first.run_dir / "cancel-3").touch()
        again = here.run(env={"CASTOFF_RUN_DIR": str(first.run_dir), "PBS_JOBID": "7.head"}, **fields)
        begun = sorted(path.name for path in first.run_dir.glob("attempts/[0-9]*.1"))
        assert again.code == 0 and begun == ["0.1", "1.1"], again.output

    def test_one_that_is_asked_to_stop_before_it_listens_has_not_begun(self, bench: Benches) -> None:
        here = bench_of("hydra", bench)
        here.stub(
            "stat",
            '#!/bin/sh\n[ -z "$CASTOFF_ATTEMPT" ] || { kill -TERM "$(ps -o ppid= -p $PPID | tr -d " ")"\n'
            'while kill -0 $PPID; do sleep 0.01; done; } 2>/dev/null\nexec /usr/bin/stat "$@"\n',
        )
        ended = here.run(command=["true"], walltime="5m", **array(2))
        assert ended.code == 143 and endings(ended, 2) == [("cancelled", 143)] * 2, ended.output


_AGAIN = {"requeue": {"max": 1}, "walltime": "9m", **array(3)}


class TestCopies:
    """By the clock here, the turn of no member comes before the walltime."""

    def left(self, here: Bench, env: dict[str, str] | None = None) -> Ended:
        here.stub("date", "#!/bin/sh\necho 1000\n")
        return here.run(env=env, command=["true"], **_AGAIN)

    @pytest.mark.parametrize("kind", others_long(["hydra", "pals"], ["hydra"]))
    def test_a_job_of_pbs_leaves_its_members_to_a_copy(self, kind: str, bench: Benches) -> None:
        here = bench_of(kind, bench)
        ended = self.left(here)
        assert ended.code == 0, ended.output
        (call,) = here.calls("qsub")
        names = "CASTOFF_RUN_DIR,CASTOFF_ATTEMPT,CASTOFF_FIRST_ATTEMPT,CASTOFF_FOLLOWS"
        assert call == ["-v", names, "-o", f"{ended.run_dir}/logs/shared-0.log", f"{ended.run_dir}/job.sh"]
        folder = ended.run_dir / "attempts" / ".shared-7.head.0"
        assert (folder / "left").read_text() == "0 0\n1 0\n2 0\n"
        assert json.loads((folder / "next.json").read_text())["job"] == "8.head"
        assert not [*ended.run_dir.glob("attempts/[0-9]*")]

    def copy(self, here: Bench, of: Ended, job: str = "8.head", **env: str) -> Ended:
        """Run a copy of a job as PBS would."""
        (here.bin / "date").unlink(missing_ok=True)
        count = {"CASTOFF_ATTEMPT": "1", "CASTOFF_FIRST_ATTEMPT": "0", "CASTOFF_FOLLOWS": "7.head", **env}
        env = {"CASTOFF_RUN_DIR": str(of.run_dir), "PBS_JOBID": job, **count}
        return here.run(env=env, command=["true"], **_AGAIN)

    def test_of_two_copies_the_first_runs_what_was_left(self, bench: Benches) -> None:
        """A qsub without an answer may have submitted one more."""
        here = bench_of("hydra", bench)
        ended = self.left(here)
        (ended.run_dir / "attempts" / ".shared-7.head.0" / "left").write_text("2 0\n0 0\n")
        first = self.copy(here, ended)
        begun = sorted(path.name for path in ended.run_dir.glob("attempts/[0-9]*"))
        assert first.code == 0 and begun == ["0.0", "2.0"], first.output
        jobs = {ended.record("start", name)["job"] for name in begun}
        second = self.copy(here, ended, "9.head")
        assert second.code == 0 and jobs == {"8.head"}
        assert "job 9.head does not begin: another copy of job 7.head has begun" in second.output
        again = self.copy(here, ended)  # started once more by PBS
        assert again.code == 0 and "does not begin" not in again.output
        assert sorted(path.name for path in ended.run_dir.glob("attempts/[0-9]*")) == begun

    def test_without_an_answer_of_qsub_the_members_are_over(self, bench: Benches) -> None:
        """A copy that nobody knows of runs none of them."""
        here = bench_of("hydra", bench)
        here.stub("qsub", "#!/bin/sh\n: >$CASTOFF_RUN_DIR/stop\nexit 1\n")  # nor is it tried again
        ended = self.left(here)
        (ended.run_dir / "stop").unlink()
        assert ended.code == 143 and endings(ended, 3) == [("cancelled", 143)] * 3, ended.output
        unknown = self.copy(here, ended)
        assert unknown.code == 0 and not (ended.run_dir / "attempts" / "0.1").exists()

    def test_no_more_than_requeue_max(self, bench: Benches) -> None:
        here = bench_of("hydra", bench)
        ended = self.left(here)
        env = {"CASTOFF_ATTEMPT": "1", "CASTOFF_FIRST_ATTEMPT": "0", "CASTOFF_FOLLOWS": "7.head"}
        env |= {"CASTOFF_RUN_DIR": str(ended.run_dir), "PBS_JOBID": "8.head"}
        last = self.left(here, env)
        assert len(here.calls("qsub")) == 1
        assert last.code == 75 and endings(ended, 3) == [("walltime", 75)] * 3, last.output
        assert ended.record("ending")["reason"] == "its turn did not come before the job ended"

    def test_one_of_several_jobs(self, bench: Benches) -> None:
        here = bench_of("hydra", bench)
        here.array_index = 1
        here.stub("date", "#!/bin/sh\necho 1000\n")
        array = {"count": 5, "together": {"members": 2, "per_node": 2}}
        ended = here.run(command=["true"], **{**_AGAIN, "array": array}, env={"STUB_QSUB_SAYS": "8[].head"})
        (call,) = here.calls("qsub")
        assert call[2:] == [
            *("-J", "1-2:2", "-o", f"{ended.run_dir}/logs/shared-^array_index^.log"),
            f"{ended.run_dir}/job.sh",
        ]
        left = ended.run_dir / "attempts" / ".shared-7[].head.1" / "left"
        assert left.read_text() == "2 0\n3 0\n"

    def test_a_job_of_flux(self, bench: Benches, tmp_path: Path) -> None:
        here, calls = bench_of("flux", bench), tmp_path / "flux-calls"
        with stub_flux.instance(tmp_path) as flux:
            env = {**in_flux(here, flux), "STUB_NODES": "1"}
            program = (here.bin / "flux").read_text()
            here.stub("flux", program.replace("\n", f'\necho "$*" >>{calls}; ', 1))
            # The walltime, by flux job timeleft, is over in 599 s.
            ended = here.run(env=env, command=["true"], **{**_AGAIN, "walltime": "1h", "grace": "10m"})
        assert ended.code == 0, ended.output
        (batch,) = [line for line in calls.read_text().splitlines() if " batch " in line]
        for word in ("--dependency=afterany:779167465472", "--env=CASTOFF_FOLLOWS", "--env=CASTOFF_ATTEMPT"):
            assert word in batch.split()
        assert f"--output={ended.run_dir}/logs/shared-0.log" in batch
        folder = ended.run_dir / "attempts" / ".shared-779167465472.0"
        assert (folder / "left").read_text() == "0 0\n1 0\n2 0\n" and (folder / "next.json").exists()
