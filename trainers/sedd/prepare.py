"""Make a token store: `python -m castoff.trainers.sedd.prepare uniref50.fasta.gz --out uniref50`."""

from __future__ import annotations

import argparse
import logging
import sys
from collections.abc import Sequence
from pathlib import Path

from castoff.trainers.configuration.fields import ConfigError, convert
from castoff.trainers.program.parser import Parser
from castoff.trainers.sedd.store.building import build
from castoff.trainers.sedd.store.token_store import Filters, Manifest

_PROGRAM = "python -m castoff.trainers.sedd.prepare"


def main(arguments: Sequence[str] | None = None) -> None:
    """Build the store that the command line describes. If that fails, print the error and exit."""
    options = _parser().parse_args(arguments)
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    try:
        manifest = build(options.files, options.out, _filters(options), processes=options.processes)
    except (ConfigError, OSError) as error:
        sys.exit("\n".join(f"{_PROGRAM}: {line}" for line in str(error).splitlines()))
    except KeyboardInterrupt:
        sys.exit(130)
    print("\n".join(_summary(manifest)))


def _filters(options: argparse.Namespace) -> Filters:
    names = ("min_length", "max_length", "max_unknown", "keep_duplicates")
    given = {name: getattr(options, name) for name in names if getattr(options, name) is not None}
    problems: list[str] = []
    filters: Filters | None = convert(given, Filters, "", problems)
    if filters is None:
        raise ConfigError(problems, "command line")
    return filters


def _summary(manifest: Manifest) -> list[str]:
    dropped = manifest.dropped
    lines = [
        f"proteins: {manifest.sequences:,}; residues: {manifest.residues:,}; "
        f"lengths: {manifest.shortest:,} to {manifest.longest:,}"
    ]
    reasons = {
        "too short": dropped.too_short,
        "too long": dropped.too_long,
        "of too many unknown residues": dropped.unknown,
        "duplicates": dropped.duplicates,
    }
    left_out = [f"{number:,} {why}" for why, number in reasons.items() if number]
    if left_out:
        lines.append(f"left out: {', '.join(left_out)}")
    return lines


def _positive(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"is {text!r}, but takes a whole number of at least 1")
    return int(text)


def _parser() -> argparse.ArgumentParser:
    parser = Parser(
        prog=_PROGRAM,
        description="Pack proteins into a token store, which a training reads without loading it: each "
        "sequence once, in the order of the files. If interrupted, start it again.",
        allow_abbrev=False,
    )
    parser.add_argument(
        "files",
        metavar="FILE",
        type=Path,
        nargs="+",
        help="FASTA, plain or gzip, or a .pt of sequences",
    )
    parser.add_argument("--out", metavar="FOLDER", type=Path, required=True, help="the store")
    parser.add_argument("--min_length", type=int, metavar="N", help="leave shorter proteins out; default 1")
    parser.add_argument("--max_length", type=int, metavar="N", help="leave longer proteins out")
    parser.add_argument(
        "--max_unknown",
        type=float,
        metavar="SHARE",
        help="leave out proteins with a larger share of residues that are not among the 20 amino acids; "
        "default 0.1",
    )
    parser.add_argument(
        "--keep_duplicates",
        action="store_true",
        help="keep repeated sequences; default: keep only the first of each",
    )
    parser.add_argument(
        "--processes",
        type=_positive,
        metavar="N",
        help="processes that read proteins, besides the one that unpacks and writes; default one per core, "
        "8 at most; 1: a single process does all",
    )
    return parser


if __name__ == "__main__":
    main()
