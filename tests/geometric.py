"""Loads torch_geometric before any test: 2.8 calls what torch 2.13 deprecates, and here that is an error."""

from __future__ import annotations

import warnings

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)
    import torch_geometric.data
    import torch_geometric.nn  # noqa: F401
