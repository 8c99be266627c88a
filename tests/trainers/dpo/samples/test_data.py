"""Pairs and chains as samples and batches."""

from __future__ import annotations

import json
import pickle
import shutil
from pathlib import Path
from typing import Any

import numpy
import pytest
import torch

from castoff.trainers.configuration.fields import ConfigError
from castoff.trainers.dpo.alphabet import UNKNOWN
from castoff.trainers.dpo.samples.batch import Sample
from castoff.trainers.dpo.samples.data import ChainSet, PairSet, Reordered, collated
from castoff.trainers.dpo.settings import Chains, Pairs
from castoff.trainers.dpo.structures.synthetic import write_structures
from tests.trainers.dpo.helices import helix, structure, written

SEQUENCE = "ACDEFGHIKLMNPQRSTVWYACDE"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """two.pdb has chains A and B, of 24 and 12 residues; one.cif.gz has A, of 15."""
    chain = helix("A", SEQUENCE)
    chain[7].remove_atom("O", "\0", chain[7][3].element)
    written(structure(chain, helix("B", "GHIK" * 3, 15.0)), tmp_path / "two.pdb")
    written(structure(helix("A", "LMNPQ" * 3)), tmp_path / "one.cif.gz")
    return tmp_path


def pair(**fields: Any) -> dict[str, Any]:
    given = {"pdb_file": "two.pdb", "preferred_seq": SEQUENCE, "unpreferred_seq": "W" + SEQUENCE[1:]}
    return {**given, "chain_id": "A", **fields}


OTHER = {"pdb_file": "one.cif.gz", "preferred_seq": "LMNPQ" * 3, "unpreferred_seq": "LMNPA" * 3}


def pairs(folder: Path, *given: Any, seed: int = 0, name: str = "pairs.json", **settings: Any) -> PairSet:
    (folder / name).write_text(json.dumps(list(given)))
    data = Pairs(train_data=str(folder / name), **settings)
    return PairSet(data.train_data, data, seed)


def same(one: Sample, other: Sample) -> bool:
    return all(torch.equal(mine, its) for mine, its in zip(one, other, strict=True))


def test_a_pair_as_a_sample(folder: Path) -> None:
    given = pair(preferred_seq="W" * 24, unpreferred_seq="Y" * 24, mutable_ranges=[[5, 9]], chain_id=None)
    given |= {"design_chains": ["A"], "fixed_chains": ["B"]}
    atoms, resolved, chains, positions, sequences, designed, order, reference = pairs(folder, given)[0]
    assert atoms.shape == (36, 4, 3) and atoms.dtype == torch.float32
    assert torch.nonzero(~resolved).flatten().tolist() == [7]
    assert chains.tolist() == [0] * 24 + [1] * 12 and chains.dtype == torch.int64
    assert positions.tolist() == [*range(24), *range(12)] and positions.dtype == torch.int64
    assert torch.nonzero(designed).flatten().tolist() == [5, 6, 8, 9]
    native = torch.tensor(["ACDEFGHIKLMNPQRSTVWY".index(letter) for letter in SEQUENCE + "GHIK" * 3])
    for row, token in zip(sequences, (18, 19), strict=True):
        assert torch.equal(row, torch.where(designed, token, native))
    assert sorted(order.tolist()) == list(range(36))
    assert sorted(order[designed].tolist()) == [32, 33, 34, 35]
    assert torch.equal(reference, torch.zeros(2))


def test_orders_follow_from_seed_and_pair(folder: Path) -> None:
    several = pairs(folder, pair(), OTHER, pair(mutable_positions=[0, 3]))
    moved = pairs(folder, OTHER, pair(), name="moved.json")
    assert same(several[0], several[0])
    assert same(several[0], moved[1]) and same(several[1], moved[0])
    assert not torch.equal(several[0].order, pairs(folder, pair(), seed=1)[0].order)
    assert not torch.equal(several[0].order.argsort(), several[2].order.argsort())
    torch.manual_seed(3)
    before = torch.get_rng_state()
    assert same(several[2], several[2])
    assert torch.equal(before, torch.get_rng_state())


