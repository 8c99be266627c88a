"""What is read of PDB and mmCIF files, and what is said of files that hold no structure."""

from __future__ import annotations

import gzip
import math
from collections.abc import Callable
from pathlib import Path

import gemmi
import numpy
import pytest

from castoff.trainers.configuration.fields import ConfigError
from castoff.trainers.dpo.alphabet import LETTERS, UNKNOWN, Tokens
from castoff.trainers.dpo.structures.reading import Chain, Layout, read_chains, read_structure
from tests.trainers.dpo import helices
from tests.trainers.dpo.helices import helix, structure, written

SEQUENCE = "ACDEFGHIKLMNPQRSTVWYACDE"
FORMATS = ["made.pdb", "made.ent.gz", "made.cif", "made.cif.gz"]


def letters(tokens: Tokens) -> str:
    return "".join(LETTERS[token] for token in tokens)


def only(path: Path) -> Chain:
    (chain,) = read_chains(path)
    return chain


@pytest.mark.parametrize("name", FORMATS)
def test_reads_every_format(name: str, tmp_path: Path) -> None:
    made = structure(helix("A", SEQUENCE))
    found = read_structure(written(made, tmp_path / name))
    assert letters(found.native) == SEQUENCE
    assert found.resolved.all()
    assert found.names == ("A",)
    assert found.positions.tolist() == list(range(len(SEQUENCE)))
    wanted = [[atom.pos.tolist() for atom in residue] for residue in made[0]["A"]]
    numpy.testing.assert_allclose(found.atoms, wanted, atol=1e-3)
    assert [each.dtype.name for each in found[:5]] == ["float32", "bool", "uint8", "int32", "int32"]


def test_chains_come_in_the_order_asked_for(tmp_path: Path) -> None:
    file = written(structure(helix("A", "ACDEF" * 3), helix("B", "GHIK" * 3, 15.0)), tmp_path / "two.pdb")
    found = read_structure(file, ["B", "A"])
    assert found.names == ("B", "A")
    assert letters(found.native) == "GHIK" * 3 + "ACDEF" * 3
    assert found.chains.tolist() == [0] * 12 + [1] * 15
    assert found.positions.tolist() == [*range(12), *range(15)]


def test_the_error_lists_the_chains(tmp_path: Path) -> None:
    file = written(structure(helix("A", SEQUENCE), helix("B", SEQUENCE, 15.0)), tmp_path / "two.pdb")
    with pytest.raises(ConfigError, match=r"two\.pdb: has no protein chain 'C'; there are A, B"):
        read_structure(file, ["A", "C"])


def test_a_chain_without_a_name(tmp_path: Path) -> None:
    file = written(structure(helix(" ", SEQUENCE)), tmp_path / "nameless.pdb")
    assert only(file).name == ""
    assert len(read_structure(file, [" "]).native) == len(SEQUENCE)


def test_segments_of_a_chain_without_a_name(tmp_path: Path) -> None:
    """As molecular dynamics writes them: one after the other, with residues of the same numbers."""
    chain = gemmi.Chain(" ")
    for segment, sequence, x in (("PROA", "ACDEF" * 3, 0.0), ("PROB", "GHIK" * 3, 15.0)):
        for residue in helix(" ", sequence, x):
            residue.segment = segment
            chain.add_residue(residue)
    file = written(structure(chain), tmp_path / "segments.pdb")
    assert [(each.name, letters(each.native)) for each in read_chains(file)] == [
        ("PROA", "ACDEF" * 3),
        ("PROB", "GHIK" * 3),
    ]
    assert read_structure(file, ["PROB"]).names == ("PROB",)
    for residue in chain:
        residue.segment = "PROA"
    assert only(written(structure(chain), tmp_path / "one.pdb")).name == ""


def test_a_carbon_that_is_taken_for_calcium(tmp_path: Path) -> None:
    """Where a file names no elements, and its names stand one column too far to the left."""
    chain = helix("A", [*SEQUENCE[:5], "HSD", "ZZZ", *SEQUENCE[7:]])
    file = written(structure(chain), tmp_path / "shifted.pdb")
    lines = [line[:66] for line in file.read_text().splitlines() if line.startswith("ATOM")]
    shifted = [line.replace("  CA  HSD", " CA   HSD").replace("  CA  ZZZ", " CA   ZZZ") for line in lines]
    assert lines != shifted
    file.write_text("\n".join([*shifted, "END\n"]))
    assert letters(only(file).native) == SEQUENCE[:5] + "HX" + SEQUENCE[7:]


