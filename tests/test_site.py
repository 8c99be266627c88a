"""The documents' site builds without a warning, and every link and picture in it leads somewhere."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urldefrag

import pytest

from castoff.launcher.cli.help import VERBS
from tests import patience
from tests.chromium import PACKAGE, PROGRAM, Chromium
from tests.conftest import SystemProgram

CHECKOUT = Path(__file__).resolve().parents[1]
pytestmark = pytest.mark.costly


class Page(HTMLParser):
    """The places of a page that links may lead to, its links, what it loads, and its pictures."""

    def __init__(self, path: Path):
        super().__init__()
        self.prose, self._in_code = "", 0
        self.ids, self.links, self.loads = set[str](), list[str](), list[str]()
        self.pictures: list[dict[str, str | None]] = []
        self.feed(path.read_text(encoding="utf-8"))

    def handle_endtag(self, tag: str) -> None:
        self._in_code -= tag == "pre"

    def handle_data(self, data: str) -> None:
        self.prose += "" if self._in_code else data

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        has = dict(attrs)
        self._in_code += tag == "pre"
        self.ids |= {value for name in ("id", "name") if (value := has.get(name))}
        if tag == "a" and (href := has.get("href")):
            self.links.append(href)
        if tag in ("script", "img", "iframe") and (source := has.get("src")):
            self.loads.append(source)
        if (
            tag == "link"
            and has.get("rel") in ("stylesheet", "icon", "preload")
            and (href := has.get("href"))
        ):
            self.loads.append(href)
        if tag == "img":
            self.pictures.append(has)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    words = ("-m", "sphinx", "--quiet", "--fail-on-warning", "--keep-going", "-d", folder / "read")
    done = subprocess.run(
        [sys.executable, *words, "-b", "html", CHECKOUT / "docs", folder / "html"],
        capture_output=True,
        text=True,
        timeout=patience.SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return folder / "html"


@pytest.fixture(scope="module")
def chromium(
    tmp_path_factory: pytest.TempPathFactory, system_program: SystemProgram, for_real: None
) -> Iterator[Chromium]:
    browser = Chromium(system_program(PROGRAM, PACKAGE), tmp_path_factory.mktemp("chromium"))
    yield browser
    browser.close()


@cache
def parsed(path: Path) -> Page:
    return Page(path)


def pages(site: Path) -> list[Path]:
    return sorted(path for path in site.rglob("*.html") if "_static" not in path.parts)


def test_every_link_leads_somewhere(site: Path) -> None:
    broken = []
    for path in pages(site):
        for link in parsed(path).links:
            if link.startswith(("http://", "https://", "mailto:")):
                continue
            file, anchor = urldefrag(unquote(link))
            target = (path.parent / file).resolve() if file else path
            there = target.is_file() and (
                not anchor or target.suffix != ".html" or anchor in parsed(target).ids
            )
            if not there:
                broken.append(f"{path.relative_to(site)}: {link}")
    assert broken == []


def test_words_are_as_they_are_written(site: Path) -> None:
    """No markup of another language is left, and no dash stands for the -- of a command."""
    for path in pages(site):
        found = re.findall(r".*(?:\.\. [\w-]+::|(?<!\w)–\w).*", parsed(path).prose)
        assert found == [], path.relative_to(site)


def test_a_class_is_described_without_its_fields(site: Path) -> None:
    """Its docstring has them; on the page of the API they would be one long paragraph."""
    prose = parsed(site / "reference" / "api" / "castoff.html").prose
    assert "A machine as its profile describes it" in prose and "The machine in one line" not in prose
    assert "A job as the user describes it" in prose and "Memory of each node" not in prose


def test_it_loads_nothing_from_elsewhere(site: Path) -> None:
    for path in pages(site):
        for source in parsed(path).loads:
            file = unquote(source).partition("?")[0]
            assert not file.startswith(("http", "//")), f"{path.relative_to(site)} loads {source}"
            assert (path.parent / file).resolve().is_file(), f"{path.relative_to(site)} loads {source}"


def test_pictures_have_a_text_in_their_place(site: Path) -> None:
    shown = [picture for path in pages(site) for picture in parsed(path).pictures]
    assert len(shown) > 6
    assert [one for one in shown if not (one.get("alt") or "").strip()] == []


def test_it_can_be_searched_and_edited(site: Path) -> None:
    assert (site / "searchindex.js").is_file() and (site / "search.html").is_file()
    logs = (site / "how-to" / "logs.html").read_text(encoding="utf-8")
    assert "/edit/main/docs/how-to/logs.md" in logs
    assert "theme-toggle" in logs


def test_terms_lead_to_the_glossary_once(site: Path) -> None:
    links = parsed(site / "tutorials" / "laptop.html").links
    terms = [link for link in links if "glossary.html#term-" in link]
    assert "../reference/glossary.html#term-launcher" in terms
    assert len(terms) == len({*terms})


def test_every_verb_and_public_name_has_its_place(site: Path) -> None:
    import castoff
    import castoff.trainers

    commands = parsed(site / "reference" / "commands.html").ids
    assert [verb for verb in VERBS if f"castoff-{verb}" not in commands] == []
    for package in (castoff, castoff.trainers):
        ids = parsed(site / "reference" / "api" / f"{package.__name__}.html").ids
        assert [name for name in package.__all__ if f"{package.__name__}.{name}" not in ids] == []


SOUGHT = {
    "out of memory": "how-to/debug-rank",
    "oom": "how-to/debug-rank",
    "requeue": "how-to/resume",
    "walltime": "how-to/resume",
    "preempt": "how-to/resume",
    "resume lightning": "how-to/lightning",
    "conda": "how-to/environment",
    "array": "how-to/parameters",
    "hyperparameter": "how-to/parameters",
    "master port": "how-to/hangs-at-start",
    "hang": "how-to/hangs-at-start",
    "nccl timeout": "how-to/hangs-at-start",
    "gpu binding": "reference/sites",
    "apptainer": "how-to/containers",
    "singularity": "how-to/containers",
    "wandb": "how-to/tracking",
    "mlflow": "how-to/tracking",
    "jupyter": "how-to/notebook",
    "interactive job": "how-to/allocation",
    "slurm to pbs": "how-to/import-script",
    "srunx": "how-to/moving",
    "email notification": "how-to/notify",
    "slack": "how-to/notify",
    "mcp": "how-to/agents",
    "claude": "how-to/agents",
    "small jobs on one node": "how-to/many-runs",
    "mpirun": "how-to/mpi",
    "dependency": "how-to/pipeline",
    "cancel": "how-to/runs",
    "laptop": "how-to/remote",
}
"""What people type into a search, and the page that answers it."""


def test_a_search_finds_the_page_that_answers_it(site: Path, chromium: Chromium) -> None:
    """Among the first two hits of the site's own search."""
    chromium.open(site / "search.html")
    chromium.wait_for("typeof Search === 'object' && Search.hasIndex()")
    chromium.value("document.body.insertAdjacentHTML('beforeend', '<div id=search-progress></div>')")
    wrong = {}
    for query, page in SOUGHT.items():
        hits = f"Search._performSearch(...Search._parseQuery({json.dumps(query)})).reverse()"
        first = chromium.value(f"{hits}.slice(0, 2).map((hit) => hit[0])")
        if page not in first:
            wrong[query] = first
    assert wrong == {}


