"""Small token stores for tests."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from castoff.trainers.sedd.store.building import build
from castoff.trainers.sedd.store.token_store import Filters, TokenStore


def write_fasta(path: Path, proteins: Sequence[str]) -> Path:
    path.write_text("".join(f">{number}\n{letters}\n" for number, letters in enumerate(proteins)))
    return path


def store_with(folder: Path, proteins: Sequence[str]) -> TokenStore:
    """Of these proteins, in their order, repeated ones too."""
    source = write_fasta(folder / "proteins.fasta", proteins)
    build([source], folder / "store", Filters(max_unknown=1.0, keep_duplicates=True), processes=1)
    return TokenStore.open(folder / "store")
