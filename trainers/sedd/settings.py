"""The settings of `SeddTask`: data, model, noise, sampling."""

# No `from __future__ import annotations` here: msgspec would compile each of them at every start.

from typing import Annotated, Literal

import msgspec

from castoff.trainers.configuration.section import Fraction, NotNegative, Positive, Section, Seed

Above = Annotated[float, msgspec.Meta(gt=0)]
Level = Annotated[float, msgspec.Meta(ge=1e-6, le=1000.0)]
"""Total noise. Below 1e-6, uniform numbers in single precision are too coarse to decide what it changes."""


class Data(Section, frozen=True, kw_only=True):
    """The proteins, and which of them train, validate and test."""

    datafile: str | None = None
    """FASTA (also .gz), a .pt file of sequences, or a folder made by `castoff.trainers.sedd.prepare`; left
    out: synthetic proteins, with a warning. It may be moved or renamed before a run resumes: its proteins
    are compared by a digest, and others are refused."""
    validation_datafile: str | None = None
    """Proteins to validate with; left out: a share of the datafile's."""
    test_datafile: str | None = None
    """Proteins to test with; left out: a share of the datafile's."""
    split: tuple[Fraction, Fraction, Fraction] = (0.98, 0.01, 0.01)
    """Shares of the datafile's proteins for training, validation and test. If validation or test has its own
    file, its share goes to training."""
    split_seed: Seed = 0
    """Seed of this split."""
    max_length: Positive = 512
    """Residues; of a longer protein a window is used, a different one each time."""
    min_length: Positive = 1
    """Residues; shorter proteins of a FASTA or .pt are left out."""
    max_unknown: Fraction = 0.1
    """Proteins with a larger share of unknown residues are left out."""
    streaming: bool = False
    """Read the training set in blocks, in random order: for slow disks or little memory."""
    synthetic: Positive = 4000
    """Number of synthetic proteins if there is no datafile."""


class Model(Section, frozen=True, kw_only=True):
    """The diffusion transformer; the other fields replace the numbers of `size`."""

    size: Literal["tiny", "mini", "small"] = "tiny"
    """0.3, 6 and 90 million parameters."""
    hidden_size: Positive | None = None
    """Width. Left out, this and the next four are those of `size`."""
    n_blocks: Positive | None = None
    """Depth."""
    n_heads: Positive | None = None
    """Attention heads; the width must be a multiple of twice their number."""
    cond_dim: Positive | None = None
    """Width of the embedding of the noise level."""
    dropout: Annotated[float, msgspec.Meta(ge=0, lt=1)] | None = None
    """Dropout."""
    scale_by_sigma: bool | None = None
    """Scale the score by a factor that follows from the noise level. Left out: true on the absorbing
    graph, which alone has such a factor; else false.
    """


class Graph(Section, frozen=True, kw_only=True):
    """What noise turns a residue into."""

    type: Literal["absorb", "uniform"] = "absorb"
    """What noise turns a residue into: a mask, or any residue."""


class NoiseSchedule(Section, frozen=True, kw_only=True):
    """How much noise there is at a time from 0 to 1."""

    type: Literal["loglinear", "geometric", "cosine"] = "loglinear"
    """How noise grows from time 0 to 1."""
    eps: Annotated[float, msgspec.Meta(ge=1e-9, lt=1)] = 1e-3
    """For loglinear: share of residues that are unchanged at time 1."""
    sigma_min: Level = 1e-4
    """For geometric and cosine: total noise at time 0."""
    sigma_max: Level = 20.0
    """For geometric and cosine: total noise at time 1."""


class Curriculum(Section, frozen=True, kw_only=True):
    """Early steps see little noise more often than later ones."""

    enabled: bool = False
    """Early steps see little noise more often than later ones."""
    preschool_time: Positive = 5000
    """Optimizer steps until times are uniform."""
    difficulty_ramp: Above = 2.0
    """At step 0, times are uniform random numbers to the power of 1 + this value."""


class Memory(Section, frozen=True, kw_only=True):
    """Settings that save memory."""

    gradient_checkpointing: bool = False
    """Recompute blocks for the gradient instead of storing their activations."""


class Sampling(Section, frozen=True, kw_only=True):
    """How proteins are generated after a validation, and by `castoff train sedd` at the end."""

    predictor: Literal["euler", "analytic"] = "analytic"
    """Method of a generation step."""
    steps: Positive = 128
    """Steps of generation."""
    noise_removal: bool = True
    """Add a last step to time 0, after which no residue is masked."""
    number: NotNegative = 16
    """Proteins generated after a validation; 0: none."""


class Evaluation(Section, frozen=True, kw_only=True):
    """What is measured besides the bound."""

    fixed_noise: tuple[Level, ...] = ()
    """Levels of total noise at which the score entropy is measured as well."""
    perplexity: bool = True
    """Also report the perplexity that follows from the loss."""
    proteins: Positive | None = None
    """Validate with only this many proteins, the first of the validation set; left out: with all."""


class Monitoring(Section, frozen=True, kw_only=True):
    """What is measured besides the losses."""

    sample_frequency: Positive | None = None
    """Optimizer steps between two generations, each after a validation; left out: after every validation."""


class Task(Section, frozen=True, kw_only=True):
    """All sections: the arguments of `SeddTask`."""

    data: Data = Data()
    model: Model = Model()
    graph: Graph = Graph()
    noise: NoiseSchedule = NoiseSchedule()
    curriculum: Curriculum = Curriculum()
    memory: Memory = Memory()
    sampling: Sampling = Sampling()
    eval: Evaluation = Evaluation()
    monitoring: Monitoring = Monitoring()