def test_labels_of_mmcif_name_chains_that_no_author_named(tmp_path: Path) -> None:
    made = structure(helix("H", "ACDEF" * 3), helix("B", "GHIK" * 3, 15.0))
    for chain, label in zip(made[0], ("A", "H"), strict=True):
        entity = made.get_entity_of(chain.get_polymer())
        assert entity is not None
        entity.subchains = [label]
        for residue in chain:
            residue.subchain = label
    file = written(made, tmp_path / "labels.cif")
    assert read_structure(file, ["A"]).names == ("H",)
    assert read_structure(file, ["H"]).names == ("H",)  # the author's goes first
    assert read_structure(file, ["B"]).names == ("B",)


def test_reads_the_first_model_alone(tmp_path: Path) -> None:
    made = structure(helix("A", "ACDEF" * 3))
    second = gemmi.Model(2)
    second.add_chain(helix("A", "GGGGG" * 4))
    made.add_model(second)
    assert letters(only(written(made, tmp_path / "models.pdb")).native) == "ACDEF" * 3


def test_ligands_and_water_are_left_out(tmp_path: Path) -> None:
    capped = helix("A", ["ACE", *SEQUENCE, "NH2"])
    for cap in (capped[0], capped[-1]):
        cap.remove_atom("CA", "\0", gemmi.Element("C"))
    made = structure(capped, helix("D", [*["DA", "DC", "DG"] * 4, "ZZZ"], 20.0))
    ligand, water = gemmi.Chain("A"), gemmi.Chain("W")
    ligand.add_residue(helices.residue(40, "HEM", 140))
    water.add_residue(helices.residue(50, "HOH", 200))
    for more in (ligand, water):
        more[0].het_flag = "H"
        made[0].add_chain(more)
    for file in (written(made, tmp_path / "more.pdb"), written(made, tmp_path / "more.cif")):
        chain = only(file)
        assert chain.name == "A"
        assert letters(chain.native) == SEQUENCE


def test_modified_residues_are_what_they_were_made_of(tmp_path: Path) -> None:
    names = ["ALA", "MSE", "SEP", "HSD", "CYX", "UNK", "SEC", "GLY", "LEU", "ZZZ", "VAL", "LYS"]
    chain = helix("A", names)
    for residue in chain:
        residue.het_flag = "H" if residue.name in ("MSE", "SEP", "ZZZ") else "A"
    for name in ("modified.pdb", "modified.cif"):
        assert letters(only(written(structure(chain), tmp_path / name)).native) == "AMSHCXXGLXVK"


def test_a_residue_without_a_whole_backbone_stays(tmp_path: Path) -> None:
    chain = helix("A", SEQUENCE)
    chain[3].remove_atom("O", "\0", gemmi.Element("O"))
    chain[7].remove_atom("CA", "\0", gemmi.Element("C"))
    found = read_structure(written(structure(chain), tmp_path / "holes.pdb"))
    assert letters(found.native) == SEQUENCE
    assert numpy.flatnonzero(~found.resolved).tolist() == [3, 7]
    assert not found.atoms[[3, 7]].any()


def test_the_last_oxygen_by_any_of_its_names(tmp_path: Path) -> None:
    chain = helix("A", SEQUENCE)
    chain[-1][3].name = "OT1"
    assert read_structure(written(structure(chain), tmp_path / "end.pdb")).resolved.all()


@pytest.mark.parametrize("word", ["     nan", "     inf", "********", "    -inf"])
def test_a_residue_whose_atoms_are_nowhere_is_not_resolved(word: str, tmp_path: Path) -> None:
    file = written(structure(helix("A", SEQUENCE, 50.0)), tmp_path / "nowhere.pdb")
    lines = file.read_text().splitlines(keepends=True)
    number = [line.startswith("ATOM") and line[22:26].strip() == "5" for line in lines].index(True)
    lines[number] = lines[number][:30] + word + lines[number][38:]
    file.write_text("".join(lines))
    found = read_structure(file)
    assert numpy.flatnonzero(~found.resolved).tolist() == [4]
    assert numpy.isfinite(found.atoms).all()


def other(residue: gemmi.Residue, letter: str, occupancy: float, by: float) -> gemmi.Residue:
    """A residue whose atoms are an alternative's, moved by some Å."""
    made = residue.clone()
    for atom in made:
        atom.altloc, atom.occ = letter, occupancy
        atom.pos = gemmi.Position(atom.pos.x + by, atom.pos.y, atom.pos.z)
    return made


