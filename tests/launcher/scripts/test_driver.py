"""A program that runs once, on the first host, and starts its own workers there and elsewhere."""

from __future__ import annotations

import json
import signal
import socket
from typing import Any

import msgspec
import pytest

from castoff import JobSpec, Site, plan
from castoff.launcher.errors import InvalidInput
from castoff.launcher.text.failure import failure_words
from tests.cases import others_long

from .conftest import Benches
from .harness import STALE, Bench, Ended

KINDS = others_long(["local", "srun", "pals", "hydra", "openmpi"], ("local", "srun", "pals"))

LOOK = """
import json, os, sys
from pathlib import Path
hosts = Path(os.environ["CASTOFF_HOST_FILE"]).read_text()
json.dump({"environ": dict(os.environ), "hosts": hosts, "cwd": os.getcwd()}, open("seen.json", "w"))
print("driven", *sys.argv[1:])
"""
"""A driver that writes down what it sees."""


def drive(here: Bench, command: list[str], **fields: Any) -> Ended:
    return here.run(command=command, **{"launcher": {"driver": True}, **fields})


def seen(here: Bench) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((here.folder / "seen.json").read_text())
    return found


@pytest.mark.everyday("local")
@pytest.mark.parametrize("kind", KINDS)
def test_what_it_sees(kind: str, bench: Benches) -> None:
    here = bench(kind)
    nodes = 3 if kind in ("srun", "pals") else 1
    own = {"SLURM_NTASKS_PER_NODE": "1"} if kind == "srun" else {"PBS_JOBNAME": "x"}
    of_ranks = {"SLURM_NTASKS": "3"}  # by which Lightning would take it for one
    ended = drive(here, ["python3", "-c", LOOK, ":", "it's $HOME"], nodes=nodes, env=own | of_ranks)
    assert (ended.code, ended.ending) == (0, ("done", 0)), ended.output
    assert "driven : it's $HOME\n" in (ended.run_dir / "logs" / "0.0" / "rank-00000.log").read_text()
    assert "driven" in ended.output
    found, environ = seen(here), seen(here)["environ"]
    hosts = here.hosts if kind != "local" else [socket.gethostname()]
    assert found["hosts"].split() == hosts and len(hosts) == nodes
    assert environ["CASTOFF_HOSTS"] == ",".join(hosts) and environ["CASTOFF_NODES"] == str(nodes)
    assert 20000 <= int(environ["MASTER_PORT"]) < 30000
    assert environ["MASTER_ADDR"].split(".")[0] == (hosts[0].split(".")[0] if nodes > 1 else "127")
    if kind == "pals":
        assert (environ["CASTOFF_CORES_PER_NODE"], environ["CASTOFF_DEVICES_PER_NODE"]) == ("102", "12")
    else:
        assert int(environ["CASTOFF_CORES_PER_NODE"]) >= 1 and environ["CASTOFF_DEVICES_PER_NODE"] == "0"
    assert here.calls("srun") == here.calls("mpiexec") == [], "nothing round it"
    if kind != "local":
        assert own.items() <= environ.items() and "SLURM_NTASKS" not in environ
        assert environ.get("SLURM_JOB_NODELIST" if kind == "srun" else "PBS_NODEFILE")


