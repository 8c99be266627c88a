"""What torch.save wrote is read as torch.load would, but runs nothing and keeps nothing."""

from __future__ import annotations

import collections
import contextlib
import os
import zipfile
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as some

from castoff.trainers.configuration.fields import ConfigError
from castoff.trainers.sedd.store import saved as saved_module
from castoff.trainers.sedd.store.saved import SavedSequences, is_saved


def saved(content: Any, folder: Path, protocol: int = 2) -> Path:
    path = folder / "processed_uniref50.pt"
    torch.save(content, path, pickle_protocol=protocol)
    return path


def read(path: Path) -> list[str]:
    assert is_saved(path)
    with SavedSequences(path, path.parent) as sequences:
        return list(sequences.texts())


def refused(content: Any, folder: Path) -> str:
    with pytest.raises(ConfigError) as error:
        read(saved(content, folder))
    assert str(folder) in str(error.value)
    return str(error.value)


LETTERS = some.text("ACDEFGHIKLMNPQRSTVWY", max_size=8)
EXTRA = some.dictionaries(
    some.sampled_from(["id", "length", "sequence_id", "list", "of"]),
    some.one_of(
        LETTERS, some.integers(), some.none(), some.lists(some.integers(), max_size=3), some.floats()
    ),
)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow], max_examples=60)
@given(sequences=some.lists(LETTERS, max_size=12), data=some.data())
def test_reads_every_layout_that_the_seed_has(
    sequences: list[str], data: some.DataObject, tmp_path: Path
) -> None:
    content: Any = list(sequences)
    if data.draw(some.booleans()):
        content = [{**data.draw(EXTRA), "sequence": each, **data.draw(EXTRA)} for each in sequences]
    if data.draw(some.booleans()):
        content = {**data.draw(EXTRA), data.draw(some.sampled_from(["sequences", "data"])): content}
    path = saved(content, tmp_path, data.draw(some.sampled_from([2, 3, 4, 5])))
    assert read(path) == sequences


@pytest.mark.parametrize("number", [1, 2, 999, 1000, 1001, 2500, 9_001])
@pytest.mark.parametrize("protocol", [2, 4])
def test_reads_more_than_is_pickled_at_once(number: int, protocol: int, tmp_path: Path) -> None:
    sequences = [f"MK{'ACDEF'[n % 5]}{n}" for n in range(number)]
    sequences += sequences[::7]  # the same objects again, which a pickle refers to
    assert read(saved(sequences, tmp_path, protocol)) == sequences
    proteins = {"version": 1, "sequences": [{"id": each[2:], "sequence": each} for each in sequences]}
    assert read(saved(proteins, tmp_path, protocol)) == sequences


def test_blocks_are_fasta(tmp_path: Path) -> None:
    path = saved(["MKV", " A C\n>D", "é"], tmp_path)
    with SavedSequences(path, tmp_path) as sequences:
        assert list(sequences.blocks(1)) == [b">\nMKV\n", b">\nAC>D\n", b">\n?\n"]
        assert 0 < sequences.consumed <= path.stat().st_size


class Harmful:
    def __reduce__(self) -> Any:
        return os.mkdir, (os.environ["HARM"],)


def test_nothing_is_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HARM", str(tmp_path / "harm"))
    assert "posix.mkdir" in refused(["MKV", Harmful()], tmp_path)
    assert not (tmp_path / "harm").exists()


@pytest.mark.parametrize(
    ("content", "word"),
    [
        (torch.zeros(3), "which number is which amino acid"),
        ({"sequences": [torch.zeros(3, dtype=torch.uint8)]}, "which number is which amino acid"),
        (collections.OrderedDict(sequences=["MK"]), "collections.OrderedDict"),
        ({"sequences": [[1, 2]]}, "a list in place of a sequence"),
        ({"sequences": ["MK", 3]}, "a number in place of a sequence"),
        ([{"id": "a", "seq": "MK"}], r"a dict of id (text), seq (text)"),
        ({"sequences": {"a": "MK"}}, "a dict of sequences (a dict), but must hold a list of sequences"),
        ({"train": ["MK"]}, "a dict of train (a list)"),
        ({"sequences": ["MK"], "data": ["MV"]}, "both sequences and data"),
        ("MKV", "the text 'MKV'"),
        (("MKV", "A"), "a tuple"),
        (["MK", *[{"sequence": "MV"}] * 2], "a reference to an earlier object"),
        ({"sequences": {"MKV"}}, "an object of __builtin__.set"),
    ],
)
def test_anything_else_is_reported(content: Any, word: str, tmp_path: Path) -> None:
    assert word in refused(content, tmp_path)


def test_a_file_that_is_not_whole_is_reported(tmp_path: Path) -> None:
    path = saved(["MKV"] * 100, tmp_path)
    path.write_bytes(path.read_bytes()[:-10])
    with pytest.raises(ConfigError, match="is damaged, incomplete, or written by"):
        read(path)


def test_a_pickle_that_is_damaged_is_reported(tmp_path: Path) -> None:
    path = saved(["MKV", "ACD"], tmp_path)
    whole = path.read_bytes()
    path.write_bytes(whole.replace(b"X\x03\x00\x00\x00MKV", b"\xff\x03\x00\x00\x00MKV"))
    with pytest.raises(ConfigError, match="is damaged"):
        read(path)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow], max_examples=100)
@given(place=some.integers(0, 400), byte=some.integers(0, 255), cut=some.booleans())
def test_whatever_is_in_a_file_nothing_else_happens(place: int, byte: int, cut: bool, tmp_path: Path) -> None:
    """Its bytes are those of a saved list, changed."""
    path = saved({"sequences": ["MKV", {"sequence": "ACD"}] * 3, "more": [1, (2, None)]}, tmp_path)
    begin = saved_module._where_the_pickle_begins(path)
    whole = bytearray(path.read_bytes())
    whole[begin + place % 200] = byte
    path.write_bytes(whole[: -place - 1] if cut else whole)
    with contextlib.suppress(ConfigError):
        assert all(isinstance(each, str) for each in read(path))


def test_another_zip_file_is_none_of_them(tmp_path: Path) -> None:
    path = tmp_path / "proteins.zip"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("proteins.fasta", ">a\nMKV\n")
    assert not is_saved(path)
    path.rename(tmp_path / "proteins.pt")
    with pytest.raises(ConfigError, match="is a zip file, but not one"):
        read(tmp_path / "proteins.pt")
