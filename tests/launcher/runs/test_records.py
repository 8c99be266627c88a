"""Records that are damaged, huge, none at all, or not what they seem."""

from __future__ import annotations

import contextlib
import io
import json
import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from castoff.launcher.cli import main as cli
from castoff.launcher.config.job import JobSpec
from castoff.launcher.config.site import Site
from castoff.launcher.errors import CastoffError
from castoff.launcher.planning.planner import plan
from castoff.launcher.planning.render import render
from castoff.launcher.runs.index import Index
from castoff.launcher.runs.records import Ending, Facts, Failure, Start, read
from castoff.launcher.runs.run import RunDirectory
from castoff.launcher.status.watch import status
from tests.hostile import SCALARS, json_values
from tests.launcher.status.test_watch import Made

RECORDS: dict[str, dict[str, Any] | None] = {
    "plan.json": {"name": "made", "site": "local", "scheduler": "local", "array_count": 2, "walltime": 60},
    "submission.json": {"job": "local-1", "time": 1000, "error": None, "after": {}},
    "local.json": {"pid": 1, "host": os.uname().nodename},
    "job.sh": None,
    "stop": None,
    "attempts/0.0/start.json": {"job": "local-1", "host": "here", "time": 1000},
    "attempts/0.0/ending.json": {"ending": "failed", "code": 3, "time": 1010, "reason": "why"},
    "attempts/0.0/failure.json": {"code": 3, "rank": 1, "host": "here", "signal": None, "time": 1009},
}

VALUES = json_values(SCALARS | st.floats() | st.integers(min_value=10**300, max_value=10**301))


@st.composite
def damaged(draw: st.DrawFn) -> tuple[str, bytes]:
    """A record's name, and what may lie there: any bytes, or its own fields with other values."""
    name = draw(st.sampled_from(sorted(RECORDS)))
    fields = RECORDS[name]
    kinds = [st.binary(max_size=200)]
    if fields is not None:
        whole = json.dumps(fields).encode()
        kinds.append(st.integers(0, len(whole)).map(lambda cut: whole[:cut]))
        kinds.append(
            st.fixed_dictionaries(dict.fromkeys(fields, VALUES)).map(
                lambda record: json.dumps(record).encode()
            )
        )
        kinds.append(
            st.tuples(st.sampled_from(sorted(fields)), VALUES).map(
                lambda one: json.dumps({**fields, one[0]: one[1]}).encode()
            )
        )
    return name, draw(st.one_of(kinds))


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Made:
    made = Made(tmp_path_factory.mktemp("made"), members=2)
    made.attempt("0.0", "failed", 3)
    return made


def restore(made: Made) -> None:
    for name, record in RECORDS.items():
        path = made.run.path / name
        if name == "stop":
            path.unlink(missing_ok=True)
        elif record is None:
            path.touch()
        else:
            path.write_text(json.dumps(record))


def castoff(*words: str) -> tuple[object, str, str]:
    """Run a verb in this process; a traceback ends the test."""
    output, errors = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(output), contextlib.redirect_stderr(errors):
        try:
            cli.main(list(words))
        except SystemExit as end:
            return end.code, output.getvalue(), errors.getvalue()


@settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(damage=damaged())
def test_no_record_brings_castoff_down(made: Made, damage: tuple[str, bytes]) -> None:
    index = Index.of(os.environ)
    if not index.entries():
        index.add(made.run, "made")
    restore(made)
    name, content = damage
    (made.run.path / name).write_bytes(content)
    for words in (["status", str(made.run.path)], ["list"], ["wait", str(made.run.path), "--timeout", "0"]):
        for more in ([], ["--json"]):
            code, output, errors = castoff(*words, *more)
            assert isinstance(code, int) and 0 <= code <= 255
            assert output and "Traceback" not in errors
            assert not any(ord(one) < 32 and one != "\n" for one in output + errors), "it reached a terminal"
            if more and words[0] != "wait":
                json.loads(output)
    index.path.unlink()  # what was seen of it now must not be remembered


def test_a_huge_record(made: Made) -> None:
    restore(made)
    for name in ("plan.json", "attempts/0.0/ending.json", "submission.json", "job.sh"):
        with (made.run.path / name).open("ab") as file:
            file.truncate(1 << 40)  # sparse: nobody could read it
    assert status(made.run).id == "run"
    restore(made)
    for name in ("plan.json", "attempts/0.0/ending.json", "submission.json", "job.sh"):
        (made.run.path / name).unlink()
    restore(made)


@pytest.mark.parametrize("name", ["plan.json", "submission.json", "attempts/0.0/ending.json", "local.lock"])
def test_a_pipe_or_a_device_in_its_place(tmp_path: Path, name: str) -> None:
    made = Made(tmp_path)
    made.attempt("0.0", "done")
    (made.run.path / name).unlink(missing_ok=True)
    os.mkfifo(made.run.path / name)  # who opens it to read would wait for ever
    assert status(made.run).members
    both = os.open(made.run.path / name, os.O_RDWR)  # nor is it an error that somebody holds it open
    assert status(made.run).members
    os.close(both)
    (made.run.path / name).unlink()
    (made.run.path / name).symlink_to("/dev/zero")
    if name == "local.lock":  # which is opened for itself alone
        with pytest.raises(CastoffError, match="cannot be accessed"):
            status(made.run)
    else:
        assert status(made.run).members


def test_a_folder_in_its_place_is_an_error_in_words(tmp_path: Path) -> None:
    made = Made(tmp_path)
    made.attempt("0.0")
    (made.run.path / "attempts" / "0.0" / "ending.json").mkdir()
    with pytest.raises(CastoffError, match=r"ending\.json: cannot be read: Is a directory"):
        status(made.run)


def test_what_does_not_fit_counts_as_not_there(tmp_path: Path) -> None:
    path = tmp_path / "record"
    for text in ("", "{", "[]", '{"ending": 3, "code": 0}', '{"ending": "done", "code": 256}', '{"code": 0}'):
        path.write_text(text)
        assert read(path, Ending) is None
    path.write_text('{"ending": "done", "code": 0, "newer": [1]}')
    assert read(path, Ending) == Ending("done", 0)
    assert read(tmp_path / "none", Ending) is None
    path.write_text('{"host": "a\\udcffb"}')  # bytes that are not text, as Python's JSON writes them
    assert read(path, Start) == Start(host="a\udcffb")
    path.write_text('{"code": -9}')
    assert read(path, Failure) is None


@pytest.mark.parametrize(("site", "scheduler"), [("slurm", "slurm"), ("pbs", "pbs"), ("local", "local")])
@pytest.mark.parametrize("count", [None, 8])
def test_records_of_a_script_submitted_without_castoff(
    tmp_path: Path, site: str, scheduler: str, count: int | None
) -> None:
    """It is all there is; what is read from it here is what the templates write there."""
    array = {"array": {"count": count}} if count else {}
    name = "my-job" if scheduler == "pbs" else "train on gpu: fast"  # PBS takes no name with a space
    job = JobSpec.of({"command": ["true"], "name": name, "walltime": "1h", **array})
    run = RunDirectory(tmp_path)
    run.script.write_text(render(plan(job, Site.load(site))))
    reported = run.facts()
    assert reported == Facts(name, site, scheduler, array_count=count, by_script=True)
    (tmp_path / "plan.json").write_text('{"name": "planned"}')
    assert run.facts() == Facts(name="planned")
