"""castoff launch inside an allocation that is told of, as qsub -I and salloc tell it.

PBS cannot be installed here; mpiexec is MPICH's own or stands in for PALS's. tests/cluster has a real
Slurm for all that only hosts of their own can show; here srun is the stub.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import psutil
import pytest

from castoff.launcher.runs.run import RunDirectory
from castoff.launcher.runs.states import RunStatus
from castoff.launcher.status.watch import status
from tests import patience
from tests.cases import others_long
from tests.launcher.terminal import on_terminal

from . import stub_flux
from .conftest import Benches
from .harness import CASTOFF, CHECKOUT, PROBE, STALE, Bench

SAYS = "echo out of $RANK; echo err of $RANK >&2"


def launch(
    here: Bench, *words: str, nodes: int = 1, env: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Run castoff launch in an allocation of so many hosts."""
    return subprocess.run(
        [CASTOFF, "launch", *words],
        cwd=here.folder,
        env={**os.environ, **here.allocation(nodes), **(env or {})},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=patience.SECONDS,
        check=False,
    )


def the_run(here: Bench) -> RunStatus:
    """What became of the one run."""
    (path,) = (here.folder / "castoff-runs").iterdir()
    return status(RunDirectory(path))


def profile(here: Bench, name: str, text: str) -> None:
    path = here.folder / ".castoff" / "sites" / f"{name}.yaml"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"description: ours\n{text}")


def test_qsub_with_a_real_mpiexec(bench: Benches) -> None:
    here = bench("hydra")
    profile(here, "ours", f"extends: pbs\nmpiexec: {here.site.mpiexec}\n")
    environ = {**STALE, "PBS_O_WORKDIR": "/", "CASTOFF_SITE": "ours"}
    answer = launch(here, "-n", "3", "--", *PROBE, env=environ)
    assert answer.returncode == 0, answer.stderr
    ranks = here.ranks()
    assert [rank["detected"]["launcher"] for rank in ranks] == ["hydra"] * 3
    assert {rank["cwd"] for rank in ranks} == {str(here.folder)}
    run = the_run(here)
    assert (run.site, run.job, run.ending) == ("ours", "7.head", "done")
    assert answer.stderr.splitlines()[:3] == [
        f"castoff: site ours: uses the project's {here.folder}/.castoff/sites/ours.yaml",
        "castoff: site ours: CASTOFF_SITE is set",
        f"castoff: PBS job 7.head (1 host: {here.hosts[0]}): 3 ranks, 3 on 1 node, started by hydra",
    ]


@pytest.mark.long
def test_qsub_on_aurora(bench: Benches) -> None:
    """What its queues insist on was said to qsub; the ranks fill the first hosts of the node file."""
    here = bench("pals")
    answer = launch(here, "--site", "aurora", "--nodes", "2", "--", *PROBE, nodes=3)
    assert answer.returncode == 0, answer.stderr
    assert [rank["detected"]["node_rank"] for rank in here.ranks()] == [0] * 12 + [1] * 12
    assert here.ranks()[0]["environ"]["MASTER_ADDR"] == "x0.hsn.cm.aurora.alcf.anl.gov"
    used = Path(here.ranks()[0]["environ"]["PBS_NODEFILE"]).read_text().split()
    assert used == here.hosts[:2]
    (call,) = here.calls("mpiexec")
    assert call[:4] == ["-n", "24", "--ppn", "12"]


def test_the_walltime_counts_from_the_launch_on_pbs(bench: Benches) -> None:
    here = bench("hydra")
    profile(here, "pbs", f"extends: pbs\nmpiexec: {here.site.mpiexec}\ndefaults: {{walltime: 5s}}\n")
    words = ["--set", "walltime=60s", "--set", "grace=58s", "--", *PROBE]
    assert launch(here, *words, env={"PROBE": "stop"}).returncode == 75
    assert the_run(here).ending == "walltime"


@pytest.mark.long
def test_a_terminal_shows_text_in_colours_and_nothing_else(bench: Benches) -> None:
    """Here as on one host; the log has all bytes."""
    here = bench("srun")
    words = ["launch", "--", "sh", "-c", r"printf '\033[2Ja\033[31mb\033]52;c;aGk=\007c\n'"]
    env = {**here.allocation(1)}
    shown = on_terminal(CASTOFF, *words, cwd=here.folder, env=env).output
    assert "a\x1b[31mbc\x1b[0m\n" in shown and "\x1b[2J" not in shown and "\x1b]" not in shown
    (path,) = (here.folder / "castoff-runs").iterdir()
    assert b"\x1b[2Ja\x1b[31mb\x1b]52;c;aGk=\x07c" in RunDirectory(path).script_log().read_bytes()