@pytest.mark.parametrize("name", ["alternatives.pdb", "alternatives.cif"])
def test_of_alternatives_the_one_that_is_there_most(name: str, tmp_path: Path) -> None:
    chain, wanted = helix("A", SEQUENCE), helix("A", SEQUENCE)
    first, second = (
        other(wanted[5], letter, occupancy, by) for letter, occupancy, by in (("A", 0.4, 0), ("B", 0.6, 9))
    )
    for name in ("N", "CA", "C", "O"):
        chain[5].remove_atom(name, "\0", gemmi.Element(name[0]))
    for pair in zip(first, second, strict=True):
        for atom in pair:
            chain[5].add_atom(atom)
    # One atom that seems to be in A more often does not come from A.
    for atom in chain[5]:
        if atom.name == "C":
            atom.occ = 0.5
    found = read_structure(written(structure(chain), tmp_path / name))
    assert found.resolved.all()
    numpy.testing.assert_allclose(found.atoms[5], [atom.pos.tolist() for atom in second], atol=1e-3)


def test_atoms_that_alternatives_share(tmp_path: Path) -> None:
    chain = helix("A", SEQUENCE)
    for atom in chain[5]:
        if atom.name in ("CA", "C"):
            atom.altloc, atom.occ = "B", 0.3
    assert read_structure(written(structure(chain), tmp_path / "shared.pdb")).resolved.all()


def test_no_backbone_is_put_together_of_two_alternatives(tmp_path: Path) -> None:
    """B is there more, but has no O of its own."""
    chain, whole = helix("A", SEQUENCE), helix("A", SEQUENCE)[5]
    for name in ("N", "CA", "C", "O"):
        chain[5].remove_atom(name, "\0", gemmi.Element(name[0]))
    first, second = other(whole, "A", 0.2, 0), other(whole, "B", 0.8, 9)
    for mine, its in zip(first, second, strict=True):
        chain[5].add_atom(mine)
        if its.name != "O":
            chain[5].add_atom(its)
    found = read_structure(written(structure(chain), tmp_path / "half.pdb"))
    assert found.resolved.all()
    numpy.testing.assert_allclose(found.atoms[5], [atom.pos.tolist() for atom in first], atol=1e-3)


def test_of_two_residues_in_one_place_the_one_that_is_there_most(tmp_path: Path) -> None:
    chain = gemmi.Chain("A")
    for place, residue in enumerate(helix("A", SEQUENCE)):
        if place != 5:
            chain.add_residue(residue)
            continue
        for name, letter, occupancy in (("SER", "A", 0.3), ("THR", "B", 0.7)):
            made = other(residue, letter, occupancy, 0)
            made.name = name
            chain.add_residue(made)
    found = only(written(structure(chain), tmp_path / "two.pdb"))
    assert letters(found.native) == SEQUENCE[:5] + "T" + SEQUENCE[6:]


def numbered(number: Callable[[int], tuple[int, str]]) -> gemmi.Chain:
    chain = helix("A", SEQUENCE)
    for place, residue in enumerate(chain):
        residue.seqid = gemmi.SeqId(*number(place))
    return chain


def test_residues_that_share_a_number(tmp_path: Path) -> None:
    chain = numbered(lambda place: (52, " ABC"[place - 3]) if 3 <= place < 7 else (place + 49, " "))
    for residue in list(chain)[7:]:
        residue.seqid = gemmi.SeqId((residue.seqid.num or 0) - 3, " ")
    found = only(written(structure(chain), tmp_path / "inserted.pdb"))
    assert letters(found.native) == SEQUENCE
    assert found.length_in(Layout.NUMBERED) == len(SEQUENCE)


@pytest.mark.parametrize("name", ["gaps.pdb", "gaps.cif"])
def test_the_three_layouts_of_a_chain(name: str, tmp_path: Path) -> None:
    """The full sequence begins three residues before the model, which leaves out two, then three."""
    full = "GSH" + SEQUENCE + "GG"
    chain = gemmi.Chain("A")
    for place, residue in enumerate(helix("A", SEQUENCE)):
        if place not in (5, 6, 15, 16, 17):
            residue.seqid = gemmi.SeqId(place + 101, " ")
            chain.add_residue(residue)
    found = only(written(structure(chain, full={"A": full}), tmp_path / name))
    modelled, whole, filled = (found.laid_out(layout) for layout in Layout)

    there = [place for place in range(24) if place not in (5, 6, 15, 16, 17)]
    assert letters(modelled.native) == "".join(SEQUENCE[place] for place in there)
    assert letters(whole.native) == full
    gapped = "".join("X" if place not in there else SEQUENCE[place] for place in range(24))
    assert letters(filled.native) == gapped

    for laid, places in ((whole, [place + 3 for place in there]), (filled, there)):
        assert numpy.flatnonzero(laid.resolved).tolist() == places
        assert numpy.array_equal(laid.atoms[places], modelled.atoms)
        assert laid.positions.tolist() == list(range(len(laid.native)))
    assert modelled.positions.tolist() == [place + 3 for place in there]
    assert modelled.resolved.all()


