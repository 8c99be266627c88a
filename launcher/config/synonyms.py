"""Words of other launchers, and what says the same here: for errors. `synonyms.yaml` has them."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

from launcher.config.document import Document, did_you_mean


def hint(kind: str, word: str, known: list[str]) -> str:
    """The end of an error about a field that a struct of this name does not have."""
    bare = re.sub("^(slurm|local|pbs)_", "", word)  # as submitit's executors have them
    if meant := bare if bare in known else instead(kind, bare):
        return f"; here: {meant}"
    return did_you_mean(word, known) or f"; there are: {', '.join(known)}"


def instead(kind: str, word: str) -> str | None:
    """A field or a verb, or a sentence, for a word of others; None where it is nobody's."""
    return _table(kind).get(word.strip("-").replace("-", "_"))


@cache
def _table(kind: str) -> dict[str, str]:
    rows = Document.read(Path(__file__).with_suffix(".yaml")).data.get(kind, {})
    return {word: meant for meant, words in rows.items() for word in words.split()}