@pytest.mark.long
def test_which_site(bench: Benches) -> None:
    here = bench("srun")
    by_itself = launch(here, "--", "true")
    assert "castoff: site slurm: this shell is in an allocation of slurm\n" in by_itself.stderr
    other = launch(here, "--", "true", env={"CASTOFF_SITE": "aurora"})
    assert other.returncode == 1
    assert (
        "castoff: site aurora runs pbs, but this is Slurm job 12 (1 host: x0): name the site" in other.stderr
    )
    local = launch(here, "--", "sh", "-c", "echo $CASTOFF_LAUNCHER", env={"CASTOFF_SITE": "local"})
    assert (local.returncode, local.stdout) == (0, "[0] local\n")
    assert launch(here, "--site", "local", "--", "sh", "-c", "echo $CASTOFF_LAUNCHER").stdout == "[0] local\n"
    assert launch(here, "--here", "--", "sh", "-c", "echo $CASTOFF_LAUNCHER").stdout == "[0] local\n"
    assert len(list((here.folder / "castoff-runs").iterdir())) == 1


@pytest.mark.long
@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--here", "--site", "slurm"], "--site names an allocation's site, but --here uses this host alone"),
        (
            ["--log-dir", "logs"],
            "--log-dir is for ranks on this host alone (--here), but this shell is in Slurm job 12",
        ),
        (["--here", "--runs-dir", "runs"], "--runs-dir applies to runs in an allocation"),
        (["--here", "--nodes", "2"], "--nodes: is 2, but this machine is one node"),
        (["--nodes", "2"], "--nodes: is 2, but Slurm job 12 (1 host: x0) has only 1: ask"),
        (["--ranks-per-node", "2", "-n", "2"], "ranks: excludes ranks_per_node"),
    ],
)
def test_options_that_exclude_each_other_are_refused(words: list[str], said: str, bench: Benches) -> None:
    here = bench("srun")
    answer = launch(here, *words, "--", "true")
    assert answer.returncode == 2
    assert said in answer.stderr
    assert not (here.folder / "castoff-runs").exists()


@pytest.mark.parametrize(("site", "get"), [("slurm", "salloc"), ("aurora", "qsub -I")])
def test_a_site_outside_of_its_allocation(site: str, get: str, bench: Benches) -> None:
    here = bench("srun")
    words = [CASTOFF, "launch", "--site", site, "--", "true"]
    answer = subprocess.run(words, cwd=here.folder, capture_output=True, text=True, check=False)
    assert answer.returncode == 1
    assert f"but this shell is not in an allocation: get one with {get}, or use castoff" in answer.stderr


@pytest.mark.long
def test_a_run_on_the_local_scheduler_stays_on_this_host(bench: Benches) -> None:
    here = bench("srun")
    environ = {**os.environ, **here.allocation(3)}
    words = ["submit", "--site", "local", "--ranks-per-node", "2", "--json", "--", *PROBE]
    answer = subprocess.run([CASTOFF, *words], cwd=here.folder, env=environ, capture_output=True, check=True)
    run = json.loads(answer.stdout)["directory"]
    subprocess.run([CASTOFF, "wait", run], cwd=here.folder, env=environ, check=True)
    assert [rank["detected"]["launcher"] for rank in here.ranks()] == ["local"] * 2
    assert here.calls("srun") == []


def test_output_reaches_its_stream_and_the_log(bench: Benches) -> None:
    here = bench("srun")
    answer = launch(here, "--", "sh", "-c", f"{SAYS}; exit 3")
    assert answer.returncode == 3
    assert answer.stdout == "out of 0\nerr of 0\n"  # of one rank, both are in its log
    last = answer.stderr.splitlines()[-1]
    assert last.startswith("castoff: rank 0 on ") and "failed first: exit code 3" in last
    log = RunDirectory(Path(the_run(here).directory)).script_log().read_text()
    assert log == f"out of 0\nerr of 0\n{last}\n"


@pytest.mark.long
def test_nobody_reads_any_more(bench: Benches) -> None:
    here = bench("srun")
    program = f"'{CASTOFF}' launch -- sh -c 'yes | head -c 300000; echo over' | head -c 10"
    answer = subprocess.run(
        ["bash", "-c", f"{program}; echo code ${{PIPESTATUS[0]}}"],
        cwd=here.folder,
        env={**os.environ, **here.allocation(1)},
        capture_output=True,
        text=True,
        timeout=patience.SECONDS,
        check=True,
    )
    assert answer.stdout.endswith("code 0\n")
    run = RunDirectory(Path(the_run(here).directory))
    lost = "castoff: cannot write the ranks' output here (Broken pipe): all of it is in the logs in"
    assert f"{lost} {run.log_folder}\n" in answer.stderr
    assert run.script_log().read_text().endswith("y\nover\n")


