"""What `python -m bench.inverse_folding` judges by."""

from __future__ import annotations

import math
from pathlib import Path

import numpy
import pytest
import torch

from bench.inverse_folding.__main__ import Trained, lines_on_preferences, lines_on_recovery, lines_on_split
from bench.inverse_folding.judged import likelihoods, preferred, recovery
from bench.inverse_folding.split import Split, chain_of, different, identities, split_structures
from bench.proteins import homology
from castoff.trainers.dpo.make_pairs import main as make_pairs
from castoff.trainers.dpo.network import weights
from castoff.trainers.dpo.network.model import InverseFolding
from castoff.trainers.dpo.samples.data import PairSet
from castoff.trainers.dpo.settings import Pairs
from castoff.trainers.dpo.structures.synthetic import write_structures


def network(seed: int = 0) -> InverseFolding:
    torch.manual_seed(seed)
    return InverseFolding(16, 1, 1, neighbours=8, dropout=0.0).eval()


@pytest.fixture
def structures(tmp_path: Path) -> list[Path]:
    return write_structures(tmp_path / "structures", 4)


@pytest.fixture
def pairs(structures: list[Path]) -> PairSet:
    file = structures[0].parent.with_name("pairs.json")
    make_pairs([str(structures[0].parent), "--out", str(file), "--number", "8"])
    return PairSet(file, Pairs(train_data=str(file)), seed=0)


def test_what_comes_back_is_told_beside_the_most_frequent_residue(structures: list[Path]) -> None:
    model = network()
    with torch.no_grad():
        model.W_out.weight.zero_()
        model.W_out.bias.zero_()
        model.W_out.bias[0] = 100.0  # always alanine
    found = recovery(model, structures)
    letters = "".join(chain_of(path).sequence for path in structures)
    most = max(set(letters), key=letters.count)
    assert found.residues == len(letters)
    assert found.sampled.value == pytest.approx(letters.count("A") / len(letters))
    assert (
        found.most_frequent
        == letters.count(found.residue) / len(letters)
        == letters.count(most) / len(letters)
    )


def test_pairs_are_preferred_by_what_tuning_has_changed(pairs: PairSet) -> None:
    before = numpy.array([[-10.0, -8.0]] * len(pairs))
    after = before + numpy.array([[-0.1, -0.5]] * (len(pairs) - 2) + [[0.0, 0.0], [-1.0, 0.0]])
    found = preferred(before, after, pairs)
    assert found.accuracy.value == (len(pairs) - 2) / len(pairs)  # a tie is not a preference
    assert found.right_before.value == found.right_after.value == 0.0
    assert found.fall == pytest.approx((0.1 * (len(pairs) - 2) + 1.0) / (10 * len(pairs)))


def test_likelihoods_are_each_pair_s_own(pairs: PairSet) -> None:
    hot, cold = likelihoods(network(), pairs, (1.0, 0.1))
    assert (hot < 0).all()
    assert len({row.tobytes() for row in hot}) == len(pairs)
    assert not (hot == cold).any()


def test_bars_are_judged(tmp_path: Path, structures: list[Path]) -> None:
    file = tmp_path / "pairs.json"
    make_pairs([str(structures[0].parent), "--out", str(file), "--number", "4"])
    for number, name in enumerate(("base", "tuned")):
        (tmp_path / name).mkdir()
        weights.save(tmp_path / name / "best_model.pt", network(number), 0.0)
    base, tuned = (Trained(tmp_path / name, 1.0, 2.0) for name in ("base", "tuned"))
    split = Split(structures[0].parent, structures[0].parent, SIZES, too_near=1, nearest=0.29)
    assert "held out are 2, the nearest with 29% identity" in lines_on_split(split)[0]
    recovers, lines = lines_on_recovery(base, split)
    assert not recovers and "NOT MET" in lines[1]
    prefers, lines = lines_on_preferences(base, tuned, file)
    assert not prefers and any("NOT MET" in line for line in lines)


SIZES = homology.Sizes(9, 8, 2, 5, 500, 4, 1, 3, 3, 300)


def test_a_sequence_is_taken_once(structures: list[Path]) -> None:
    chain = chain_of(structures[0])
    again = chain._replace(path=Path("again.pdb"))
    assert different([chain, again, chain_of(structures[1])]) == {
        chain.sequence: structures[0],
        chain_of(structures[1]).sequence: structures[1],
    }


def test_chains_that_are_too_near_are_dropped(
    tmp_path: Path, structures: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """mmseqs, which CI's machine has not, says here what it would."""
    sequences = [chain_of(path).sequence for path in structures]

    def split_of(proteins: Path, folder: Path, *, share: float) -> homology.Split:
        folder.mkdir()
        for name, some in (("training", sequences[:2]), ("held-out", sequences[2:])):
            entries = (f">{number} {number}\n{each}\n" for number, each in enumerate(some))
            (folder / f"{name}.fasta").write_text("".join(entries))
        return homology.Split(folder / "training.fasta", folder / "held-out.fasta", SIZES)

    def mmseqs(*words: str | Path) -> str:
        Path(words[3]).write_text("1\t0.25\n0\t0.2\n0\t0.31\n")
        return ""

    module = "bench.inverse_folding.split"
    monkeypatch.setattr(f"{module}.split_of", split_of)
    monkeypatch.setattr(f"{module}.mmseqs", mmseqs)
    found = split_structures(structures[0].parent, tmp_path / "folder", 0.5)
    assert [path.name for path in found.held_out.iterdir()] == [structures[3].name]
    assert sorted(path.name for path in found.learned.iterdir()) == [each.name for each in structures[:2]]
    assert (found.too_near, found.nearest) == (1, 0.25)
    assert identities(tmp_path / "folder/split/held-out.fasta", tmp_path, tmp_path / "again") == {
        0: 0.31,
        1: 0.25,
    }
    assert math.isclose(found.nearest, 0.25)
