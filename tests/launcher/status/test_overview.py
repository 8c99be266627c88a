"""Many runs at a glance: what is looked at, what is remembered, and what is left out."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from bench.many_runs import make_runs
from castoff.launcher.errors import CastoffError
from castoff.launcher.runs import journal
from castoff.launcher.runs.index import Index
from castoff.launcher.runs.run import RunDirectory
from castoff.launcher.status import overview
from castoff.launcher.status.overview import Overview, rebuild
from castoff.launcher.status.survey import RunRecords
from tests.launcher.status.test_watch import Made


@pytest.fixture
def index(tmp_path: Path) -> Index:
    return Index(tmp_path / "state" / "runs.jsonl")


@pytest.fixture
def runs(tmp_path: Path, index: Index) -> list[RunDirectory]:
    return make_runs(tmp_path / "runs", index, 12)


def ids(rows: list[overview.Row]) -> list[str]:
    return [row.entry.id for row in rows]


COUNT = """
import sys
from pathlib import Path
from castoff.launcher.runs.index import Index
from castoff.launcher.status.overview import Overview
touched = []
sys.addaudithook(lambda event, words: touched.append((event, str(words[0]))) if words else None)
chosen, _ = Overview.asked(Index(Path(sys.argv[1]))).choose(newest=20)
print(len(chosen))
print(*(f"{event} {path}" for event, path in touched if path.startswith(sys.argv[2])), sep="\\n")
"""


def accesses(index: Index, runs: list[RunDirectory]) -> tuple[int, list[str]]:
    """How many runs a list shows, and what it opens or lists in doing so."""
    words = [sys.executable, "-c", COUNT, str(index.path), str(runs[0].path.parent)]
    shown, *touched = subprocess.run(words, capture_output=True, text=True, check=True).stdout.split("\n")
    return int(shown), [line for line in touched if line]


class TestRemembering:
    def test_a_run_that_is_known_to_be_over_costs_no_file_access(
        self, index: Index, runs: list[RunDirectory]
    ) -> None:
        shown, first = accesses(index, runs)
        assert shown == 12 and len(first) > 12 * 5
        assert accesses(index, runs) == (12, [])

    def test_active_runs_are_read_every_time(self, tmp_path: Path, index: Index) -> None:
        made = Made(tmp_path)
        index.add(made.run, "made")
        with made.alive():
            for _ in range(2):
                assert [row.summary.state for row in Overview.asked(index).rows] == ["pending"]
        made.attempt("0.0", "done")
        assert [row.summary.ending for row in Overview.asked(index).rows] == ["done"]
        assert index.entries()[0].ended is not None

    def test_what_is_unknown_is_never_remembered(self, tmp_path: Path, index: Index) -> None:
        made = Made(tmp_path)
        index.add(made.run, "made")
        assert [row.summary.state for row in Overview.asked(index).rows] == ["unknown"]
        assert index.entries()[0].ended is None
        made.attempt("0.0", "done")
        assert [row.summary.state for row in Overview.asked(index).rows] == ["ended"]

    def test_begun_again_between_the_look_and_the_note(
        self, tmp_path: Path, index: Index, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Whoever is slow to write down what it saw must not bury the new beginning."""
        made = Made(tmp_path)
        made.attempt("0.0", "failed", 3)
        index.add(made.run, "made")

        def slow_survey(run: RunDirectory) -> RunRecords:
            seen = RunRecords(run)
            index.reopen(run)
            return seen

        monkeypatch.setattr(overview, "RunRecords", slow_survey)
        Overview.asked(index)
        monkeypatch.undo()
        assert index.entries()[0].ended is None
        with made.alive():
            made.attempt("0.1")
            assert [row.summary.state for row in Overview.asked(index).rows] == ["running"]

    def test_an_index_that_cannot_be_written(
        self, index: Index, runs: list[RunDirectory], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def full(*_: object) -> None:
            raise OSError(28, "No space left on device")

        monkeypatch.setattr(journal, "append", full)
        seen = Overview.asked(index)
        assert len(seen.rows) == 12
        (note,) = seen.notes
        assert note.startswith(f"{index.path}: the index of runs cannot be written: No space left")

    def test_several_lists_at_once(self, index: Index, runs: list[RunDirectory]) -> None:
        seen: list[Overview] = []
        threads = [threading.Thread(target=lambda: seen.append(Overview.asked(index))) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert [ids(one.choose()[0]) for one in seen] == [[run.id for run in runs]] * 4
        assert len({run.id for run in runs}) == len(index.entries())


class TestChoosing:
    def test_the_newest_and_all_active_runs(self, tmp_path: Path, index: Index) -> None:
        made = Made(tmp_path)
        index.add(made.run, "made")
        runs = make_runs(tmp_path / "runs", index, 6)
        with made.alive():
            seen = Overview.asked(index)
        rows, left_out = seen.choose(newest=2)
        assert (ids(rows), left_out) == (["run", runs[-2].id, runs[-1].id], 4)
        rows, left_out = seen.choose(lambda row: row.summary.name == "causets", newest=2)
        assert (ids(rows), left_out) == ([runs[0].id, runs[4].id], 0)
        assert len(seen.choose()[0]) == 7

    def test_those_that_are_gone(self, index: Index, runs: list[RunDirectory]) -> None:
        Overview.asked(index)  # remembers all
        for run in runs[-3:]:
            shutil.rmtree(run.path)
        rows, left_out = Overview.asked(index).choose(newest=2)
        assert (ids(rows), left_out) == ([run.id for run in runs[7:9]], 7)
        shutil.rmtree(runs[0].path.parent)
        seen = Overview.asked(index)
        assert (seen.choose(newest=2), seen.known) == (([], 0), 12)

    def test_those_that_may_not_be_trusted(
        self, index: Index, runs: list[RunDirectory], tmp_path: Path
    ) -> None:
        real = runs[0].path.rename(tmp_path / "elsewhere")
        runs[0].path.symlink_to(real)
        runs[1].path.chmod(0o777)
        seen = Overview.asked(index)
        assert ids(seen.rows) == [run.id for run in runs[2:]]
        assert len(seen.notes) == 2
        assert "is a link to" in seen.notes[0] and "others may write to it" in seen.notes[1]

    def test_one_that_cannot_be_read_hides_no_other(self, index: Index, runs: list[RunDirectory]) -> None:
        ending = runs[3].path / "attempts" / "0.0" / "ending.json"
        ending.unlink()
        ending.mkdir()
        seen = Overview.asked(index)
        reported = {row.entry.id: row.summary for row in seen.rows}
        assert len(reported) == 12 and reported[runs[3].id].state == "unknown"
        assert reported[runs[3].id].reason == f"{ending}: cannot be read: Is a directory"


class TestRebuilding:
    def test_from_nothing(self, index: Index, runs: list[RunDirectory], tmp_path: Path) -> None:
        Overview.asked(index)
        before = {entry.path: entry.ended for entry in index.entries()}
        for damage in (b"", b"\x00" * 1000, index.path.read_bytes()[: index.path.stat().st_size // 3]):
            index.path.write_bytes(damage)
            left = len(index.entries())
            rebuilt = rebuild(index, tmp_path)
            assert (rebuilt.found, rebuilt.new, rebuilt.notes) == (12, 12 - left, [])
            Overview.asked(index)
            assert {entry.path: entry.ended for entry in index.entries()} == before
        assert rebuild(index, tmp_path)[:2] == (12, 0)

    def test_what_was_remembered_wrongly_is_put_right(self, index: Index, runs: list[RunDirectory]) -> None:
        Overview.asked(index)
        path = runs[0].path / "attempts" / "0.0" / "ending.json"
        path.write_text(json.dumps({"ending": "walltime", "code": 75, "time": 1_800_000_000}))
        assert Overview.asked(index).rows[0].summary.ending == "done"
        rebuild(index, runs[0].path)
        assert Overview.asked(index).rows[0].summary.ending == "walltime"
        path.unlink()  # and what is no longer over
        rebuild(index, runs[0].path)
        assert Overview.asked(index).rows[0].summary.state == "unknown"

    def test_one_that_cannot_be_read_is_found_all_the_same(
        self, index: Index, runs: list[RunDirectory]
    ) -> None:
        (runs[0].path / "plan.json").unlink()
        (runs[0].path / "plan.json").mkdir()
        index.path.unlink()
        assert rebuild(index, runs[0].path) == (1, 1, [])
        (row,) = Overview.asked(index).rows
        assert row.summary.reason == f"{runs[0].path}/plan.json: cannot be read: Is a directory"

    def test_what_it_could_not_see_is_reported(
        self, index: Index, runs: list[RunDirectory], tmp_path: Path
    ) -> None:
        runs[1].path.chmod(0o722)
        rebuilt = rebuild(index, tmp_path)
        assert rebuilt.found == 11
        (note,) = rebuilt.notes
        assert "others may write" in note
        with pytest.raises(CastoffError, match="cannot be searched"):
            rebuild(index, tmp_path / "none")
