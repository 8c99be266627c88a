"""The index of runs, and how a word finds one."""

from __future__ import annotations

import json
import multiprocessing
from pathlib import Path

import pytest

from launcher.errors import CastoffError
from launcher.index import Index
from launcher.runs import Run, new_run


def make_run(folder: Path, name: str = "job") -> Run:
    run = new_run(name, folder)
    run.script.touch()
    return run


def add_many(index: Index, folder: Path, first: int) -> None:
    for number in range(first, first + 50):
        run = Run(folder / str(number))
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
        assert {run.id for run, _ in index.runs()} == {str(number) for number in range(200)}

    def test_a_line_that_was_cut_off_eats_no_other(self, tmp_path: Path) -> None:
        index = Index(tmp_path / "runs.jsonl")
        runs = [make_run(tmp_path, name) for name in "abc"]
        for run in runs:
            index.add(run, run.id)
            with index.path.open("ab") as file:
                file.write(json.dumps({"path": str(run.path), "name": "half"}).encode()[:-3])
        assert [run.path for run, _ in index.runs()] == [run.path for run in runs]

    @pytest.mark.parametrize("line", ["3", "null", "{}", '{"path": 3, "name": ""}', "\x00", "[", "ÿ"])
    def test_lines_that_are_none(self, tmp_path: Path, line: str) -> None:
        index = Index(tmp_path / "runs.jsonl")
        index.path.write_text(f"{line}\n\n", encoding="latin-1")
        run = make_run(tmp_path)
        index.add(run, "job")
        assert [run.path for run, _ in index.runs()] == [run.path]

    def test_a_name_means_its_newest_run(self, tmp_path: Path) -> None:
        index = Index(tmp_path / "runs.jsonl")
        old, new = make_run(tmp_path, "same"), make_run(tmp_path, "same")
        index.add(old, "same")
        index.add(new, "same")
        assert index.find("same").path == new.path
        assert index.find(old.id).path == old.path
        with pytest.raises(CastoffError, match="2 runs begin so"):
            index.find("sam")

    def test_where_it_is(self, tmp_path: Path) -> None:
        told = {"HOME": "/h", "XDG_STATE_HOME": "/s"}
        assert Index.of(told).path == Path("/s/castoff/runs.jsonl")
        assert Index.of({"HOME": "/h", "XDG_STATE_HOME": ""}).path == Path(
            "/h/.local/state/castoff/runs.jsonl"
        )
