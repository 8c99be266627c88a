"""What is held out, and what is reported of it."""

from __future__ import annotations

from typing import Any, NamedTuple

import pytest

from castoff.trainers.configuration.fields import ConfigError
from castoff.trainers.dpo.samples.parts import divided, see_that_they_are_the_same
from castoff.trainers.dpo.settings import Pairs


class Made(NamedTuple):
    digests: list[str]
    things: list[tuple[str]]
    notes: list[str]

    def __len__(self) -> int:
        return len(self.digests)


def made(words: str, things: str | None = None) -> Made:
    """A sample for each letter."""
    return Made(list(words), [(thing,) for thing in things or words], [f"of {words}"])


DATA = Pairs(train_data="x", validation_share=0.25)


def test_a_share_is_held_out() -> None:
    found = divided({"train": made("abcdefgh", "11223344")}, DATA, "pairs")
    assert sorted([*found.train, *found.validation]) == list(range(8)) and not list(found.test)
    assert len(found.validation) == 2 and len({number // 2 for number in found.validation}) == 1
    assert found.notes == ["of abcdefgh"]
    parts = found.of({"train": "ABCDEFGH"})
    held_out: list[Any] = [parts.validation[index] for index in range(2)]
    assert held_out == ["ABCDEFGH"[number] for number in found.validation]


def test_or_is_a_set_of_its_own() -> None:
    sets = {"train": made("abcd"), "validation": made("efg"), "test": made("hi")}
    found = divided(sets, DATA, "pairs")
    assert sorted(found.train) == [0, 1, 2, 3]
    assert list(found.validation) == [0, 1, 2] and list(found.test) == [0, 1]
    assert found.notes == ["of abcd", "of efg", "of hi"]
    parts = found.of({"train": "ABCD", "validation": "EFG", "test": "HI"})
    assert [len(part) for part in parts] == [4, 3, 2]


def test_digests_are_of_what_is_trained_on_and_validated_with() -> None:
    before = divided({"train": made("abcdefgh")}, DATA, "pairs")
    held, kept = before.validation[0], before.train[0]
    for changed, differs in ((held, "validation"), (kept, "train")):
        words = "".join("z" if number == changed else word for number, word in enumerate("abcdefgh"))
        now = divided({"train": made(words)}, DATA, "pairs").digests
        assert [name for name in now if now[name] != before.digests[name]] == [differs]
    own = divided({"train": made("abcd"), "validation": made("ef")}, DATA, "pairs").digests
    others = divided({"train": made("abcd"), "validation": made("eg")}, DATA, "pairs").digests
    assert own["validation"] != others["validation"] and own["train"] == others["train"]
    with pytest.raises(ConfigError, match=r"a field has others \(digest .*\) than those .*\(--fresh\)"):
        see_that_they_are_the_same(before.digests, own, {"train": ("a field has others", "trained on")})


@pytest.mark.parametrize(
    ("sets", "given"),
    [
        ({"train": made("abcd", "1111")}, "all 4 pairs share structures with each other"),
        ({"train": made("abcdefgh", "11112222")}, "0.25 of 8 pairs would be 2, but 4 are held out, because"),
        ({"train": made("abcdefgh" * 2, "1111111122222223")}, "of 16 pairs would be 4, but 1 are held out"),
        ({"train": made("abcd"), "validation": made("dce")}, "2 of the 3 pairs of the validation set are"),
        ({"train": made("abcd"), "test": made("a")}, "1 of the 1 pairs of the test set are also in"),
    ],
)
def test_what_nobody_may_have_meant(sets: dict[str, Made], given: str) -> None:
    assert any(given in note for note in divided(sets, DATA, "pairs").notes)
    silent = DATA.__class__(train_data="x", validation_share=0.0)
    if "validation" not in sets and "test" not in sets:
        assert divided(sets, silent, "pairs").notes == [each for part in sets.values() for each in part.notes]


def test_something_is_left_to_train_on() -> None:
    with pytest.raises(ConfigError, match=r"is 0.25, and of 1 pairs leaves none to train on; write 0, with"):
        divided({"train": made("a")}, DATA, "pairs")
    with pytest.raises(
        ConfigError, match=r"is 1, and of 2 pairs leaves none .*; write a smaller share, or 0"
    ):
        divided({"train": made("ab")}, Pairs(train_data="x", validation_share=1.0), "pairs")
    assert list(divided({"train": made("a"), "validation": made("b")}, DATA, "pairs").train) == [0]
