"""The settings of `DpoTask` and `LikelihoodTask`: structures, network, preferences."""

# No `from __future__ import annotations` here: msgspec would compile each of them at every start.

from typing import Annotated, Literal

import msgspec

from castoff.trainers.configuration.section import Fraction, NotNegative, Positive, Section, Seed

Above = Annotated[float, msgspec.Meta(gt=0)]


class Pairs(Section, frozen=True, kw_only=True):
    """Preferences: which of two sequences for a structure is the better one."""

    train_data: str
    """JSON file with a list of pairs."""
    val_data: str | None = None
    """JSON file with pairs to validate with; left out: a share of the pairs of `train_data`."""
    test_data: str | None = None
    """The same, to test with at the end; left out: no test."""
    validation_share: Fraction = 0.1
    """Share of the pairs of `train_data` to validate with, if there is no `val_data`."""
    split_seed: Seed = 0
    """Seed that chooses these pairs."""
    structures: str | None = None
    """Folder of the structures; left out: the folder of the JSON file, then the working folder."""
    max_length: Positive = 500
    """Residues; pairs on longer structures are left out."""
    mutable_positions: tuple[NotNegative, ...] = ()
    """Positions to design in pairs that name none, counted from 0 across their design chains; empty: all."""
    mutable_ranges: tuple[tuple[NotNegative, NotNegative], ...] = ()
    """The same as ranges, which include their last position."""


class Chains(Section, frozen=True, kw_only=True):
    """Structures whose own sequences are learned."""

    structures: str
    """Folder of PDB and mmCIF files (also .gz), with subfolders and links; names that begin with a dot are
    skipped. Each chain is a sample."""
    validation_structures: str | None = None
    """The same, to validate with; left out: a share of the chains of `structures`."""
    test_structures: str | None = None
    """The same, to test with at the end; left out: no test."""
    validation_share: Fraction = 0.1
    """Share of the chains of `structures` to validate with, if there are no `validation_structures`."""
    split_seed: Seed = 0
    """Seed that chooses these chains."""
    min_length: Positive = 20
    """Resolved residues; shorter chains are left out."""
    max_length: Positive = 500
    """Residues; longer chains are left out."""


class BaseModel(Section, frozen=True, kw_only=True):
    """The model that is tuned, which is also the reference: dir/name.pt, in ProteinMPNN's format."""

    dir: str
    """Folder of the base model's file."""
    name: str = "v_48_020"
    """The file is `dir`/`name`.pt."""


class Model(Section, frozen=True, kw_only=True):
    """The network, in the manner of ProteinMPNN (Dauparas et al., Science 378, 2022)."""

    hidden_size: Positive = 128
    """Width."""
    encoder_layers: Positive = 3
    """Layers that see the backbone."""
    decoder_layers: Positive = 3
    """Layers that also see the sequence."""
    neighbours: Positive = 48
    """Residues in each neighbourhood, including the residue itself: the nearest by their CA atoms."""
    dropout: Annotated[float, msgspec.Meta(ge=0, lt=1)] = 0.1
    """Dropout."""
    backbone_noise: Annotated[float, msgspec.Meta(ge=0)] = 0.2
    """Standard deviation, in Å, of the noise added to each coordinate in training."""
    label_smoothing: Annotated[float, msgspec.Meta(ge=0, lt=1)] = 0.1
    """Share of the target that is spread over the other residues."""


class Preference(Section, frozen=True, kw_only=True):
    """How preferences are learned: direct preference optimisation (Rafailov et al., arXiv 2305.18290)."""

    loss: Literal["sigmoid", "ipo", "hinge", "robust"] = "sigmoid"
    """Loss of a pair."""
    beta: Above = 0.1
    """Cost of departing from the base model: the larger, the closer the tuned model stays."""
    label_smoothing: Annotated[float, msgspec.Meta(ge=0, lt=0.5)] = 0.0
    """For sigmoid and robust: share of pairs that may be in the wrong order."""
    temperature: Above = 0.1
    """Divisor of both models' logits before they become log-probabilities."""
    diversity_lambda: Annotated[float, msgspec.Meta(ge=0)] = 0.0
    """Weight of a reward for the tuned model's entropy, in nats per residue."""
    decoding_order: Literal["fixed", "epoch"] = "fixed"
    """Order in which a pair's residues are decoded in training: the same in all epochs, or another random one
    in each. With `epoch`, the base model computes in every step, too. Validation and test keep their orders.
    """


class Dpo(Section, frozen=True, kw_only=True):
    """The arguments of `DpoTask`."""

    data: Pairs
    """Pairs of sequences."""
    base_model: BaseModel
    """The model that is tuned."""
    preference: Preference = Preference()
    """How preferences are learned."""


class Likelihood(Section, frozen=True, kw_only=True):
    """The arguments of `LikelihoodTask`."""

    data: Chains
    """Structures."""
    model: Model = Model()
    """The network."""
