from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import pytest
import torch
from torch.utils.data import Subset

from castoff.trainers.checkpointing.differences import compare
from castoff.trainers.configuration.config import Config
from castoff.trainers.configuration.fields import ConfigError
from castoff.trainers.configuration.flattened import fields as fields_of
from castoff.trainers.distributed.process_group import RankContext
from castoff.trainers.sedd.alphabet import RESIDUES, decode
from castoff.trainers.sedd.parts import Parts, divided, doubts, opened
from castoff.trainers.sedd.settings import Data
from castoff.trainers.sedd.stream import ProteinStream
from castoff.trainers.sedd.task import SeddTask
from tests.trainers.sedd.stores import store_with

if TYPE_CHECKING:
    from collections.abc import Callable, Sized

ALONE = RankContext(0, 1, torch.device("cpu"), alone=True)


def fasta(path: Path, first: int, number: int) -> str:
    """Proteins of which no two are the same."""
    proteins = [f">{at}\n{RESIDUES[at // 20]}{RESIDUES[at % 20]}" for at in range(first, first + number)]
    path.write_text("\n".join(proteins))
    return str(path)


def sizes(parts: Parts) -> list[int]:
    return [len(cast("Sized", part)) for part in parts]


def letters(part: Any) -> list[str]:
    return [decode(part[index].tokens) for index in range(len(part))]


def test_shares_of_one_file_have_nothing_in_common(tmp_path: Path) -> None:
    data = Data(datafile=fasta(tmp_path / "a.fasta", 0, 50), split=(0.6, 0.3, 0.1))
    parts = divided(opened(data, ALONE), data)
    assert sizes(parts) == [30, 15, 5]
    assert len({each for part in parts for each in letters(part)}) == 50


def test_a_file_of_its_own_is_all_of_a_part_and_its_share_is_trained_on(tmp_path: Path) -> None:
    data = Data(
        datafile=fasta(tmp_path / "a.fasta", 0, 50),
        validation_datafile=fasta(tmp_path / "b.fasta", 60, 7),
        split=(0.6, 0.3, 0.1),
    )
    parts = divided(opened(data, ALONE), data)
    assert sizes(parts) == [45, 7, 5]
    assert letters(parts.validation) != sorted(letters(parts.validation))
    assert sorted(letters(parts.validation)) == ["EA", "EC", "ED", "EE", "EF", "EG", "EH"]
    assert sizes(divided(opened(data, ALONE), data, validated=3)) == [45, 3, 5]


def test_parts_that_nobody_may_have_meant_are_reported(tmp_path: Path) -> None:
    same = fasta(tmp_path / "a.fasta", 0, 50)
    (tmp_path / "b.fasta").write_bytes(Path(same).read_bytes())

    def given(**fields: Any) -> list[str]:
        data = Data(datafile=same, **fields)
        sources = opened(data, ALONE)
        return [each.split(",")[0] for each in doubts(divided(sources, data), sources, data)]

    assert given(split=(0.9, 0.06, 0.04)) == given(split=(1.0, 0.0, 0.0)) == []
    assert given() == ["data.split: 0.01 of 50 proteins are no whole protein" for _ in ("validation", "test")]
    assert given(validation_datafile=str(tmp_path / "b.fasta"), split=(0.9, 0.01, 0.09)) == [
        "data.validation_datafile: holds the same proteins as data.datafile"
    ]


def test_a_file_to_validate_with_counts_beside_made_up_ones_too(tmp_path: Path) -> None:
    data = Data(synthetic=10, validation_datafile=fasta(tmp_path / "b.fasta", 60, 7), split=(0.5, 0.3, 0.2))
    assert sizes(divided(opened(data, ALONE), data)) == [8, 7, 2]


def test_the_field_that_names_no_file_is_reported(tmp_path: Path) -> None:
    data = Data(test_datafile=str(tmp_path / "none.fasta"))
    with pytest.raises(ConfigError, match=r"data\.test_datafile: is '.*none.fasta', but there is nothing"):
        opened(data, ALONE)


def test_synthetic_proteins_without_a_file() -> None:
    data = Data(synthetic=10, split=(0.5, 0.3, 0.2))
    assert sizes(divided(opened(data, ALONE), data)) == [5, 3, 2]


def test_a_file_that_is_not_there() -> None:
    with pytest.raises(ConfigError, match=r"data.datafile: is '/nowhere.fasta', but there is nothing at"):
        opened(Data(datafile="/nowhere.fasta"), ALONE)


def test_rank_0_decides_where_the_store_is(tmp_path: Path) -> None:
    """Which makes it: of thousands of ranks none else looks at the file."""
    store = store_with(tmp_path, ["ACD"])

    class Another(RankContext):
        def on_main(self, decide: Callable[[], Any]) -> Any:
            return str(store.folder)

    context = Another(1, 2, torch.device("cpu"), alone=True)
    assert opened(Data(datafile="not seen here"), context).train.digest == store.digest


