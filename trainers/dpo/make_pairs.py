"""Synthetic preferences: `python -m castoff.trainers.dpo.make_pairs structures --out pairs.json`.

In each pair the preferred sequence is the structure's own, and the other is the same with some residues
replaced by others that are guessed to be worse (see `samples.worse`). So it is certain that the preferred
sequence folds into the structure, and likely that the other does so less well; no more. Nothing was measured,
and a model that has learned these preferences has learned this guess. The pairs are for trying everything
before there are measured ones, and the description of each pair says so.

They are made from the chains of a folder of structures, in turn; the same folder and seed give the same
pairs.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections import deque
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy

from castoff.trainers.configuration.fields import ConfigError
from castoff.trainers.configuration.paths import check_writable
from castoff.trainers.dpo.alphabet import LETTERS, UNKNOWN, Tokens
from castoff.trainers.dpo.samples.data import ChainSet
from castoff.trainers.dpo.samples.worse import burial, worse
from castoff.trainers.dpo.settings import Chains
from castoff.trainers.dpo.structures.reading import Chain
from castoff.trainers.files.durable import replace_file
from castoff.trainers.program.parser import Parser

_PROGRAM = "python -m castoff.trainers.dpo.make_pairs"

_TRIES = 20
"""Number of attempts to find a sequence that is not yet in a pair."""


def main(arguments: Sequence[str] | None = None) -> None:
    """Make the pairs that the command line describes. If that fails, print the error and exit."""
    options = _parser().parse_args(arguments)
    try:
        check_writable(options.out, "--out")
        pairs = made(options.structures, options.out, options.number, options.substitutions, options.seed)
        replace_file(options.out, f"{json.dumps(pairs, indent=1)}\n".encode())
    except KeyboardInterrupt:
        sys.exit(130)
    except (ConfigError, OSError) as error:
        lines = str(error).replace("data.structures", "STRUCTURES").splitlines()
        sys.exit("\n".join(f"{_PROGRAM}: {line}" for line in lines))
    chains = len({(pair["pdb_file"], pair["chain_id"]) for pair in pairs})
    print(f"pairs: {len(pairs):,}, of {chains:,} chains, synthetic; in {options.out}")


def made(structures: Path, out: Path, number: int | None, share: float, seed: int) -> list[dict[str, str]]:
    """Make `number` pairs (None: one for each chain), with paths relative to a file at `out`.

    `share`: the share of a chain's residues that are replaced in the other sequence, at least one residue.

    Raises:
        ConfigError: the structures cannot be read, or not enough pairs can be made from them.
    """
    folder = out.absolute().parent
    chains = ChainSet(structures, Chains(structures=str(structures)), cache=folder)
    folder = folder.resolve()  # `..` in a relative path leads up from the real folder
    order = numpy.random.default_rng(seed).permutation(len(chains)).tolist()
    sources: dict[bytes, int] = {}
    for index in order:
        sources.setdefault(chains.origin(index)[1].sequence.tobytes(), index)
    turns = deque(
        _pairs_of(*chains.origin(index), folder, share, numpy.random.default_rng((seed, index)))
        for index in sources.values()
    )
    wanted = len(turns) if number is None else number
    pairs: list[dict[str, str]] = []
    while turns and len(pairs) < wanted:
        turn = turns.popleft()
        pair = next(turn, None)
        if pair is not None:
            pairs.append(pair)
            turns.append(turn)
    if not pairs or (number is not None and len(pairs) < number):
        raise ConfigError(
            [
                f"--number: {len(pairs):,} different pairs can be made from the {len(sources):,} "
                f"different chains in {structures}, not {wanted:,}; request fewer, or provide more "
                "structures"
            ]
        )
    return pairs


def _pairs_of(
    file: Path, chain: Chain, folder: Path, share: float, generator: numpy.random.Generator
) -> Iterator[dict[str, str]]:
    """Yield different pairs of a chain, until no new one is found."""
    structure = chain.laid_out()
    has_residue = structure.resolved & (structure.native != UNKNOWN)
    positions = numpy.flatnonzero(has_residue)
    depth = burial(structure.atoms, structure.resolved)[positions]
    options = worse(structure.native[positions], depth)
    positions, options = positions[options.any(axis=1)], options[options.any(axis=1)]
    changed = min(max(round(share * int(has_residue.sum())), 1), len(positions))
    native = _letters(structure.native)
    seen = {native}
    tries = _TRIES
    while changed and tries:
        rejected = structure.native.copy()
        for row in generator.choice(len(positions), changed, replace=False):
            rejected[positions[row]] = generator.choice(numpy.flatnonzero(options[row]))
        letters = _letters(rejected)
        if letters in seen:
            tries -= 1
            continue
        seen.add(letters)
        tries = _TRIES
        yield {
            "pdb_file": os.path.relpath(file.parent.resolve() / file.name, folder),
            "chain_id": chain.name,
            "preferred_seq": native,
            "unpreferred_seq": letters,
            "description": f"synthetic: the native sequence, and the same with {changed} substitutions that "
            "are guessed to be worse from burial, hydropathy and BLOSUM62; nothing was measured",
        }


def _letters(tokens: Tokens) -> str:
    return "".join(LETTERS[token] for token in tokens)


def _whole(text: str, least: int = 0) -> int:
    if not text.isdecimal() or int(text) < least:
        raise argparse.ArgumentTypeError(f"is {text!r}, but takes a whole number of at least {least}")
    return int(text)


def _positive(text: str) -> int:
    return _whole(text, 1)


def _share(text: str) -> float:
    try:
        share = float(text)
    except ValueError:
        share = -1.0
    if not 0 < share <= 1:
        raise argparse.ArgumentTypeError(f"is {text!r}, but takes a number above 0 and at most 1")
    return share


def _parser() -> argparse.ArgumentParser:
    parser = Parser(
        prog=_PROGRAM,
        description="Make synthetic preferences of structures: each chain's own sequence against itself with "
        "substitutions that are guessed to be worse. Nothing in them was measured.",
        allow_abbrev=False,
    )
    parser.add_argument(
        "structures", metavar="STRUCTURES", type=Path, help="a folder of PDB and mmCIF files, also .gz"
    )
    parser.add_argument(
        "--out", metavar="FILE", type=Path, required=True, help="JSON file in the format that dpo reads"
    )
    parser.add_argument(
        "--number", metavar="N", type=_positive, help="number of pairs; default: one for each chain"
    )
    parser.add_argument(
        "--substitutions",
        metavar="SHARE",
        type=_share,
        default=0.1,
        help="share of a chain's residues to substitute, if there are worse ones for them; default 0.1",
    )
    parser.add_argument("--seed", metavar="N", type=_whole, default=0, help="default 0")
    return parser


if __name__ == "__main__":
    main()
