"""What `python -m bench.proteins` compares a model with, and how."""

from __future__ import annotations

import gzip
import math
from pathlib import Path

import numpy
import pytest
import torch

from bench.proteins import homology
from bench.proteins.__main__ import in_words, lines_on_bounds, lines_on_samples, lines_on_training
from bench.proteins.baselines import BEGINNING, trigrams, unigram, unigram_score
from bench.proteins.comparison import BATCH, Mean, compared, losses, mean_of, parts_of
from bench.proteins.homology import (
    Sizes,
    Split,
    chosen_clusters,
    different,
    read_fasta,
    split_of,
)
from bench.proteins.training import trained
from castoff.trainers.sedd.alphabet import UNKNOWN, decode, encode
from castoff.trainers.sedd.data import ProteinBatch
from castoff.trainers.sedd.graph import Absorbing
from castoff.trainers.sedd.model import DiffusionTransformer, Shape
from castoff.trainers.sedd.noise import LogLinear
from castoff.trainers.sedd.synthetic import SyntheticProteins

PROTEINS = [SyntheticProteins(60)[index] for index in range(60)]


def test_the_bound_of_single_residues_is_their_cross_entropy_but_for_what_is_never_masked() -> None:
    shares = unigram(PROTEINS[:30])
    noise = LogLinear(eps=0.05)
    clean = torch.from_numpy(numpy.concatenate(PROTEINS[30:])).long().unsqueeze(0)
    clean[0, 7] = UNKNOWN
    draws = 400
    generator = torch.Generator().manual_seed(0)
    batch = ProteinBatch(
        clean.expand(draws, -1),
        (torch.arange(draws) + torch.rand(draws, generator=generator)) / draws,
        torch.rand((draws, clean.shape[1]), generator=generator),
        padded=False,
    )
    (found,) = losses([unigram_score(shares)], Absorbing(), noise, batch)
    known = clean[clean != UNKNOWN].numpy()
    exact = -(1 - 0.05) * numpy.log(shares[known]).sum()
    assert found.mean() == pytest.approx(exact, abs=4 * float(found.std()) / math.sqrt(draws))
    assert 4 * float(found.std()) / math.sqrt(draws) < 0.02 * exact


def test_a_masked_residue_costs_what_was_derived() -> None:
    shares = unigram(PROTEINS)
    noise, time = LogLinear(), torch.tensor([0.3, 0.8])
    clean = torch.tensor([[3, 5, UNKNOWN], [0, 1, 2]])
    uniform = torch.tensor([[0.0, 0.9, 0.0], [0.99, 0.1, 0.2]])
    batch = ProteinBatch(clean, (time - 1e-3) / (1 - 1e-3), uniform, padded=False)
    (found,) = losses([unigram_score(shares)], Absorbing(), noise, batch)
    each = noise.rate(time.double()) / torch.expm1(noise.total(time.double()))
    nats = -numpy.log(shares)
    assert found.tolist() == pytest.approx(
        [float(each[0]) * nats[3], float(each[1]) * (nats[1] + nats[2])], rel=1e-5
    )


def test_trigrams_are_probabilities_and_learn_what_repeats() -> None:
    learned = trigrams([encode(b"ACDACDACDACD"), encode(b"ACDACDAC")] * 20)
    assert learned.probabilities.sum(-1) == pytest.approx(numpy.ones((23, 23)))
    assert learned.nats(encode(b"ACDACD"))[1:].max() < 0.05
    assert learned.nats(encode(b"ACXD")).shape == (3,)
    unseen = learned.nats(encode(b"WWW"))
    assert numpy.isfinite(unseen).all() and unseen.min() > 3


def test_trigrams_know_where_a_protein_begins() -> None:
    learned = trigrams([encode(b"M" + b"AC" * 10)] * 20)
    begin = learned.probabilities[BEGINNING, BEGINNING]
    assert begin.argmax() == encode(b"M")[0] and begin.max() > 0.9


