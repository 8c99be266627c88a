"""What a configuration may name."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import pytest
import torch
import torch_geometric.nn as pyg
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from castoff.trainers.configuration.fields import ConfigError
from castoff.trainers.configuration.pyobject import PyObject
from castoff.trainers.gnn import models, names
from castoff.trainers.gnn.names import arguments, found
from tests.hostile import SCALARS, json_values


@pytest.mark.parametrize(
    ("name", "kind", "thing"),
    [
        ("GNNModel", "model", models.GNNModel),
        ("Encoder", "encoder", models.Encoder),
        ("GPSTransformer", "layer", models.GPSModel),
        ("Linear", "layer", nn.Linear),
        ("GATv2Conv", "layer", pyg.GATv2Conv),
        ("gcn", "convolution", pyg.GCNConv),
        ("GCNConv", "convolution", pyg.GCNConv),
        ("gat_v2", "convolution", pyg.GATv2Conv),
        ("layer_norm", "norm", nn.LayerNorm),
        ("LayerNorm", "norm", nn.LayerNorm),
        ("graph_norm", "norm", pyg.GraphNorm),
        ("pair", "norm", pyg.PairNorm),
        ("leaky_relu", "activation", nn.LeakyReLU),
        ("SiLU", "activation", nn.SiLU),
        ("identity", "activation", nn.Identity),
        ("mean", "pooling", pyg.global_mean_pool),
        ("sum", "pooling", pyg.global_add_pool),
        ("set2set", "pooling", pyg.Set2Set),
        ("median", "pooling", pyg.MedianAggregation),
    ],
)
def test_bare_names(name: str, kind: str, thing: Any) -> None:
    assert found(name, "field", kind) is thing
    assert found(PyObject(f"{thing.__module__}.{thing.__name__}"), "field", kind) is thing
    assert found(thing, "field", kind) is thing


@pytest.mark.parametrize(
    "kind", ["model", "layer", "convolution", "norm", "activation", "pooling", "aggregation"]
)
def test_every_name_leads_somewhere(kind: str) -> None:
    for path in names._paths(kind).values():
        module, _, name = path.rpartition(".")
        assert callable(getattr(import_module(module), name)), path


@pytest.mark.parametrize(
    ("value", "kind", "says"),
    [
        (
            "sagee",
            "convolution",
            "x: is 'sagee', but no convolution is known by that name; did you mean sage?",
        ),
        ("zzz", "pooling", "x: is 'zzz', but no pooling is known by that name; there are mean, max, sum"),
        (
            "mean",
            "activation",
            "x: is 'mean', but no activation is known by that name; there are identity, the names in t",
        ),
        ("torch.nn.ReLU", "activation", "x: is the text 'torch.nn.ReLU'; write !pyobject torch.nn.ReLU"),
        (3, "layer", "x: is 3, but takes a class or function"),
        (["mean"], "pooling", "x: is ['mean'], but takes a class or function"),
        (
            PyObject("torch.nn.ReLu"),
            "activation",
            "x: !pyobject torch.nn.ReLu: torch.nn has no ReLu; did you m",
        ),
        (
            PyObject("torch.pi"),
            "activation",
            "x: is !pyobject torch.pi, but takes a class or function",
        ),
        (
            PyObject("QuantumGrav.GNNModel"),
            "model",
            "x: !pyobject QuantumGrav.GNNModel: there is no module QuantumGrav here; write "
            "!pyobject castoff.trainers.gnn.GNNModel",
        ),
    ],
)
def test_names_that_lead_nowhere(value: Any, kind: str, says: str) -> None:
    with pytest.raises(ConfigError) as error:
        found(value, "x", kind)
    (problem,) = error.value.problems
    assert problem.startswith(says)


@given(st.text(max_size=12), st.sampled_from(["model", "layer", "norm", "activation", "aggregation"]))
def test_any_text_is_a_name_or_reported(name: str, kind: str) -> None:
    try:
        thing = found(name, "x", kind)
    except ConfigError as error:
        thing = error
    stated = isinstance(thing, ConfigError) and thing.problems[0].startswith("x: is ")
    assert stated or callable(thing)


@given(json_values(SCALARS))
def test_arguments_without_objects_stay_as_they_are(value: Any) -> None:
    problems: list[str] = []
    assert arguments(value, "args", problems) == value
    assert not problems


def test_objects_are_found_however_deep_they_are() -> None:
    problems: list[str] = []
    given = [[PyObject("torch.nn.ReLU")], {"a": (PyObject("torch.relu"), [1])}, PyObject("torch.nn.ReLu")]
    made = arguments(given, "args", problems)
    assert made[:2] == [[nn.ReLU], {"a": (torch.relu, [1])}]
    (problem,) = problems
    assert problem.startswith("args[2]: !pyobject torch.nn.ReLu: torch.nn has no ReLu")
