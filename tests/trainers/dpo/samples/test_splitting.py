"""Nothing that is trained on is held out by another name."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as some

from castoff.trainers.dpo.samples.splitting import divided_by_what_they_share


def test_the_sizes_where_every_sample_has_a_structure_of_its_own() -> None:
    found = divided_by_what_they_share([(number,) for number in range(414)], 0.1, 0)
    assert (len(found.train), len(found.validation)) == (372, 42)
    assert found.apart


def test_another_seed_holds_out_others() -> None:
    things = [(number,) for number in range(100)]
    first, second = (divided_by_what_they_share(things, 0.1, seed) for seed in (0, 1))
    assert set(first.validation) != set(second.validation)
    assert first == divided_by_what_they_share(things, 0.1, 0)


def test_pairs_related_through_others_stay_together() -> None:
    """0 and 1 share a, 1 and 2 share b: 0 and 2 are related."""
    things = [("a",), ("a", "b"), ("b",), ("c",), ("d",)]
    for seed in range(20):
        found = divided_by_what_they_share(things, 0.4, seed)
        assert len({number in found.validation for number in (0, 1, 2)}) == 1


def test_of_one_family_samples_are_held_out() -> None:
    found = divided_by_what_they_share([("a",)] * 20, 0.1, 0)
    assert (len(found.train), len(found.validation), found.apart) == (18, 2, False)


def test_large_families_leave_something_to_validate_with() -> None:
    found = divided_by_what_they_share([("a",)] * 12 + [("b",)] * 8, 0.1, 0)
    assert sorted(found.validation) == list(range(12, 20))
    assert found.apart


def test_no_share_is_nothing() -> None:
    found = divided_by_what_they_share([("a",), ("a",)], 0.0, 0)
    assert (len(found.train), found.validation, found.apart) == (2, [], True)


@given(
    some.lists(some.lists(some.integers(0, 15), min_size=1, max_size=2), max_size=40),
    some.floats(0, 1),
    some.integers(0, 5),
)
def test_every_sample_once_and_none_related(things: list[list[int]], share: float, seed: int) -> None:
    found = divided_by_what_they_share(things, share, seed)
    assert sorted([*found.train, *found.validation]) == list(range(len(things)))
    if found.apart:
        of_train, of_validation = (
            {thing for number in part for thing in things[number]} for part in (found.train, found.validation)
        )
        assert not of_train & of_validation
