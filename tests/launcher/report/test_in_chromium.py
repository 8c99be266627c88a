"""The page in a real browser: it draws, obeys keys and mouse, asks for nothing, fits screens and paper."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path

import pytest

from castoff.launcher.report.comparison_page import comparison_page
from castoff.launcher.report.curves import Plot, curve, plots
from castoff.launcher.report.facts import Excerpt, FailureFacts, RunFacts
from castoff.launcher.report.page import page
from castoff.launcher.report.results import columns
from tests import patience
from tests.chromium import PACKAGE, PROGRAM, Chromium
from tests.conftest import SystemProgram

from .made import attempt, facts, metrics, result, with_curves
from .test_comparison import compared
from .test_comparison import made as compared_runs
from .test_page import HOSTILE

LINES = {
    "train/loss": [3 / (1 + step / 50) for step in range(2000)],
    "val/loss": [3.3 / (1 + step / 50) for step in range(50)],
    "val/accuracy": [step / 100 - 0.1 for step in range(50)],
    "one": [1.0],
    **{f"more/{HOSTILE}/{number}": [math.sin(step / 9) for step in range(40)] for number in range(3)},
    **{f"train/x{number}": [1.0, 2.0] for number in range(6)},
}


def one_run() -> RunFacts:
    """A run that failed, was started again, and has curves of all kinds."""
    found = metrics(**LINES)
    found.packages, found.device, found.restarts = {"torch": "2.13.0"}, "cpu", [30.0, 700.0]
    words = "a word that says why, again and again, " * 8
    failure = FailureFacts(
        "0", [words], "x" * 300 + "\n" + HOSTILE, "/logs/0", [Excerpt("rank-00001", HOSTILE)]
    )
    attempts = [attempt(number, reason=words, ending="failed") for number in range(3)]
    one = result(0, {"lr": 0.1}, **LINES)
    return facts(one, attempts=attempts, metrics=found, plots=plots(found), failures=[failure])


def an_array() -> RunFacts:
    """Twelve members, and a plot of their validation."""
    curves = {number: {"val/loss": [5.0 / (step + 1) + number for step in range(30)]} for number in range(12)}
    members = [
        result(number, {"optimizer.lr": number / 10, "width": number}, **some)
        for number, some in curves.items()
    ]
    lines = [
        curve(f"{number}: lr={number / 10}, width={number}", columns(metrics(**some))["val/loss"], 100)
        for number, some in curves.items()
    ]
    return facts(*members, plots=[Plot("val/loss", lines)], compared=12)


def a_small_rate() -> RunFacts:
    """What would look the same on an axis that rounds to three decimals."""
    return with_curves(lr=[0.001] * 30, loss=[2e-7 * step for step in range(30)])


def twelve_runs() -> str:
    """Runs with long names that differ in much, compared while one of them is active."""
    traits = {f"job: field {number}": "a value of some length, as commands are " * 3 for number in range(8)}
    runs = [
        compared(number, f"run-with-a-long-name-{number}", **traits, x=str(number)) for number in range(12)
    ]
    return comparison_page(compared_runs(*runs), 3600)


PAGES = {
    "run": lambda: page(one_run()),
    "array": lambda: page(an_array()),
    "no metrics": lambda: page(facts()),
    "rate": lambda: page(a_small_rate()),
    "comparison": twelve_runs,
}


@pytest.fixture(scope="module")
def chromium(
    tmp_path_factory: pytest.TempPathFactory, system_program: SystemProgram, for_real: None
) -> Iterator[Chromium]:
    browser = Chromium(system_program(PROGRAM, PACKAGE), tmp_path_factory.mktemp("chromium"))
    yield browser
    browser.close()


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("pages")
    found = {}
    for name, made in PAGES.items():
        found[name] = folder / f"{name}.html"
        found[name].write_text(made(), encoding="utf-8")
    return found


DRAWN = """
[...document.querySelectorAll('.plot')].filter((one) => !one.closest('details:not([open])')).every((one) => {
  const canvas = one.querySelector('canvas'), blank = document.createElement('canvas');
  if (!canvas) return false;
  [blank.width, blank.height] = [canvas.width, canvas.height];
  return canvas.toDataURL() !== blank.toDataURL();
})
"""
"""Whether every plot that is not folded has something in it."""

SHOWS_ALL = "document.querySelectorAll('details').forEach((one) => { one.open = true; })"

CONTRAST = """
(() => {
  const light = (colour) => colour.match(/[0-9.]+/g).slice(0, 3).map((part) => {
    const x = part / 255;
    return x <= 0.04045 ? x / 12.92 : ((x + 0.055) / 1.055) ** 2.4;
  }).reduce((sum, x, at) => sum + x * [0.2126, 0.7152, 0.0722][at], 0);
  const ratio = (a, b) => (Math.max(light(a), light(b)) + 0.05) / (Math.min(light(a), light(b)) + 0.05);
  const behind = (one) => {
    for (; one; one = one.parentElement) {
      const colour = getComputedStyle(one).backgroundColor;
      if (!/, 0\\)$/.test(colour)) return colour;
    }
    return 'rgb(255, 255, 255)';
  };
  const found = [];
  for (const one of document.body.querySelectorAll('*')) {
    const style = getComputedStyle(one), box = one.getBoundingClientRect();
    if (!box.width || one.disabled) continue;
    const writes = [...one.childNodes].some((node) => node.nodeType === 3 && node.data.trim());
    if (writes && !['SCRIPT', 'STYLE', 'TITLE'].includes(one.tagName)) {
      const far = ratio(style.color, behind(one));
      if (far < 4.5) found.push(`${one.tagName} ${one.className} ${far}`);
    }
    const shapes = [['rect', style.fill], ['line', style.stroke], ['polyline', style.stroke]];
    if (one.matches('.dot')) shapes.push(['circle', style.fill]);
    if (one.matches('.ring, .best, .cross')) shapes.push([one.tagName, style.stroke]);
    if (one.tagName === 'text') shapes.push(['text', style.fill]);
    for (const [tag, colour] of shapes) {
      if (one.tagName !== tag || one.classList.contains('mark')) continue;
      if (ratio(colour, behind(document.body)) < (tag === 'text' ? 4.5 : 3)) {
        found.push(`${tag} ${one.getAttribute('class')} ${colour}`);
      }
    }
  }
  return found;
})()
"""
"""What has too little contrast for WCAG 2.1 AA: text 4.5, graphics 3."""


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("name", PAGES)
def test_it_draws_asks_for_nothing_and_can_be_read(
    name: str, dark: bool, chromium: Chromium, written: dict[str, Path]
) -> None:
    chromium.open(written[name], dark=dark, height=12_000)
    chromium.value(SHOWS_ALL)
    chromium.wait_for(DRAWN)
    assert chromium.value(CONTRAST) == []
    background = chromium.value("getComputedStyle(document.body).backgroundColor")
    assert background == ("rgb(13, 17, 23)" if dark else "rgb(255, 255, 255)")
    assert chromium.complaints() == []
    assert chromium.requests() == []


def test_the_policy_is_in_force(chromium: Chromium, written: dict[str, Path]) -> None:
    """A script that found its way into the page would not run, and nothing would be loaded."""
    chromium.open(written["run"])
    chromium.value(
        "document.body.insertAdjacentHTML('beforeend', '<img src=https://x.org/x onerror=window.bad=1>');"
        "document.body.appendChild(Object.assign(document.createElement('script'), {text: 'window.bad = 1'}))"
        "&& 0"
    )
    patience.until(lambda: chromium.value("1") and len(chromium.refused()) == 1)
    assert chromium.requests() == ["https://x.org/x"]
    assert chromium.value("window.bad === undefined")
    assert any("Content Security Policy" in one for one in chromium.complaints())


def test_what_can_be_scrolled_has_a_shadow_where_there_is_more(
    chromium: Chromium, written: dict[str, Path]
) -> None:
    chromium.open(written["array"], width=375, height=800)
    edges = [
        chromium.value(f"(() => {{ const one = document.querySelector('.scroll'); {js}; return 0 }})()")
        or _edges(chromium)
        for js in ("one.scrollIntoView()", "one.scrollLeft = 40", "one.scrollLeft = one.scrollWidth")
    ]
    assert edges == [(False, True), (True, True), (True, False)]


def _edges(chromium: Chromium) -> tuple[bool, bool]:
    """Whether the first table's left and right edges are darker than the page."""
    box = chromium.value(
        "(({x, y, width}) => [x, y, width])(document.querySelector('.scroll').getBoundingClientRect())"
    )
    shot = chromium.call("Page.captureScreenshot")["data"]
    script = """(async ([x, y, width]) => {
      const image = new Image(), canvas = document.createElement('canvas');
      image.src = 'data:image/png;base64,SHOT';
      await image.decode();
      [canvas.width, canvas.height] = [image.width, image.height];
      const context = canvas.getContext('2d');
      context.drawImage(image, 0, 0);
      return [x + 1, x + width - 2].map((at) => context.getImageData(at, y + 2, 1, 1).data[0] < 240);
    })""".replace("SHOT", shot)
    left, right = chromium.value(f"{script}({box})")
    return left, right


