"""Which of several members is best: by which metric, and whether small or large values are better. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from castoff.launcher.errors import CastoffError, printable
from castoff.launcher.history.metrics import Point
from castoff.launcher.report.results import Result
from castoff.launcher.typed.suggestion import did_you_mean

_SMALLER = re.compile(
    "loss|losses|error|errors|err|mse|rmse|mae|mape|perplexity|ppl|nll|bpb|bpc|bpd|kl|divergence|distance"
    "|regret|rmsd|fid|wer|cer"
)
_LARGER = re.compile(
    "accuracy|acc|f1|auc|auroc|auprc|ap|map|r2|recovery|precision|recall|score|bleu|rouge|iou|dice|mcc|psnr"
    "|ssim|rewards?|return|success|correlation|pearson|spearman|top1|top5|likelihood|gdt|lddt"
)
_VALIDATION = ("val", "valid", "validation", "eval", "dev")

_COLUMNS = 8
"""The maximum number of parameters in a table."""

_LONGEST_VALUE = 40
"""The maximum number of characters of a value in a table."""

_WORDS = re.compile(r"[^a-z0-9]+")


class Rule(NamedTuple):
    """How members are ordered."""

    metric: str
    largest: bool
    """Whether the largest value is the best."""
    because: str
    """The reason for `largest`, as the end of a sentence."""
    is_guess: bool = False
    """Whether nothing indicates which values are better."""

    @property
    def words(self) -> str:
        """The rule in words, to follow a noun: `by val/loss, smallest first`."""
        return f"by {self.metric}, {'largest' if self.largest else 'smallest'} first{self.because}"


def larger_is_better(name: str) -> bool | None:
    """Guess from the last suitable word in a metric's name whether larger values are better; None if there is
    no such word.

    Small values of `val/loss` and `dimension_error` are better, and large ones of `accuracy` and
    `f1_of_class`.
    """
    for word in reversed(_split(name)):
        if _SMALLER.fullmatch(word):
            return False
        if _LARGER.fullmatch(word):
            return True
    return None


def rule(names: Sequence[str], by: str | None = None, largest: bool | None = None) -> Rule | None:
    """The rule for members with these metrics; None without metrics.

    Raises:
        CastoffError: `by` is not among `names`.
    """
    if by is not None and by not in names:
        listed = ", ".join(map(printable, names)) or "none"
        raise CastoffError(
            f"--by {printable(by)}: no member has reported it; these were reported: {listed}"
            f"{did_you_mean(by, map(printable, names))}"
        )
    metric = by if by is not None else _main(names)
    if metric is None:
        return None
    by_name = larger_is_better(metric)
    if largest is not None:
        return Rule(metric, largest, f", as --{'largest' if largest else 'smallest'} says")
    if by_name is not None:
        return Rule(metric, by_name, ", as its name suggests")
    because = ": its name does not say which is better, --largest reverses the order"
    return Rule(metric, False, because, is_guess=True)


def metric_names(results: Iterable[Result]) -> list[str]:
    """The metrics of all members, in the order in which they first appear."""
    return list(dict.fromkeys(name for result in results for name in result.metrics))


def best(result: Result, rule: Rule | None) -> Point | None:
    """A member's best value; None if it has none."""
    values = result.metrics.get(rule.metric) if rule else None
    return values.best(largest=rule.largest) if values and rule else None


def ranked(results: Iterable[Result], rule: Rule | None) -> list[Result]:
    """Sort members, the best first and those without a value last."""

    def order(one: Result) -> tuple[bool, float]:
        point = best(one, rule)
        if point is None or rule is None:
            return True, 0.0
        return False, -point.value if rule.largest else point.value

    return sorted(results, key=order)


def differing(results: Sequence[Result]) -> list[str]:
    """The parameters in which members differ, in the order of their first appearance. Members without
    parameters are ignored.
    """
    with_parameters = [result for result in results if result.parameters]
    paths = list(dict.fromkeys(path for member in with_parameters for path in member.parameters))
    values = {path: [member.parameters.get(path) for member in with_parameters] for path in paths}
    return [path for path in paths if any(value != values[path][0] for value in values[path])]


def for_a_table(results: Sequence[Result]) -> tuple[list[str], int]:
    """Choose which of the parameters in which members differ a table shows, and count the others.

    If programs have different parameters, only those that all of them have are shown.
    """
    paths = differing(results)
    shared = [
        path for path in paths if all(path in result.parameters for result in results if result.parameters)
    ]
    shown = shared[:_COLUMNS]
    return shown, len(paths) - len(shown)


def short_names(paths: Sequence[str]) -> dict[str, str]:
    """Shorten each path to the fewest last parts that no other path ends in: `lr` for
    `training.optimizer.lr`.
    """
    return {path: _shortest(path, paths) for path in paths}


def value_words(value: Any) -> str:
    """A parameter's value on one line, shortened if long."""
    if value is None:
        return ""
    text = printable(f"{value:.6g}" if isinstance(value, float) else str(value))
    return text if len(text) <= _LONGEST_VALUE else f"{text[: _LONGEST_VALUE - 1]}…"


def parameters_words(parameters: Mapping[str, Any], paths: Sequence[str]) -> str:
    """A member's parameters on one line: `lr=0.1, width=8`."""
    names = short_names(paths)
    return ", ".join(f"{names[path]}={value_words(parameters[path])}" for path in paths if path in parameters)


def _main(names: Sequence[str]) -> str | None:
    """The metric to rank by: val/loss, another loss or metric of validation, a loss, or the first metric."""
    if "val/loss" in names:
        return "val/loss"
    of_validation = [name for name in names if _split(name)[0] in _VALIDATION]
    losses = [name for name in names if "loss" in _split(name)]
    directed = [name for name in names if larger_is_better(name) is not None]
    choices = (
        [name for name in of_validation if name in losses],
        [name for name in of_validation if name in directed],
        losses,
        directed,
        names,
    )
    return next((choice[0] for choice in choices if choice), None)


def _split(name: str) -> list[str]:
    """The words of a metric's name."""
    return [word for word in _WORDS.split(name.lower()) if word] or [""]


def _shortest(path: str, paths: Sequence[str]) -> str:
    parts = path.split(".")
    for count in range(1, len(parts)):
        tail = ".".join(parts[-count:])
        if not any(other != path and f".{other}".endswith(f".{tail}") for other in paths):
            return tail
    return path
