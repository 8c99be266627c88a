"""Which member is best: by which metric, in which direction, and what a table shows of parameters."""

from __future__ import annotations

import pytest

from castoff.launcher.errors import CastoffError
from castoff.launcher.report.ranking import (
    best,
    differing,
    for_a_table,
    larger_is_better,
    parameters_words,
    ranked,
    rule,
    short_names,
    value_words,
)

from .made import result


@pytest.mark.parametrize(
    ("name", "larger"),
    [
        *(("val/loss", False), ("loss", False), ("eval_loss", False), ("val/Perplexity", False)),
        *(
            ("val/dimension_error", False),
            ("train/mse", False),
            ("val/accuracy", True),
            ("f1_of_class/0", True),
        ),
        *(("test/top1", True), ("R2", True), ("val/recovery", True), ("mean_reward", True)),
        *(("train/lr", None), ("checkpoint/step", None), ("", None), ("accuracy_loss", False)),
        *(("lossless", None), ("classes", None)),
    ],
)
def test_a_name_says_which_values_are_better(name: str, larger: bool | None) -> None:
    assert larger_is_better(name) is larger


@pytest.mark.parametrize(
    ("names", "metric"),
    [
        (["train/loss", "val/acc", "val/loss"], "val/loss"),
        (["train/loss", "val/acc", "val/nll_loss"], "val/nll_loss"),
        (["train/loss", "val/acc"], "val/acc"),
        (["lr", "eval_loss"], "eval_loss"),
        (["lr", "train/acc", "train/loss"], "train/loss"),
        (["lr", "train/acc"], "train/acc"),
        (["lr", "steps"], "lr"),
    ],
)
def test_the_metric_that_says_most(names: list[str], metric: str) -> None:
    found = rule(names)
    assert found is not None and found.metric == metric


def test_the_rule_in_words() -> None:
    assert rule([]) is None
    said = [
        rule(["val/loss"]),
        rule(["lr"]),
        rule(["lr", "val/acc"], "lr", True),
        rule(["val/acc"], largest=False),
    ]
    assert [one and one.words for one in said] == [
        "by val/loss, smallest first, as its name suggests",
        "by lr, smallest first: its name does not say which is better, --largest reverses the order",
        "by lr, largest first, as --largest says",
        "by val/acc, smallest first, as --smallest says",
    ]


def test_a_metric_that_nobody_reported_is_refused() -> None:
    with pytest.raises(
        CastoffError, match=r"--by f1: no member has reported it; these were reported: loss, a"
    ):
        rule(["loss", "a"], "f1")
    with pytest.raises(CastoffError, match=r"reported: val/loss, a; did you mean val/loss\?$"):
        rule(["val/loss", "a"], "vla/loss")
    with pytest.raises(CastoffError, match="these were reported: none"):
        rule([], "f1")


def test_the_best_comes_first_and_who_has_no_value_last() -> None:
    members = [
        result(0, val__acc=[0.9, 0.1]),
        result(1),
        result(2, val__acc=[0.5, 0.95]),
        result(3, val__loss=[1.0]),
        result(4, val__acc=[0.9]),
    ]
    by_accuracy = rule(["val/acc"])
    assert [one.member for one in ranked(members, by_accuracy)] == [2, 0, 4, 1, 3]
    assert best(members[2], by_accuracy) == (1, 0.95)
    assert best(members[1], by_accuracy) is None
    smallest = rule(["val/acc"], largest=False)
    assert [one.member for one in ranked(members, smallest)] == [0, 2, 4, 1, 3]
    assert [one.member for one in ranked(members, None)] == [0, 1, 2, 3, 4]


def test_parameters_that_differ() -> None:
    members = [
        result(0, {"a.lr": 0.1, "b.lr": 1, "seed": 1}),
        result(1, {"a.lr": 0.2, "b.lr": 1, "seed": 1, "more": None}),
        result(2),  # it has not begun
    ]
    assert differing(members) == ["a.lr"]
    members.append(result(3, {"a.lr": 0.2, "b.lr": 2, "new": 5}))
    assert differing(members) == ["a.lr", "b.lr", "seed", "new"]
    assert for_a_table(members) == (["a.lr", "b.lr"], 2)
    wide = [result(number, {f"p{at}": number for at in range(10)}) for number in (0, 1)]
    assert for_a_table(wide) == ([f"p{at}" for at in range(8)], 2)


def test_parameters_in_words() -> None:
    paths = ["a.lr", "b.lr", "training.batch_size", "size", "x.y.size"]
    assert [*short_names(paths).values()] == ["a.lr", "b.lr", "batch_size", "size", "y.size"]
    assert parameters_words({"a.lr": 0.1 + 0.2, "size": None}, ["a.lr", "size"]) == "lr=0.3, size="
    assert value_words("two\nlines") == "two\\nlines"
    assert len(value_words(list(range(100)))) == 40
