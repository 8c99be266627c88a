"""The settings of inverse folding beside its training's: structures, network, preferences."""

# No `from __future__ import annotations` here: msgspec would compile each of them at every start.

from typing import Annotated, Literal

import msgspec

from trainers.configuration.section import Fraction, NotNegative, Positive, Section, Seed

Above = Annotated[float, msgspec.Meta(gt=0)]


class Pairs(Section, frozen=True, kw_only=True):
    """Preferences: which of two sequences for a structure is the better one."""

    train_data: str
    """File: JSON, a list of pairs."""
    val_data: str | None = None
    """The same, to validate with; left out: a share of the pairs of `train_data`."""
    test_data: str | None = None
    """The same, to test with at the end; left out: no test."""
    validation_share: Fraction = 0.1
    """Share of the pairs of `train_data`, where there is no `val_data`."""
    split_seed: Seed = 0
    """Which pairs these are."""
    structures: str | None = None
    """Folder in which a pair's `pdb_file` is looked for; left out: in the folder of the JSON, then in the
    working folder."""
    max_length: Positive = 500
    """Residues; pairs on longer structures are left out."""
    mutable_positions: tuple[NotNegative, ...] = ()
    """Designed positions of pairs that name none themselves, from 0 over their design chains one after
    the other; none here either: all."""
    mutable_ranges: tuple[tuple[NotNegative, NotNegative], ...] = ()
    """The same as ranges, each with its last position."""


class Chains(Section, frozen=True, kw_only=True):
    """Structures whose own sequences are learned."""

    structures: str
    """Folder of PDB and mmCIF files, also .gz, and folders of them, links too; what begins with a dot is
    left out. Each chain is a sample."""
    validation_structures: str | None = None
    """The same, to validate with; left out: a share of the chains of `structures`."""
    test_structures: str | None = None
    """The same, to test with at the end; left out: no test."""
    validation_share: Fraction = 0.1
    """Share of the chains of `structures`, where there are no `validation_structures`."""
    split_seed: Seed = 0
    """Which chains these are."""
    min_length: Positive = 20
    """Resolved residues; shorter chains are left out."""
    max_length: Positive = 500
    """Residues; longer chains are left out."""


class BaseModel(Section, frozen=True, kw_only=True):
    """What is tuned, and what is its reference: dir/name.pt, in ProteinMPNN's format."""

    dir: str
    """Folder of the file."""
    name: str = "v_48_020"
    """The file is `dir`/`name`.pt."""


class Model(Section, frozen=True, kw_only=True):
    """The network, in the manner of ProteinMPNN (Dauparas et al., Science 378, 2022)."""

    hidden_size: Positive = 128
    """Width."""
    encoder_layers: Positive = 3
    """Layers that see the backbone."""
    decoder_layers: Positive = 3
    """Layers that see the sequence, too."""
    neighbours: Positive = 48
    """Residues of each neighbourhood, the residue itself among them: the nearest by their CA atoms."""
    dropout: Annotated[float, msgspec.Meta(ge=0, lt=1)] = 0.1
    """Dropout."""
    backbone_noise: Annotated[float, msgspec.Meta(ge=0)] = 0.2
    """Å; the standard deviation of what is added to each coordinate in training."""
    label_smoothing: Annotated[float, msgspec.Meta(ge=0, lt=1)] = 0.1
    """The share of the other residues in what is to be predicted."""


class Preference(Section, frozen=True, kw_only=True):
    """How preferences are learned: direct preference optimisation (Rafailov et al., arXiv 2305.18290)."""

    loss: Literal["sigmoid", "ipo", "hinge", "robust"] = "sigmoid"
    """The loss of a preference."""
    beta: Above = 0.1
    """What it costs to leave the base model."""
    label_smoothing: Annotated[float, msgspec.Meta(ge=0, lt=0.5)] = 0.0
    """Of sigmoid and robust: the share of pairs that may be the wrong way round."""
    temperature: Above = 0.1
    """What logits are divided by before they become log-probabilities, of both models."""
    diversity_lambda: Annotated[float, msgspec.Meta(ge=0)] = 0.0
    """Weight of the tuned model's entropy, in nats a residue, which is rewarded."""


class Dpo(Section, frozen=True, kw_only=True):
    """The arguments of `DpoTask`."""

    data: Pairs
    """Pairs of sequences."""
    base_model: BaseModel
    """What is tuned."""
    preference: Preference = Preference()
    """How preferences are learned."""


class Likelihood(Section, frozen=True, kw_only=True):
    """The arguments of `LikelihoodTask`."""

    data: Chains
    """Structures."""
    model: Model = Model()
    """The network."""
