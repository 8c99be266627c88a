"""Shell lines at a job's end: whatever its ending, before that is on record, and with no say in it."""

from __future__ import annotations

import signal
from typing import Any

import msgspec
import pytest

from tests import patience
from tests.cases import others_long

from .conftest import Benches
from .harness import Bench, marked

KINDS = others_long(["local", "srun", "hydra", "openmpi", "pals"], ("local", "srun"))

NOTE = 'echo "$CASTOFF_OUTCOME $CASTOFF_EXIT_CODE $(ls "$CASTOFF_ATTEMPT_DIR" | grep -c ending)" >>noted'
"""Says how the job ends, and that this is not on record yet."""


def noted(here: Bench) -> list[str]:
    return (here.folder / "noted").read_text().splitlines()


def site_with(here: Bench, *lines: str) -> None:
    here.site = msgspec.structs.replace(here.site, teardown=[*lines])


@pytest.mark.everyday("true-ending0-1-local")
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("ranks", [1, 3])
@pytest.mark.parametrize(("program", "ending"), [("true", ("done", 0)), ("exit 3", ("failed", 3))])
def test_it_runs_once_after_the_ranks(
    kind: str, ranks: int, program: str, ending: tuple[str, int], bench: Benches
) -> None:
    here = bench(kind)
    site_with(here, "echo site >>noted")
    write = f'echo out >"out-$RANK"; {program}'
    lines = ["cat out-* >collected", NOTE]
    ended = here.run(ranks_per_node=ranks, command=["sh", "-c", write], teardown=lines)
    assert (ended.ending, ended.code) == (ending, ending[1]), ended.output
    assert noted(here) == [f"{ending[0]} {ending[1]} 0", "site"]
    if program == "true":
        assert (here.folder / "collected").read_text() == "out\n" * ranks
    assert "reason" not in ended.record("ending")


@pytest.mark.everyday("0-lines5-None")
@pytest.mark.parametrize(
    ("lines", "said"),
    [
        (["cpp_results here", NOTE], "teardown: this failed with code 127: cpp_results here"),
        (["cp /no/such .", "false", NOTE], "teardown: this failed with code 1: cp /no/such ."),
        ([NOTE, "exit 4"], "teardown ended with code 4"),
        ([NOTE, "kill -s KILL $BASHPID"], "teardown ended with code 137"),
        ([NOTE, "[ -e x ] && cp x y", "if cd /no/such; then :; fi; false | true"], None),
        (["shopt -s extglob", NOTE, "ls !(x) >/dev/null"], None),
        ([NOTE, 'echo "$NOT_SET" >/dev/null', "castoff_end() { :; }"], "castoff_end: readonly function"),
    ],
)
@pytest.mark.parametrize("code", [0, 3])
def test_a_line_that_fails_is_reported_and_changes_nothing(
    lines: list[str], said: str | None, code: int, bench: Benches
) -> None:
    here = bench("srun")
    site_with(here, "echo site >>noted")
    ended = here.run(command=["sh", "-c", f"exit {code}"], teardown=lines)
    assert (ended.ending, ended.code) == (("failed" if code else "done", code), code), ended.output
    assert noted(here) == [f"{ended.ending[0]} {code} 0", "site"], "each line is run"
    reason = ended.record("ending").get("reason")
    if said is None:
        assert reason is None and "teardown" not in ended.output
    else:
        assert said in ended.output and (reason is None or reason.startswith("teardown"))
        assert said.startswith("castoff_end") or reason == said


@pytest.mark.parametrize("kind", ["local", "srun"])
@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"setup": ["nosuch x", "export SCRATCH=there"]}, 127),
        ({"setup": ["exit 0"]}, 1),
        ({"workdir": "not-there"}, 1),
    ],
)
def test_not_after_a_setup_that_failed(kind: str, fields: dict[str, Any], code: int, bench: Benches) -> None:
    """It would run in the folder of the submission, and without setup's variables."""
    here = bench(kind)
    site_with(here, "echo site >>noted")
    ended = here.run(**fields, teardown=['cd "$SCRATCH"', f"rm -rf {here.folder}/*", "echo job >>noted"])
    assert (ended.ending, ended.code) == (("failed", code), code), ended.output
    assert noted(here) == ["site"] and (here.folder / "job.sh").exists()
    assert "teardown is not run, because setup was not through" in ended.output
    if "nosuch x" in str(fields):
        assert ended.record("ending")["reason"] == "setup ended the job with code 127, at this line: nosuch x"


