"""What `data` may say, and what is wrong with it, in words and all at once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from castoff.trainers.configuration.pyobject import PyObject
from castoff.trainers.gnn.graphs.settings import Files, Generated, read


def problems_of(data: Any) -> str:
    problems: list[str] = []
    assert read(data, problems) is None
    return "\n".join(problems)


def right(data: Any) -> Files | Generated:
    problems: list[str] = []
    settings = read(data, problems)
    assert settings is not None and not problems, problems
    return settings


@pytest.fixture
def store(tmp_path: Path) -> str:
    (tmp_path / "a.zarr").mkdir()
    return str(tmp_path / "a.zarr")


def some(value: Any, *_: Any) -> Any:
    return value


def test_quantumgravs_fields_are_all_taken(store: str, tmp_path: Path) -> None:
    here = f"{__name__}.some"
    settings = right(
        {
            "pre_transform": PyObject(here),
            "transform": None,
            "pre_filter": None,
            "reader": PyObject(here),
            "files": [store],
            "output": str(tmp_path),
            "validate_data": True,
            "n_processes": 8,
            "chunksize": 500,
            "shuffle": True,
            "subset": 0.5,
            "split": [0.8, 0.1, 0.1],
            "float_type": PyObject("torch.float64"),
            "int_type": torch.int32,
        }
    )
    assert isinstance(settings, Files) and settings.split == (0.8, 0.1, 0.1)


def test_generated_sets_are_read_by_their_own_settings() -> None:
    settings = right({"causets": {"number": 12}, "split": [0.5, 0.25, 0.25]})
    assert isinstance(settings, Generated) and settings.causets.number == 12
    said = problems_of({"causets": {"numbr": 12}, "shuffle": True, "split": [1, 0.5, 0]})
    assert "data.causets.numbr: there is no such field; did you mean number?" in said
    assert (
        "data.shuffle: there is no such field" in said
        and "data.split: is [1, 0.5, 0], with the sum 1.5" in said
    )


def test_paths_from_python_are_taken(store: str) -> None:
    settings = right({"files": (Path(store),), "output": Path("here"), "targets": ["y"]})
    assert isinstance(settings, Files) and settings.files == [store] and settings.output == "here"


def test_a_variable_in_a_path_is_put_in_its_place(store: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CASTOFF_DATA", str(Path(store).parent))
    right({"files": ["$CASTOFF_DATA/a.zarr"], "targets": ["y"]})
    assert "CASTOFF_NOWHERE is not set" in problems_of(
        {"files": ["$CASTOFF_NOWHERE/a.zarr"], "targets": ["y"]}
    )


def test_all_problems_come_at_once(store: str) -> None:
    said = problems_of(
        {
            "files": [store, "nowhere.zarr", store],
            "chunksiz": 3,
            "n_processes": "many",
            "split": [0.5, 0.1, 0.1],
            "subset": -1,
            "float_type": "float31",
            "pre_filter": "keep",
            "transform": PyObject("nowhere.at.all"),
        }
    )
    for part in (
        "data.chunksiz: there is no such field; did you mean chunksize?",
        "data.n_processes: is 'many', but takes a whole number of at least 0",
        "data.files[1]: is 'nowhere.zarr', but there is nothing at /",
        f"data.files[2]: is {store!r}, which is data.files[0] already",
        "data.split: is [0.5, 0.1, 0.1], with the sum 0.7",
        "data.subset: is -1",
        "data.float_type: is 'float31', but takes one of float16",
        "data.pre_filter: is 'keep'; write !pyobject",
        "data.transform: !pyobject nowhere.at.all: there is no module nowhere",
        "data.targets: is missing",
    ):
        assert part in said


def test_of_many_missing_files_the_first_are_named() -> None:
    said = problems_of({"files": [f"{number}.zarr" for number in range(40)], "targets": ["y"]})
    assert "data.files[4]" in said and "data.files[5]" not in said and "and 35 more" in said


@pytest.mark.parametrize(
    ("data", "said"),
    [
        ({}, "neither files (stores to read) nor causets"),
        ([], "data: holds []"),
        ({"files": ["a"], "causets": {}}, "data.causets: is set, and data.files, too"),
        ({"files": []}, "data.files: is []"),
        ({"files": "a.zarr"}, "data.files: is 'a.zarr', but takes a list of texts"),
        ({"causets": {}, "split": [0, 0.5, 0.5]}, "leaves nothing to train on"),
        ({"causets": {}, "split": [0.8, 0.2]}, "data.split: is [0.8, 0.2], but takes a list of 3"),
        ({"causets": {}, "split": [1.2, -0.1, -0.1]}, "data.split: is [1.2, -0.1, -0.1]"),
        ({"files": ["."], "targets": ["y"], "subset": 2.5}, "data.subset: is 2.5"),
        ({"files": ["."], "targets": ["y"], "subset": 0}, "data.subset: is 0"),
        (
            {"files": ["."], "targets": ["y"], "edges": "all"},
            "data.edges: is 'all', but takes one of links, relations",
        ),
    ],
)
def test_what_cannot_be_is_reported(data: Any, said: str) -> None:
    assert said in problems_of(data)


def test_what_the_built_in_reader_takes_is_no_field_beside_another(store: str) -> None:
    said = problems_of({"files": [store], "reader": some, "targets": ["y"], "transposed": False})
    assert "data.targets: is for the built-in reader" in said and "drop targets and transposed" in said
