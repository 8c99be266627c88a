"""Renders pages, above all a run's: one HTML file, which loads nothing and runs only its own script."""

from __future__ import annotations

import base64
import functools
import hashlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jinja2
from markupsafe import Markup

from castoff.launcher.planning.render import template_folder
from castoff.launcher.report import sections
from castoff.launcher.report.cells import Moments, visible
from castoff.launcher.report.curves import Plot
from castoff.launcher.report.facts import RunFacts
from castoff.launcher.runs.pages import GENERATOR


def page(facts: RunFacts, refresh: int | None = None) -> str:
    """The page as text, without lone surrogates, so that it can be encoded in UTF-8. `refresh`: seconds after
    which a browser loads it again; None: it does not.
    """
    moments = Moments(facts.at)
    return rendered(
        "page.html.j2",
        [*facts.plots, *facts.use_plots],
        refresh,
        facts=facts,
        plots=[sections.plot(plot, facts.rule) for plot in facts.plots],
        moments=moments,
        **sections.sections(facts, moments),
    )


def rendered(template: str, drawn: Sequence[Plot], refresh: int | None, **variables: Any) -> str:
    """A page of any kind with these plots, for which it gets a script."""
    folder = template_folder() / "report"
    files = ["page.css"], list[str]()
    if drawn:
        files = ["uplot/uPlot.min.css", "page.css"], ["uplot/uPlot.iife.min.js", "curves.js"]
    styles, scripts = ([_inline(folder / name) for name in names] for names in files)
    return (
        _environment(folder)
        .get_template(template)
        .render(
            policy=_policy(styles, scripts),
            styles=styles,
            scripts=scripts,
            data=_data(drawn),
            refresh=refresh,
            **variables,
        )
    )


@functools.cache
def _environment(folder: Path) -> jinja2.Environment:
    """The templates of pages, which escape all that they insert."""
    pages = jinja2.Environment(
        loader=jinja2.FileSystemLoader(folder),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        autoescape=True,
        finalize=_shown,
    )
    pages.globals["generator"] = GENERATOR
    return pages


def _shown(value: Any) -> Any:
    """Make invisible characters of an expression's value visible, before it is escaped."""
    return visible(value) if isinstance(value, str) and not isinstance(value, Markup) else value


def _inline(path: Path) -> Markup:
    """A file's text, to be inserted in the page unescaped."""
    return Markup(path.read_text(encoding="utf-8"))  # trusted: castoff's file, not the run's


def _policy(styles: list[Markup], scripts: list[Markup]) -> str:
    """A Content-Security-Policy that allows only these styles and scripts, whatever else the
    page contains.
    """
    allowed = {"style-src": styles, "script-src": scripts}
    rules = ["default-src 'none'", "base-uri 'none'", "form-action 'none'", "img-src data:"]
    for name, parts in allowed.items():
        rules.append(" ".join([name, *(map(_hash, parts) if parts else ["'none'"])]))
    return "; ".join(rules)


def _hash(part: str) -> str:
    digest = hashlib.sha256(part.encode()).digest()
    return f"'sha256-{base64.b64encode(digest).decode()}'"


def _data(plots: Sequence[Plot]) -> Markup:
    """The points of all curves as JSON: only numbers, so nothing in them can end the script element."""
    points = [
        [
            {
                "x": [_number(point.step) for point in curve.points],
                "y": [_number(one.value) for one in curve.points],
                **({"marks": curve.marks} if curve.marks else {}),
            }
            for curve in plot.curves
        ]
        for plot in plots
    ]
    return Markup(json.dumps(points, separators=(",", ":")))


def _number(value: float) -> float | int:
    """Round a value to as many digits as a plot can show."""
    return int(value) if value.is_integer() and abs(value) < 1e15 else float(f"{value:.6g}")
