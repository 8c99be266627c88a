"""Preferences as people write them: a JSON list of pairs of sequences, each for chains of a structure.

    [{"pdb_file": "a.pdb", "preferred_seq": "MKV…", "unpreferred_seq": "MRV…", "chain_id": "A",
      "mutable_ranges": [[10, 20]]},
     {"pdb_file": "b.cif.gz", "preferred_seq": "…", "unpreferred_seq": "…",
      "design_chains": ["H", "L"], "fixed_chains": ["A"]}]

A sequence is that of the designed chains, one after the other, optionally with / between them. Positions
count from 0 over it; ranges include their last position. Where nothing is designed (fixed chains, positions
that are not mutable, residues that are missing in the structure, or X in one of the sequences), the network
sees the structure's residues, for both sequences alike.
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
"""Ranges of positions, each by its first and its last position."""


class Pair(Section, frozen=True, kw_only=True):
    """A pair as the file has it."""

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
        """The names of the designed chains; empty: the first chain of the file."""
        return self.design_chains or ([] if self.chain_id is None else [self.chain_id])

    def mutable(self) -> Ranges:
        """Positions that may be designed; empty: the pair names none."""
        return ranges_of(self.mutable_positions, self.mutable_ranges)


def ranges_of(positions: Sequence[int] | None, ranges: Sequence[tuple[int, int]] | None) -> Ranges:
    """Combine positions and ranges, which include their last position, into ranges."""
    return [*((place, place) for place in positions or ()), *(ranges or ())]


class Fitted(NamedTuple):
    """A pair whose sequences are aligned with a structure."""

    chains: tuple[tuple[int, Layout], ...]
    """Chains by their numbers in the file, designed ones first, each with the layout of its sequence."""
    sequences: Tokens
    """(2, residues of the designed chains): the preferred sequence, then the other."""
    designed: Mask
    """(residues of the designed chains,): which residues are designed."""
    length: int
    """Number of residues in all its chains."""
    differs_elsewhere: bool
    """Whether its sequences differ where nothing is designed."""

    def structure(self, chains: Sequence[Chain]) -> Structure:
        """The structure with its chains; `chains` are those of its file."""
        return joined([chains[number].laid_out(layout) for number, layout in self.chains])


# --- Reading ------------------------------------------------------------------------------------------


def read_pairs(path: Path) -> list[Pair]:
    """Read the pairs of a file.

    Raises:
        ConfigError: the file does not exist or is not JSON, or pairs in it are wrong; each is named with its
            number, from 1.
    """
    try:
        content = json.loads(path.read_bytes())
    except OSError as error:
        raise ConfigError([f"cannot be read: {error.strerror}"], str(path)) from error
    except (ValueError, RecursionError) as error:
        lines = (
            "; if each line is a pair, make a list of them: [{…}, {…}]" if "Extra data" in str(error) else ""
        )
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
    """Mistakes in a pair, whatever its structure."""
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
    apart = min(len(preferred), len(unpreferred)) > 1  # else at most one has a / where chains end
    if sum(preferred) != sum(unpreferred) or (apart and preferred != unpreferred):
        yield (
            f"preferred_seq has {_lengths(preferred)} residues and unpreferred_seq {_lengths(unpreferred)}, "
            "but both are sequences of the same chains; nothing is padded or cut to fit"
        )
    if len({letters.upper().replace("/", "") for letters in sequences.values()}) == 1:
        yield "preferred_seq and unpreferred_seq are the same, so neither is better; drop the pair"
    if pair.chain_id is not None and pair.design_chains is not None:
        yield "has chain_id and design_chains; write one of them"
    if pair.fixed_chains and not pair.designed_chains():
        yield "fixed_chains: needs design_chains, the chains that are designed"
    named = [*pair.designed_chains(), *(pair.fixed_chains or ())]
    for name in sorted({name for name in named if named.count(name) > 1}):
        yield f"names chain {name!r} twice in design_chains and fixed_chains; name each chain once"
    for first, last in pair.mutable_ranges or ():
        if last < first:
            yield f"mutable_ranges: has [{first}, {last}], whose end is before its beginning"


def _lengths(parts: Sequence[int]) -> str:
    return "/".join(map(str, parts))


# --- Fitting ------------------------------------------------------------------------------------------


def fitted(pair: Pair, chains: Sequence[Chain], mutable: Ranges, problems: list[str]) -> Fitted | None:
    """Align a pair with the protein chains of its file; `mutable` applies if the pair names no positions.

    If its sequences fit in several ways, the one is chosen in which they agree best with the file's residues.
    If they do not fit, the reason is added to `problems`, and None is returned.
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
            "names the same chain twice, by two of the names "
            f"{', '.join((*names, *(pair.fixed_chains or ())))}"
        )
        return None
    sequences = numpy.stack([_tokens(pair.preferred_seq), _tokens(pair.unpreferred_seq)])
    split = max(pair.preferred_seq, pair.unpreferred_seq, key=lambda sequence: sequence.count("/"))
    parts = [len(part) for part in split.split("/")]
    layouts = _layouts(designs, sequences, parts)
    if layouts is None:
        problems.append(_no_fit(designs, sequences.shape[1], parts))
        return None
    structure = joined([chain.laid_out(layout) for chain, layout in zip(designs, layouts, strict=True)])
    allowed = _allowed(pair.mutable(), mutable, sequences.shape[1], problems)
    if allowed is None:
        return None
    known = (sequences != UNKNOWN).all(axis=0)
    designed = allowed & structure.resolved & known
    if not designed.any():
        problems.append(
            f"nothing of it is designed: of {len(allowed)} residues {int(allowed.sum())} are mutable, "
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


def _allowed(of_pair: Ranges, of_configuration: Ranges, length: int, problems: list[str]) -> Mask | None:
    """Which positions are mutable: those of the pair, else those of the configuration, else all."""
    ranges = of_pair or of_configuration or [(0, length - 1)]
    farthest = max(last for _, last in ranges)
    if farthest >= length:
        whose = "its mutable positions" if of_pair else "data.mutable_positions and data.mutable_ranges"
        problems.append(
            f"{whose} go up to {farthest}, but its sequences end with {length - 1}; positions count from "
            "0 over the designed chains"
        )
        return None
    mask = numpy.zeros(length, numpy.bool_)
    for first, last in ranges:
        mask[first : last + 1] = True
    return mask


def _tokens(letters: str) -> Tokens:
    return numpy.array([LETTERS.index(letter) for letter in letters.upper() if letter != "/"], numpy.uint8)


class _Way(NamedTuple):
    agreeing: int
    layouts: tuple[Layout, ...]


def _layouts(chains: Sequence[Chain], sequences: Tokens, parts: Sequence[int]) -> tuple[Layout, ...] | None:
    """A layout for each chain, so that together they are as long as the sequences; None: there is none.

    `parts`: the lengths of the chains' sequences, if / separates them.
    """
    if len(parts) not in (1, len(chains)):
        return None
    ways: dict[int, _Way] = {0: _Way(0, ())}  # keys: the ways' lengths
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
                best = further.get(reached + length)
                if best is None or agreeing > best.agreeing:
                    further[reached + length] = _Way(agreeing, (*way.layouts, layout))
        ways = further
    way_to_end = ways.get(sequences.shape[1])
    return None if way_to_end is None else way_to_end.layouts


def _no_fit(chains: Sequence[Chain], length: int, parts: Sequence[int]) -> str:
    """The error if no layout fits: it names the possible lengths."""
    possible = []
    for chain in chains:
        by_length: dict[int, str] = {}
        for layout in Layout:
            by_length.setdefault(chain.length_in(layout), layout.value)
        lengths = " or ".join(f"{length} ({layout_name})" for length, layout_name in by_length.items())
        possible.append(f"chain {chain.name!r} may have {lengths}")
    written = f"{length} residues" if len(parts) == 1 else f"{_lengths(parts)} residues"
    together = ", one after the other" if len(chains) > 1 else ""
    return (
        f"its sequences have {written}, but {'; '.join(possible)}{together}; nothing is padded or cut to fit"
    )