def test_orders_of_an_epoch(folder: Path) -> None:
    fixed = pairs(folder, pair(), OTHER)
    anew = Reordered(fixed)
    orders = []
    for epoch in range(3):
        anew.set_epoch(epoch)
        assert same(anew[0], anew[0])
        assert same(anew[0]._replace(order=fixed[0].order), fixed[0])
        orders.append(anew[0].order)
    designed = fixed[0].designed
    for order in orders:  # residues that are designed still come last
        assert order[designed].min() > order[~designed].max()
    assert len({tuple(order.tolist()) for order in (fixed[0].order, *orders)}) == 4
    anew.set_epoch(0)
    assert torch.equal(anew[0].order, orders[0])


def test_lengths_and_what_is_shared(folder: Path) -> None:
    found = pairs(folder, pair(), OTHER, pair(mutable_positions=[0, 3]))
    assert found.lengths == [24, 15, 24] == [len(found[number].resolved) for number in range(3)]
    assert found.things[0] == found.things[2] != found.things[1]
    assert len(found) == len(set(found.digests)) == 3


def test_digests_are_of_what_is_learned(folder: Path) -> None:
    first = pairs(folder, pair(), OTHER)
    moved = folder / "moved"
    moved.mkdir()
    for name in ("two.pdb", "one.cif.gz"):
        shutil.copy(folder / name, moved / f"other-{name}")
    given = [{**each, "pdb_file": f"other-{each['pdb_file']}"} for each in (pair(description="!"), OTHER)]
    assert pairs(moved, *given).digests == first.digests
    assert pairs(folder, OTHER, pair()).digests != first.digests
    assert pairs(folder, pair(mutable_positions=[0]), OTHER).digests[0] != first.digests[0]
    text = (moved / "other-two.pdb").read_text()
    (moved / "other-two.pdb").write_text(text + "REMARK\n")
    changed = pairs(moved, *given)
    assert [mine == its for mine, its in zip(changed.digests, first.digests, strict=True)] == [False, True]


def test_what_rank_0_has_read_travels(folder: Path) -> None:
    found = pairs(folder, pair(), OTHER)
    (folder / "two.pdb").unlink()
    (folder / "pairs.json").unlink()
    copy = pickle.loads(pickle.dumps(found))
    assert all(same(found[number], copy[number]) for number in range(2))
    assert copy.digests == found.digests
    chains = ChainSet(folder, Chains(structures=str(folder), min_length=1))
    assert len(pickle.loads(pickle.dumps(chains))) == len(chains)


