"""The pictures that follow from the code and from what was recorded of real runs."""

from __future__ import annotations

from pathlib import Path

from docs.pictures.cards import cards
from docs.pictures.curves import CHARTS, chart
from docs.pictures.life import life
from docs.pictures.loop import loop
from docs.pictures.moving import moving, still
from docs.pictures.nodes import SITES, node
from docs.pictures.overview import overview
from docs.pictures.page import page
from docs.pictures.recorded import FILM_COLUMNS, FILM_ROWS, attempts, screens, session
from docs.pictures.terminal import terminal
from docs.pictures.timeline import timeline

FOLDER = Path(__file__).resolve().parent

FILM = (
    "A terminal on a laptop: castoff --on cluster submit -f job.yaml, the output of its ranks, Ctrl-C, "
    "castoff --on cluster top, and castoff --on cluster logs -n 3"
)
TOP = "castoff top on one run: attempt, phases, steps, time left, curve of the loss, and its newest lines"


def drawn() -> dict[str, str]:
    """Each picture's file and text."""
    nodes = {f"node-{site}.svg": node(site) for site in SITES}
    recorded = {"session.svg": terminal(session())}
    charts = {f"curve-{name}.svg": chart(name) for name in CHARTS}
    recorded["attempts.svg"] = timeline(attempts())
    screen = (screens(), FILM_COLUMNS, FILM_ROWS)
    recorded["report.svg"], recorded["top.svg"] = page(), still(*screen, TOP, "the end of rank 0")
    recorded["film.svg"] = moving(*screen, FILM)
    own = {"overview.svg": overview(), "life.svg": life(), "loop.svg": loop(), **cards()}
    return {**own, **nodes, **recorded, **charts}
