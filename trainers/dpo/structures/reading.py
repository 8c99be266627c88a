"""Structures from PDB and mmCIF files, plain or gzip, by gemmi.

What is read of a file are its protein chains in the first model. Waters, ligands, caps and nucleic acids are
left out. A residue whose backbone is not whole is kept, and said not to be resolved; so nothing that
follows a hole in a file is moved. Residues that a file names in its full sequence (SEQRES, entity_poly_seq),
but does not model, are known, too, by gemmi's alignment of the two.
"""

from __future__ import annotations

import zlib
from codecs import BOM_UTF8
from collections.abc import Sequence
from enum import Enum
from functools import cache
from pathlib import Path
from typing import NamedTuple

import gemmi
import numpy
import numpy.typing

from castoff.trainers.configuration.fields import ConfigError
from castoff.trainers.dpo.alphabet import LETTERS, UNKNOWN, Tokens
from castoff.trainers.dpo.structures.structure import Structure

SUFFIXES = (".pdb", ".ent", ".cif", ".mmcif")
"""Suffixes of structure files, which may end in .gz, too."""

_BACKBONE = (("N",), ("CA",), ("C",), ("O", "OT1", "O1", "OXT"))
"""Its atoms, by each name that they have; the last residue's O may have that of the other oxygen."""

_NAMES = frozenset(name for names in _BACKBONE for name in names)

_BONDS = (0.5, 4.0)
"""Å between neighbours in a backbone, at least and at most: one that is longer joins nothing."""

_OTHER_NAMES = {
    **dict.fromkeys(("HSD", "HSE", "HSP", "HID", "HIE", "HIP"), "H"),
    **dict.fromkeys(("CYX", "CYM"), "C"),
    "ASH": "D",
    "GLH": "E",
    "LYN": "K",
}
"""Residues as force fields name them by their protons and bonds."""

Atoms = numpy.typing.NDArray[numpy.float32]
Places = numpy.typing.NDArray[numpy.int32]


class Layout(Enum):
    """Which residues a chain's sequence contains."""

    MODELLED = "modelled residues"
    FULL = "the file's full sequence"
    NUMBERED = "gaps of residue numbers filled"


class Chain(NamedTuple):
    """A protein chain: `modelled` residues, and where they are among all."""

    name: str
    """The author's."""
    label: str
    """The name that mmCIF gives it beside that; "" where there is none, or several."""
    atoms: Atoms
    """(modelled, 4, 3), in Å; 0 where a residue is not resolved."""
    resolved: numpy.typing.NDArray[numpy.bool_]
    """(modelled,)."""
    native: Tokens
    """(modelled,)."""
    sequence: Tokens
    """(full,): the full sequence; that of the modelled residues where the file says none that they fit in."""
    places: Places
    """(modelled,): of each modelled residue in the full sequence."""
    positions: Places
    """(full,): the number of each residue in the chain, from 0."""
    filled: Places
    """(modelled,): the place of each, where each gap of residue numbers is filled, from 0."""

    def places_in(self, layout: Layout) -> Places:
        """(modelled,): where the modelled residues are in a sequence of this layout."""
        if layout is Layout.MODELLED:
            return numpy.arange(len(self.native), dtype=numpy.int32)
        return self.places if layout is Layout.FULL else self.filled

    def length_in(self, layout: Layout) -> int:
        """Residues of a sequence of this layout."""
        if layout is Layout.MODELLED:
            return len(self.native)
        return len(self.sequence) if layout is Layout.FULL else int(self.filled[-1]) + 1

    def laid_out(self, layout: Layout = Layout.FULL) -> Structure:
        """The chain as a structure of its own, in which there are the residues of this layout."""
        places, length = self.places_in(layout), self.length_in(layout)
        atoms = numpy.zeros((length, 4, 3), numpy.float32)
        atoms[places] = self.atoms
        resolved = numpy.zeros(length, numpy.bool_)
        resolved[places] = self.resolved
        native = numpy.full(length, UNKNOWN, numpy.uint8)
        positions = numpy.arange(length, dtype=numpy.int32)
        if layout is Layout.FULL:
            native[:] = self.sequence
        if layout is not Layout.NUMBERED:
            positions = self.positions[self.places] if layout is Layout.MODELLED else self.positions
        native[places] = self.native
        chains = numpy.zeros(length, numpy.int32)
        return Structure(atoms, resolved, native, chains, numpy.array(positions), (self.name,))