def test_files_are_looked_for_where_they_may_be(
    folder: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    with pytest.raises(ConfigError) as caught:
        pairs(elsewhere, *[pair()] * 7)
    assert len(caught.value.problems) == 6
    assert caught.value.problems[0] == (
        f"pair 1 (two.pdb): there is no such file in {elsewhere} or {Path.cwd()}; set data.structures to the "
        "folder that it is in"
    )
    assert len(pairs(elsewhere, pair(), structures=str(folder))) == 1
    assert len(pairs(elsewhere, pair(pdb_file=str(folder / "two.pdb")))) == 1
    monkeypatch.setenv("PLACE", str(folder))
    assert len(pairs(elsewhere, pair(pdb_file="$PLACE/two.pdb"))) == 1
    monkeypatch.chdir(folder)
    assert len(pairs(elsewhere, pair())) == 1
    with pytest.raises(ConfigError, match=f"no such file in {elsewhere};"):
        pairs(elsewhere, pair(), structures=str(elsewhere))


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("~nobody-of-that-name/a.pdb", "the home folder of ~nobody-of-that-name is unknown here; write the"),
        ("a" * 300, "a cannot be read: File name too long; "),
    ],
)
def test_a_path_that_cannot_be_looked_up_is_reported(name: str, words: str, folder: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        pairs(folder, pair(), pair(pdb_file=name))
    (problem,) = caught.value.problems
    assert problem.startswith(f"pair 2 ({name}): ")
    assert words in problem


def test_many_files_are_not_compared_with_each_other(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    names = [f"{number}.pdb" for number in range(40)]
    for name in names:
        written(structure(helix("A", "ACDEF"), helix("B", "GHIK", 15.0)), folder / name)
    compared = 0
    before = Path.__eq__

    def counted(one: Path, other: object) -> bool:
        nonlocal compared
        compared += 1
        return before(one, other)

    monkeypatch.setattr(Path, "__eq__", counted)
    given = [pair(pdb_file=name, preferred_seq="ACDEF", unpreferred_seq="WCDEF") for name in names]
    assert len(pairs(folder, *given)) == 40
    assert compared < 10 * len(names)


def test_mistakes_name_pair_file_and_chain(folder: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        pairs(folder, pair(), pair(chain_id="Z"), {**OTHER, "preferred_seq": "A", "unpreferred_seq": "C"})
    assert caught.value.origin == str(folder / "pairs.json")
    assert caught.value.problems == [
        "pair 2 (two.pdb): has no protein chain 'Z'; there are A, B",
        "pair 3 (one.cif.gz): its sequences have 1 residues, but chain 'A' may have 15 (modelled residues); "
        "nothing is padded or cut to fit",
    ]


def test_notes_of_what_somebody_may_not_have_meant(folder: Path) -> None:
    long = pair(design_chains=["A"], fixed_chains=["B"], chain_id=None)
    unseen = pair(mutable_positions=[4], unpreferred_seq="W" + SEQUENCE[1:])
    twice = pair(mutable_positions=[4], unpreferred_seq="W" + SEQUENCE[1:4] + "W" + SEQUENCE[5:])
    found = pairs(folder, pair(), pair(chain_id=None), long, unseen, twice, max_length=24)
    assert found.lengths == [24, 24, 24]
    assert found.notes == [
        f"{folder / 'pairs.json'}: {note}"
        for note in (
            "1 of 5 pairs: no chain is named, so only the first one is designed; set chain_id (pair 2 "
            "(two.pdb) has chains A, B)",
            "1 of 5 pairs: left out, because their structures have more than data.max_length: 24 "
            "residues (pair 3 (two.pdb) has 36)",
            "1 of 5 pairs: left out, because their sequences differ only where nothing is designed "
            "(pair 4 (two.pdb))",
            "1 of 5 pairs: their sequences also differ where nothing is designed, and these differences "
            "are ignored (pair 5 (two.pdb))",
        )
    ]
    assert pairs(folder, pair()).notes == []
    with pytest.raises(ConfigError) as caught:
        pairs(folder, pair(), max_length=8)
    assert caught.value.problems == [
        "holds no pair that can be learned from",
        "1 of 1 pairs: left out, because their structures have more than data.max_length: 8 residues "
        "(pair 1 (two.pdb) has 24)",
    ]


def test_positions_of_the_configuration(folder: Path) -> None:
    own = pair(mutable_positions=[0, 20])
    found = pairs(folder, pair(), own, mutable_positions=(0,), mutable_ranges=((2, 3),))
    assert [torch.nonzero(each.designed).flatten().tolist() for each in found] == [[0, 2, 3], [0, 20]]  # type: ignore[attr-defined]


# --- Chains -------------------------------------------------------------------------------------------


def test_chains_of_a_folder(folder: Path) -> None:
    (folder / "more").mkdir()
    shutil.copy(folder / "two.pdb", folder / "more" / "two.ent")
    (folder / "notes.txt").write_text("no structure")
    found = ChainSet(folder, Chains(structures=str(folder), min_length=15))
    assert found.lengths == [24, 15, 24]
    assert len(found.notes) == 1 and "2 chains have fewer than data.min_length: 15" in found.notes[0]
    sample = found[0]
    assert sample.sequences.shape == (1, 24)
    assert torch.nonzero(~sample.designed).flatten().tolist() == [7]
    assert sample.reference.tolist() == [0]
    assert found.things[0] == found.things[2]
    short = ChainSet(folder, Chains(structures=str(folder), min_length=1, max_length=15))
    assert short.lengths == [12, 15, 12]
    assert "2 chains have more than data.max_length: 15 residues" in short.notes[0]


def test_folders_that_are_links_and_what_is_hidden(
    folder: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """As they lie on a cluster, or come from a Mac, whose copies have files such as ._two.pdb beside them."""
    links = tmp_path_factory.mktemp("links")
    (links / "there").symlink_to(folder)
    (folder / "around").symlink_to(links)
    for hidden in (links / "._two.pdb", links / ".old" / "two.pdb"):
        hidden.parent.mkdir(exist_ok=True)
        hidden.write_bytes(b"\0\5\x16\7")
    found = ChainSet(links, Chains(structures=str(links), min_length=1))
    assert [found.origin(number)[0] for number in range(3)] == [
        *(links / "there" / name for name in ("one.cif.gz", "two.pdb", "two.pdb")),
    ]
    (folder / "gone.pdb").symlink_to(folder / "nowhere.pdb")
    with pytest.raises(ConfigError, match=r"there/gone\.pdb: cannot be read: No such file"):
        ChainSet(links, Chains(structures=str(links)))


def test_a_chain_is_taken_in_a_new_order_with_new_noise(folder: Path) -> None:
    found = ChainSet(folder, Chains(structures=str(folder), min_length=15), noise=0.5)
    torch.manual_seed(0)
    first, second = found[1], found[1]
    assert not torch.equal(first.order, second.order)
    assert not torch.equal(first.atoms, second.atoms)
    torch.manual_seed(0)
    assert same(first, found[1])
    exact = found.with_noise(0.0)
    moved = (first.atoms - exact[1].atoms)[first.resolved]
    assert 0.35 < float(moved.std()) < 0.65
    assert not first.resolved.all() and not first.atoms[~first.resolved].any()
    assert torch.equal(exact[1].atoms, exact[1].atoms)
    assert found.noise == 0.5


@pytest.mark.parametrize(
    ("prepare", "words"),
    [
        (lambda place: None, "there are no structures; it takes a folder of files"),
        (lambda place: place.rmdir(), "there is no such folder"),
        (
            lambda place: write_structures(place, 2, shortest=5),
            r"holds no chain that can be used\n.*2 chains",
        ),
        (lambda place: (place / "it.pdb").write_text(""), r"it\.pdb: is empty"),
    ],
)
def test_the_error_gives_the_reason_why_no_chain_is_taken(prepare: Any, words: str, tmp_path: Path) -> None:
    (tmp_path / "place").mkdir()
    prepare(tmp_path / "place")
    with pytest.raises(ConfigError, match=words):
        ChainSet(tmp_path / "place", Chains(structures=str(tmp_path / "place")))


# --- Batches ------------------------------------------------------------------------------------------


def test_batches_are_padded_with_what_is_not_resolved(folder: Path) -> None:
    found = pairs(folder, pair(), OTHER)
    samples = [found[0], found[1]._replace(reference=torch.tensor([-1.0, -2.0]))]
    batch = collated(samples)
    assert batch.sequences.shape == (2, 2, 24) and batch.sequences.is_contiguous()
    for number, sample in enumerate(samples):
        length = len(sample.resolved)
        for name in ("atoms", "resolved", "chains", "positions"):
            mine = getattr(batch.backbones, name)[number]
            assert torch.equal(mine[:length], getattr(sample, name)) and not mine[length:].any()
        assert torch.equal(batch.sequences[number, :, :length], sample.sequences)
        assert (batch.sequences[number, :, length:] == UNKNOWN).all()
        assert torch.equal(batch.designed[number, :length], sample.designed)
        assert not batch.designed[number, length:].any()
        assert torch.equal(batch.order[number, :length], sample.order)
        assert batch.order[number, length:].tolist() == list(range(length, 24))
        assert torch.equal(batch.reference[number], sample.reference)
    assert [part.dtype for part in (*batch.backbones, *batch[1:])] == [
        *(torch.float32, torch.bool, torch.int64, torch.int64),
        *(torch.int64, torch.bool, torch.int64, torch.float32),
    ]


def test_nothing_of_the_cache_can_be_changed(folder: Path) -> None:
    found = pairs(folder, pair())
    found[0].atoms.zero_()
    found[0].sequences.zero_()
    assert float(found[0].atoms.abs().sum()) > 0
    assert numpy.isfinite(found[0].atoms.numpy()).all()