def test_a_run_does_not_resume_with_other_proteins(tmp_path: Path) -> None:
    """The path is the same, and so is the name."""
    path = tmp_path / "a.fasta"

    def task(first: int) -> SeddTask:
        made = SeddTask(data={"datafile": fasta(path, first, 10)})
        made.setup(ALONE)
        return made

    kept = task(0).state_dict()
    task(0).load_state_dict(kept)
    with pytest.raises(ConfigError, match=r"data.datafile: .*a.fasta holds other proteins"):
        task(1).load_state_dict(kept)


def test_a_run_does_not_resume_with_other_validation_proteins(tmp_path: Path) -> None:
    """Else the best model would be the one that met the easiest proteins."""
    mine = fasta(tmp_path / "a.fasta", 0, 10)

    def task(first: int) -> SeddTask:
        data = {"datafile": mine, "validation_datafile": fasta(tmp_path / "b.fasta", first, 5)}
        made = SeddTask(data=data)
        made.setup(ALONE)
        return made

    kept = task(20).state_dict()
    task(20).load_state_dict(kept)
    with pytest.raises(ConfigError, match=r"data.validation_datafile: .*b.fasta holds other proteins"):
        task(30).load_state_dict(kept)


def test_a_stream_and_what_is_held_out_of_it(tmp_path: Path) -> None:
    data = Data(datafile=fasta(tmp_path / "a.fasta", 0, 50), split=(0.6, 0.3, 0.1), streaming=True)
    train, validation, test = divided(opened(data, ALONE), data)
    assert not isinstance(train, Subset)
    seen = [decode(each.tokens) for each in train]
    assert [len(seen), len(validation), len(test)] == [30, 15, 5]
    assert len({*seen, *letters(validation), *letters(test)}) == 50


def test_nothing_made_up_is_streamed() -> None:
    data = Data(synthetic=10, streaming=True)
    with pytest.raises(ConfigError, match=r"data.streaming: is true, .* name a data.datafile"):
        divided(opened(data, ALONE), data)


def test_proteins_outside_the_limits_are_left_out(tmp_path: Path) -> None:
    path = tmp_path / "a.fasta"
    path.write_text(">1\nA\n>2\nAXX\n>3\nACD\n>4\nXACD\n")
    data = Data(datafile=str(path), min_length=2, max_unknown=0.25)
    train = opened(data, ALONE).train
    assert [decode(train[index]) for index in range(len(train))] == ["ACD", "XACD"]


@pytest.mark.parametrize("streaming", [False, True])
def test_another_seed_divides_otherwise(streaming: bool, tmp_path: Path) -> None:
    path = fasta(tmp_path / "a.fasta", 0, 50)
    held_out = []
    for seed in (0, 0, 1):
        data = Data(datafile=path, split=(0.6, 0.3, 0.1), split_seed=seed, streaming=streaming)
        held_out.append(letters(divided(opened(data, ALONE), data).validation))
    assert held_out[0] == held_out[1] != held_out[2]


@pytest.mark.parametrize("streaming", [False, True])
def test_no_part_has_longer_proteins_than_it_may(streaming: bool, tmp_path: Path) -> None:
    files = {"datafile": "a.fasta", "validation_datafile": "b.fasta", "test_datafile": "c.fasta"}
    for name in files.values():
        (tmp_path / name).write_text(">1\nACDEFG\n")
    places: Any = {field: str(tmp_path / name) for field, name in files.items()}
    data = Data(**places, max_length=4, streaming=streaming)
    for part in divided(opened(data, ALONE), data):
        samples = list(part) if isinstance(part, ProteinStream) else [part[0]]
        assert [len(each.tokens) for each in samples] == [4]


def test_each_part_has_the_file_of_its_own(tmp_path: Path) -> None:
    data = Data(
        datafile=fasta(tmp_path / "a.fasta", 0, 50),
        validation_datafile=fasta(tmp_path / "b.fasta", 60, 7),
        test_datafile=fasta(tmp_path / "c.fasta", 80, 3),
    )
    parts = divided(opened(data, ALONE), data, validated=2)
    assert sizes(parts) == [50, 2, 3]
    assert letters(parts.test) == ["FA", "FC", "FD"]


def test_a_file_may_be_moved(tmp_path: Path) -> None:
    """Its proteins are what counts."""

    def given(**data: Any) -> dict[str, Any]:
        fields = {"path": "x", "num_steps": 1, "batch_size": 1, "optimizer_type": "y"}
        return dict(fields_of(Config.of({"training": fields, "task_kwargs": {"data": data}}), 1))

    before, now = given(datafile="a.fasta", max_length=8), given(datafile="/b.fasta", max_length=8)
    assert compare(before, now, "it", 1, SeddTask()).refused == []
    assert compare(before, given(datafile="a.fasta", max_length=9), "it", 1, SeddTask()).refused