@pytest.mark.everyday("1")
@pytest.mark.parametrize("nodes", [1, 2])
def test_a_driver_and_its_teardown(nodes: int, bench: Benches) -> None:
    here = bench("srun")
    (here.folder / "job.yaml").write_text(
        "command: [sh, -c, 'echo $CASTOFF_HOSTS ${RANK-no rank}; exit 3']\n"
        "launcher: {driver: true}\nteardown: [echo torn $CASTOFF_EXIT_CODE, nosuch]\n"
    )
    answer = launch(here, "job.yaml", nodes=nodes)
    assert answer.returncode == 3, answer.stderr
    assert f"{','.join(here.hosts)} no rank" in answer.stdout and "torn 3" in answer.stdout
    (attempt,) = the_run(here).members[0].attempts
    assert attempt.reason == "teardown: this failed with code 127: nosuch"


@pytest.mark.long
def test_what_setup_leaves_behind_is_ended(bench: Benches) -> None:
    here = bench("srun")
    (here.folder / "daemon.sh").write_text("trap '' TERM; echo $$ >pid; sleep 600\n")
    (here.folder / "job.yaml").write_text(
        "command: ['true']\nsetup:\n  - setsid sh daemon.sh &\n  - until [ -s pid ]; do sleep 0.01; done\n"
    )
    answer = launch(here, "job.yaml")
    assert answer.returncode == 0, answer.stderr
    assert not psutil.pid_exists(int((here.folder / "pid").read_text()))


@pytest.mark.long
@pytest.mark.parametrize(
    ("line", "code", "ending"),
    [
        ("exit 4", 4, "failed"),
        ("kill -KILL $$", 137, "failed"),
        ("kill -INT $PPID; while :; do sleep 0.1; done", 130, "cancelled"),
    ],
)
def test_a_script_that_ends_early_leaves_an_ending(line: str, code: int, ending: str, bench: Benches) -> None:
    here = bench("srun")
    answer = launch(here, "--set", f"setup=['{line}']", "--", "true")
    assert answer.returncode == code, answer.stderr
    run = the_run(here)
    assert (run.state, run.ending) == ("ended", ending)
    assert here.calls("srun") == []