def test_trigrams_of_single_residues_are_no_better_than_these() -> None:
    generator = numpy.random.default_rng(0)
    independent = [generator.integers(20, size=50).astype(numpy.uint8) for _ in range(40)]
    nats = numpy.concatenate([trigrams(independent[:20]).nats(each) for each in independent[20:]])
    assert math.log(20) - 0.01 < nats.mean() < math.log(20) + 0.03


def test_long_proteins_are_compared_in_parts_and_none_of_their_residues_twice() -> None:
    counted = trigrams(PROTEINS)
    proteins = [*PROTEINS[:3], numpy.concatenate(PROTEINS[:4])]
    proteins[3][100] = UNKNOWN
    shares = unigram(PROTEINS)
    parts = parts_of(proteins, [7, 7, 8, 9], shares, counted, longest=50)
    assert numpy.concatenate([part.tokens for part in parts]).tolist() == numpy.concatenate(proteins).tolist()
    assert max(len(part.tokens) for part in parts) <= 50 and min(len(part.tokens) for part in parts) >= 20
    last = [part for part in parts if part.cluster == 9]
    assert sum(part.trigram for part in last) == pytest.approx(counted.nats(proteins[3]).sum())
    known = proteins[3][proteins[3] < 20]
    assert sum(part.unigram for part in last) == pytest.approx(-numpy.log(shares[known]).sum())


def test_a_model_that_knows_nothing_is_compared_under_the_very_noise_of_the_unigram() -> None:
    even = numpy.full(20, 1 / 20)
    parts = parts_of(PROTEINS, range(len(PROTEINS)), even, trigrams(PROTEINS), longest=64)
    assert len(parts) > BATCH
    model = DiffusionTransformer(Shape(8, 1, 2, 8), scale_by_sigma=True)  # untrained: all residues alike
    found = compared(model, even, Absorbing(), LogLinear(), parts, draws=3)
    assert found.model == pytest.approx(found.unigram, rel=1e-4)
    assert found.residues.sum() == sum(map(len, PROTEINS))
    masked = 1 - 1e-3
    mean = found.mean(found.unigram)
    assert mean.value == pytest.approx(masked * math.log(20), abs=4 * mean.error)
    difference = found.mean(masked * (found.exact_unigram - found.exact_trigram))
    assert found.over_trigram(masked) == pytest.approx(difference, rel=1e-3)  # no noise is left in it


def test_the_error_of_a_mean_counts_clusters_not_proteins() -> None:
    generator = numpy.random.default_rng(0)
    each = generator.normal(size=50)
    sizes = numpy.full(50, 10.0)
    alone = mean_of(10 * each, sizes, range(50))
    assert alone.value == pytest.approx(each.mean())
    assert alone.error == pytest.approx(each.std(ddof=1) / math.sqrt(50))
    copied = mean_of(numpy.tile(10 * each, 4), numpy.tile(sizes, 4), [*range(50)] * 4)
    assert copied == pytest.approx(alone)