def read_structure(path: str | Path, chains: Sequence[str] | None = None) -> Structure:
    """The chains of a file by their names, in this order; None: all that are proteins.

    Each has its full sequence, where the file says it, else its modelled residues.

    Raises:
        ConfigError: it cannot be read, or has no such chain, or none at all.
    """
    found = read_chains(path)
    if not found:
        raise ConfigError(["holds no protein chain"], str(path))
    problems: list[str] = []
    named = found if chains is None else chosen(found, chains, problems)
    if problems:
        raise ConfigError(problems, str(path))
    return joined([chain.laid_out() for chain in named])


def joined(structures: Sequence[Structure]) -> Structure:
    """Chains side by side as one structure."""
    counts = numpy.cumsum([0, *(len(each.names) for each in structures)])
    return Structure(
        numpy.concatenate([structure.atoms for structure in structures]),
        numpy.concatenate([each.resolved for each in structures]),
        numpy.concatenate([each.native for each in structures]),
        numpy.concatenate([each.chains + n for each, n in zip(structures, counts, strict=False)]).astype(
            numpy.int32
        ),
        numpy.concatenate([each.positions for each in structures]),
        tuple(name for each in structures for name in each.names),
    )


def chosen(chains: Sequence[Chain], names: Sequence[str], problems: list[str]) -> list[Chain]:
    """Chains by their names: the author's, or those of mmCIF where no author's chain and one alone has it.

    Adds to `problems` which there are not.
    """
    found = []
    for name in names:
        wanted = name.strip()
        matches = [chain for chain in chains if chain.name == wanted]
        matches = matches or [chain for chain in chains if chain.label == wanted != ""]
        if len(matches) == 1:
            found.append(matches[0])
        else:
            there = ", ".join(chain.name or "' '" for chain in chains) or "none"
            problems.append(f"has no protein chain {name!r}; there are {there}")
    return found


def read_chains(path: str | Path) -> list[Chain]:
    """All protein chains of a file.

    Raises:
        ConfigError: it is not there, is damaged, or holds no structure.
    """
    try:
        data = Path(path).read_bytes()
    except OSError as error:
        raise ConfigError([f"cannot be read: {error.strerror}"], str(path)) from error
    return chains_of(data, str(path))


def chains_of(data: bytes, path: str) -> list[Chain]:
    """All protein chains of what a file holds; `path` is for errors.

    Raises:
        ConfigError: it is damaged, or holds no structure.
    """
    structure = _parsed(_unpacked(data, path).removeprefix(BOM_UTF8), path)
    _name_chains(structure[0])
    structure.setup_entities()
    structure.assign_label_seq_id()
    of_mmcif = structure.input_format == gemmi.CoorFormat.Mmcif
    found = []
    for chain in structure[0]:
        parts = [
            part for span in chain.subchains() if (part := _part_of(span, structure.get_entity_of(span)))
        ]
        if parts:
            labels = {part.label for part in parts}
            label = labels.pop() if of_mmcif and len(labels) == 1 else ""
            found.append(_chain(chain.name.strip(), label, parts))
    return found


