"""Files with made-up structures: helices, and whatever real files do to them."""

from __future__ import annotations

import gzip
import math
from collections.abc import Mapping, Sequence
from pathlib import Path

import gemmi

_ATOMS = (
    ("N", "N", 1.55, -27.0, -0.9),
    ("CA", "C", 2.29, 0.0, 0.0),
    ("C", "C", 1.68, 26.0, 1.1),
    ("O", "O", 1.99, 20.0, 2.3),
)
"""Name, element; distance from the axis in Å, angle in degrees, height in Å."""


def residue(place: int, name: str = "ALA", number: int | None = None, x: float = 0.0) -> gemmi.Residue:
    """The residue at a place of a helix along z, whose axis is `x` Å from it."""
    made = gemmi.Residue()
    made.name = name
    made.seqid = gemmi.SeqId(number if number is not None else place + 1, " ")
    made.het_flag = "A"
    for atom_name, element, radius, angle, height in _ATOMS:
        atom = gemmi.Atom()
        atom.name, atom.element, atom.occ, atom.b_iso = atom_name, gemmi.Element(element), 1.0, 10.0
        turn = math.radians(angle + 100.0 * place)
        atom.pos = gemmi.Position(x + radius * math.cos(turn), radius * math.sin(turn), height + 1.5 * place)
        made.add_atom(atom)
    return made


def helix(name: str, sequence: str | Sequence[str], x: float = 0.0) -> gemmi.Chain:
    """A chain of letters, or of residues' names; its axis is `x` Å from the z axis."""
    chain = gemmi.Chain(name)
    for place, one in enumerate(sequence):
        three = gemmi.expand_one_letter(one, gemmi.ResidueKind.AA) if len(one) == 1 else one
        chain.add_residue(residue(place, three, x=x))
    return chain


def structure(*chains: gemmi.Chain, full: Mapping[str, str] | None = None) -> gemmi.Structure:
    """A structure of chains; `full`: the full sequences of chains by their names."""
    made = gemmi.Structure()
    made.name = "MADE"
    model = gemmi.Model(1)
    for chain in chains:
        model.add_chain(chain)
    made.add_model(model)
    made.setup_entities()
    for chain in made[0]:
        if full and chain.name in full:
            entity = made.get_entity_of(chain.get_polymer())
            assert entity is not None
            entity.full_sequence = gemmi.expand_one_letter_sequence(full[chain.name], gemmi.ResidueKind.AA)
    made.assign_label_seq_id()
    return made


def written(made: gemmi.Structure, path: Path) -> Path:
    """A file in the format that its name says, packed where it ends in .gz."""
    cif = ".cif" in path.suffixes
    text = made.make_mmcif_document().as_string() if cif else made.make_pdb_string()
    path.write_bytes(gzip.compress(text.encode()) if path.suffix == ".gz" else text.encode())
    return path
