"""Preferences as people write them: a JSON list of pairs of sequences, each for chains of a structure.

    [{"pdb_file": "a.pdb", "preferred_seq": "MKV…", "unpreferred_seq": "MRV…", "chain_id": "A",
      "mutable_ranges": [[10, 20]]},
     {"pdb_file": "b.cif.gz", "preferred_seq": "…", "unpreferred_seq": "…",
      "design_chains": ["H", "L"], "fixed_chains": ["A"]}]

Sequences are those of the chains that are designed, one after the other, perhaps with / between them.
Positions count from 0 over them; ranges have their last position in them. Of residues that are not designed
(chains that are fixed, positions that are not mutable, residues without a place in the structure, and those
that are X in one of the sequences) the network sees what the structure has, in both sequences alike.
"""

# No `from __future__ import annotations` here: msgspec would compile each of them at every start.

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import numpy
import numpy.typing

from castoff.trainers.configuration.fields import ConfigError, convert
from castoff.trainers.configuration.section import NotNegative, Section
from castoff.trainers.dpo.alphabet import LETTERS, UNKNOWN, Tokens
from castoff.trainers.dpo.structures.cache import first_few
from castoff.trainers.dpo.structures.reading import Chain, Layout, chosen, joined
from castoff.trainers.dpo.structures.structure import Structure

Mask: TypeAlias = numpy.typing.NDArray[numpy.bool_]

Ranges: TypeAlias = Sequence[tuple[int, int]]
"""Ranges of positions, each as its first and its last one."""


class Pair(Section, frozen=True, kw_only=True):
    """A pair as it is written."""

    pdb_file: str
    """Structure, a PDB or mmCIF file (also .gz), looked up in `data.structures`; without it in the folder of
    the JSON file, then in the working folder."""
    preferred_seq: str
    """Sequence of the designed chains, one after the other, optionally with `/` between them. It has a letter
    for each modelled residue of a chain, or for each of its full sequence (SEQRES), or for each residue
    number from its first to its last. Residues with an X or an incomplete backbone are not designed."""
    unpreferred_seq: str
    """The worse sequence, in the same form."""
    chain_id: str | None = None
    """The designed chain. Without this and `design_chains`: the first chain of the file."""
    design_chains: list[str] | None = None
    """Several designed chains, in place of `chain_id`."""
    fixed_chains: list[str] | None = None
    """Chains that the network sees but does not design. All others are ignored."""
    mutable_positions: list[NotNegative] | None = None
    """Positions to design, counted from 0 over the pair's sequence. Without this and `mutable_ranges`: as the
    configuration says, else all."""
    mutable_ranges: list[tuple[NotNegative, NotNegative]] | None = None
    """The same as ranges, which include their last position."""
    description: str | None = None
    """Free text."""
    comment: str | None = None
    """Free text."""

    def designed_chains(self) -> list[str]:
        """Their names; none: the first one of the file."""
        return self.design_chains or ([] if self.chain_id is None else [self.chain_id])

    def mutable(self) -> Ranges:
        """Positions that may be designed; none: it says none."""
        return ranges_of(self.mutable_positions, self.mutable_ranges)


def ranges_of(positions: Sequence[int] | None, ranges: Sequence[tuple[int, int]] | None) -> Ranges:
    """Positions and ranges, which have their last position in them, as ranges."""
    return [*((place, place) for place in positions or ()), *(ranges or ())]


class Fitted(NamedTuple):
    """A pair whose sequences have found their places in a structure."""

    chains: tuple[tuple[int, Layout], ...]
    """Chains by their numbers in the file, designed ones first, and which of their residues count."""
    sequences: Tokens
    """(2, residues of the chains that are designed): the preferred one, then the other."""
    designed: Mask
    """(residues of the chains that are designed,)."""
    length: int
    """Residues of all its chains."""
    differs_elsewhere: bool
    """Whether its sequences differ where nothing is designed."""

    def structure(self, chains: Sequence[Chain]) -> Structure:
        """Its chains, those of its file being `chains`."""
        return joined([chains[number].laid_out(layout) for number, layout in self.chains])


# --- Reading ------------------------------------------------------------------------------------------


