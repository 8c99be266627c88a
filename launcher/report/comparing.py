"""Reads the content of a page that compares runs from their directories."""

from __future__ import annotations

import shlex
import time
from collections.abc import Iterator, Mapping, Sequence

import yaml

from castoff.launcher.errors import InvalidInput
from castoff.launcher.history.metrics import Metrics
from castoff.launcher.report.comparison import ComparedRun, Comparison, by_rank, labels
from castoff.launcher.report.curves import DRAWN_METRICS, by_interest, plots_of_several, points_of_each
from castoff.launcher.report.masking import MASK, masked_parameters, masked_script, masked_words
from castoff.launcher.report.ranking import Rule, metric_names, ranked, rule, value_words
from castoff.launcher.report.results import Result, metrics_of_member, result_of
from castoff.launcher.runs import provenance
from castoff.launcher.runs.parameters import parameters_of
from castoff.launcher.runs.records import record_bytes
from castoff.launcher.runs.run import RunDirectory
from castoff.launcher.runs.secrets import is_secret_name
from castoff.launcher.runs.states import RunStatus
from castoff.launcher.typed.composing import NULL, CoreLoader, compose

_COMPARED = 20
"""The maximum number of runs whose curves share a plot."""


def compare(
    runs: Sequence[tuple[RunDirectory, RunStatus]], by: str | None = None, largest: bool | None = None
) -> Comparison:
    """Read the content of a page about these runs, or about those of their members that the statuses have.
    `by`, `largest`: by which metric, and whether large values come first; None: castoff chooses.

    Raises:
        CastoffError: a run's directory cannot be read, or no run has reported `by`.
    """
    at = time.time()
    of_runs = [_results(run, now, at) for run, now in runs]
    chosen = rule(metric_names(one for found, _ in of_runs for one in found), by, largest)
    words = labels([now for _, now in runs])
    content = Comparison(
        at,
        [
            _compared(label, run, now, ranked(results, chosen)[0], about)
            for label, (run, now), (results, about) in zip(words, runs, of_runs, strict=True)
        ],
        chosen,
    )
    return (
        content if chosen is None else _with_plots(content, {now.directory: run for run, now in runs}, chosen)
    )


_About = dict[int, dict[str, str]]
"""The packages and the device of each member."""


def _results(run: RunDirectory, now: RunStatus, at: float) -> tuple[list[Result], _About]:
    parameters = parameters_of(run)
    results, about = list[Result](), _About()
    for member in now.members:
        metrics = metrics_of_member(run, member)
        metrics.parameters = masked_parameters(metrics.parameters)
        of_array = masked_parameters(parameters.typed(member.member))
        results.append(result_of(run, now, member, metrics, at, of_array))
        about[member.member] = {f"package {name}": version for name, version in metrics.packages.items()}
        about[member.member] |= {"device": metrics.device} if metrics.device else {}
    return results, about


def _compared(label: str, run: RunDirectory, now: RunStatus, result: Result, about: _About) -> ComparedRun:
    traits = {path: value_words(value) for path, value in result.parameters.items()}
    traits |= {"job: site": now.site, **_fields(run)}
    if code := provenance.read(run):
        changed = code.changed.count + code.untracked.count
        found = {
            "code: commit": code.commit and code.commit[:12],
            "code: branch": code.branch,
            "code: files changed or new": str(changed) if code.repository else None,
            "code: castoff": code.castoff,
        }
        traits |= {name: value for name, value in found.items() if value}
    return ComparedRun(label, now, result, {**traits, **about[result.member]})


def _fields(run: RunDirectory) -> dict[str, str]:
    """The fields of a run's job, by their paths, without secrets; empty if they cannot be read."""
    try:
        root = compose(record_bytes(run.path / "job.yaml").decode(errors="replace"), "", CoreLoader)
    except InvalidInput:
        return {}
    return {} if root is None else {f"job: {path}": words for path, words in _flat(root, "")}


def _flat(node: yaml.Node, path: str) -> Iterator[tuple[str, str]]:
    """The values of YAML by their paths, as they are spelled; without null."""
    if isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            name = str(key.value)
            yield from (
                _masked(value, f"{path}{name}") if is_secret_name(name) else _flat(value, f"{path}{name}.")
            )
    elif isinstance(node, yaml.SequenceNode):
        if all(isinstance(one, yaml.ScalarNode) for one in node.value):
            words = masked_words([one.value for one in node.value])
            yield path.removesuffix("."), shlex.join(words)
        else:
            for number, one in enumerate(node.value):
                yield from _flat(one, f"{path}{number}.")
    elif node.tag != NULL:
        yield path.removesuffix("."), masked_script(node.value)


def _masked(node: yaml.Node, path: str) -> Iterator[tuple[str, str]]:
    if node.tag != NULL:
        yield path, MASK


def _with_plots(content: Comparison, directories: Mapping[str, RunDirectory], chosen: Rule) -> Comparison:
    """Add the curves of the best runs: a plot for each metric."""
    drawn = [one for one in by_rank(content) if chosen.metric in one.result.metrics][:_COMPARED]
    names = by_interest(metric_names(one.result for one in drawn), chosen.metric)

    def members() -> Iterator[tuple[str, Metrics]]:
        for one in drawn:
            # Read again, since keeping the curves of all members would take much memory.
            (member,) = (member for member in one.now.members if member.member == one.result.member)
            yield one.label, metrics_of_member(directories[one.now.directory], member)

    limit = points_of_each(len(drawn) * len(names[:DRAWN_METRICS]))
    return Comparison(
        content.at,
        content.runs,
        chosen,
        plots_of_several(members(), names[:DRAWN_METRICS], limit),
        len(drawn),
        len(names[DRAWN_METRICS:]),
    )
