"""Synthetic structures: helices, strands and turns, with the residues typical of each.

The structures do not fold. But their residues follow from the backbone, so a network can learn something
before there are real structures.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple, TypeAlias

import gemmi
import numpy
import numpy.typing

Point: TypeAlias = "numpy.typing.NDArray[numpy.float64]"


class Segment(NamedTuple):
    """A kind of backbone."""

    phi: float
    psi: float
    """Psi; this angle and phi are in degrees."""
    residues: str
    """Letters from which residues of this backbone are drawn; a letter that occurs twice is drawn twice as
    often.
    """
    lengths: tuple[int, int]


SEGMENTS = (
    Segment(-60, -45, "AAAEELLLKKQRM", (7, 13)),
    Segment(-120, 130, "VVVIITTYFFW", (4, 8)),
    Segment(60, 40, "GGGGN", (1, 2)),
    Segment(-70, 150, "PPSSDN", (2, 4)),
)
"""Helices, strands, left-handed turns and the rest."""

_N_CA, _CA_C, _C_N, _C_O = 1.458, 1.525, 1.329, 1.231
_AT_CA, _AT_C, _AT_N, _TO_O = 111.0, 116.6, 121.7, 120.1
"""Bonds in Å, angles in degrees (Engh and Huber, Acta Crystallographica A47, 1991)."""


def write_structures(folder: str | Path, number: int, *, seed: int = 0, shortest: int = 24) -> list[Path]:
    """Write PDB files, made-1.pdb and so on, of one chain each, with `shortest` to twice as many residues."""
    directory = Path(folder)
    directory.mkdir(parents=True, exist_ok=True)
    paths = []
    for index in range(number):
        generator = numpy.random.default_rng((seed, index))
        structure = made_up(int(generator.integers(shortest, 2 * shortest + 1)), generator)
        paths.append(directory / f"made-{index + 1}.pdb")
        structure.write_pdb(str(paths[-1]))
    return paths


def made_up(length: int, generator: numpy.random.Generator) -> gemmi.Structure:
    """Make a structure of one chain, A."""
    chain = gemmi.Chain("A")
    psi_before = 0.0
    atoms: list[Point] = [numpy.zeros(3), numpy.array([_N_CA, 0, 0])]
    turned = math.radians(180 - _AT_CA)
    atoms.append(atoms[1] + _CA_C * numpy.array([math.cos(turned), math.sin(turned), 0]))
    for number, (segment, letter) in enumerate(_residues(length, generator), start=1):
        phi, psi = (angle + generator.normal(0, 6) for angle in segment[:2])
        if number > 1:
            atoms.append(_placed(atoms[-3:], _C_N, _AT_C, psi_before))
            atoms.append(_placed(atoms[-3:], _N_CA, _AT_N, 180.0))
            atoms.append(_placed(atoms[-3:], _CA_C, _AT_CA, phi))
        oxygen = _placed(atoms[-3:], _C_O, _TO_O, psi + 180)
        chain.add_residue(_residue(number, letter, [*atoms[-3:], oxygen]))
        psi_before = psi
    structure, model = gemmi.Structure(), gemmi.Model(1)
    structure.name = "made up"
    model.add_chain(chain)
    structure.add_model(model)
    structure.setup_entities()
    return structure


def _residues(length: int, generator: numpy.random.Generator) -> Iterator[tuple[Segment, str]]:
    """Yield the residues of random segments, one after the other, until there are `length`."""
    remaining = length
    while remaining:
        segment = SEGMENTS[generator.integers(len(SEGMENTS))]
        for _ in range(min(remaining, int(generator.integers(*segment.lengths, endpoint=True)))):
            yield segment, segment.residues[generator.integers(len(segment.residues))]
            remaining -= 1


def _placed(three: Sequence[Point], bond: float, angle: float, torsion: float) -> Point:
    """Place a fourth atom by its bond, angle and torsion to the three before it (Parsons et al., Journal of
    Computational Chemistry 26, 2005).
    """
    first, second, third = three
    along = third - second
    along /= numpy.linalg.norm(along)
    normal = numpy.cross(second - first, along)
    normal /= numpy.linalg.norm(normal)
    bent, turned = math.radians(180 - angle), math.radians(torsion)
    across = numpy.cross(normal, along)
    direction = (
        math.cos(bent) * along
        + math.sin(bent) * math.cos(turned) * across
        + math.sin(bent) * math.sin(turned) * normal
    )
    placed: Point = third + bond * direction
    return placed


def _residue(number: int, letter: str, positions: list[Point]) -> gemmi.Residue:
    residue = gemmi.Residue()
    residue.name = gemmi.expand_one_letter(letter, gemmi.ResidueKind.AA)
    residue.seqid = gemmi.SeqId(number, " ")
    for name, position in zip(("N", "CA", "C", "O"), positions, strict=True):
        atom = gemmi.Atom()
        atom.name, atom.element = name, gemmi.Element(name[0])
        atom.pos = gemmi.Position(*position)
        atom.occ = 1.0
        residue.add_atom(atom)
    return residue