def read_pairs(path: Path) -> list[Pair]:
    """The pairs of a file.

    Raises:
        ConfigError: it is not there, is not JSON, or pairs in it are wrong; each with its number, from 1.
    """
    try:
        content = json.loads(path.read_bytes())
    except OSError as error:
        raise ConfigError([f"cannot be read: {error.strerror}"], str(path)) from error
    except (ValueError, RecursionError) as error:
        lines = "; of pairs in lines make a list: [{…}, {…}]" if "Extra data" in str(error) else ""
        raise ConfigError([f"is not JSON: {error}{lines}"], str(path)) from error
    if not isinstance(content, list):
        raise ConfigError([f"holds {_kind(content)}, but takes a list of pairs: [{{…}}, {{…}}]"], str(path))
    if not content:
        raise ConfigError(["holds no pair"], str(path))
    pairs: list[Pair] = []
    problems: list[str] = []
    for number, item in enumerate(content, start=1):
        mistakes: list[str] = []
        pair: Pair | None = convert(item, Pair, "", mistakes)
        mistakes += [] if pair is None else _mistakes(pair)
        problems += [f"{_named(number, item)}{mistake}" for mistake in mistakes]
        if pair is not None:
            pairs.append(pair)
    if problems:
        raise ConfigError(first_few(problems), str(path))
    return pairs


def _kind(content: Any) -> str:
    return "one object" if isinstance(content, dict) else repr(content)[:40]


def _named(number: int, item: Any) -> str:
    file = item.get("pdb_file") if isinstance(item, dict) else None
    return f"pair {number}{f' ({file})' if isinstance(file, str) else ''}: "


def _mistakes(pair: Pair) -> Iterator[str]:
    """What no structure could mend."""
    sequences = {name: getattr(pair, name) for name in ("preferred_seq", "unpreferred_seq")}
    for name, letters in sequences.items():
        strange = sorted(set(letters) - set(f"{LETTERS}{LETTERS.lower()}/"))
        if strange:
            place = min(map(letters.index, strange))
            yield (
                f"{name}: has {', '.join(map(repr, strange))}, first as letter {place} from 0, but takes "
                f"{LETTERS} (X: not designed), and / between chains"
            )
        elif not letters.strip("/"):
            yield f"{name}: is empty; write the sequence of the chains that are designed"
    preferred, unpreferred = ([len(part) for part in sequence.split("/")] for sequence in sequences.values())
    apart = min(len(preferred), len(unpreferred)) > 1  # else one of them says where chains end
    if sum(preferred) != sum(unpreferred) or (apart and preferred != unpreferred):
        yield (
            f"preferred_seq has {_lengths(preferred)} residues and unpreferred_seq {_lengths(unpreferred)}, "
            "but both are sequences of the same chains; nothing is padded or cut to fit"
        )
    if len({letters.upper().replace("/", "") for letters in sequences.values()}) == 1:
        yield "preferred_seq and unpreferred_seq are the same, so none is the better one; drop the pair"
    if pair.chain_id is not None and pair.design_chains is not None:
        yield "has chain_id and design_chains; write one of them"
    if pair.fixed_chains and not pair.designed_chains():
        yield "fixed_chains: needs design_chains, the chains that are designed"
    named = [*pair.designed_chains(), *(pair.fixed_chains or ())]
    for name in sorted({name for name in named if named.count(name) > 1}):
        yield f"names chain {name!r} twice in design_chains and fixed_chains; each is one or the other"
    for first, last in pair.mutable_ranges or ():
        if last < first:
            yield f"mutable_ranges: has [{first}, {last}], whose end is before its beginning"


def _lengths(parts: Sequence[int]) -> str:
    return "/".join(map(str, parts))


# --- Fitting ------------------------------------------------------------------------------------------