@pytest.mark.parametrize("name", PAGES)
def test_it_fits_a_phone(name: str, chromium: Chromium, written: dict[str, Path]) -> None:
    chromium.open(written[name], width=375, height=800)
    chromium.value(SHOWS_ALL)
    assert chromium.value("document.documentElement.clientWidth") == 375
    assert chromium.value("document.documentElement.scrollWidth") == 375
    small = "[...document.querySelectorAll('.plot canvas')].every((one) => one.clientWidth <= 375)"
    assert chromium.value(small)


def picture(chromium: Chromium, number: int) -> str:
    """What a plot shows."""
    found: str = chromium.value(f"document.querySelectorAll('.plot canvas')[{number}].toDataURL()")
    return found


def test_keys_zoom_and_move(chromium: Chromium, written: dict[str, Path]) -> None:
    chromium.open(written["run"], height=6000)
    chromium.wait_for(DRAWN)
    whole = picture(chromium, 0)
    chromium.value("document.querySelector('.plot').focus()")
    seen = [whole]
    for key in ("+", "ArrowRight", "-", "ArrowLeft"):
        chromium.press(key)
        chromium.wait_for(f"document.querySelector('.plot canvas').toDataURL() !== {seen[-1]!r}")
        seen.append(picture(chromium, 0))
    chromium.press("0")
    chromium.wait_for(f"document.querySelector('.plot canvas').toDataURL() === {whole!r}")


