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

    The set has no `lengths`: a batch of graphs has no padding that similar sizes would save.
    """

    def __init__(self, folder: Path, transform: Callable[[Any], Any] | None = None):
        self.saved = Saved(folder)
        self.transform = transform
        self.rng_sources: Collection[str] | None = () if transform is None else None
        """Global generators that samples are drawn from: none, unless a user's transform does so (None:
        unknown).
        """

    @property
    def digest(self) -> str:
        """A text that identifies the graphs, wherever and whenever they were written."""
        return str(self.saved.about["digest"])

    def __len__(self) -> int:
        """The number of graphs."""
        return len(self.saved)

    def __getitem__(self, index: int) -> Any:
        """Read a graph, and apply the transform.

        Raises:
            ConfigError: the transform does not return a graph, or the file is damaged.
        """
        graph = self.saved[int(index)]
        if self.transform is None:
            return graph
        changed = self.transform(graph)
        if not isinstance(changed, BaseData):
            raise ConfigError(
                [f"data.transform: returned {in_words(changed)}, but must return a torch_geometric Data"]
            )
        return changed
