"""The index of runs, and how a word finds one."""

from __future__ import annotations

import json
import multiprocessing
import os
import shutil
import time
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from castoff.launcher.errors import CastoffError
from castoff.launcher.runs import journal
from castoff.launcher.runs.drafts import new_run
from castoff.launcher.runs.index import Entry, Index
from castoff.launcher.runs.run import RunDirectory
from castoff.launcher.runs.states import RunSummary, summary
from castoff.launcher.status.watch import status
from tests import patience
from tests.launcher.status.test_watch import Made


def make_run(folder: Path, name: str = "job") -> RunDirectory:
    with new_run(name, folder) as draft:
        draft.run.script.touch()
        return draft.publish()


def add_many(index: Index, folder: Path, first: int) -> None:
    journal._PATIENCE = patience.SECONDS  # in a process of its own
    for number in range(first, first + 50):
        run = RunDirectory(folder / str(number))
        run.path.mkdir()
        run.script.touch()
        index.add(run, "x" * 500)


class TestIndex:
    def test_parallel_writers(self, tmp_path: Path) -> None:
        index = Index(tmp_path / "state" / "runs.jsonl")
        fork = multiprocessing.get_context("spawn")
        writers = [
            fork.Process(target=add_many, args=(index, tmp_path, first)) for first in range(0, 200, 50)
        ]
        for writer in writers:
            writer.start()
        for writer in writers:
            writer.join()
        assert {entry.id for entry in index.entries()} == {str(number) for number in range(200)}

    def test_a_line_that_was_cut_off_eats_no_other(self, tmp_path: Path) -> None:
        index = Index(tmp_path / "runs.jsonl")
        runs = [make_run(tmp_path, name) for name in "abc"]
        for run in runs:
            index.add(run, run.id)
            with index.path.open("ab") as file:
                file.write(json.dumps({"path": str(run.path), "name": "half"}).encode()[:-3])
        assert [entry.run.path for entry in index.entries()] == [run.path for run in runs]

    @pytest.mark.parametrize("line", ["3", "null", "{}", '{"path": 3, "name": ""}', "\x00", "[", "ÿ"])
    def test_lines_that_are_none(self, tmp_path: Path, line: str) -> None:
        index = Index(tmp_path / "runs.jsonl")
        index.path.write_text(f"{line}\n\n", encoding="latin-1")
        run = make_run(tmp_path)
        index.add(run, "job")
        assert [entry.run.path for entry in index.entries()] == [run.path]

    @given(st.binary(max_size=300))
    def test_bytes_that_are_none(self, tmp_path_factory: pytest.TempPathFactory, damage: bytes) -> None:
        folder = tmp_path_factory.mktemp("any")
        index = Index(folder / "runs.jsonl")
        run = make_run(folder)
        index.add(run, "job")
        index.path.write_bytes(damage + b"\n" + index.path.read_bytes() + damage)
        assert [entry.path for entry in index.entries()] == [str(run.path)]
        assert index.find("job").path == run.path

    @pytest.mark.parametrize(
        "line",
        [
            {"path": "relative", "name": "x"},
            {"path": "/zero\0byte", "name": "x"},
            {"path": "/x", "name": "x", "time": -1},
            {"path": "/x", "name": "x", "time": 10**400},
            {"path": "/x", "removed": True},
            {"path": "/x", "begun": True},
            {"path": "/x", "something": "newer"},
        ],
    )
    def test_lines_without_an_entry_are_skipped(self, tmp_path: Path, line: dict[str, Any]) -> None:
        index = Index(tmp_path / "runs.jsonl")
        index.path.write_text(json.dumps(line) + "\n")
        assert index.entries() == []

    def test_a_path_that_is_not_utf8_is_kept(self, tmp_path: Path) -> None:
        folder = Path(os.fsdecode(os.fsencode(tmp_path) + b"/\xff"))
        folder.mkdir()
        index = Index(tmp_path / "runs.jsonl")
        run = make_run(folder)
        index.add(run, "job")
        assert index.find("job").path == run.path

    def test_a_name_means_its_newest_run(self, tmp_path: Path) -> None:
        index = Index(tmp_path / "runs.jsonl")
        old, new = make_run(tmp_path, "same"), make_run(tmp_path, "same")
        index.add(old, "same")
        index.add(new, "same")
        assert index.find("same").path == new.path
        assert index.find(old.id).path == old.path
        with pytest.raises(CastoffError, match="2 runs have ids that begin with this"):
            index.find("sam")

    def test_an_id_as_a_narrow_list_shows_it(self, tmp_path: Path) -> None:
        index = Index(tmp_path / "runs.jsonl")
        runs = [make_run(tmp_path, "same"), make_run(tmp_path, "same"), make_run(tmp_path, "same")]
        for run in runs:
            index.add(run, "same")
        for run in runs:
            shown = f"same..{run.id[-4:]}"
            if sum(one.id.endswith(run.id[-4:]) for one in runs) == 1:  # nearly always
                assert index.find(shown).path == index.find(shown.replace("..", "…")).path == run.path
        with pytest.raises(CastoffError, match=r"s\.\.-: no such run"):
            index.find("s..-")
        with pytest.raises(CastoffError, match=r"s\.\.e-20\.\.: 3 runs have ids that look like this"):
            index.find("s..e-20..")

    def test_where_it_is(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        default = Path("/h/.local/state/castoff/runs.jsonl")
        assert Index.of({"HOME": "/h", "XDG_STATE_HOME": "/s"}).path == Path("/s/castoff/runs.jsonl")
        for none in ("", "relative"):
            assert Index.of({"HOME": "/h", "XDG_STATE_HOME": none}).path == default

        def homeless() -> Path:
            raise RuntimeError("Could not determine home directory.")

        monkeypatch.setattr(Path, "home", homeless)
        with pytest.raises(CastoffError, match="set HOME or XDG_STATE_HOME"):
            Index.of({})


@pytest.fixture
def made(tmp_path: Path) -> Made:
    made = Made(tmp_path)
    made.attempt("0.0", "failed", 3)
    (made.run.path / "job.sh").touch()
    return made


@pytest.fixture
def index(tmp_path: Path, made: Made) -> Index:
    index = Index(tmp_path / "runs.jsonl")
    index.add(made.run, "made")
    return index


def only(index: Index) -> Entry:
    (entry,) = index.entries()
    return entry


def reported(run: RunDirectory) -> RunSummary:
    return summary(status(run))


class TestEndings:
    def test_remembered_whole(self, index: Index, made: Made) -> None:
        assert only(index).ended is None
        index.remember([(only(index), reported(made.run))])
        assert only(index).ended == reported(made.run)
        assert reported(made.run).ending == "failed" and reported(made.run).code == 3

    def test_taken_back_by_a_new_beginning(self, index: Index, made: Made) -> None:
        index.remember([(only(index), reported(made.run))])
        index.reopen(made.run)
        assert only(index).ended is None
        index.remember([(only(index), reported(made.run))])
        assert only(index).ended is not None

    def test_seen_before_a_new_beginning_and_written_after_it(self, index: Index, made: Made) -> None:
        before = only(index)
        seen = reported(made.run)
        index.reopen(made.run)
        index.remember([(before, seen)])
        assert only(index).ended is None
        index.reopen(made.run)
        index.remember([(before, seen)])
        assert only(index).ended is None

    def test_two_that_see_the_same(self, index: Index, made: Made) -> None:
        for entry in [only(index), only(index)]:
            index.remember([(entry, reported(made.run))])
        assert only(index).ended == reported(made.run)

    def test_what_is_not_over_is_not_believed(self, index: Index, made: Made) -> None:
        for state in ("running", "unknown", "nonsense"):
            index.remember([(only(index), msgspec.structs.replace(reported(made.run), state=state))])
            assert only(index).ended is None

    def test_damaged_on_disk(self, index: Index, made: Made) -> None:
        index.remember([(only(index), reported(made.run))])
        whole = index.path.read_text()
        for damage in ('"code":"three"', '"code":-1', '"code":1e999', '"code":[[[[['):
            index.path.write_text(whole.replace('"code":3', damage))
            assert only(index).ended is None

    def test_where_nothing_may_be_written(
        self, index: Index, made: Made, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        entry = only(index)

        def fail(*_: object) -> None:
            raise OSError(30, "Read-only file system")

        monkeypatch.setattr(journal, "append", fail)
        with pytest.raises(CastoffError, match="cannot be written: Read-only file system; set "):
            index.remember([(entry, reported(made.run))])
        with pytest.raises(CastoffError, match="cannot be written: "):
            index.reopen(made.run)

    def test_seen_before_it_was_found_again(self, index: Index, made: Made) -> None:
        before = only(index)
        index.adopt([(made.run, "made", before.added, None, {})])
        index.remember([(before, reported(made.run))])
        assert only(index).ended is None

    def test_forgotten_and_found_again(self, index: Index, made: Made) -> None:
        index.reopen(made.run)
        index.forget([made.run])
        assert index.entries() == []
        index.remember([(Entry(str(made.run.path), "made", 0), reported(made.run))])
        assert index.entries() == []
        index.adopt([(made.run, "made", 0.0, None, {})])
        index.remember([(only(index), reported(made.run))])
        assert only(index).ended == reported(made.run)
        assert index.folders() == [made.run.path.parent]


class TestOrder:
    def test_a_clock_that_was_set_back(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        index = Index(tmp_path / "runs.jsonl")
        runs = [make_run(tmp_path, "same") for _ in range(3)]
        for run, at in zip(runs, (2000.0, 9000.0, 1000.0), strict=True):
            monkeypatch.setattr(time, "time", lambda at=at: at)
            index.add(run, "same")
        assert [entry.path for entry in index.entries()] == [str(run.path) for run in runs]
        assert index.find("same").path == index.newest().path == runs[-1].path

    def test_rediscovered_runs_are_sorted_in(self, index: Index, made: Made, tmp_path: Path) -> None:
        newer = make_run(tmp_path, "made")
        index.add(newer, "made")
        (tmp_path / "moved").mkdir()
        moved = RunDirectory(made.run.path.rename(tmp_path / "moved" / "run"))
        index.adopt([(moved, "made", 0.0, None, {})])
        assert [entry.run.path for entry in index.entries() if entry.is_there] == [moved.path, newer.path]
        assert index.find("made").path == newer.path
        assert index.find("run").path == moved.path


class TestFind:
    def test_none(self, tmp_path: Path) -> None:
        index = Index(tmp_path / "runs.jsonl")
        index.add(make_run(tmp_path, "causets"), "causets")
        for reference, shown in (
            ("causet5", "causet5: no such run; did you mean causets?"),
            ("", "an empty name: no such run"),
        ):
            with pytest.raises(CastoffError) as caught:
                index.find(reference)
            assert str(caught.value) == f"{shown}; `castoff list` shows your runs"

    def test_many_that_begin_so(self, tmp_path: Path) -> None:
        index = Index(tmp_path / "runs.jsonl")
        runs = [make_run(tmp_path, "same") for _ in range(20)]
        for run in runs:
            index.add(run, "same")
        with pytest.raises(CastoffError) as caught:
            index.find("sam")
        newest = ", ".join(run.id for run in runs[:-9:-1])
        message = "sam: 20 runs have ids that begin with this; give more of the id; the newest"
        assert str(caught.value) == f"{message}: {newest}"

    @pytest.mark.parametrize(
        ("job", "words"), [("4711", ["4711"]), ("4711.aurora-pbs-01", ["4711", "4711.aurora-pbs-01"])]
    )
    def test_a_scheduler_s_id(self, index: Index, made: Made, job: str, words: list[str]) -> None:
        made.write("submission.json", {"job": job})
        for word in words:
            assert index.find(word).path == made.run.path
        index.remember([(only(index), reported(made.run))])
        made.write("submission.json", {})
        for word in words:
            assert index.find(word).path == made.run.path

    def test_the_job_of_a_script_submitted_without_castoff(
        self, index: Index, made: Made, tmp_path: Path
    ) -> None:
        (made.run.path / "submission.json").unlink()
        index.add(RunDirectory(made.run.path.rename(tmp_path / "castoff-815.head")), "alone")
        assert index.find("815").id == index.find("815.head").id == "castoff-815.head"

    def test_one_that_cannot_be_read_hides_no_other(self, index: Index, made: Made, tmp_path: Path) -> None:
        broken = make_run(tmp_path, "broken")
        (broken.path / "submission.json").mkdir()
        index.add(broken, "broken")
        made.write("submission.json", {"job": "4711"})
        assert index.find("4711").path == made.run.path

    def test_a_path_needs_no_index(self, made: Made, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        unusable = Index(tmp_path)
        assert unusable.find(f"{made.run.path}/").path == made.run.path
        monkeypatch.chdir(made.run.path / "attempts")
        assert unusable.find("..").path == unusable.find("./..").path == made.run.path
        monkeypatch.chdir(made.run.path)
        assert unusable.find(".").path == unusable.find("./").path == made.run.path
        with pytest.raises(CastoffError, match="the index of runs cannot be read: it is not a regular file"):
            unusable.find("made")

    def test_links_on_the_way_are_followed(self, made: Made, tmp_path: Path) -> None:
        (tmp_path / "short").symlink_to(made.run.path.parent)
        assert Index(tmp_path / "none").find(f"{tmp_path}/short/run").path == made.run.path

    @pytest.mark.parametrize("way", ["path", "id", "name", "beginning", "newest", "job"])
    def test_what_may_not_be_trusted_is_refused(
        self, index: Index, made: Made, way: str, tmp_path: Path
    ) -> None:
        words = {"path": f"{made.run.path}", "id": "run", "name": "made", "beginning": "ru", "job": "local-1"}

        def look() -> RunDirectory:
            return index.newest() if way == "newest" else index.find(words[way])

        made.write("submission.json", {"job": "local-1"})
        assert look().path == made.run.path
        real = made.run.path.rename(tmp_path / "elsewhere")
        made.run.path.symlink_to(real)
        with pytest.raises(CastoffError, match=f"is a link to {real}"):
            look()
        made.run.path.unlink()
        shutil.copytree(real, made.run.path)
        made.run.path.chmod(0o770)
        with pytest.raises(CastoffError, match=r"others may write to it \(mode 0770\)"):
            look()

    def test_several_at_once(self, index: Index, made: Made) -> None:
        assert [run.path for run in index.find_all(["run", "made", str(made.run.path)])] == [made.run.path]
        with pytest.raises(CastoffError) as caught:
            index.find_all(["nothing", "run", "/nowhere"])
        assert [line.partition(":")[0] for line in str(caught.value).splitlines()] == ["nothing", "/nowhere"]


class TestDrafts:
    def test_a_submission_that_never_was(self, tmp_path: Path) -> None:
        """Nothing takes its draft for a run, and the index tells what it was."""
        index = Index(tmp_path / "runs.jsonl")
        with new_run("mine", tmp_path) as draft:
            draft.run.script.touch()
            index.add(draft.final, "mine")
            assert not any(entry.is_there for entry in index.entries())
            for reference in ("mine", draft.final.id):
                with pytest.raises(CastoffError, match="it is being submitted now"):
                    index.find(reference)
            with pytest.raises(CastoffError, match="is not a run directory, as `castoff submit` makes:"):
                index.find(str(draft.run.path))
        draft.run.path.mkdir()
        with pytest.raises(CastoffError, match="interrupted before it reached the scheduler"):
            index.find("mine")
        draft.run.path.rmdir()
        with pytest.raises(CastoffError, match=r"its directory .* is gone"):
            index.find("mine")
