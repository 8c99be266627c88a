"""Written graphs as a data set for loaders and their workers."""

from __future__ import annotations

from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any

from torch.utils.data import Dataset
from torch_geometric.data.data import BaseData

from castoff.trainers.configuration.fields import ConfigError
from castoff.trainers.gnn.graphs.saved import Saved
from castoff.trainers.task.contract import in_words


class Graphs(Dataset[Any]):
    """The graphs of a folder; `transform` is applied to each when it is read.

    They do not say how large they are: a batch of graphs has no padding that similar sizes would save.
    """

    def __init__(self, folder: Path, transform: Callable[[Any], Any] | None = None):
        self.saved = Saved(folder)
        self.transform = transform
        self.rng_sources: Collection[str] | None = () if transform is None else None
        """None of the global generators, but for what a transform of the user's may draw."""

    @property
    def digest(self) -> str:
        """A word that only the same graphs have, wherever and whenever they were written."""
        return str(self.saved.about["digest"])

    def __len__(self) -> int:
        """How many graphs."""
        return len(self.saved)

    def __getitem__(self, index: int) -> Any:
        """A graph.

        Raises:
            ConfigError: the transform gives none, or what is written is damaged.
        """
        graph = self.saved[int(index)]
        if self.transform is None:
            return graph
        changed = self.transform(graph)
        if not isinstance(changed, BaseData):
            raise ConfigError(
                [f"data.transform: gave {in_words(changed)}, but must give a torch_geometric Data"]
            )
        return changed
