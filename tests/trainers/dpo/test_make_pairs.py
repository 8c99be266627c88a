"""Synthetic preferences are of the structures they name, and say that they are none that were measured."""

from __future__ import annotations

import json
from pathlib import Path

import numpy
import pytest

from castoff.trainers.configuration.fields import ConfigError
from castoff.trainers.dpo import make_pairs
from castoff.trainers.dpo.alphabet import LETTERS
from castoff.trainers.dpo.make_pairs import made
from castoff.trainers.dpo.samples.data import PairSet
from castoff.trainers.dpo.samples.worse import burial, worse
from castoff.trainers.dpo.settings import Pairs
from castoff.trainers.dpo.structures.reading import read_structure
from tests.trainers.dpo.helices import helix, structure, written

SEQUENCE = "ACDEFGHIKLMNPQRSTVWYACDE"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Three chains, two of which are the same; and one in which a residue is not resolved, one unknown."""
    place = tmp_path / "structures"
    place.mkdir()
    twice = structure(helix("A", SEQUENCE), helix("B", SEQUENCE, 15.0))
    written(twice, place / "twice.pdb")
    chain = helix("C", ["UNK" if place == 3 else one for place, one in enumerate("KTLIVG" * 5)])
    chain[7].remove_atom("O", "\0", chain[7][3].element)
    written(structure(chain, full={"C": "GG" + "KTLXVG" * 5}), place / "other.cif.gz")
    return place


def test_pairs_can_be_learned_from(folder: Path, tmp_path: Path) -> None:
    out = tmp_path / "made" / "pairs.json"
    out.parent.mkdir()
    make_pairs.main([str(folder), "--out", str(out), "--number", "7"])
    found = PairSet(out, Pairs(train_data=str(out)), 0)
    assert len(found) == 7 and found.notes == []
    for pair in json.loads(out.read_text()):
        assert pair["description"].startswith("synthetic: ") and "nothing was measured" in pair["description"]
        native = read_structure(out.parent / pair["pdb_file"], [pair["chain_id"]])
        assert pair["preferred_seq"] == "".join(LETTERS[token] for token in native.native)
        depth = burial(native.atoms, native.resolved)
        changed = [
            (place, letter)
            for place, letter in enumerate(pair["unpreferred_seq"])
            if letter != pair["preferred_seq"][place]
        ]
        assert f"{len(changed)} substitutions" in pair["description"]
        assert 1 <= len(changed) <= 3
        for place, letter in changed:
            assert native.resolved[place] and pair["preferred_seq"][place] != "X"
            options = worse(native.native[place : place + 1], depth[place : place + 1])
            assert options[0, LETTERS.index(letter)]


def test_each_sequence_in_turn_and_no_pair_twice(folder: Path, tmp_path: Path) -> None:
    pairs = made(folder, tmp_path / "pairs.json", 20, 0.1, 0)
    assert len({(pair["pdb_file"], pair["unpreferred_seq"]) for pair in pairs}) == 20
    assert [pair["chain_id"] == "C" for pair in pairs[:4]] in ([True, False] * 2, [False, True] * 2)
    assert len({pair["chain_id"] for pair in pairs} & {"A", "B"}) == 1
    assert len(made(folder, tmp_path / "pairs.json", None, 0.1, 0)) == 2


def test_they_follow_from_the_seed(folder: Path, tmp_path: Path) -> None:
    first, again, other = (made(folder, tmp_path / "pairs.json", 6, 0.2, seed) for seed in (0, 0, 1))
    assert first == again != other


def test_a_larger_share_changes_more(folder: Path, tmp_path: Path) -> None:
    (few, *_), (many, *_) = (made(folder, tmp_path / "pairs.json", None, share, 0) for share in (0.01, 0.5))

    def changed(pair: dict[str, str]) -> int:
        letters = (numpy.array(list(pair[name])) for name in ("preferred_seq", "unpreferred_seq"))
        return int(numpy.not_equal(*letters).sum())

    assert changed(few) == 1 < changed(many)


def test_more_pairs_than_can_be_made_are_refused(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(
        ConfigError, match=r"--number: [\d,]+ different pairs can be made from the 2 different"
    ):
        made(folder, tmp_path / "pairs.json", 100_000, 0.01, 0)


def test_where_the_structures_are_through_links(folder: Path, tmp_path: Path) -> None:
    """A name with .. in it leads from where a folder is, not from the link to it."""
    (tmp_path / "far" / "away").mkdir(parents=True)
    link = tmp_path / "link"
    link.symlink_to(tmp_path / "far" / "away")
    (link / "own").symlink_to(folder)
    for place in (folder, link / "own"):
        make_pairs.main([str(place), "--out", str(link / "pairs.json"), "--number", "4"])
        for source in (link, tmp_path / "far" / "away"):
            data = Pairs(train_data=str(source / "pairs.json"), structures=str(source))
            assert len(PairSet(data.train_data, data, 0)) == 4


def test_where_nothing_can_be_written_nothing_is_made(folder: Path, tmp_path: Path) -> None:
    for place, said in (
        (tmp_path, "which is a folder; name a file"),
        (tmp_path / "no" / "p", "create it first"),
    ):
        with pytest.raises(SystemExit, match=rf"--out: is '{place}'.* {said}"):
            make_pairs.main([str(folder), "--out", str(place)])
    assert list(tmp_path.iterdir()) == [folder]


def test_the_program_reports_wrong_arguments(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match=r"STRUCTURES: is .*, but there is no such folder"):
        make_pairs.main([str(tmp_path / "none"), "--out", str(tmp_path / "pairs.json")])
    for words in (["--number", "0"], ["--seed", "-1"], ["--substitutions", "2"], ["--substitutions", "x"]):
        with pytest.raises(SystemExit):
            make_pairs.main([str(tmp_path), "--out", "x.json", *words])
        assert f"is '{words[1]}', but takes a" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())
