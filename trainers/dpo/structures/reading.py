"""Structures from PDB and mmCIF files, plain or gzip, by gemmi.

Only the protein chains of a file's first model are read: not waters, ligands, caps and nucleic acids. A
residue with an incomplete backbone is kept and marked as not resolved, so that a hole in the file moves no
residue after it. Residues in the file's full sequence (SEQRES, entity_poly_seq) that are not modelled are
included, by gemmi's alignment of the two.
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
"""Suffixes of structure files, which may be followed by .gz."""

_BACKBONE = (("N",), ("CA",), ("C",), ("O", "OT1", "O1", "OXT"))
"""The names of each backbone atom; the last residue's O may have the name of the other oxygen."""

_NAMES = frozenset(name for names in _BACKBONE for name in names)

_BONDS = (0.5, 4.0)
"""Smallest and largest distance in Å of bonded backbone atoms; a residue with any other is not resolved."""

_OTHER_NAMES = {
    **dict.fromkeys(("HSD", "HSE", "HSP", "HID", "HIE", "HIP"), "H"),
    **dict.fromkeys(("CYX", "CYM"), "C"),
    "ASH": "D",
    "GLH": "E",
    "LYN": "K",
}
"""Amino acids by the names that force fields use for their states of protonation and bonding."""

Atoms = numpy.typing.NDArray[numpy.float32]
Places = numpy.typing.NDArray[numpy.int32]


class Layout(Enum):
    """Which residues a chain's sequence contains."""

    MODELLED = "modelled residues"
    FULL = "the file's full sequence"
    NUMBERED = "gaps of residue numbers filled"


class Chain(NamedTuple):
    """A protein chain: its `modelled` residues, and their positions among all residues."""

    name: str
    """The author's name for the chain."""
    label: str
    """The chain's other name in mmCIF; "" if it has none, or several."""
    atoms: Atoms
    """(modelled, 4, 3), in Å; 0 where a residue is not resolved."""
    resolved: numpy.typing.NDArray[numpy.bool_]
    """(modelled,): whether a residue's backbone is whole."""
    native: Tokens
    """(modelled,): the residues' tokens."""
    sequence: Tokens
    """(full,): the full sequence, or the modelled residues if the file has no sequence that they fit into."""
    places: Places
    """(modelled,): the index of each modelled residue in the full sequence."""
    positions: Places
    """(full,): the number of each residue in the chain, from 0."""
    filled: Places
    """(modelled,): the index of each modelled residue, from 0, if gaps of residue numbers are filled."""

    def places_in(self, layout: Layout) -> Places:
        """(modelled,): the indices of the modelled residues in a sequence of this layout."""
        if layout is Layout.MODELLED:
            return numpy.arange(len(self.native), dtype=numpy.int32)
        return self.places if layout is Layout.FULL else self.filled

    def length_in(self, layout: Layout) -> int:
        """The number of residues in a sequence of this layout."""
        if layout is Layout.MODELLED:
            return len(self.native)
        return len(self.sequence) if layout is Layout.FULL else int(self.filled[-1]) + 1

    def laid_out(self, layout: Layout = Layout.FULL) -> Structure:
        """The chain as a structure with the residues of this layout."""
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
    """Read the chains of a file that `chains` names, in this order; None: all protein chains.

    Each has its full sequence, if the file has it, else its modelled residues.

    Raises:
        ConfigError: the file cannot be read, or does not have the chains.
    """
    all_chains = read_chains(path)
    if not all_chains:
        raise ConfigError(["holds no protein chain"], str(path))
    problems: list[str] = []
    named = all_chains if chains is None else chosen(all_chains, chains, problems)
    if problems:
        raise ConfigError(problems, str(path))
    return joined([chain.laid_out() for chain in named])


def joined(structures: Sequence[Structure]) -> Structure:
    """Join chains to one structure, one after the other."""
    counts = numpy.cumsum([0, *(len(part.names) for part in structures)])
    return Structure(
        numpy.concatenate([structure.atoms for structure in structures]),
        numpy.concatenate([part.resolved for part in structures]),
        numpy.concatenate([part.native for part in structures]),
        numpy.concatenate([part.chains + n for part, n in zip(structures, counts, strict=False)]).astype(
            numpy.int32
        ),
        numpy.concatenate([part.positions for part in structures]),
        tuple(name for part in structures for name in part.names),
    )


def chosen(chains: Sequence[Chain], names: Sequence[str], problems: list[str]) -> list[Chain]:
    """Find chains by name: the author's, or else mmCIF's, if exactly one chain has it.

    Names that are not found are added to `problems`.
    """
    matching = []
    for name in names:
        wanted = name.strip()
        matches = [chain for chain in chains if chain.name == wanted]
        matches = matches or [chain for chain in chains if chain.label == wanted != ""]
        if len(matches) == 1:
            matching.append(matches[0])
        else:
            available = ", ".join(chain.name or "' '" for chain in chains) or "none"
            problems.append(f"has no protein chain {name!r}; there are {available}")
    return matching


