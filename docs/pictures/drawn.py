"""The pictures that follow from the code and from what was recorded of real runs."""

from __future__ import annotations

from pathlib import Path

from docs.pictures.cards import cards
from docs.pictures.curves import CHARTS, chart
from docs.pictures.life import life
from docs.pictures.loop import loop
from docs.pictures.nodes import SITES, node
from docs.pictures.overview import overview
from docs.pictures.recorded import attempts, session
from docs.pictures.terminal import terminal
from docs.pictures.timeline import timeline

FOLDER = Path(__file__).resolve().parent


def drawn() -> dict[str, str]:
    """Each picture's file and text."""
    nodes = {f"node-{site}.svg": node(site) for site in SITES}
    job, _, ranks, status = session()
    recorded = {"session.svg": terminal([job, ranks, status])}
    charts = {f"curve-{name}.svg": chart(name) for name in CHARTS}
    recorded["attempts.svg"] = timeline(attempts())
    own = {"overview.svg": overview(), "life.svg": life(), "loop.svg": loop(), **cards()}
    return {**own, **nodes, **recorded, **charts}
