"""A split of proteins into training ones and held-out ones that no training protein is related to.

mmseqs2 clusters and searches (Steinegger and Söding, Nature Biotechnology 35, 2017). Debian's package
mmseqs2-examples has 20,000 proteins of UniProt (CC BY 4.0).
"""

from __future__ import annotations

import gzip
import shutil
import subprocess
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec
import numpy

EXAMPLES = Path("/usr/share/doc/mmseqs2/example-data/DB.fasta.gz")
INSTALL = "apt-get install mmseqs2 mmseqs2-examples"

CLUSTERING = ("--min-seq-id", "0.3", "-c", "0.5", "--cov-mode", "0", "--cluster-mode", "1")
"""Two proteins are linked by an alignment (E at most 0.001) with 30 % of its residues the same that covers
half of each; a cluster is all that links lead to."""
SEARCH = ("--min-seq-id", "0.3", "-c", "0", "-s", "7.5", "-e", "0.001", "--max-seqs", "1000")
"""The most sensitive search that mmseqs has. Any alignment counts, however little of the two it covers."""


class Origin(msgspec.Struct, frozen=True):
    """What a split was made of, and how."""

    file: str
    share: float
    seed: int
    mmseqs: str
    clustering: tuple[str, ...] = CLUSTERING
    search: tuple[str, ...] = SEARCH


class Sizes(msgspec.Struct, frozen=True):
    """What came of it; residues are letters of the file."""

    proteins: int
    """Different ones."""
    clusters: int
    largest_cluster: int
    training: int
    training_residues: int
    chosen: int
    """Proteins of the clusters that were put aside."""
    dropped: int
    """Of these: related to a training protein all the same, as the search found."""
    held_out: int
    held_out_clusters: int
    held_out_residues: int


class _Record(msgspec.Struct, frozen=True):
    origin: Origin
    sizes: Sizes


class Split(NamedTuple):
    """Two files in a folder; a header is `>NUMBER CLUSTER`."""

    training: Path
    held_out: Path
    sizes: Sizes


def split_of(proteins: Path, folder: Path, *, share: float = 0.1, seed: int = 0) -> Split:
    """Cluster, put clusters with a share of the proteins aside, and drop of these what a search relates.

    The same file, share and seed give the same split; the one that is in the folder already is taken.
    """
    training, held_out, record = (
        folder / name for name in ("training.fasta", "held-out.fasta", "split.json")
    )
    origin = Origin(str(proteins), share, seed, mmseqs("version").strip())
    known = msgspec.json.decode(record.read_bytes(), type=_Record) if record.exists() else None
    if known is None or known.origin != origin:
        folder.mkdir(parents=True, exist_ok=True)
        record.unlink(missing_ok=True)
        known = _Record(origin, _made(proteins, folder, training, held_out, origin))
        record.write_bytes(msgspec.json.encode(known))
    return Split(training, held_out, known.sizes)


def _made(proteins: Path, folder: Path, training: Path, held_out: Path, origin: Origin) -> Sizes:
    scratch = folder / "scratch"
    scratch.mkdir(exist_ok=True)
    sequences = different(sequence for _, sequence in read_fasta(proteins))
    everything, aside, hits = scratch / "all.fasta", scratch / "aside.fasta", scratch / "hits.tsv"
    _write(everything, sequences, range(len(sequences)), range(len(sequences)))
    mmseqs("easy-cluster", everything, scratch / "linked", scratch / "clustering", *CLUSTERING)
    cluster_of = {int(member): int(cluster) for cluster, member in _rows(scratch / "linked_cluster.tsv")}
    learned, chosen = chosen_clusters(cluster_of, origin.share, origin.seed)
    _write(training, sequences, learned, cluster_of)
    _write(aside, sequences, chosen, cluster_of)
    mmseqs("easy-search", aside, training, hits, scratch / "searching", *SEARCH)
    related = {int(row[0]) for row in _rows(hits)}
    left = [index for index in chosen if index not in related]
    _write(held_out, sequences, left, cluster_of)
    shutil.rmtree(scratch)
    return Sizes(
        proteins=len(sequences),
        clusters=len(set(cluster_of.values())),
        largest_cluster=max(map(len, members_of(cluster_of).values())),
        training=len(learned),
        training_residues=sum(len(sequences[index]) for index in learned),
        chosen=len(chosen),
        dropped=len(chosen) - len(left),
        held_out=len(left),
        held_out_clusters=len({cluster_of[index] for index in left}),
        held_out_residues=sum(len(sequences[index]) for index in left),
    )


def chosen_clusters(cluster_of: Mapping[int, int], share: float, seed: int) -> tuple[list[int], list[int]]:
    """Proteins to train on and to put aside: whole clusters in a random order, until they are the share."""
    clusters = sorted(members_of(cluster_of).values())
    order = numpy.random.default_rng(seed).permutation(len(clusters))
    aside: list[int] = []
    learned: list[int] = []
    for number in order:
        (aside if len(aside) < share * len(cluster_of) else learned).extend(clusters[number])
    return sorted(learned), sorted(aside)


def members_of(cluster_of: Mapping[int, int]) -> dict[int, list[int]]:
    """The proteins of each cluster."""
    found: defaultdict[int, list[int]] = defaultdict(list)
    for protein, cluster in sorted(cluster_of.items()):
        found[cluster].append(protein)
    return dict(found)


def different(sequences: Iterable[str]) -> list[str]:
    """Each sequence once, in the order in which they first stand."""
    return list(dict.fromkeys(sequences))


def read_fasta(path: Path) -> list[tuple[str, str]]:
    """Headers, without their `>`, and sequences."""
    content = path.read_bytes()
    text = (gzip.decompress(content) if path.suffix == ".gz" else content).decode()
    found = []
    for entry in text.split("\n>"):
        header, *lines = entry.lstrip(">").splitlines()
        found.append((header, "".join(lines)))
    return found


def _write(
    path: Path,
    sequences: Sequence[str],
    indices: Iterable[int],
    cluster_of: Mapping[int, int] | Sequence[int],
) -> None:
    entries = (f">{index} {cluster_of[index]}\n{sequences[index]}\n" for index in indices)
    path.write_text("".join(entries))


def _rows(path: Path) -> list[list[str]]:
    return [line.split("\t") for line in path.read_text().splitlines()]


def mmseqs(*words: str | Path) -> str:
    """What it says.

    Raises:
        SystemExit: it is not there, or failed.
    """
    if shutil.which("mmseqs") is None:
        raise SystemExit(f"mmseqs is not on PATH; install it, as with: {INSTALL}")
    done = subprocess.run(["mmseqs", *map(str, words)], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise SystemExit(f"mmseqs {words[0]} ended with {done.returncode}:\n{done.stdout}{done.stderr}")
    return done.stdout