def read_chains(path: str | Path) -> list[Chain]:
    """Read all protein chains of a file.

    Raises:
        ConfigError: the file does not exist, is damaged, or holds no structure.
    """
    try:
        data = Path(path).read_bytes()
    except OSError as error:
        raise ConfigError([f"cannot be read: {error.strerror}"], str(path)) from error
    return chains_of(data, str(path))


def chains_of(data: bytes, path: str) -> list[Chain]:
    """All protein chains in the content of a file; `path` is for errors.

    Raises:
        ConfigError: the file is damaged, or holds no structure.
    """
    structure = _parsed(_unpacked(data, path).removeprefix(BOM_UTF8), path)
    _name_chains(structure[0])
    structure.setup_entities()
    structure.assign_label_seq_id()
    of_mmcif = structure.input_format == gemmi.CoorFormat.Mmcif
    chains = []
    for chain in structure[0]:
        parts = [
            part for span in chain.subchains() if (part := _part_of(span, structure.get_entity_of(span)))
        ]
        if parts:
            labels = {part.label for part in parts}
            label = labels.pop() if of_mmcif and len(labels) == 1 else ""
            chains.append(_chain(chain.name.strip(), label, parts))
    return chains


def _name_chains(model: gemmi.Model) -> None:
    """Name chains that have no name, because gemmi finds no polymers in them.

    If such a chain has several segments, as written by molecular dynamics, each becomes a chain.
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
    names = {chain.name for chain in model}
    model.remove_chain(nameless.name)
    for name, chain in segments.items():
        chain.name = f"segment {name}" if name in names else name
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
    """The full sequence; empty if the file has none, or the residues do not fit into it."""


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
        for number in part.numbers:  # a number that repeats (insertion codes) or falls is no gap
            filled.append((filled[-1] if filled else -1) + max(number - before, 1))
            before = number
    if all(part.sequence for part in parts):
        starts = numpy.cumsum([0, *(len(part.sequence) for part in parts)])
        sequence = numpy.array([token for part in parts for token in part.sequence], numpy.uint8)
        places = [n + place for n, part in zip(starts, parts, strict=False) for place in part.places]
        sequence[places] = native  # modelled residues override it
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
    """The alternatives in which a position of a chain is modelled: residues, and locations of their atoms."""
    alternatives: list[_Alternative] = []
    for residue in group:
        if _is_amino(residue):
            atoms = [(name, atom.altloc, atom) for atom in residue if (name := atom.name) in _NAMES]
            letters = sorted({letter for _, letter, _ in atoms} - {"\0"}) or ["\0"]
            alternatives += [(residue, _backbone(atoms, letter)) for letter in letters]
    return alternatives


def _backbone(atoms: Sequence[tuple[str, str, gemmi.Atom]], letter: str) -> _Backbone:
    """The backbone atoms of an alternative: those with its letter, and those that all alternatives share."""
    mine = {name: atom for name, altloc, atom in atoms if altloc == "\0"}
    mine.update((name, atom) for name, altloc, atom in atoms if altloc == letter)
    return tuple(next((mine[name] for name in names if name in mine), None) for names in _BACKBONE)


def _preference(alternative: _Alternative) -> tuple[int, float]:
    atoms = [atom for atom in alternative[1] if atom is not None]
    return len(atoms), sum(atom.occ for atom in atoms)


def _resolved(xyz: numpy.typing.NDArray[numpy.float64]) -> numpy.typing.NDArray[numpy.bool_]:
    """Which residues (residues, 4, 3) have all atoms, each at a bond's length from the previous one."""
    shortest, longest = _BONDS
    finite: numpy.typing.NDArray[numpy.bool_] = numpy.logical_and.reduce(
        numpy.isfinite(xyz.reshape(len(xyz), 12)), axis=1
    )
    bonds = numpy.linalg.norm(numpy.diff(numpy.where(finite[:, None, None], xyz, 0.0), axis=1), axis=2)
    resolved: numpy.typing.NDArray[numpy.bool_] = numpy.logical_and.reduce(
        [finite, bonds.min(axis=1) >= shortest, bonds.max(axis=1) <= longest]
    )
    return resolved


def _is_amino(residue: gemmi.Residue) -> bool:
    """Whether a residue is an amino acid: by its name, or by its atoms if its name is unknown."""
    amino, nucleic = _kind(residue.name)
    if amino or nucleic:
        return amino
    atoms = {atom.name: atom for atom in residue}
    # A calcium ion is also called CA, and in a file without elements, a carbon may be taken for one.
    return "CA" in atoms and (atoms["CA"].element.name == "C" or {"N", "C"} <= atoms.keys())


@cache
def _kind(name: str) -> tuple[bool, bool]:
    """Whether a residue's name is known as that of an amino acid, and as that of a nucleic acid."""
    kind = gemmi.find_tabulated_residue(name)
    return name in _OTHER_NAMES or kind.is_amino_acid(), kind.is_nucleic_acid()


@cache
def _token(name: str) -> int:
    """The token of a residue by its name; a modified one counts as its original."""
    letter = _OTHER_NAMES.get(name) or gemmi.find_tabulated_residue(name).one_letter_code.upper()
    token = LETTERS.find(letter)
    return UNKNOWN if token < 0 else token