@pytest.mark.everyday("*[2T]")  # SIGINT: its id is a number from Python 3.11 on
@pytest.mark.parametrize(
    "number", others_long([signal.SIGINT, signal.SIGTERM, signal.SIGHUP], [signal.SIGINT, signal.SIGTERM])
)
def test_one_signal_stops_in_order(number: signal.Signals, bench: Benches) -> None:
    here = bench("srun")
    process = subprocess.Popen(
        [CASTOFF, "launch", "-n", "2", "--", "sh", "-c", "touch $PROBE_FOLDER/here-$RANK; exec sleep 60"],
        cwd=here.folder,
        env={**os.environ, **here.allocation(1)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    while len(list(here.seen.glob("here-*"))) < 2:
        assert process.poll() is None
        time.sleep(0.02)
    process.send_signal(number)
    _, errors = process.communicate(timeout=patience.SECONDS)
    assert process.returncode == 128 + number, errors
    assert f"castoff: {number.name}: asked the ranks to stop (SIGTERM); a second one kills them\n" in errors
    assert the_run(here).ending == "cancelled"


def test_missing_secrets_are_reported_before_anything_is_made(bench: Benches) -> None:
    here = bench("srun")
    answer = launch(here, "--set", "env_from=[NOT_SET_ANYWHERE]", "--", "true")
    assert answer.returncode == 1
    assert "env_from: NOT_SET_ANYWHERE not set in this environment" in answer.stderr
    assert not (here.folder / "castoff-runs").exists()


def in_flux(here: Bench, flux: stub_flux.Instance) -> dict[str, str]:
    """What the shell of an allocation has in its environment."""
    program = f'#!/bin/sh\nexport PYTHONPATH={CHECKOUT}\nexec {sys.executable} -m {stub_flux.__name__} "$@"\n'
    here.stub("flux", program)
    path = {"PATH": f"{here.bin}{os.pathsep}{os.environ['PATH']}", "PROBE_FOLDER": str(here.seen)}
    return {**os.environ, **path, **stub_flux.ENVIRONMENT, "FLUX_URI": flux.uri}


def test_flux_alloc(bench: Benches, tmp_path: Path) -> None:
    """On the first hosts alone, by flux run, which would take any."""
    here = bench("srun")
    with stub_flux.instance(tmp_path) as flux:
        answer = launch(here, "--nodes", "2", "-n", "3", "--", *PROBE, env=in_flux(here, flux))
    assert answer.returncode == 0, answer.stderr
    places = [(rank["detected"]["launcher"], rank["detected"]["node_rank"]) for rank in here.ranks()]
    assert places == [("flux", 0), ("flux", 0), ("flux", 1)]
    assert {rank["environ"]["MASTER_ADDR"] for rank in here.ranks()} == {"fx0"}
    assert "--requires=host:fx0,fx1" in flux.calls[0]
    assert answer.stderr.splitlines()[:2] == [
        "castoff: site flux: this shell is in an allocation of flux",
        "castoff: Flux job 779167465472 (3 hosts: fx0, fx1, fx2): 3 ranks, 2 on 1 node and 1 on 1 node, "
        "started by flux",
    ]
    assert (the_run(here).job, the_run(here).ending) == ("779167465472", "done")


@pytest.mark.long
def test_a_frozen_host_of_flux_is_the_only_one_that_is_not_fit(bench: Benches, tmp_path: Path) -> None:
    """Jobs of flux run that look at hosts would wait for it, and keep others from starting."""
    here = bench("flux")
    here.stub("hostname", '#!/bin/sh\necho "${STUB_HOST-fx0}"\n')
    with stub_flux.instance(tmp_path) as flux:
        env = {**in_flux(here, flux), "STUB_FROZEN": "fx2"}
        ended = here.run(nodes=3, command=["false"], restart={"max": 1}, walltime="5m", env=env)
        assert len(flux.calls) == 1, "the ranks themselves"
    assert ended.ending == ("node-failure", 1)
    assert ended.record("ending")["reason"] == (
        "3 hosts are needed, and 2 of the job's are fit: fx2: it does not answer"
    )


@pytest.mark.everyday("cancelled")
@pytest.mark.parametrize("lost", [True, False], ids=["lost", "cancelled"])
def test_a_chain_resumes_a_job_of_flux_whose_first_host_is_lost(
    lost: bool, bench: Benches, tmp_path: Path
) -> None:
    """Its script gets TERM, as if somebody had cancelled it (flux-core 0.88.0, a broker killed)."""
    here = bench("flux")
    waits = '[ "$CASTOFF_ATTEMPT" -ge 1 ] || { touch "$PROBE_FOLDER/here-$RANK"; exec sleep 1000; }'
    fields: dict[str, Any] = {"nodes": 1, "ranks_per_node": 1, "walltime": "9m"}
    fields |= {"command": ["sh", "-c", waits], "requeue": {"max": 1, "how": "chain"}}
    with stub_flux.instance(tmp_path) as flux:
        env = {**in_flux(here, flux), "STUB_NODES": "1"}
        started = here.start(env=env, **fields)
        started.wait_for("here", 1)
        if lost:
            (tmp_path / "lost").touch()
        started.process.send_signal(signal.SIGTERM)
        first = started.end()
        (tmp_path / "lost").unlink(missing_ok=True)
        os.utime(first.run_dir / "attempts" / "0.0" / "fence", (0, 0))  # its ranks had time to end themselves
        link = {"CASTOFF_RUN_DIR": str(first.run_dir), "CASTOFF_CHAIN": "1"}
        count = {"CASTOFF_ATTEMPT": "1", "CASTOFF_FIRST_ATTEMPT": "0"}
        again = here.run(env={**env, **link, **count}, **fields)
    if lost:
        assert first.ending == ("node-failure", 143), first.output
        assert again.record("ending", "0.1")["ending"] == "done", again.output
    else:
        assert first.ending == ("cancelled", 143), first.output
        assert "attempt 0 has ended: cancelled" in again.output


@pytest.mark.long
def test_a_second_signal_ends_ranks_of_flux_that_ignore_the_first(bench: Benches, tmp_path: Path) -> None:
    """They are no children of flux run: killed, it would leave them running on the allocation's cores."""
    here = bench("srun")
    program = "trap : TERM; touch $PROBE_FOLDER/here-$RANK; while :; do sleep 0.1; done"
    with stub_flux.instance(tmp_path) as flux:
        process = subprocess.Popen(
            [CASTOFF, "launch", "-n", "3", "--", "sh", "-c", program],
            cwd=here.folder,
            env=in_flux(here, flux),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        patience.until(lambda: len(list(here.seen.glob("here-*"))) == 3, "three ranks")
        process.send_signal(signal.SIGTERM)
        assert process.stderr is not None
        for line in process.stderr:
            if "a second one kills them" in line:
                break
        while process.poll() is None:  # what comes soon may be an echo of the first
            process.send_signal(signal.SIGTERM)
            time.sleep(0.5)
        process.communicate(timeout=patience.SECONDS)
        assert process.returncode == 143
        patience.until(lambda: all(rank.poll() is not None for rank in flux.ranks), "all ranks have ended")