@pytest.mark.parametrize("kind", ["local", "srun"])
def test_with_the_variables_and_in_the_folder_of_the_ranks(kind: str, bench: Benches) -> None:
    here = bench(kind)
    (here.folder / "inner").mkdir()
    given: dict[str, Any] = {
        "env": {"OUT": "/scratch/it's"},
        "setup": ["export STARTED=it"],
        "workdir": "inner",
    }
    ended = here.run(command=["false"], teardown=['echo "$STARTED $OUT ${PWD##*/}" >>../noted'], **given)
    assert (ended.code, noted(here)) == (1, ["it /scratch/it's inner"]), ended.output


def test_not_for_a_job_that_never_began(bench: Benches) -> None:
    here = bench("srun")
    first = here.run(command=["true"], teardown=[NOTE])
    (first.run_dir / "stop").touch()
    second = here.run(command=["true"], teardown=[NOTE])
    assert second.record("ending", "0.1")["ending"] == "cancelled", second.output
    assert noted(here) == ["done 0 0"]


@pytest.mark.parametrize("kind", KINDS)
def test_once_somebody_ends_the_job(kind: str, bench: Benches) -> None:
    here = bench(kind)
    until_ended = "trap 'exit 1' TERM; touch $PROBE_FOLDER/ready-$RANK; while :; do sleep 0.05; done"
    started = here.start(command=["sh", "-c", until_ended], ranks_per_node=2, teardown=[NOTE])
    started.wait_for("ready", 2)
    started.process.send_signal(signal.SIGTERM)
    ended = started.end()
    (said,) = noted(here)
    assert ended.ending[0] == said.split()[0] == ("failed" if kind == "local" else "cancelled"), ended.output


@pytest.mark.parametrize("driver", [False, True])
def test_a_program_that_ignores_its_end_leaves_time(driver: bool, bench: Benches) -> None:
    """It has half of KillWait, which is none here; then it is killed, as the scheduler would do."""
    here = bench("srun")
    here.stub("scontrol", "#!/bin/sh\n[ $2 = config ] && echo 'KillWait                = 1 sec' || echo x0\n")
    ignores = "trap '' TERM USR1; touch $PROBE_FOLDER/ready-0; while :; do sleep 0.05; done"
    started = here.start(command=["sh", "-c", ignores], launcher={"driver": driver}, teardown=[NOTE])
    started.wait_for("ready", 1)
    started.process.send_signal(signal.SIGTERM)
    patience.until((here.folder / "noted").exists, "its teardown")
    for process in marked(started.mark) if not driver else []:  # srun is killed, and Slurm kills its ranks
        process.kill()
    ended = started.end()
    assert noted(here)[0].startswith("cancelled 137"), ended.output
    assert len(noted(here)) == 1 and "wait:" not in ended.output and "error" not in ended.output


@pytest.mark.parametrize("kind", ["local", "srun"])
def test_while_setup_is_ended(kind: str, bench: Benches) -> None:
    here = bench(kind)
    wait = f"touch {here.seen}/ready-0; while :; do sleep 0.05; done"
    started = here.start(setup=[wait], teardown=[NOTE])
    started.wait_for("ready", 1)
    started.process.send_signal(signal.SIGTERM)
    ended = started.end()
    assert (ended.ending, (here.folder / "noted").exists()) == (("cancelled", 143), False), ended.output