def test_buttons_zoom_and_move(chromium: Chromium, written: dict[str, Path]) -> None:
    """For fingers, which cannot drag across a plot without moving the page."""
    chromium.open(written["run"], height=6000)
    chromium.wait_for(DRAWN)
    whole = picture(chromium, 0)
    seen = [whole]
    for key in ("+", "ArrowRight", "-", "ArrowLeft"):
        chromium.value(f"document.querySelector(\"[data-key='{key}']\").click()")
        chromium.wait_for(f"document.querySelector('.plot canvas').toDataURL() !== {seen[-1]!r}")
        seen.append(picture(chromium, 0))
    chromium.value("document.querySelector(\"[data-key='0']\").click()")
    chromium.wait_for(f"document.querySelector('.plot canvas').toDataURL() === {whole!r}")


def test_numbers_on_an_axis_differ(chromium: Chromium, written: dict[str, Path]) -> None:
    chromium.open(written["rate"], height=6000)
    chromium.wait_for(DRAWN)
    # By canvas: the browser may have another plot drawn at any time.
    chromium.value(
        "window.drawn = new Map(); CanvasRenderingContext2D.prototype.fillText = function (words) {"
        " if (this.textAlign !== 'right') return;"
        " drawn.set(this.canvas, (drawn.get(this.canvas) ?? new Set()).add(words)) }; 0"
    )
    for plot, labels in ((0, "0 1e-6 2e-6 3e-6 4e-6 5e-6 6e-6"), (1, "0 0.0005 0.001 0.0015 0.002")):
        chromium.value(f"document.querySelectorAll('[data-do=smooth]')[{plot}].click()")
        canvas = f"document.querySelectorAll('.plot canvas')[{plot}]"
        chromium.wait_for(f"drawn.has({canvas})")
        assert chromium.value(f"[...drawn.get({canvas})].sort((a, b) => a - b).join(' ')") == labels
    assert chromium.complaints() == []


def test_attempts_have_marks_on_curves(chromium: Chromium, written: dict[str, Path]) -> None:
    chromium.open(written["run"], height=6000)
    chromium.wait_for(DRAWN)
    chromium.value(
        "window.marks = 0; const close = CanvasRenderingContext2D.prototype.closePath;"
        "CanvasRenderingContext2D.prototype.closePath = function () {"
        " if (document.querySelector('.plot canvas') === this.canvas) marks += 1;"
        " close.call(this) }; document.querySelector('[data-do=log]').click()"
    )
    # At two steps on the training's loss, and at one on that of validation, which ends before the other.
    chromium.wait_for("marks > 0 && marks % 3 === 0")
    assert "◆ marks where another attempt begins." in chromium.value("document.body.innerText")
    assert chromium.complaints() == []


