"""Written graphs are there whole or not at all, are written once, and anew if what makes them changes."""

from __future__ import annotations

import errno
import importlib
import os
import pickle
import shutil
import signal
import sys
import tracemalloc
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from castoff.trainers.configuration.fields import ConfigError
from castoff.trainers.gnn.graphs import building
from castoff.trainers.gnn.graphs.building import built
from castoff.trainers.gnn.graphs.dataset import Graphs
from castoff.trainers.gnn.graphs.making import FromFiles
from castoff.trainers.gnn.graphs.processes import records
from castoff.trainers.gnn.graphs.saved import Saved, read_about, write
from castoff.trainers.gnn.graphs.settings import Files
from tests.trainers.gnn.graphs import users, written
from tests.trainers.toys import Ranks, run

ORDERS = written.orders(4)


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return written.julia_zarr(tmp_path / "a.zarr", written.one_by_one(ORDERS))


def build(store: Path, **fields: Any) -> Path:
    making = FromFiles(Files(files=[str(store)], **{"targets": ("dimension",), **fields}))
    return built(making, store.parent / "out", 1, 10)


def whole(folder: Path) -> bool:
    saved = Saved(folder)
    return [len(saved[index].x) for index in range(len(saved))] == list(map(len, ORDERS))


def left(folder: Path) -> list[str]:
    return sorted(each.name for each in folder.iterdir() if not each.name.endswith(".lock"))