def test_without_a_full_sequence_gaps_follow_from_residue_numbers(tmp_path: Path) -> None:
    chain = numbered(lambda place: (place + 1 if place < 10 else place + 5, " "))
    found = only(written(structure(chain), tmp_path / "gap.pdb"))
    assert found.laid_out().positions.tolist() == [*range(10), *range(14, 28)]
    assert found.length_in(Layout.FULL) == found.length_in(Layout.MODELLED) == 24
    assert found.length_in(Layout.NUMBERED) == 28


def test_a_full_sequence_of_other_residues_is_not_believed(tmp_path: Path) -> None:
    made = structure(helix("A", SEQUENCE))
    made.entities[0].full_sequence = ["GLY"] * 5
    text = made.make_pdb_string()
    assert "SEQRES" in text
    (tmp_path / "wrong.pdb").write_text(text)
    assert letters(read_structure(tmp_path / "wrong.pdb").native) == SEQUENCE


def test_the_model_takes_precedence_over_the_full_sequence(tmp_path: Path) -> None:
    full = SEQUENCE[:4] + "W" + SEQUENCE[5:] + "GG"
    file = written(structure(helix("A", SEQUENCE), full={"A": full}), tmp_path / "mutated.pdb")
    assert letters(read_structure(file).native) == SEQUENCE + "GG"
    assert letters(only(file).sequence) == SEQUENCE + "GG"


@pytest.mark.parametrize("name", ["made.pdb", "made.cif"])
def test_a_byte_order_mark_hides_nothing(name: str, tmp_path: Path) -> None:
    file = written(structure(helix("A", SEQUENCE)), tmp_path / name)
    lines = file.read_text().splitlines(keepends=True)
    atoms = lines if file.suffix == ".cif" else [line for line in lines if line.startswith("ATOM")]
    file.write_text("".join(atoms), encoding="utf-8-sig")
    found = only(file)
    assert letters(found.native) == SEQUENCE
    assert found.resolved.all()


# --- What is not a structure -----------------------------------------------------------------------------


def whole() -> bytes:
    return gzip.compress(structure(helix("A", SEQUENCE)).make_pdb_string().encode())


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "is empty"),
        (b"<html>not found</html>\n" * 40, "is not a structure in PDB or mmCIF format"),
        (b"\0\xff\x01" * 900, "is not a structure in PDB or mmCIF format"),
        (b'{"an": "object"}', "is not a structure in PDB or mmCIF format"),
        (
            b"data_x\nloop_\n_atom_site.id\n_atom_site.Cartn_x\n1\n",
            "is not a structure in PDB or mmCIF format",
        ),
        (b"data_x\n_entry.id x\n", "is not a structure in PDB or mmCIF format"),
        (whole()[:-300], "is a damaged gzip file .* fetch it again"),
        (whole()[:-20] + b"\0" * 20, "is a damaged gzip file .* fetch it again"),
        (b"\x1f\x8b", "is a damaged gzip file .* fetch it again"),
    ],
)
def test_a_file_without_a_structure_is_reported(content: bytes, words: str, tmp_path: Path) -> None:
    (tmp_path / "it.pdb").write_bytes(content)
    with pytest.raises(ConfigError, match=rf"it\.pdb: {words}"):
        read_structure(tmp_path / "it.pdb")


def test_a_missing_file_is_reported(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"it\.pdb: cannot be read: No such file"):
        read_structure(tmp_path / "it.pdb")
    with pytest.raises(ConfigError, match="cannot be read: Is a directory"):
        read_structure(tmp_path)


def test_a_file_without_a_protein_is_reported(tmp_path: Path) -> None:
    file = written(structure(helix("D", ["DA", "DC", "DG"] * 4)), tmp_path / "dna.pdb")
    with pytest.raises(ConfigError, match=r"dna\.pdb: holds no protein chain"):
        read_structure(file)
    with pytest.raises(ConfigError, match=r"dna\.pdb: holds no protein chain"):
        read_structure(file, ["D"])


def test_unpacked_twice_written_gzip(tmp_path: Path) -> None:
    """Two members, one behind the other, are one file."""
    text = structure(helix("A", SEQUENCE)).make_pdb_string().encode()
    half = len(text) // 2
    (tmp_path / "two.pdb.gz").write_bytes(gzip.compress(text[:half]) + gzip.compress(text[half:]))
    assert letters(read_structure(tmp_path / "two.pdb.gz").native) == SEQUENCE


def test_helices_are_helices() -> None:
    """The made-up coordinates have the bonds of backbones."""
    chain = helix("A", "AA")
    for here, there in zip(list(chain[0])[:3], list(chain[0])[1:], strict=True):
        assert 1.0 < here.pos.dist(there.pos) < 2.0
    assert math.isclose(chain[0][2].pos.dist(chain[1][0].pos), 1.33, abs_tol=0.3)
    assert UNKNOWN == 20
