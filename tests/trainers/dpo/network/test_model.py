"""The network: by its formulas, and what may have no influence on it."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.testing import assert_close

from castoff.trainers.dpo.network.features import Features, distances, nearest_residues, with_beta
from castoff.trainers.dpo.network.model import InverseFolding
from castoff.trainers.dpo.samples.batch import Backbones
from tests.trainers.dpo.network.definition import Definition
from tests.trainers.dpo.network.folds import letters, shuffled, side_by_side, wandering
from tests.trainers.rounding import assert_rounded


def network(
    neighbours: int = 6, width: int = 8, layers: tuple[int, int] = (2, 2), seed: int = 0
) -> InverseFolding:
    """A small one, none of whose weights has no effect."""
    torch.manual_seed(seed)
    model = InverseFolding(width, *layers, neighbours, dropout=0.0)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.2)
    return model.eval()


@torch.no_grad()
def logits(model: Any, backbones: Backbones, sequences: Tensor, order: Tensor) -> Tensor:
    out: Tensor = model(backbones, sequences, order)
    return out


@pytest.mark.parametrize(
    ("lengths", "unresolved", "neighbours"),
    [((12,), (), 5), ((7, 6), (), 5), ((8, 5, 4), (0, 3, 9), 5), ((5, 4), (1, 6), 20), ((1,), (), 5)],
)
def test_as_the_formulas_have_it(
    lengths: tuple[int, ...], unresolved: tuple[int, ...], neighbours: int
) -> None:
    model = network(neighbours)
    structure = wandering(*lengths, unresolved=unresolved)
    # Chains in which residues are missing, and ones longer than what is encoded of positions.
    structure = structure._replace(positions=structure.positions * 7)
    length = sum(lengths)
    sequences, order = letters(2, length), shuffled(length)
    found = logits(model, structure, sequences, order).log_softmax(-1)
    slow = Definition(model.state_dict(), (2, 2), neighbours)
    for number in range(2):
        expected = torch.from_numpy(slow.log_probabilities(structure, sequences[0, number], order[0]))
        assert_rounded(found[0, number], expected)


def test_as_many_parameters_as_the_public_one() -> None:
    assert sum(parameter.numel() for parameter in InverseFolding().parameters()) == 1_660_485


@given(seed=st.integers(0, 2**31), far=st.floats(-100, 100))
@settings(max_examples=10)
def test_turned_and_moved_structures_are_the_same(seed: int, far: float) -> None:
    model, structure = network(), wandering(8, 6, seed=3)
    dice = torch.Generator().manual_seed(seed)
    turn, _ = torch.linalg.qr(torch.randn(3, 3, generator=dice, dtype=torch.float64))
    turn = (turn * turn.det()).float()  # turned, not mirrored
    moved = structure._replace(atoms=structure.atoms @ turn + far)
    sequences, order = letters(1, 14), shuffled(14)
    assert_close(
        logits(model, moved, sequences, order), logits(model, structure, sequences, order), rtol=0, atol=2e-3
    )


def test_a_mirrored_structure_is_another() -> None:
    model, structure = network(), wandering(8, 6)
    mirrored = structure._replace(atoms=structure.atoms * torch.tensor([1.0, 1.0, -1.0]))
    sequences, order = letters(1, 14), shuffled(14)
    change = logits(model, mirrored, sequences, order) - logits(model, structure, sequences, order)
    assert change.abs().max() > 0.01


@pytest.mark.parametrize("neighbours", [6, 30])
def test_padding_has_no_influence(neighbours: int) -> None:
    model = network(neighbours)
    short, long = wandering(9, unresolved=[4]), wandering(8, 7, seed=1)
    sequences = letters(2, 15).expand(2, -1, -1)
    order = torch.cat([torch.cat([shuffled(9), torch.arange(9, 15)[None]], dim=1), shuffled(15, seed=1)])
    both = logits(model, side_by_side(short, long), sequences, order)
    alone = logits(model, short, sequences[:1, :, :9], order[:1, :9])
    assert_rounded(both[:1, :, :9], alone)
    assert_rounded(both[1:], logits(model, long, sequences[1:], order[1:]))


@pytest.mark.parametrize("neighbours", [5, 30])
@pytest.mark.parametrize("place", [0.0, 1.0, 1e6, torch.nan, torch.inf])
def test_residues_that_are_not_resolved_have_no_influence(neighbours: int, place: float) -> None:
    model, missing = network(neighbours), [0, 5, 6, 13]
    structure = wandering(8, 6, unresolved=missing)
    sequences, order = letters(1, 14), shuffled(14)
    expected = logits(model, structure, sequences, order)
    structure.atoms[:, missing] = place
    structure.positions[:, missing] += 100
    sequences[:, :, missing] = (sequences[:, :, missing] + 1) % 21
    assert_rounded(logits(model, structure, sequences, order), expected)


def test_without_any_neighbour_there_is_the_residue_itself() -> None:
    model = network()
    crowd = wandering(9, unresolved=range(1, 9))
    alone = Backbones(*(part[:, :1] for part in crowd))
    sequences, order = letters(1, 9), shuffled(9)
    found = logits(model, crowd, sequences, order)
    assert_rounded(found[:, :, :1], logits(model, alone, sequences[:, :, :1], torch.tensor([[0]])))
    nobody = logits(model, wandering(9, unresolved=range(9)), sequences, order)
    assert_close(nobody, model.W_out.bias.expand_as(nobody))


@given(data=st.data())
@settings(max_examples=15)
def test_a_residue_sees_those_before_it_in_the_order_only(data: Any) -> None:
    model, structure = network(9), wandering(6, 3, seed=2)
    order = shuffled(9, seed=data.draw(st.integers(0, 100)))
    changed = data.draw(st.integers(0, 8))
    one = letters(1, 9)
    other = one.clone()
    other[0, 0, changed] = (one[0, 0, changed] + 1) % 21
    change = (logits(model, structure, one, order) - logits(model, structure, other, order)).abs().amax(-1)
    later = order > order[0, changed]
    assert (change[0][~later] == 0).all()
    assert (change[0][later] > 0).all()  # nine neighbours are all there are


def test_many_sequences_are_as_one_by_one() -> None:
    model = network()
    structure = side_by_side(wandering(8, 4, unresolved=[2]), wandering(12, seed=1))
    sequences = letters(3, 12).repeat(2, 1, 1)
    order = torch.cat([shuffled(12), shuffled(12, seed=1)])
    together = logits(model, structure, sequences, order)
    for number in range(3):
        one = logits(model, structure, sequences[:, number : number + 1], order)
        assert_rounded(together[:, number : number + 1], one)


def test_the_structure_is_encoded_once() -> None:
    model, encoded = network(), []
    model.features.register_forward_hook(lambda *_: encoded.append(1))
    logits(model, wandering(9), letters(4, 9), shuffled(9))
    assert encoded == [1]


def test_every_parameter_learns_and_no_gradient_is_infinite() -> None:
    model = network().train()
    structure = wandering(7, 5, unresolved=[3])
    structure.atoms[0, 1] = structure.atoms[0, 2]  # two residues in the same place
    structure.atoms[0, 6] = structure.atoms[0, 6, :1]  # and one whose atoms are
    atoms = structure.atoms.requires_grad_()
    sequences = letters(2, 12)
    out = model(structure, sequences, shuffled(12))
    nn.functional.cross_entropy(out.flatten(0, 2), sequences.flatten()).backward()
    for parameter in model.parameters():
        assert parameter.grad is not None
        assert parameter.grad.isfinite().all()
        assert parameter.grad.abs().max() > 0
    assert atoms.grad is not None
    assert atoms.grad.isfinite().all()
    assert (atoms.grad[0, 3] == 0).all()


def test_one_residue_alone_gives_every_parameter_a_gradient() -> None:
    model = network().train()
    model(wandering(1), letters(1, 1), torch.tensor([[0]])).sum().backward()
    assert all(parameter.grad is not None for parameter in model.parameters())


def test_dropout_is_for_training() -> None:
    torch.manual_seed(0)
    model = InverseFolding(8, 1, 1, 5, dropout=0.5)
    given = (wandering(9), letters(1, 9), shuffled(9))
    assert not torch.equal(logits(model.train(), *given), logits(model, *given))
    assert torch.equal(logits(model.eval(), *given), logits(model, *given))


def test_in_bfloat16_distances_stay_exact() -> None:
    model = network(width=32)
    structure = wandering(12, 8)
    structure = structure._replace(atoms=structure.atoms + 300)
    sequences, order = letters(2, 20), shuffled(20)
    exact = logits(model, structure, sequences, order)
    with torch.autocast("cpu", torch.bfloat16):
        out = model(structure, sequences, order)
        edges, nearest = model.features(structure)
    assert out.dtype == torch.float32
    assert_close(out, exact, rtol=0, atol=0.2)
    with torch.no_grad():
        expected, where = model.features(structure)
    assert torch.equal(nearest, where)
    assert_close(edges.float(), expected, rtol=0, atol=0.05)
    out.sum().backward()
    assert all(
        parameter.grad is not None and parameter.grad.isfinite().all() for parameter in model.parameters()
    )


@pytest.mark.long
def test_compiled_it_is_the_same_at_every_length() -> None:
    model = network(layers=(1, 1))
    compiled = torch.compile(model, backend="eager", fullgraph=True, dynamic=True)
    for lengths in ((9,), (8, 5), (3,)):
        given = (wandering(*lengths), letters(2, sum(lengths)), shuffled(sum(lengths)))
        assert_close(logits(compiled, *given), logits(model, *given))


# Features


def test_the_nearest_are_by_the_alpha_carbon_and_resolved() -> None:
    alphas = torch.tensor([[[0.0], [5.0], [1.0], [2.5], [100.0]]]) * torch.tensor([1.0, 0.0, 0.0])
    resolved = torch.tensor([[True, True, False, True, True]])
    found = nearest_residues(alphas, resolved, 3)
    assert found[0, [0, 1, 3, 4]].tolist() == [[0, 3, 1], [1, 3, 0], [3, 0, 1], [4, 1, 3]]
    assert nearest_residues(alphas, resolved, 48).shape == (1, 5, 5)


def test_beta_carbons_are_where_those_of_alanine_are() -> None:
    # Alanine 2 of a helix with ideal bonds and angles.
    atoms = torch.tensor([[1.458, 0.0, 0.0], [0.0, 0.0, 0.0], [-0.5515, 1.4217, 0.0], [-1.2, 1.9, 0.9]])
    beta = with_beta(atoms)[4]
    assert_close(beta.norm(), torch.tensor(1.52), rtol=0, atol=0.02)
    for other in (atoms[0], atoms[2]):
        angle = torch.rad2deg(torch.arccos(beta @ other / beta.norm() / other.norm()))
        assert 108 < angle < 113


def test_distances_are_from_the_residue_to_its_neighbour() -> None:
    atoms = torch.randn(1, 4, 5, 3)
    found = distances(atoms, torch.tensor([[[0, 2], [1, 3], [2, 1], [3, 0]]]))
    alpha_to_nitrogen = (atoms[0, 0, 1] - atoms[0, 2, 0]).norm()
    nitrogen_to_alpha = (atoms[0, 0, 0] - atoms[0, 2, 1]).norm()
    assert_close(found[0, 0, 1, [5, 15]], torch.stack([alpha_to_nitrogen, nitrogen_to_alpha]))
    assert_close(found[0, 0, 0, :5], torch.full((5,), 1e-3))


@pytest.mark.parametrize("apart", [32, 33, 500])
def test_what_is_encoded_of_positions_ends_at_32(apart: int) -> None:
    features = Features(8, 2)
    both = wandering(2)
    stated = [
        features(both._replace(positions=torch.tensor([[0, number]])))[0][0, 0, 1] for number in (apart, 32)
    ]
    assert torch.equal(*stated)
    assert not torch.equal(stated[0], features(both._replace(positions=torch.tensor([[0, 31]])))[0][0, 0, 1])