@pytest.mark.everyday("true-ending0")
@pytest.mark.parametrize(("program", "ending"), [("true", ("done", 0)), ("exit 3", ("failed", 3))])
def test_one_that_hangs_does_not_hide_the_ending(
    program: str, ending: tuple[str, int], bench: Benches
) -> None:
    """At the walltime a scheduler asks first, and kills a moment later."""
    here = bench("srun")
    lines = [f"touch {here.seen}/ready-0", "while :; do sleep 0.05; done"]
    started = here.start(command=["sh", "-c", program], teardown=lines)
    started.wait_for("ready", 1)
    recorded = here.run_dir() / "attempts" / "0.0" / "ending.json"
    assert not recorded.exists()
    started.process.send_signal(signal.SIGTERM)
    patience.until(recorded.exists, "its ending on record")
    started.process.kill()
    for process in marked(started.mark):
        process.kill()
    ended = started.end()
    assert ended.ending == ending
    assert ended.record("ending")["reason"].endswith("teardown was still running when the job was ended")


def test_one_that_takes_long_in_a_job_that_is_ended(bench: Benches) -> None:
    """The scheduler kills it in a moment: its ending is on record by then."""
    here = bench("srun")
    until_ended = "trap 'exit 1' TERM; touch $PROBE_FOLDER/ready-0; while :; do sleep 0.05; done"
    recorded = 'until [ -e "$CASTOFF_ATTEMPT_DIR/ending.json" ]; do sleep 0.05; done; echo recorded >noted'
    started = here.start(command=["sh", "-c", until_ended], teardown=[recorded])
    started.wait_for("ready", 1)
    started.process.send_signal(signal.SIGTERM)
    ended = started.end()
    assert (ended.ending[0], noted(here)) == ("cancelled", ["recorded"]), ended.output
    assert "reason" not in ended.record("ending")


@pytest.mark.everyday("local")
@pytest.mark.parametrize("kind", ["local", "srun", "pals"])
def test_before_it_is_started_again(kind: str, bench: Benches) -> None:
    here = bench(kind)
    calls = f"grep -c 'scontrol.*requeue' {here.calls_file} >>noted || :"
    ended = here.run(env={"PROBE": "outcome resume"}, requeue={"max": 1}, teardown=[NOTE, calls])
    assert noted(here) == ["resume 75 0", "0"], ended.output
    assert ended.ending[0] == ("walltime" if kind == "local" else "resume"), ended.output
    assert (kind == "srun") == any(call[0] == "requeue" for call in here.calls("scontrol"))


@pytest.mark.everyday("true-local")
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("program", ["true", "exit 3"])
def test_what_was_staged_is_still_there(
    kind: str, program: str, bench: Benches, tmp_path_factory: pytest.TempPathFactory
) -> None:
    here = bench(kind)
    storage = tmp_path_factory.mktemp("local")
    here.site = msgspec.structs.replace(here.site, local_storage=str(storage))
    here.env["STUB_LOCAL_STORAGE"] = ""
    (here.folder / "words").write_text("text\n")
    both_wrote = 'until [ -s "$1/result-0" ] && [ -s "$1/result-1" ]; do sleep 0.01; done'
    result = f'set "$CASTOFF_STAGE_DIR"; echo made by $RANK >"$1/result-$RANK"; {both_wrote}; {program}'
    ended = here.run(
        ranks_per_node=2,
        stage=[{"from": "words"}],
        command=["sh", "-c", result],
        teardown=['cp "$CASTOFF_STAGE_DIR"/{words,result-*} .'],
    )
    assert "reason" not in ended.record("ending"), ended.output
    assert (here.folder / "result-0").read_text() == "made by 0\n", ended.output
    assert [*storage.iterdir()] == [], "and is removed afterwards"


def test_each_member_of_an_array(bench: Benches) -> None:
    here = bench("srun")
    here.array_index = 2
    ended = here.run(command=["true"], array={"count": 4}, teardown=["echo $CASTOFF_ARRAY_INDEX >>noted"])
    assert (ended.code, noted(here)) == (0, ["2"]), ended.output


def test_what_it_sets_is_its_own(bench: Benches) -> None:
    here = bench("srun")
    lines = ["set -eu", "cd /", "umask 0", "unset CASTOFF_ATTEMPT_DIR", f"echo ran >>{here.folder}/noted"]
    ended = here.run(command=["true"], teardown=lines)
    assert (ended.ending, noted(here)) == (("done", 0), ["ran"]), ended.output