def _name_chains(model: gemmi.Model) -> None:
    """Give names to chains that have none, in which gemmi looks for no polymer.

    Several segments in one chain are chains of their own, as in what molecular dynamics writes.
    """
    nameless = next((chain for chain in model if not chain.name.strip()), None)
    if nameless is None:
        return
    segments: dict[str, gemmi.Chain] = {}
    for residue in nameless:
        if not residue.is_water():
            name = residue.segment.strip() or " "
            segments.setdefault(name, gemmi.Chain(name)).add_residue(residue)
    if len(segments) < 2:
        nameless.name = " "
        return
    there = {chain.name for chain in model}
    model.remove_chain(nameless.name)
    for name, chain in segments.items():
        chain.name = f"segment {name}" if name in there else name
        model.add_chain(chain)


def _unpacked(data: bytes, path: str) -> bytes:
    if not data:
        raise ConfigError(["is empty"], path)
    if data[:2] != b"\x1f\x8b":
        return data
    text = bytearray()
    try:
        while data:  # one member after the other
            unpacker = zlib.decompressobj(31)
            text += unpacker.decompress(data)
            if not unpacker.eof:
                raise zlib.error("it ends in the middle")
            data = unpacker.unused_data.lstrip(b"\0")
    except zlib.error as error:
        raise ConfigError([f"is a damaged gzip file ({error}); fetch it again"], path) from error
    return bytes(text)


def _parsed(text: bytes, path: str) -> gemmi.Structure:
    try:
        structure = gemmi.read_structure_string(text, format=gemmi.CoorFormat.Detect)
    except (RuntimeError, ValueError) as error:
        raise ConfigError([f"is not a structure in PDB or mmCIF format: {error}"], path) from error
    if not len(structure) or not len(structure[0]):
        raise ConfigError(["is not a structure in PDB or mmCIF format: it has no atoms"], path)
    return structure


# --- Residues -----------------------------------------------------------------------------------------


class _Part(NamedTuple):
    """A polymer of a chain; most chains have one."""

    label: str
    atoms: Atoms
    resolved: numpy.typing.NDArray[numpy.bool_]
    native: list[int]
    numbers: list[int]
    places: list[int]
    sequence: list[int]
    """Empty: the file says none, or the residues do not fit in it."""


def _part_of(span: gemmi.ResidueSpan, entity: gemmi.Entity | None) -> _Part | None:
    """The modelled part of a polymer; None if it is not a protein."""
    if entity is None or entity.entity_type != gemmi.EntityType.Polymer:
        return None
    nucleic = sum(_kind(residue.name)[1] for residue in span)
    if nucleic > sum(map(_is_amino, span)):
        return None
    groups = [group for group in map(_alternatives, span.residue_groups()) if group]
    if not groups:
        return None
    best = [group[0] if len(group) == 1 else max(group, key=_preference) for group in groups]
    nowhere = [numpy.nan] * 3
    xyz = numpy.array([[atom.pos.tolist() if atom else nowhere for atom in atoms] for _, atoms in best])
    resolved = _resolved(xyz)
    native = [_token(residue.name) for residue, _ in best]
    firsts = [group[0][0] for group in groups]
    full = [_token(entity.first_mon(item)) for item in entity.full_sequence]
    places = [(residue.label_seq or 0) - 1 for residue in firsts]
    if not _fit(places, len(full)):
        full, places = [], list(range(len(groups)))
    numbers = [residue.seqid.num or 0 for residue in firsts]
    atoms = numpy.where(resolved[:, None, None], xyz, 0.0).astype(numpy.float32)
    return _Part(span.subchain_id(), atoms, resolved, native, numbers, places, full)


def _fit(places: Sequence[int], length: int) -> bool:
    steps = zip([-1, *places], [*places, length], strict=True)
    return all(before < after for before, after in steps)