def test_whole_clusters_are_put_aside_in_an_order_that_follows_from_the_seed() -> None:
    cluster_of = {protein: protein // 3 for protein in range(90)}
    learned, aside = chosen_clusters(cluster_of, 0.2, seed=0)
    assert sorted(learned + aside) == list(range(90)) and len(aside) == 18
    assert not {cluster_of[each] for each in learned} & {cluster_of[each] for each in aside}
    assert chosen_clusters(dict(reversed(cluster_of.items())), 0.2, seed=0) == (learned, aside)
    assert chosen_clusters(cluster_of, 0.2, seed=1) != (learned, aside)


def test_sequences_are_read_over_lines_and_counted_once(tmp_path: Path) -> None:
    text = ">one a protein\nACD\nEF\n>two\nACDEF\n>three\nGGG\n"
    (tmp_path / "a.fasta").write_text(text)
    with gzip.open(tmp_path / "a.fasta.gz", "wt") as file:
        file.write(text)
    found = read_fasta(tmp_path / "a.fasta")
    assert found == read_fasta(tmp_path / "a.fasta.gz")
    assert found == [("one a protein", "ACDEF"), ("two", "ACDEF"), ("three", "GGG")]
    assert different(sequence for _, sequence in found) == ["ACDEF", "GGG"]


def test_what_the_search_relates_to_a_training_protein_is_not_held_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []

    def mmseqs(*words: str | Path) -> str:
        asked.append(str(words[0]))
        if words[0] == "easy-cluster":
            ids = [header.split()[0] for header, _ in read_fasta(Path(words[1]))]
            rows = "".join(f"{int(each) // 3 * 3}\t{each}\n" for each in ids)
            Path(f"{words[2]}_cluster.tsv").write_text(rows)
        if words[0] == "easy-search":
            first, *_ = read_fasta(Path(words[1]))
            Path(words[3]).write_text(f"{first[0].split()[0]}\t0\t0.4\n")
        return "14\n"

    monkeypatch.setattr(homology, "mmseqs", mmseqs)
    source = tmp_path / "proteins.fasta"
    letters = [decode(tokens) for tokens in PROTEINS]
    source.write_text("".join(f">p{number}\n{each}\n" for number, each in enumerate([*letters, letters[0]])))
    split = split_of(source, tmp_path / "split", share=0.2)
    sizes = split.sizes
    assert (sizes.proteins, sizes.clusters, sizes.largest_cluster) == (60, 20, 3)
    assert (sizes.training, sizes.chosen, sizes.dropped, sizes.held_out) == (48, 12, 1, 11)
    learned, held_out = (dict(read_fasta(path)) for path in (split.training, split.held_out))
    assert sizes.training_residues == sum(map(len, learned.values()))
    assert (sizes.held_out, sizes.held_out_residues) == (len(held_out), sum(map(len, held_out.values())))
    assert not {header.split()[1] for header in learned} & {header.split()[1] for header in held_out}
    assert set(learned.values()) | set(held_out.values()) < set(letters)
    assert split_of(source, tmp_path / "split", share=0.2) == split
    assert asked.count("easy-search") == 1  # it was there
    split_of(source, tmp_path / "split", share=0.2, seed=1)
    assert asked.count("easy-search") == 2


def test_a_difference_is_judged_by_its_error() -> None:
    assert in_words(Mean(-0.02, 0.004)) == "5.0 standard errors below, bar 4: met"
    assert in_words(Mean(-0.02, 0.006)) == "3.3 standard errors below, bar 4: NOT MET"


@pytest.mark.long
@pytest.mark.usefixtures("for_real")
def test_a_split_is_trained_on_compared_and_generated_from(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bench.proteins.__main__.RESIDUES_GENERATED", 300)
    for name, some in (("learned", PROTEINS[:40]), ("held-out", PROTEINS[40:])):
        text = "".join(f">{number} {number // 2}\n{decode(each)}\n" for number, each in enumerate(some))
        (tmp_path / f"{name}.fasta").write_text(text)
    sizes = Sizes(60, 30, 2, 40, 0, 20, 0, 20, 10, 0)
    split = Split(tmp_path / "learned.fasta", tmp_path / "held-out.fasta", sizes)
    small = ["training.n_iters=3", "training.eval_freq=2", "optim.warmup=1", "sampling.steps=3"]
    result = trained(split, tmp_path / "trained", [*small, "model.hidden_size=16", "model.n_blocks=1"])
    assert result.steps == 3 and result.seconds > 0 and result.cpu > 0
    assert "3 steps of 2 x 8 windows of at most 256 residues" in lines_on_training(result)
    clusters = [number // 2 for number in range(20)]
    lines, _ = lines_on_bounds(result, PROTEINS[:40], PROTEINS[40:], clusters, draws=2)
    assert "model - trigram, paired" in lines[-1]
    lines, _ = lines_on_samples(result, PROTEINS[:40])
    assert "generated proteins" in lines[0] and "total variation of pairs" in lines[-1]
