"""The reader for stores with known array names, or with names from the configuration."""

from __future__ import annotations

from collections.abc import Sequence

import numpy
import numpy.typing
import torch
from torch import Tensor
from torch_geometric.data import Data

from castoff.launcher.typed.suggestion import suggestion
from castoff.trainers.configuration.fields import ConfigError
from castoff.trainers.gnn.causets.features import NODE, SCALARS, node_features, scalars
from castoff.trainers.gnn.graphs.orders import Ordered, ordered
from castoff.trainers.gnn.graphs.settings import Files, dtype_name
from castoff.trainers.gnn.graphs.stores import Array, Store

MATRICES = ("adjacency_matrix", "adjacency", "adj", "causal_matrix", "link_matrix", "links")
SIZES = ("cset_size", "atomcount", "num_atoms", "num_elements", "num_points")


class BuiltIn:
    """Makes graphs of samples by the fields of `data`; edges go both ways."""

    def __init__(self, settings: Files):
        self._settings = settings
        self._float: torch.dtype = getattr(torch, dtype_name(settings.float_type))
        self._int: torch.dtype = getattr(torch, dtype_name(settings.int_type))

    def problems(self, store: Store) -> list[str]:
        """Errors about arrays that a store lacks."""
        settings, names = self._settings, store.names()
        problems = []
        if settings.adjacency is None and store.find(MATRICES) is None:
            problems.append(
                f"data.adjacency: name the array that holds the matrices; the store has {_few(names)}"
            )
        wanted: list[tuple[str, str | None, tuple[str, ...]]] = [
            ("adjacency", settings.adjacency, ()),
            ("sizes", settings.sizes, ()),
        ]
        wanted += [(f"targets[{position}]", name, ()) for position, name in enumerate(settings.targets)]
        wanted += [
            (f"features[{position}]", name, NODE) for position, name in enumerate(settings.features or ())
        ]
        wanted += [
            (f"graph_features[{position}]", name, SCALARS)
            for position, name in enumerate(settings.graph_features)
        ]
        for field, name, computed in wanted:
            if name is not None and name not in names and name not in computed:
                near = suggestion(name, [*names, *computed])
                problems.append(f"data.{field}: is {name!r}, but there is no such array{near}")
        return problems

    def read(self, store: Store, index: int) -> Data:
        """Make the graph of a sample.

        Raises:
            ConfigError: it cannot become a graph; the message says why.
        """
        causet = self._order(store, index)
        edges = causet.bare if self._settings.edges == "links" else causet.order
        source, target = numpy.nonzero(edges)
        both = numpy.stack([numpy.concatenate([source, target]), numpy.concatenate([target, source])])
        data = Data(x=self._nodes(store, index, causet), edge_index=torch.from_numpy(both).to(self._int))
        if self._settings.targets:
            data.y = self._row(store, index, "targets", self._settings.targets, {})
        wanted = self._settings.graph_features
        if wanted:
            computed = {}
            if any(name in SCALARS for name in wanted):
                computed = dict(zip(SCALARS, scalars(causet.order, causet.bare).tolist(), strict=True))
            data.graph_features = self._row(store, index, "graph_features", wanted, computed)
        return data

    def _order(self, store: Store, index: int) -> Ordered:
        name = self._settings.adjacency or store.find(MATRICES) or ""
        matrix = store.read(name, index, "data.adjacency")
        sizes = self._settings.sizes or store.find(SIZES)
        size = None
        if sizes is not None:
            stored_size = _number(store.read(sizes, index, "data.sizes"), sizes)
            if stored_size != int(stored_size):
                raise ConfigError([f"{sizes}: holds {stored_size:g}, which is not a whole number"])
            size = int(stored_size)
        try:
            return ordered(matrix, size, self._settings.transposed)
        except ValueError as error:
            raise ConfigError([f"{name}: {error}"]) from error

    def _nodes(self, store: Store, index: int, causet: Ordered) -> Tensor:
        """The node features (elements, features)."""
        wanted = NODE if self._settings.features is None else tuple(self._settings.features)
        stored = set(store.names()) if self._settings.features else set()
        computed: Array = numpy.empty(0)
        if any(name not in stored for name in wanted):
            computed = node_features(causet.order, causet.bare)
        columns = [
            self._column(store, index, name, causet) if name in stored else computed[:, [NODE.index(name)]]
            for name in wanted
        ]
        if not columns:
            return torch.empty(len(causet.order), 0, dtype=self._float)
        return torch.from_numpy(numpy.concatenate(columns, axis=1)).to(self._float)

    def _column(self, store: Store, index: int, name: str, causet: Ordered) -> Array:
        """A stored array as (elements, numbers of each), in the order's numbering."""
        values = store.read(name, index, "data.features")
        number = len(causet.order)
        if values.ndim == 2 and values.shape[0] < number <= values.shape[1]:  # Julia's (elements, numbers)
            values = values.T
        if values.ndim not in (1, 2) or len(values) < number or values.dtype.kind not in "biuf":
            raise ConfigError(
                [
                    f"{name}: holds {values.dtype} of the shape {values.shape}, but a feature has a number "
                    f"for each of {number} elements"
                ]
            )
        values = values[:number].reshape(number, -1).astype(numpy.float64)
        is_nan = numpy.isnan(values)
        if is_nan.any():
            if self._settings.missing is None:
                raise ConfigError(
                    [
                        f"{name}: has NaN for {int(is_nan.any(1).sum())} of {number} elements; set what "
                        "replaces it with data.missing, such as 0.0"
                    ]
                )
            values[is_nan] = self._settings.missing
        return values if causet.numbers is None else values[causet.numbers]

    def _row(
        self, store: Store, index: int, field: str, names: Sequence[str], computed: dict[str, float]
    ) -> Tensor:
        """The values (1, names) of a sample's arrays or computed features."""
        stored = set(store.names()) if computed else set(names)
        values = [
            _number(store.read(name, index, f"data.{field}"), name) if name in stored else computed[name]
            for name in names
        ]
        return torch.tensor([values], dtype=self._float)


def _number(values: Array, name: str) -> float:
    """The only number in an array of a sample."""
    if values.size != 1 or values.dtype.kind not in "biuf":
        raise ConfigError(
            [
                f"{name}: holds {values.dtype} of the shape {values.shape}, but one number for each sample "
                "is needed"
            ]
        )
    return float(values.reshape(())[()])


def _few(names: Sequence[str]) -> str:
    return ", ".join(names[:8]) + (f" and {len(names) - 8} more" if len(names) > 8 else "")