def fitted(pair: Pair, chains: Sequence[Chain], mutable: Ranges, problems: list[str]) -> Fitted | None:
    """A pair's places in the protein chains of its file; `mutable` where it says none itself.

    Where its sequences fit in several ways, it is the one in which they agree with the file's residues the
    most. Returns None, and has added to `problems`, where there is no way.
    """
    before = len(problems)
    names = pair.designed_chains()
    if not chains:
        problems.append("holds no protein chain")
        return None
    designs = chosen(chains, names, problems) if names else [chains[0]]
    fixed = chosen(chains, pair.fixed_chains or (), problems)
    if len(problems) > before:
        return None
    if len({id(each) for each in (*designs, *fixed)}) < len(designs) + len(fixed):
        problems.append(
            f"has one chain by two of the names {', '.join((*names, *(pair.fixed_chains or ())))}"
        )
        return None
    sequences = numpy.stack([_tokens(pair.preferred_seq), _tokens(pair.unpreferred_seq)])
    split = max(pair.preferred_seq, pair.unpreferred_seq, key=lambda each: each.count("/"))
    parts = [len(part) for part in split.split("/")]
    layouts = _layouts(designs, sequences, parts)
    if layouts is None:
        problems.append(_no_fit(designs, sequences.shape[1], parts))
        return None
    structure = joined([chain.laid_out(layout) for chain, layout in zip(designs, layouts, strict=True)])
    may = _allowed(pair.mutable(), mutable, sequences.shape[1], problems)
    if may is None:
        return None
    known = (sequences != UNKNOWN).all(axis=0)
    designed = may & structure.resolved & known
    if not designed.any():
        problems.append(
            f"nothing of it is designed: of {len(may)} residues {int(may.sum())} are mutable, "
            f"{int(structure.resolved.sum())} have their whole backbone in the file, and {int(known.sum())} "
            "are known in both sequences, but none is all three"
        )
        return None
    numbers = {id(chain): number for number, chain in enumerate(chains)}
    places = [
        *((numbers[id(chain)], layout) for chain, layout in zip(designs, layouts, strict=True)),
        *((numbers[id(chain)], Layout.FULL) for chain in fixed),
    ]
    length = sum(chains[number].length_in(layout) for number, layout in places)
    differ = sequences[0] != sequences[1]
    return Fitted(tuple(places), sequences, designed, length, bool((differ & ~designed).any()))


def _allowed(own: Ranges, others: Ranges, length: int, problems: list[str]) -> Mask | None:
    """Which positions are mutable: those of the pair, else those of the configuration, else all."""
    ranges = own or others or [(0, length - 1)]
    most = max(last for _, last in ranges)
    if most >= length:
        whose = "its mutable positions" if own else "data.mutable_positions and data.mutable_ranges"
        problems.append(
            f"{whose} go up to {most}, but its sequences end with {length - 1}; they count "
            "from 0 over the chains that are designed"
        )
        return None
    may = numpy.zeros(length, numpy.bool_)
    for first, last in ranges:
        may[first : last + 1] = True
    return may


def _tokens(letters: str) -> Tokens:
    return numpy.array([LETTERS.index(letter) for letter in letters.upper() if letter != "/"], numpy.uint8)


class _Way(NamedTuple):
    agreeing: int
    layouts: tuple[Layout, ...]


def _layouts(chains: Sequence[Chain], sequences: Tokens, parts: Sequence[int]) -> tuple[Layout, ...] | None:
    """A layout for each chain, so that together they are as long as the sequences; None: there is none.

    `parts`: the lengths of the chains' sequences, where they are written apart.
    """
    if len(parts) not in (1, len(chains)):
        return None
    ways: dict[int, _Way] = {0: _Way(0, ())}  # by how far they reach
    for number, chain in enumerate(chains):
        further: dict[int, _Way] = {}
        for reached, way in ways.items():
            for layout in Layout:
                length = chain.length_in(layout)
                if len(parts) > 1 and length != parts[number]:
                    continue
                places = reached + chain.places_in(layout)
                if reached + length > sequences.shape[1]:
                    continue
                agreeing = way.agreeing + int((sequences[:, places] == chain.native).sum())
                known = further.get(reached + length)
                if known is None or agreeing > known.agreeing:
                    further[reached + length] = _Way(agreeing, (*way.layouts, layout))
        ways = further
    found = ways.get(sequences.shape[1])
    return None if found is None else found.layouts


def _no_fit(chains: Sequence[Chain], length: int, parts: Sequence[int]) -> str:
    """Which lengths there may be."""
    may = []
    for chain in chains:
        by_length: dict[int, str] = {}
        for layout in Layout:
            by_length.setdefault(chain.length_in(layout), layout.value)
        lengths = " or ".join(f"{length} ({what})" for length, what in by_length.items())
        may.append(f"chain {chain.name!r} may have {lengths}")
    written = f"{length} residues" if len(parts) == 1 else f"{_lengths(parts)} residues"
    together = ", and they stand one after the other" if len(chains) > 1 else ""
    return f"its sequences have {written}, but {'; '.join(may)}{together}; nothing is padded or cut to fit"