def test_terms_of_the_search_lead_to_their_sections(site: Path) -> None:
    index = (site / "searchindex.js").read_text(encoding="utf-8")
    found = json.loads(index[index.index("(") + 1 : index.rindex(")")])
    entries, names = found["indexentries"], found["docnames"]
    assert [(names[at], anchor) for at, anchor, _ in entries["master port"]] == [
        ("how-to/hangs-at-start", "the-address-is-already-in-use")
    ]
    assert [anchor for _, anchor, _ in entries["apptainer"]] == [""]


NARROW = 390
"""A phone's screen, on which most code is wider than the page."""

UNREACHABLE = """
[...document.querySelectorAll('pre, .table-wrapper')]
  .filter((one) => one.scrollWidth > one.clientWidth && one.tabIndex !== 0).length
"""
UNNAMED = """
[...document.querySelectorAll('aside, [role=region]')]
  .map((one) => one.ariaLabel).filter((name, at, all) => !name || all.indexOf(name) !== at).length
"""
WITHOUT_LEVEL = "document.querySelectorAll('[role=heading]:not([aria-level])').length"


def test_keyboards_and_screen_readers_reach_everything(site: Path, chromium: Chromium) -> None:
    """The faults that axe-core 4.14 has found on pages of this theme."""
    for page in ("how-to/index", "how-to/mpi", "search"):
        chromium.open(site / f"{page}.html", width=NARROW)
        assert chromium.value(UNREACHABLE) == 0, page
        assert chromium.value(UNNAMED) == 0, page
        assert chromium.value(WITHOUT_LEVEL) == 0, page
        assert chromium.value("document.querySelectorAll('h1').length") == 1, page
        assert chromium.complaints() == []
    chromium.open(site / "how-to/mpi.html", width=NARROW)
    assert chromium.value("document.querySelectorAll('pre[tabindex]').length") > 0


def test_tables_have_a_word_above_each_column(site: Path) -> None:
    empty = re.compile(r"<th[^>]*>(?:<p>)?\s*(?:</p>)?</th>")
    assert [path.name for path in pages(site) if empty.search(path.read_text(encoding="utf-8"))] == []


def test_a_scheduler_that_was_chosen_stays_chosen(site: Path, chromium: Chromium) -> None:
    chromium.open(site / "how-to" / "mpi.html")
    labels = "[...document.querySelectorAll('.sd-tab-label')]"
    assert chromium.value(f"{labels}.map((one) => one.textContent.trim())") == ["Slurm", "PBS", "Flux"]
    chromium.value(f"{labels}[1].click()")
    chromium.open(site / "tutorials" / "laptop.html")
    shown = "[...document.querySelectorAll('.sd-tab-content pre')].filter((one) => one.checkVisibility())"
    assert "#PBS -N hello" in chromium.value(f"{shown}.map((one) => one.textContent).join()")
    assert "#SBATCH" not in chromium.value(f"{shown}.map((one) => one.textContent).join()")


def test_pictures_follow_the_switch_of_the_page(site: Path, chromium: Chromium) -> None:
    """Whatever the system prefers: an SVG's `prefers-color-scheme` is its img's color-scheme."""
    chromium.open(site / "index.html", dark=True)
    for theme in ("light", "dark"):
        chromium.value(f"document.body.dataset.theme = '{theme}'")
        shown = "[...document.images].map((one) => getComputedStyle(one).colorScheme)"
        assert {*chromium.value(shown)} == {theme}


def test_the_first_screen_shows_how_to_install_and_a_session(site: Path, chromium: Chromium) -> None:
    chromium.open(site / "index.html", width=1280, height=800)
    ends = "(one) => [one.innerText, one.getBoundingClientRect().bottom]"
    blocks = chromium.value(f"[...document.querySelectorAll('pre')].map({ends})")
    seen = [words for words, bottom in blocks if bottom <= 800]
    assert seen[0].startswith("pip install") and any(words.startswith("$ castoff submit") for words in seen)