@pytest.fixture
def makings(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Grows by one whenever graphs are made."""
    made: list[int] = []
    usual = records

    def counted(*arguments: Any) -> Iterator[bytes | None]:
        made.append(len(made))
        return usual(*arguments)

    monkeypatch.setattr(building, "records", counted)
    return made


def test_they_are_written_once(store: Path, makings: list[int]) -> None:
    first = build(store)
    assert build(store) == first and whole(first) and len(makings) == 1
    assert left(first.parent) == [first.name]


@pytest.mark.parametrize("change", ["settings", "file", "filter"])
def test_another_way_of_making_them_is_another_folder(store: Path, change: str) -> None:
    first = build(store)
    fields: dict[str, Any] = {}
    if change == "settings":
        fields = {"edges": "relations"}
    elif change == "filter":
        fields = {"pre_filter": users.given}
    else:
        os.utime(store / "cset_1" / "adj" / "0.0", ns=(5, 5))
    second = build(store, **fields)
    assert second != first and whole(first) and whole(second)


def test_a_changed_transform_is_not_served_what_the_old_one_made(
    store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(store.parent))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    found = []
    for factor in (2, 3):
        text = f"def scale(graph):\n    graph.y *= {factor}\n    return graph\n"
        (store.parent / "a_users_scale.py").write_text(text)
        sys.modules.pop("a_users_scale", None)
        importlib.invalidate_caches()
        scale = importlib.import_module("a_users_scale").scale
        found.append(Saved(build(store, pre_transform=scale))[0].y.tolist())
    sys.modules.pop("a_users_scale")
    assert found == [[[4.0]], [[6.0]]]


@pytest.mark.parametrize("damage", ["cut", "no table", "table", "empty"])
def test_a_damaged_folder_is_written_again(
    store: Path, damage: str, makings: list[int], caplog: pytest.LogCaptureFixture
) -> None:
    folder = build(store)
    if damage == "cut":
        (folder / "graphs").write_bytes((folder / "graphs").read_bytes()[:-1])
    elif damage == "table":
        (folder / "about.json").write_text("{}")
    else:
        for each in folder.iterdir():
            if damage == "empty" or each.name == "about.json":
                each.unlink()
    assert read_about(folder) is None
    with pytest.raises(ConfigError, match="remove it"):
        Saved(folder)
    assert build(store) == folder and whole(folder) and len(makings) == 2
    assert "is damaged, and is written again" in caplog.text and left(folder.parent) == [folder.name]


def test_a_damaged_record_is_reported_when_it_is_read(store: Path) -> None:
    folder = build(store)
    content = bytearray((folder / "graphs").read_bytes())
    content[:8] = b"\xff" * 8
    (folder / "graphs").write_bytes(content)
    with pytest.raises(ConfigError, match=r"graph 0 is not a graph's record.*remove it"):
        Saved(folder)[0]


def test_a_folder_that_is_removed_in_a_training_is_reported(store: Path) -> None:
    """As a loader worker finds it, which maps the files anew."""
    saved = Saved(build(store))
    copy = pickle.loads(pickle.dumps(saved))
    whole_one = len(saved[0].x)
    shutil.rmtree(saved.folder)
    assert len(saved[0].x) == whole_one, "what is mapped stays"
    with pytest.raises(ConfigError, match=r"cannot be read any more: No such file.*written again"):
        copy[0]


def test_a_transform_that_gives_no_graph_is_reported(store: Path) -> None:
    graphs = Graphs(build(store), lambda graph: None)
    with pytest.raises(
        ConfigError, match=r"data\.transform: returned None, but must return a torch_geometric Data"
    ):
        graphs[0]


def test_what_is_not_ours_is_left_alone(store: Path) -> None:
    folder = build(store)
    (folder / "about.json").write_text("{}")
    (folder / "thesis.tex").write_text("all of it")
    with pytest.raises(ConfigError, match=r"holds something else; choose another data\.output"):
        build(store)
    assert (folder / "thesis.tex").read_text() == "all of it"


def test_nothing_is_left_of_what_failed(store: Path) -> None:
    with pytest.raises(ConfigError, match="no such thing"):
        build(store, targets=(), reader=users.read, pre_transform=users.stumbles)
    with pytest.raises(ConfigError, match=r"data\.pre_filter keeps none of 4 samples"):
        build(store, pre_filter=users.nothing)
    assert left(store.parent / "out") == []


def test_a_store_that_grows_while_it_is_read_is_refused(store: Path) -> None:
    def growing(graph: Any) -> Any:
        (store / "more").touch()
        return graph

    with pytest.raises(ConfigError, match="was changed while it was read"):
        build(store, pre_transform=growing)
    assert left(store.parent / "out") == []


@pytest.mark.parametrize(
    ("number", "said"),
    [(errno.ENOSPC, "too little room .* bytes are free there"), (errno.EACCES, "cannot be written")],
)
def test_a_disk_that_does_not_take_them_is_reported(
    store: Path, number: int, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(folder: Path, *_: Any) -> int:
        raise OSError(number, os.strerror(number), str(folder))

    monkeypatch.setattr(building, "write", refused)
    with pytest.raises(ConfigError, match=rf"data\.output: .*{said}"):
        build(store)
    assert left(store.parent / "out") == []


def test_memory_does_not_grow_with_the_graphs(tmp_path: Path) -> None:
    tracemalloc.start()
    try:
        write(tmp_path, (bytes(100_000) for _ in range(100)), {})
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert most < 1_000_000


def test_an_output_that_is_a_file_is_reported(store: Path) -> None:
    (store.parent / "out").write_text("")
    with pytest.raises(ConfigError, match=r"data\.output: cannot be written"):
        build(store)


# --- Processes ------------------------------------------------------------------------------------


class Change:
    """Changes nothing, and ends its process at the third graph, where it is set to."""

    def __init__(self) -> None:
        self.seen = 0

    def __call__(self, graph: Any) -> Any:
        self.seen += 1
        if self.seen == 3 and "CASTOFF_TEST_KILLED" in os.environ:
            os.kill(os.getpid(), signal.SIGKILL)
        return graph

    def __getstate__(self) -> dict[str, Any]:
        return {}


def one_of_several(store: Path) -> tuple[str, int]:
    change = Change()
    return str(build(store, pre_transform=change)), change.seen


def test_one_that_is_killed_leaves_nothing_that_is_taken_for_whole(
    store: Path, tmp_path: Path, for_real: None
) -> None:
    ranks = Ranks(tmp_path / "ranks", 1, {"CASTOFF_TEST_KILLED": "1"})
    ranks.start(one_of_several, store)
    assert ranks.end() == [-signal.SIGKILL]
    (draft,) = left(store.parent / "out")
    assert ".draft-" in draft and (store.parent / "out" / draft / "graphs").exists()
    folder, seen = one_of_several(store)
    assert whole(Path(folder)) and seen == 4 and left(store.parent / "out") == [Path(folder).name]


def test_of_two_at_once_one_writes(store: Path, tmp_path: Path, for_real: None) -> None:
    answers = run(one_of_several, store, folder=tmp_path / "ranks", world_size=2)
    (folder,) = {folder for folder, _ in answers}
    assert sorted(seen for _, seen in answers) == [0, 4] and whole(Path(folder))
