"""Made-up structures are backbones as they can be, and a residue follows from its place."""

from __future__ import annotations

import math
from pathlib import Path

import gemmi
import pytest

from castoff.trainers.dpo.structures.synthetic import SEGMENTS, write_structures


def chains(folder: Path, seed: int = 0) -> list[list[gemmi.Residue]]:
    paths = write_structures(folder, 6, seed=seed, shortest=20)
    return [list(gemmi.read_structure(str(path))[0]["A"]) for path in paths]


def test_bonds_and_torsions_are_those_of_proteins(tmp_path: Path) -> None:
    at_home = 0
    found = chains(tmp_path)
    for residues in found:
        assert 20 <= len(residues) <= 40
        for before, residue, after in zip(residues, residues[1:], residues[2:], strict=False):
            assert before["C"][0].pos.dist(residue["N"][0].pos) == pytest.approx(1.329, abs=0.005)
            assert residue["C"][0].pos.dist(residue["O"][0].pos) == pytest.approx(1.231, abs=0.005)
            assert before["O"][0].pos.dist(residue["N"][0].pos) == pytest.approx(2.25, abs=0.02)
            assert abs(gemmi.calculate_omega(before, residue)) == pytest.approx(math.pi, abs=0.02)
            phi, psi = map(math.degrees, gemmi.calculate_phi_psi(before, residue, after))
            segment = min(SEGMENTS, key=lambda each: math.dist((phi, psi), each[:2]))
            at_home += gemmi.find_tabulated_residue(residue.name).one_letter_code in segment.residues
    assert at_home > 0.95 * sum(len(residues) - 2 for residues in found)


def test_the_same_seed_makes_the_same(tmp_path: Path) -> None:
    names = [
        [[residue.name for residue in residues] for residues in chains(tmp_path / str(number), seed)]
        for number, seed in enumerate((0, 0, 1))
    ]
    assert names[0] == names[1] != names[2]
