"""What a training of inverse folding is told beside how it is trained: structures, network, preferences."""

# No `from __future__ import annotations` here: msgspec would compile each of them at every start.

from typing import Annotated, Literal

import msgspec

from trainers.configuration.config import Fraction, NotNegative, Positive, Section, Seed

Above = Annotated[float, msgspec.Meta(gt=0)]


class Pairs(Section, frozen=True, kw_only=True):
    """Preferences: which of two sequences for a structure is the better one."""

    train_data: str
    """JSON, a list of pairs."""
    val_data: str | None = None
    """The same, to validate with; None: a share of the pairs of train_data."""
    test_data: str | None = None
    """The same, to test with at the end; None: no test."""
    validation_share: Fraction = 0.1
    """Of the pairs of train_data, where there is no val_data."""
    split_seed: Seed = 0
    structures: str | None = None
    """Folder in which a pair's pdb_file is looked for; None: that of the JSON, then the working folder."""
    max_length: Positive = 500
    """Residues; pairs on longer structures are left out."""
    mutable_positions: tuple[NotNegative, ...] = ()
    """Designed positions, from 0, of pairs that say none themselves; none here either: all."""
    mutable_ranges: tuple[tuple[NotNegative, NotNegative], ...] = ()
    """The same as ranges, each with its last position."""


class Chains(Section, frozen=True, kw_only=True):
    """Structures whose own sequences are learned."""

    structures: str
    """Folder of PDB and mmCIF files, also .gz, each of whose chains is one sample."""
    validation_structures: str | None = None
    """The same, to validate with; None: a share of the chains of `structures`."""
    test_structures: str | None = None
    """The same, to test with at the end; None: no test."""
    validation_share: Fraction = 0.1
    split_seed: Seed = 0
    min_length: Positive = 20
    """Resolved residues; shorter chains are left out."""
    max_length: Positive = 500
    """Residues; longer chains are left out."""


class BaseModel(Section, frozen=True, kw_only=True):
    """What is tuned, and what is its reference: dir/name.pt, in ProteinMPNN's format."""

    dir: str
    name: str = "v_48_020"


class Model(Section, frozen=True, kw_only=True):
    """The network, in the manner of ProteinMPNN (Dauparas et al., Science 378, 2022)."""

    hidden_size: Positive = 128
    encoder_layers: Positive = 3
    decoder_layers: Positive = 3
    neighbours: Positive = 48
    """Of each residue, itself among them: the nearest by their CA atoms."""
    dropout: Annotated[float, msgspec.Meta(ge=0, lt=1)] = 0.1
    backbone_noise: Annotated[float, msgspec.Meta(ge=0)] = 0.2
    """Å, the standard deviation of what is added to each coordinate in training."""
    label_smoothing: Annotated[float, msgspec.Meta(ge=0, lt=1)] = 0.1
    """Of the likelihood: the share of the other residues in what is to be predicted."""


class Preference(Section, frozen=True, kw_only=True):
    """How preferences are learned: direct preference optimisation (Rafailov et al., arXiv 2305.18290)."""

    loss: Literal["sigmoid", "ipo", "hinge", "robust"] = "sigmoid"
    beta: Above = 0.1
    """How dear it is to leave the reference."""
    label_smoothing: Annotated[float, msgspec.Meta(ge=0, lt=0.5)] = 0.0
    """Of sigmoid and robust: the share of pairs that may be the wrong way round."""
    temperature: Above = 0.1
    """What logits are divided by before they become log-probabilities, of policy and reference alike."""
    diversity_lambda: Annotated[float, msgspec.Meta(ge=0)] = 0.0
    """Weight of the policy's entropy, in nats a residue, which it is rewarded for."""


class Dpo(Section, frozen=True, kw_only=True):
    """The arguments of `DpoTask`."""

    data: Pairs
    base_model: BaseModel
    preference: Preference = Preference()


class Likelihood(Section, frozen=True, kw_only=True):
    """The arguments of `LikelihoodTask`."""

    data: Chains
    model: Model = Model()