def test_dragging_zooms_and_a_button_shows_all(chromium: Chromium, written: dict[str, Path]) -> None:
    chromium.open(written["run"], height=6000)
    chromium.wait_for(DRAWN)
    whole = picture(chromium, 0)
    box = chromium.value(
        "(({x, y}) => [x, y])(document.querySelector('.plot .u-over').getBoundingClientRect())"
    )
    chromium.drag((box[0] + 100, box[1] + 50), (box[0] + 300, box[1] + 50))
    chromium.wait_for(f"document.querySelector('.plot canvas').toDataURL() !== {whole!r}")
    assert chromium.value("document.querySelector('.legend .value').textContent") != ""
    chromium.value("document.querySelector(\"[data-key='0']\").click()")
    chromium.wait_for(f"document.querySelector('.plot canvas').toDataURL() === {whole!r}")


def test_buttons_change_the_scale_smooth_and_hide_curves(
    chromium: Chromium, written: dict[str, Path]
) -> None:
    chromium.open(written["run"], height=6000)
    chromium.wait_for(DRAWN)
    seen = [picture(chromium, 0)]
    for button in ("[data-do=log]", "[data-do=smooth]", "[data-curve='0']"):
        state = f'document.querySelector("{button}").getAttribute("aria-pressed")'
        before = chromium.value(state)
        chromium.value(f'document.querySelector("{button}").click()')
        assert chromium.value(state) != before
        chromium.wait_for(f"document.querySelector('.plot canvas').toDataURL() !== {seen[-1]!r}")
        seen.append(picture(chromium, 0))
    # Values that are not positive have no logarithm.
    assert chromium.value(
        "[...document.querySelectorAll('[data-do=log]')].map((one) => one.disabled).slice(0, 2)"
    ) == [
        False,
        True,
    ]
    assert chromium.complaints() == []


def test_every_button_and_region_can_be_reached_and_has_a_name(
    chromium: Chromium, written: dict[str, Path]
) -> None:
    chromium.open(written["array"], height=6000)
    chromium.wait_for(DRAWN)
    named: list[tuple[str, str | None]] = []

    def is_up_to_date() -> bool:
        tree = chromium.call("Accessibility.getFullAXTree")["nodes"]
        shown = (one for one in tree if not one["ignored"])
        named[:] = [(one["role"]["value"], one.get("name", {}).get("value")) for one in shown]
        return ("button", "Log scale for val/loss") in named

    patience.until(is_up_to_date, "the browser's tree for screen readers has no buttons")
    roles = ("button", "region", "group", "image", "table", "heading")
    assert [role for role, name in named if role in roles and not name and role != "group"] == []
    reachable = "[...document.querySelectorAll('.scroll, .plot, button')].every((one) => one.tabIndex === 0)"
    assert chromium.value(reachable)


def test_paper_is_white_and_has_no_buttons(chromium: Chromium, written: dict[str, Path]) -> None:
    chromium.open(written["run"], dark=True, height=6000)
    chromium.wait_for(DRAWN)
    dark = picture(chromium, 0)
    assert chromium.pdf().startswith(b"%PDF")
    chromium.wait_for(f"document.querySelector('.plot canvas').toDataURL() === {dark!r}")  # as before
    chromium.call(
        "Emulation.setEmulatedMedia",
        media="print",
        features=[{"name": "prefers-color-scheme", "value": "dark"}],
    )
    assert chromium.value("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    assert chromium.value("[...document.querySelectorAll('.tools')].every((one) => !one.clientHeight)")
    chromium.call("Emulation.setEmulatedMedia", media="")
    assert chromium.complaints() == []


@pytest.mark.parametrize("name", PAGES)
def test_it_fits_paper(name: str, chromium: Chromium, written: dict[str, Path]) -> None:
    """Nobody can scroll to what paper cuts off."""
    chromium.open(written[name], width=718, height=6000)
    chromium.call("Emulation.setEmulatedMedia", media="print")
    wide = (
        "[...document.querySelectorAll('table, .scroll svg')].filter((one) => one.clientWidth > 718).length"
    )
    assert chromium.value(wide) == 0
    chromium.call("Emulation.setEmulatedMedia", media="")