@pytest.mark.everyday("local")
@pytest.mark.parametrize("kind", ["local", "srun", "pals"])
def test_its_workers_are_not_taken_for_ranks(kind: str, bench: Benches) -> None:
    here = bench(kind)
    here.env |= STALE
    ended = drive(here, ["python3", "-c", LOOK], inherit="all", **({} if kind == "local" else {"nodes": 2}))
    assert ended.code == 0, ended.output
    environ = seen(here)["environ"]
    of_ranks = {"RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "NODE_RANK", "CASTOFF_LAUNCHER"}
    of_ranks |= {"CASTOFF_RANK", "OMP_NUM_THREADS", "PMI_RANK", "SLURM_PROCID", "CUDA_VISIBLE_DEVICES"}
    assert not of_ranks & environ.keys()


@pytest.mark.everyday("hydra")
@pytest.mark.parametrize("kind", ["srun", "hydra"])
def test_it_starts_workers_by_the_sites_launcher(kind: str, bench: Benches) -> None:
    here = bench(kind)
    site = here.site
    program = {"srun": "srun --ntasks=4 --ntasks-per-node=2", "hydra": f"{site.mpiexec} -n 4"}[kind]
    number = {"srun": "$SLURM_PROCID", "hydra": "$PMI_RANK"}[kind]
    command = f'{program} sh -c "touch worker-\\{number}"'
    ended = drive(here, ["sh", "-c", command], nodes=2 if kind == "srun" else 1)
    assert ended.code == 0, ended.output
    assert sorted(path.name for path in here.folder.glob("worker-*")) == [f"worker-{at}" for at in range(4)]


@pytest.mark.parametrize("kind", KINDS)
def test_its_failure_is_the_jobs(kind: str, bench: Benches) -> None:
    here = bench(kind)
    ended = drive(here, ["sh", "-c", "echo was here; exit 7"], teardown=["echo $CASTOFF_EXIT_CODE >torn"])
    assert (ended.code, ended.ending) == (7, ("failed", 7)), ended.output
    failure = ended.record("failure")
    assert (failure["program"], failure["code"], failure["log"]) == ("driver", 7, "rank-00000.log")
    assert f"castoff: the driver on {failure['host']} failed: exit code 7; see " in ended.output
    assert f"castoff: {failure_words(failure)}; see " in ended.output, "in the words of a status"
    assert "was here" in ended.output and (here.folder / "torn").read_text() == "7\n"


@pytest.mark.parametrize("kind", KINDS)
def test_a_program_that_is_not_there(kind: str, bench: Benches) -> None:
    ended = drive(bench(kind), ["no-such-driver"])
    assert (ended.code, ended.ending) == (127, ("failed", 127)), ended.output
    assert "no-such-driver" in ended.output


@pytest.mark.parametrize("kind", KINDS)
def test_it_is_asked_to_end(kind: str, bench: Benches) -> None:
    here = bench(kind)
    wait = f"trap 'echo saved >saved; exit 0' TERM; touch {here.seen}/ready-0; while :; do sleep 0.05; done"
    started = here.start(command=["sh", "-c", wait], launcher={"driver": True})
    started.wait_for("ready", 1)
    started.process.send_signal(signal.SIGTERM)
    ended = started.end()
    assert ended.ending == ("cancelled", 143), ended.output
    assert (here.folder / "saved").exists()


@pytest.mark.parametrize("kind", ["local", "srun", "pals"])
def test_it_stops_early(kind: str, bench: Benches) -> None:
    here = bench(kind)
    save = 'while [ ! -e "$CASTOFF_STOP_FILE" ]; do sleep 0.05; done; echo resume >"$CASTOFF_OUTCOME_FILE"'
    command = ["sh", "-c", f"touch {here.seen}/ready-0; {save}"]
    started = here.start(command=command, launcher={"driver": True}, walltime="1h")
    started.wait_for("ready", 1)
    started.process.send_signal(signal.SIGUSR2)
    ended = started.end()
    assert (ended.code, ended.ending) == (75, ("walltime", 75)), ended.output


def test_the_walltime_holds_here(bench: Benches) -> None:
    here = bench("local")
    ended = drive(here, ["sleep", "600"], walltime="1s", grace="0s")
    assert ended.ending == ("walltime", 143), ended.output


@pytest.mark.everyday("true-local")
@pytest.mark.parametrize("kind", ["local", "srun", "pals"])
@pytest.mark.parametrize("program", ["true", "exit 3"])
def test_what_is_staged_is_on_every_host_and_goes(
    kind: str, program: str, bench: Benches, tmp_path_factory: pytest.TempPathFactory
) -> None:
    here = bench(kind)
    storage = tmp_path_factory.mktemp("local")
    here.site = msgspec.structs.replace(here.site, local_storage=str(storage))
    here.env["STUB_LOCAL_STORAGE"] = ""
    (here.folder / "words").write_text("text\n")
    read = f'cat "$CASTOFF_STAGE_DIR/words" >copy; {program}'
    ended = drive(here, ["sh", "-c", read], stage=[{"from": "words"}])
    assert (here.folder / "copy").read_text() == "text\n", ended.output
    assert [*storage.iterdir()] == []


def refused(**fields: Any) -> dict[str, str]:
    with pytest.raises(InvalidInput) as caught:
        plan(JobSpec.of({"command": ["x"], **fields}), Site.load("slurm"))
    return {problem.path: problem.message for problem in caught.value.problems}


@pytest.mark.parametrize(
    ("fields", "path"),
    [
        ({"ranks": 4}, "ranks"),
        ({"ranks_per_node": 4}, "ranks_per_node"),
        ({"binding": "0-3", "exclusive": True}, "binding"),
        ({"launcher": {"torchrun": True}}, "launcher.torchrun"),
        ({"launcher": {"name": "hydra"}}, "launcher.name"),
        ({"launcher": {"args": ["--overlap"]}}, "launcher.args"),
        ({"launcher": {"timeout": "5m"}}, "launcher.timeout"),
        ({"container": {"image": "x", "runtime": "pyxis"}}, "container.runtime"),
    ],
)
def test_what_is_about_ranks_is_refused(fields: dict[str, Any], path: str) -> None:
    launcher = {"driver": True, **fields.pop("launcher", {})}
    found = refused(**fields, launcher=launcher)
    assert [*found] == [path] and "driver" in found[path] and "drop" in found[path]


def test_a_function_is_refused() -> None:
    with pytest.raises(InvalidInput, match=r"launcher\.driver: is for a command, and this job runs a Python"):
        plan(JobSpec.of({"launcher": {"driver": True}, "command": ["x"]}), Site.load("slurm"), function=True)


def test_what_the_site_has_for_ranks_is_not_for_it() -> None:
    defaults = JobSpec.of(
        {"command": ["x"], "ranks_per_node": 4, "launcher": {"name": "hydra", "args": ["-l"]}}
    )
    site = msgspec.structs.replace(Site.load("slurm"), defaults=defaults)
    decided = plan(JobSpec.of({"command": ["x"], "nodes": 2, "launcher": {"driver": True}}), site)
    assert (decided.ranks, decided.nodes, decided.layout) == (1, 2, [(1, 1)])
    assert dict(decided.directives)["ntasks-per-node"] == "1"
