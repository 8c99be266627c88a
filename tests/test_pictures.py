"""The documents' pictures are what the code draws, and everybody can read them."""

from __future__ import annotations

import re
from pathlib import Path
from xml.etree import ElementTree

import pytest

from castoff import JobSpec
from castoff.launcher.runs.states import ENDINGS
from castoff.trainers import TrainerDDP
from docs.pictures.drawn import FOLDER, drawn
from docs.pictures.life import CONTINUES
from docs.pictures.loop import STEPS
from docs.pictures.moving import moving, shown
from docs.pictures.record import COMMANDS, FILES
from docs.pictures.recorded import Screen, attempts, session
from docs.pictures.timeline import COLOURS

CHECKOUT = Path(__file__).resolve().parents[1]
PAGES = [CHECKOUT / "README.md", *(CHECKOUT / "docs").rglob("*.md")]
PICTURES = drawn()


@pytest.mark.parametrize("name", PICTURES)
def test_a_picture_is_as_its_data_are(name: str) -> None:
    assert (FOLDER / name).read_text(encoding="utf-8") == PICTURES[name], "run `make pictures`"


def test_no_other_pictures() -> None:
    assert {path.name for path in FOLDER.glob("*.*g")} == {*PICTURES}


@pytest.mark.parametrize("name", PICTURES)
def test_it_needs_no_network_and_has_words(name: str) -> None:
    root = ElementTree.fromstring(PICTURES[name])
    assert root.get("role") == "img"
    title = root.find("{http://www.w3.org/2000/svg}title")
    assert title is not None and len((title.text or "").split()) > 4
    without = PICTURES[name].replace("http://www.w3.org/2000/svg", "")
    without = without.replace('href="data:', "")
    assert re.findall(r"https?:|href|<script|@import|url\((?!#)", without) == []


def test_every_picture_is_shown_with_a_text_in_its_place() -> None:
    texts = [page.read_text("utf-8") for page in PAGES]
    shown = [each for one in texts for each in re.findall(r"!\[([^\]]*)\]\(([^)]+)\)", one)]
    on_cards = [each for one in texts for each in re.findall(r":img-top: (\S+)\n:img-alt: (.+)", one)]
    shown += [(words, file) for file, words in on_cards]
    assert {Path(file).name for _, file in shown} == {*PICTURES}
    assert [file for words, file in shown if len(words.split()) < 4] == []


def test_the_life_of_a_job_has_every_ending() -> None:
    assert {*CONTINUES} == {*ENDINGS}
    assert {*COLOURS} <= {*ENDINGS}


def test_the_loop_names_what_the_trainer_calls() -> None:
    import inspect

    code = inspect.getsource(TrainerDDP)
    assert [name for _, name, _ in STEPS if f"{name}(" not in code] == []


def test_a_film_shows_each_line_for_as_long_as_the_screen_did() -> None:
    screens = [Screen(0.0, ["$", ""]), Screen(0.5, ["$ ls", ""]), Screen(1.0, ["$ ls", "a b"])]
    lines = [tuple(one) for one in shown(screens, 4.0) if one.line]
    assert lines == [(0, "$", 0.0, 0.5), (0, "$ ls", 0.5, 4.0), (1, "a b", 1.0, 4.0)]
    film = moving(screens, 10, 2, "a film of three screens")
    assert "animation: 4s step-end infinite" in film and "12.5%{visibility:hidden}" in film
    still = film[film.index("prefers-reduced-motion: reduce") :]
    assert re.findall(r'class="at last".*?>([^<>]+)</text>', still) == ["$ ls", "a b"]


def test_what_was_recorded_is_of_these_commands(tmp_path: Path) -> None:
    assert tuple(command for command, _ in session()) == COMMANDS
    assert session()[0][1] == FILES["job.yaml"]
    (tmp_path / "job.yaml").write_text(FILES["job.yaml"])
    assert JobSpec.load(tmp_path / "job.yaml").nodes == 2
    assert [one["ending"] for one in attempts()["members"][0]["attempts"]] == ["failed", "resume", "done"]
