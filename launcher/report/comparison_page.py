"""Renders a page that compares runs."""

from __future__ import annotations

from castoff.launcher.report import comparison
from castoff.launcher.report.cells import Moments
from castoff.launcher.report.comparison import Comparison
from castoff.launcher.report.page import rendered
from castoff.launcher.report.sections import plot


def comparison_page(content: Comparison, refresh: int | None = None) -> str:
    """The page as text; `refresh` as in `page`."""
    moments = Moments(content.at)
    return rendered(
        "comparison.html.j2",
        content.plots,
        refresh,
        content=content,
        moments=moments,
        metrics=comparison.final_metrics(content),
        differences=comparison.differences(content),
        equalities=comparison.equalities(content),
        origins=comparison.origins(content, moments),
        plots=[plot(one, content.rule) for one in content.plots],
        over=all(one.now.over for one in content.runs),
    )
