"""Sequences that are drawn: by the network's own distribution, and where there is something to design."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
import torch
from torch import Tensor

from castoff.trainers.dpo.alphabet import UNKNOWN
from castoff.trainers.dpo.network.model import InverseFolding
from castoff.trainers.dpo.network.sampling import Sampled, sampled
from castoff.trainers.dpo.samples.batch import Backbones
from tests.trainers.dpo.network.folds import letters, side_by_side, wandering
from tests.trainers.rounding import assert_rounded


def network(neighbours: int = 6, bias: float = 0.0) -> InverseFolding:
    """One whose residues depend strongly on each other; `bias` is towards X."""
    torch.manual_seed(0)
    model = InverseFolding(16, 2, 3, neighbours)
    with torch.no_grad():
        model.W_s.weight *= 3
        model.W_out.weight *= 2
        model.W_out.bias[UNKNOWN] += bias
    return model.eval()


def orders(designed: Tensor, number: int, seed: int = 0) -> Tensor:
    """Random orders in which designed residues are the last ones, (1, number, length)."""
    dice = torch.Generator().manual_seed(seed)
    ranks = torch.rand(1, number, designed.shape[-1], generator=dice) + designed.unsqueeze(1)
    return ranks.argsort(-1).argsort(-1)


def numbers(number: int, length: int, seed: int = 0) -> Tensor:
    return torch.rand(1, number, length, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def draw(
    model: InverseFolding, structure: Backbones, designed: Tensor, *, number: int = 3, **stated: Any
) -> tuple[Sampled, Tensor]:
    length = designed.shape[1]
    given: dict[str, Any] = {
        "native": letters(1, length)[:, 0],
        "designed": designed,
        "order": orders(designed, number),
        "numbers": numbers(number, length),
        "temperature": 1.0,
    }
    given |= stated
    return sampled(model, structure, **given), given["order"]


def designed_but(structure: Backbones, *fixed: int) -> Tensor:
    designed = structure.resolved.clone()
    designed[:, list(fixed)] = False
    return designed


@pytest.mark.parametrize("fixed", [(), (0, 5, 6), tuple(range(11)), tuple(range(14))])
def test_the_logits_are_those_of_the_whole_sequence(fixed: tuple[int, ...]) -> None:
    model, structure = network(), wandering(8, 6, unresolved=[2, 7])
    designed = designed_but(structure, *fixed)
    found, order = draw(model, structure, designed)
    for number in range(3):
        with torch.no_grad():
            expected = model(structure, found.sequences[:, number : number + 1], order[:, number])[:, 0]
        assert_rounded(found.logits[:, number][designed], expected[designed])
    assert (found.logits.transpose(1, 2)[~designed] == 0).all()


def test_any_order_will_do() -> None:
    model, structure = network(), wandering(12)
    designed = designed_but(structure, 1, 4, 5, 9)
    order = torch.stack([torch.arange(12), torch.arange(12).flip(0)])[None]
    found, _ = draw(model, structure, designed, order=order, number=2)
    for number in range(2):
        with torch.no_grad():
            expected = model(structure, found.sequences[:, number : number + 1], order[:, number])[:, 0]
        assert_rounded(found.logits[:, number][designed], expected[designed])


def test_what_is_not_designed_stays() -> None:
    structure = wandering(9, unresolved=[4])
    native = letters(1, 9, seed=5)[:, 0]
    native[0, 4] = UNKNOWN
    found, _ = draw(network(), structure, designed_but(structure, 0, 1, 8), native=native, number=5)
    kept = [0, 1, 4, 8]
    assert torch.equal(found.sequences[..., kept], native[:, None, kept].expand(-1, 5, -1))
    others = found.sequences[..., [2, 3, 5, 6, 7]]
    assert (others != native[:, None, [2, 3, 5, 6, 7]]).any()


@pytest.mark.parametrize("temperature", [0.0, 0.1, 1.0])
def test_nobody_designs_an_unknown_residue(temperature: float) -> None:
    structure = wandering(9)
    found, _ = draw(network(bias=50.0), structure, structure.resolved, temperature=temperature)
    assert found.logits.argmax(-1).eq(UNKNOWN).all()
    assert found.sequences.max() < UNKNOWN


def test_sequences_are_as_frequent_as_the_network_has_it() -> None:
    """All sequences of two designed residues of three, against 20,000 that were drawn."""
    model, structure = network(), wandering(3)
    designed, order = torch.tensor([[True, False, True]]), torch.tensor([[1, 0, 2]])
    native, many = letters(1, 3)[:, 0], 20_000
    found, _ = draw(
        model,
        structure,
        designed,
        native=native,
        number=many,
        order=order[:, None].expand(-1, many, -1),
        numbers=numbers(many, 3),
        temperature=0.7,
    )
    every = native[:, None].repeat(1, 400, 1)
    every[0, :, [0, 2]] = torch.tensor(list(itertools.product(range(20), repeat=2)))
    with torch.no_grad():
        logits = model(structure, every, order)[..., :UNKNOWN] / 0.7
    each = logits.log_softmax(-1).gather(-1, every.clamp(max=UNKNOWN - 1).unsqueeze(-1)).squeeze(-1)
    expected = each[0][:, [0, 2]].sum(-1).exp()
    drawn = found.sequences[0, :, 0] * 20 + found.sequences[0, :, 2]
    counts = torch.bincount(drawn, minlength=400)
    spread = (many * expected).clamp(min=1).sqrt()
    assert ((counts - many * expected).abs() < 5 * spread).all()
    assert expected.max() > 10 * expected.min()  # so that there is something to tell apart


def test_without_temperature_the_likeliest_is_taken() -> None:
    structure = wandering(9)
    found, _ = draw(network(), structure, structure.resolved, temperature=0.0)
    assert torch.equal(found.sequences, found.logits[..., :UNKNOWN].argmax(-1))
    cold, _ = draw(network(), structure, structure.resolved, temperature=1e-40)
    assert torch.equal(cold.sequences, found.sequences)


@pytest.mark.parametrize("number", [0.0, 1 - 2**-53])
def test_the_first_and_the_last_number_choose_a_possible_residue(number: float) -> None:
    model, structure = network(), wandering(5)
    with torch.no_grad():
        model.W_out.bias[[0, 18, 19]] = -1e6
    found, _ = draw(
        model, structure, structure.resolved, numbers=torch.full((1, 3, 5), number, dtype=torch.float64)
    )
    assert set(found.sequences.unique().tolist()) <= set(range(1, 18))


def test_what_is_drawn_beside_has_no_influence() -> None:
    model = network(20)
    short, long = wandering(7, unresolved=[3]), wandering(6, 5, seed=1)
    both = side_by_side(short, long)
    native = letters(1, 11)[:, 0].expand(2, -1)
    places = [orders(short.resolved, 3), orders(long.resolved, 3, seed=1)]
    behind = torch.arange(7, 11).expand(1, 3, -1)
    order = torch.cat([torch.cat([places[0], behind], dim=-1), places[1]])
    chosen = torch.cat([numbers(3, 11), numbers(3, 11, seed=1)])
    together = sampled(model, both, native, both.resolved, order, chosen, 1.0).sequences
    one = sampled(model, short, native[:1, :7], short.resolved, places[0], chosen[:1, :, :7], 1.0).sequences
    other = sampled(model, long, native[1:], long.resolved, places[1][:, 1:2], chosen[1:, 1:2], 1.0).sequences
    assert torch.equal(together[:1, :, :7], one)
    assert torch.equal(together[1:, 1:2], other)


def test_a_residue_costs_as_much_as_it_has_neighbours() -> None:
    """Each message is made once to begin with, and once when its residue is drawn."""
    model, structure = network(neighbours=6), wandering(20)
    messages = []
    first, *_ = model.decoders()
    first.W2.register_forward_hook(lambda _, given, out: messages.append(out.shape[:-1].numel()))
    draw(model, structure, structure.resolved, number=2)
    assert messages == [2 * 20 * 6] + 20 * [2 * 6]