def _chain(name: str, label: str, parts: Sequence[_Part]) -> Chain:
    native = numpy.array([token for part in parts for token in part.native], numpy.uint8)
    filled: list[int] = []
    for part in parts:
        before = part.numbers[0] - 1
        for number in part.numbers:  # insertion codes share one; where they fall, nobody knows of a gap
            filled.append((filled[-1] if filled else -1) + max(number - before, 1))
            before = number
    if all(part.sequence for part in parts):
        starts = numpy.cumsum([0, *(len(part.sequence) for part in parts)])
        sequence = numpy.array([token for part in parts for token in part.sequence], numpy.uint8)
        places = [n + place for n, part in zip(starts, parts, strict=False) for place in part.places]
        sequence[places] = native  # what is modelled counts
        positions = list(range(len(sequence)))
    else:
        sequence, places, positions = native, list(range(len(native))), filled
    return Chain(
        name,
        label,
        numpy.concatenate([part.atoms for part in parts]),
        numpy.concatenate([part.resolved for part in parts]),
        native,
        sequence,
        numpy.array(places, numpy.int32),
        numpy.array(positions, numpy.int32),
        numpy.array(filled, numpy.int32),
    )


_Backbone = tuple["gemmi.Atom | None", ...]
_Alternative = tuple[gemmi.Residue, _Backbone]


def _alternatives(group: gemmi.ResidueGroup) -> list[_Alternative]:
    """The ways in which a place of a chain is modelled: kinds of residue, and of places of atoms."""
    found: list[_Alternative] = []
    for residue in group:
        if _is_amino(residue):
            atoms = [(name, atom.altloc, atom) for atom in residue if (name := atom.name) in _NAMES]
            letters = sorted({letter for _, letter, _ in atoms} - {"\0"}) or ["\0"]
            found += [(residue, _backbone(atoms, letter)) for letter in letters]
    return found


def _backbone(atoms: Sequence[tuple[str, str, gemmi.Atom]], letter: str) -> _Backbone:
    """The atoms of N, CA, C and O that go with an alternative's letter: its own, and those that all share."""
    mine = {name: atom for name, altloc, atom in atoms if altloc == "\0"}
    mine.update((name, atom) for name, altloc, atom in atoms if altloc == letter)
    return tuple(next((mine[name] for name in names if name in mine), None) for names in _BACKBONE)


def _preference(alternative: _Alternative) -> tuple[int, float]:
    atoms = [atom for atom in alternative[1] if atom is not None]
    return len(atoms), sum(atom.occ for atom in atoms)


def _resolved(xyz: numpy.typing.NDArray[numpy.float64]) -> numpy.typing.NDArray[numpy.bool_]:
    """Which residues (residues, 4, 3) have all atoms, each a bond's length from the one before."""
    shortest, longest = _BONDS
    finite: numpy.typing.NDArray[numpy.bool_] = numpy.logical_and.reduce(
        numpy.isfinite(xyz.reshape(len(xyz), 12)), axis=1
    )
    bonds = numpy.linalg.norm(numpy.diff(numpy.where(finite[:, None, None], xyz, 0.0), axis=1), axis=2)
    found: numpy.typing.NDArray[numpy.bool_] = numpy.logical_and.reduce(
        [finite, bonds.min(axis=1) >= shortest, bonds.max(axis=1) <= longest]
    )
    return found


def _is_amino(residue: gemmi.Residue) -> bool:
    """Whether it is an amino acid by its name, or, where that says nothing, by its atoms."""
    amino, nucleic = _kind(residue.name)
    if amino or nucleic:
        return amino
    atoms = {atom.name: atom for atom in residue}
    # An ion of calcium is a CA, too, and where a file names no elements, a carbon may be taken for one.
    return "CA" in atoms and (atoms["CA"].element.name == "C" or {"N", "C"} <= atoms.keys())


@cache
def _kind(name: str) -> tuple[bool, bool]:
    """Whether residues of this name are known as amino acids, and as nucleic acids."""
    kind = gemmi.find_tabulated_residue(name)
    return name in _OTHER_NAMES or kind.is_amino_acid(), kind.is_nucleic_acid()


@cache
def _token(name: str) -> int:
    """The token of a residue by its name; a modified one counts as its original."""
    letter = _OTHER_NAMES.get(name) or gemmi.find_tabulated_residue(name).one_letter_code.upper()
    found = LETTERS.find(letter)
    return UNKNOWN if found < 0 else found
