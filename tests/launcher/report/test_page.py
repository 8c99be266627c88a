"""The page as text: nothing that anybody wrote is code in it, and all of it can be read without a screen."""

from __future__ import annotations

import base64
import dataclasses
import hashlib
import html
import itertools
import json
import math
import re
from html.parser import HTMLParser
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from castoff import JobSpec, Site, plan
from castoff.launcher.config.job_fields import Array, Restart
from castoff.launcher.history.attempts import HostRanks
from castoff.launcher.history.metrics import Metrics
from castoff.launcher.planning.render import template_folder
from castoff.launcher.report.curves import plots
from castoff.launcher.report.facts import Excerpt, FailureFacts
from castoff.launcher.report.page import page
from castoff.launcher.report.profile import Operation, Profile, ProfileFacts, RankShares
from castoff.launcher.report.tables import Use, resources, together
from castoff.launcher.runs.records import Usage
from tests.hostile import any_text

from .made import BEGAN, attempt, facts, metrics, result, with_curves

CHECKOUT = Path(__file__).resolve().parents[3]

HOSTILE = (
    "</script></style></title><img src=x onerror=alert(1)>{{ 7*7 }}{% raw %}\u2028\u202e\x1b[31m\0&amp;\"'"
)


class Elements(HTMLParser):
    """The elements of a page with their attributes, and the text in them."""

    EMPTY = ("meta", "link", "rect", "line")

    def __init__(self, text: str):
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.texts: dict[str, str] = {}
        self._open: list[str] = []
        self.feed(text)
        assert self._open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))
        if tag not in self.EMPTY:
            self._open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        if self._open:
            self.texts[self._open[-1]] = self.texts.get(self._open[-1], "") + data

    def named(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.found if name == tag]


def shape(text: str) -> list[tuple[str, tuple[str, ...]]]:
    """The elements, each with the names of its attributes."""
    return [(tag, tuple(attributes)) for tag, attributes in Elements(text).found]


def hostile_page(text: str) -> str:
    """A page in which this text stands wherever somebody else's text may."""
    # Losses, of which small values are better; `train/` at the beginning of the text would part them.
    values = {f"x {text} loss": [1.0, 2.0], f"val/x {text} loss": [3.0]}
    found = metrics(**values)
    found.packages, found.device = {text: text}, text
    failure = FailureFacts("0", [text], text, text, [Excerpt(text, text)], 1)
    one = result(0, {text: text}, **values)
    return page(
        facts(
            one,
            attempts=[attempt(host=text, reason=text)],
            job_text=text,
            script_head=text,
            metrics=found,
            plots=plots(found),
            failures=[failure],
            profile=profile(text),
        )
    )


def profile(text: str) -> ProfileFacts:
    """Five steps of two ranks, with this text where a program's text is."""
    ranks = [
        RankShares(0, 0.5, compute=0.6, communication=0.25, data=0.1, idle=0.05),
        RankShares(1, 0.5, compute=0.85, communication=0.0, data=0.1, idle=0.05),
    ]
    return ProfileFacts("1", Profile(20, 5, text, ranks, 0, [Operation(text, 0.3, 40, 0.6)]))


def test_a_profile_is_shown() -> None:
    text = page(facts(profile=profile("aten::mm")))
    assert "Steps 20 to 24 of attempt 1." in text
    rows = [re.sub(r"<[^>]+>", " ", row).split() for row in parts(text, "tr")]
    assert ["0", "100", "60.0%", "25.0%", "10.0%", "5.0%"] in rows
    assert ["aten::mm", "60", "60.0%", "8"] in rows
    assert 'id="profile"' not in page(facts())


def test_hostile_text_is_text() -> None:
    found = hostile_page(HOSTILE)
    assert shape(found) == shape(hostile_page("x" * len(HOSTILE)))
    assert "onerror=alert(1)&gt;{{ 7*7 }}{% raw %}\\u2028\\u202e" in found
    assert not {"\u2028", "\u202e", "\x1b", "\0"} & set(found)


@settings(max_examples=30)
@given(any_text(min_size=1))
def test_any_text_is_text(text: str) -> None:
    found = hostile_page(text)
    found.encode()  # no lone surrogates
    assert shape(found) == shape(hostile_page("harmless"))


def parts(text: str, element: str) -> list[str]:
    """What stands in the elements of a name that are no data."""
    return re.findall(rf"<{element}>(.*?)</{element}>", text, re.DOTALL)


@pytest.mark.parametrize("curves", [{}, {"loss": [1.0, 2.0]}], ids=["no curves", "curves"])
def test_the_policy_allows_what_the_page_holds_and_nothing_else(curves: dict[str, list[float]]) -> None:
    text = page(with_curves(**curves))
    (policy,) = re.findall(r'http-equiv="Content-Security-Policy" content="([^"]*)"', text)
    rules = dict(rule.split(" ", 1) for rule in html.unescape(policy).split("; "))
    scripts, styles = parts(text, "script"), parts(text, "style")
    assert (len(scripts), len(styles)) == ((2, 2) if curves else (0, 1))

    def allowed(some: list[str]) -> str:
        digests = (base64.b64encode(hashlib.sha256(one.encode()).digest()).decode() for one in some)
        return " ".join(f"'sha256-{digest}'" for digest in digests) or "'none'"

    assert rules == {
        "default-src": "'none'",
        "base-uri": "'none'",
        "form-action": "'none'",
        "img-src": "data:",
        "script-src": allowed(scripts),
        "style-src": allowed(styles),
    }


def test_nothing_is_loaded_and_no_attribute_is_code() -> None:
    found = Elements(hostile_page("x"))
    attributes = [pair for _, some in found.found for pair in some.items()]
    assert [value for name, value in attributes if name in ("src", "href", "action")] == ["data:,"]
    assert not [name for name, _ in attributes if name == "style" or name.startswith("on")]


@pytest.mark.parametrize("made", [facts(), with_curves(loss=[1.0]), facts(result(0), result(1))])
def test_headings_are_in_order_and_everything_has_a_name(made: object) -> None:
    text = page(made)  # type: ignore[arg-type]
    found = Elements(text)
    levels = [int(tag[1]) for tag, _ in found.found if re.fullmatch("h[1-6]", tag)]
    assert levels[0] == 1 and levels.count(1) == 1
    assert all(after - before <= 1 for before, after in itertools.pairwise(levels))
    identifiers = [one["id"] for _, one in found.found if "id" in one]
    assert len(identifiers) == len(set(identifiers))
    for section in found.named("section"):
        assert section["aria-labelledby"] in identifiers
    for _, one in found.found:
        assert one.get("role") not in ("img", "region", "group") or one.get("aria-label")
    regions = [one["aria-label"] for one in found.named("div") if one.get("role") == "region"]
    assert len(regions) == len(set(regions))
    assert found.named("html") == [{"lang": "en"}]
    assert len(found.named("main")) == 1


def test_points_are_data_that_ends_no_script() -> None:
    text = page(with_curves(**{"loss": [1.0, 0.123456789, 2.5], "</script>": [1.0]}))
    (data,) = re.findall(r'<script type="application/json" id="data">(.*?)</script>', text)
    assert json.loads(data) == [
        [{"x": [0, 1, 2], "y": [1, 0.123457, 2.5]}],
        [{"x": [0], "y": [1]}],
    ]


def test_two_hundred_long_curves_stay_small() -> None:
    values = [step * 0.123456 for step in range(3000)]
    made = with_curves(**{f"layer/{number}": values for number in range(200)})
    text = page(made)
    assert sum(len(curve.points) for plot in made.plots for curve in plot.curves) <= 101_000
    assert len(text) < 3_000_000
    assert "only the smallest and the largest value of each stretch are drawn" in text


def test_a_run_that_is_not_over_says_so() -> None:
    active = facts(attempts=[attempt(state="running", ending=None, ended=None)])
    now = type(active.now)(
        **{name: getattr(active.now, name) for name in active.now.__struct_fields__ if name != "state"},
        state="running",
    )
    text = page(facts(attempts=[attempt(state="running", ending=None, ended=None)], now=now))
    assert "<strong>Not over yet:</strong> this page shows the run as of" in text
    assert "Not over yet" not in page(facts())


def test_silence_is_in_the_summary() -> None:
    assert "no output for 2m" in page(facts(silent={0: BEGAN + 875}))
    text = page(facts(result(0), result(1), result(2), silent={1: BEGAN + 875, 2: BEGAN + 100}))
    assert "members 1-2: no output for 2m or more" in text


def test_times_are_local_and_name_their_zone(monkeypatch: pytest.MonkeyPatch) -> None:
    import time

    monkeypatch.setenv("TZ", "<+0530>-5:30")
    time.tzset()
    try:
        text = page(facts(at=BEGAN))
    finally:
        monkeypatch.delenv("TZ")
        time.tzset()
    assert "Times are in +0530 (UTC+05:30)." in text
    assert '<time datetime="2026-11-18T16:36:40+05:30">2026-11-18 16:36:40</time>' in text


def test_the_request_and_the_placement_as_planned() -> None:
    job = JobSpec(
        command=["python", "train.py", "--name", "a b"],
        nodes=2,
        walltime="30m",
        account="proj",
        queue="capacity",
        directives={"filesystems": "home"},
        array=Array(count=4, max_concurrent=2),
        restart=Restart(max=1),
    )
    planned = plan(job, Site.load("aurora"))
    text = page(facts(planned=planned, plan=planned))
    shown = dict(re.findall(r"<dt>(.*?)</dt><dd>(.*?)</dd>", text))
    expected = {
        **{"Command": "python train.py --name &#39;a b&#39;", "Nodes": "2", "Walltime": "00:30:00"},
        **{"Ranks": "24 (12 on each of 2 nodes), started by pals", "Devices per rank": "1"},
        **{"Account": "proj", "Queue": "capacity", "Array": "4 members, at most 2 at a time"},
        **{"Restarts": "at most 1 in each job", "Site": "big, scheduler pbs"},
    }
    assert {name: shown[name] for name in expected} == expected
    assert "<caption>Cores and devices of each node&#39;s ranks</caption>" in text
    assert text.count('<th scope="row" class="number">') == 12


def test_other_metrics_of_members_have_a_table() -> None:
    members = [
        result(0, None, val__loss=[2.0], val__f1=[0.5, 0.25], lr=[1.0]),
        result(1, None, val__loss=[1.0], lr=[3.0]),
    ]
    text = page(facts(*members))
    table = text[text.index("<caption>Other metrics of the members</caption>") :].partition("</table>")[0]
    assert re.findall(r"<th scope=\"col\"[^>]*>(.*?)</th>", table) == [
        *("member", "best val/f1", "last val/f1", "last lr"),
    ]
    rows = [re.findall(r"<t[hd][^>]*>(.*?)</t[hd]>", row) for row in table.split("<tr>")[2:]]
    assert rows == [["1", "", "", "3"], ["0", "0.5", "0.25", "1"]]


def test_failed_attempts_are_red_on_the_timeline() -> None:
    text = page(facts(attempts=[attempt(0, ending="failed"), attempt(1), attempt(2, ending="cancelled")]))
    (bars,) = re.findall(r'<svg class="bars"(.*?)</svg>', text, re.DOTALL)
    assert (bars.count('class="failed"'), bars.count('class="running"')) == (1, 2)
    assert "in failed attempts: 40s" in text


def test_a_hundred_attempts_are_folded() -> None:
    text = page(facts(attempts=[attempt(number) for number in range(100)]))
    assert "<summary>80 more</summary>" in text
    assert text.index('<th scope="row">99</th>') < text.index('<th scope="row">80</th>')
    assert text.count('class="bars"') == 1


def test_the_hosts_of_attempts_are_listed_once() -> None:
    made = facts(attempts=[attempt(number) for number in range(4)])
    (member,) = made.members
    first, last = [HostRanks("n1", range(2)), HostRanks("n2", range(2, 4))], [HostRanks("n3", None)]
    attempts = [
        dataclasses.replace(one, hosts=last if number == 3 else first)
        for number, one in enumerate(member.attempts)
    ]
    text = page(dataclasses.replace(made, members=[dataclasses.replace(member, attempts=attempts)]))
    assert text.count("<caption>Hosts of attempts 0-2</caption>") == 1
    assert "<td>n2</td><td>2-3</td>" in text
    assert "<caption>Hosts of attempt 3</caption>" in text and "<td>n3</td><td>not known</td>" in text


def test_a_thousand_members_are_counted_and_folded() -> None:
    members = [result(number, {"lr": number}, val__loss=[1000.0 - number]) for number in range(1000)]
    text = page(facts(*members))
    assert "Members are ordered by val/loss, smallest first, as its name suggests." in text
    assert "<summary>950 more</summary>" in text
    assert text.count('class="bars"') == 1 and "at most 1000 of 1000 members ran at a time" in text
    assert text.index('<th scope="row">999</th>') < text.index('<th scope="row">998</th>')
    assert len(text) < 1_000_000


def test_what_several_jobs_used_together() -> None:
    used = [
        Usage("sacct", 100, 50, 2, 5, 10, 0.5),
        Usage("sacct", 300, 300, 4, 7, 14, 0.9),
        Usage("castoff", memory=6),
    ]
    assert together(used) == Use(400, 4, 350 / 1400, 7, 14, 0.8, "sacct, castoff")
    assert together([Usage("qstat")]) == Use(None, None, None, None, None, None, "qstat")


def test_cpu_use_is_that_of_the_jobs_whose_cpu_time_is_known() -> None:
    used = [Usage("qstat", 10, None, 1), Usage("qstat", 20, 10, 1)]
    assert together(used) == Use(30, 1, 0.5, None, None, None, "qstat")


def test_resources_name_an_attempt_of_a_member_in_words() -> None:
    """`1.0` beside numbers would be read as one."""
    made = facts(result(0), result(1))
    members = [
        dataclasses.replace(
            one,
            attempts=[dataclasses.replace(each, usage=Usage("sacct", 20, 12, 1)) for each in one.attempts],
        )
        for one in made.members
    ]
    shown = resources(dataclasses.replace(made, members=members))
    assert shown and [row[0] for row in shown.rows] == [
        "all",
        "member 0, attempt 0",
        "member 1, attempt 0",
    ]


@pytest.mark.parametrize(("source", "warns"), [("qstat", True), ("sacct", False)])
def test_resources_of_ranks_that_pbs_may_have_missed(source: str, warns: bool) -> None:
    made = facts()
    (member,) = made.members
    attempts = [dataclasses.replace(one, usage=Usage(source, 20, 12, 1, 5 << 20)) for one in member.attempts]
    text = page(dataclasses.replace(made, members=[dataclasses.replace(member, attempts=attempts)]))
    assert "<td>60%</td>" in re.sub(r' class="[^"]*"', "", text)
    assert ("PBS leaves out ranks" in text) == warns


def test_empty_columns_are_left_out() -> None:
    text = page(facts())
    assert '<th scope="col">host</th>' in text and '<th scope="col">why</th>' not in text


def test_program_without_metrics() -> None:
    text = page(facts(metrics=Metrics()))
    assert "castoff shows what programs write into <code>CASTOFF_METRICS_FILE</code>" in text
    assert "<script" not in text


UPLOT = {
    "LICENSE": "8f989229699b4fe2f1a0432d0e9edc338a8a911e250e2d1b01ecd770a5f5b1bd",
    "uPlot.iife.min.js": "19c8d4c6ad88929a79f4ae49d6f7161566dfd0ba3d15cc495e974f787eb78f1f",
    "uPlot.min.css": "df630c6a8d6f8eeaff264b50f73ce5b114f646ffd9a0bb74f049b0a00135fa04",
}
"""uPlot 1.6.32 as it comes from npm: `npm pack uplot@1.6.32`, dist/ and LICENSE."""


def test_a_loss_that_became_nan_is_named_before_the_curves() -> None:
    text = page(with_curves(loss=[1.0, math.nan, math.nan], fine=[1.0, 2.0, 3.0]))
    (table,) = re.findall(
        r"<caption>Values that are not finite numbers</caption>(.*?)</table>", text, re.DOTALL
    )
    assert re.findall(r">([^<>\n]+)</t[hd]>", table) == [
        *("metric", "first", "values"),
        *("loss", "nan at step 1", "2 of 3"),
    ]
    assert "nan at step 2" in text and "1 at step 0" in text  # the last, and the best
    nothing = page(with_curves(loss=[math.nan]))
    assert "so there is no curve" in nothing and "has reported none" not in nothing
    assert "not finite numbers" not in page(with_curves(loss=[1.0]))
    members = page(facts(result(0, loss=[1.0, math.nan]), result(1, loss=[math.nan])))
    rows = re.findall(r"<tr>(.*?)</tr>", members.partition("Members, best first")[2], re.DOTALL)
    assert [re.findall(r">([^<>]*)</t[hd]>", row)[:4] for row in rows[1:3]] == [
        ["0", "1", "0", "nan"],
        ["1", "", "", "nan"],
    ]


def test_the_plotting_library_is_as_its_author_published_it() -> None:
    folder = template_folder() / "report" / "uplot"
    held = {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in folder.iterdir()}
    assert held == UPLOT
    assert b"uPlot (v1.6.32)" in (folder / "uPlot.iife.min.js").read_bytes()
    assert "uPlot 1.6.32" in (CHECKOUT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    assert "templates/report/uplot/LICENSE" in (CHECKOUT / "pyproject.toml").read_text(encoding="utf-8")
    # As templates put them into the page: nothing in them ends their element.
    for name in ("uPlot.iife.min.js", "uPlot.min.css"):
        assert "</" not in (folder / name).read_text(encoding="utf-8")
    for name in ("curves.js", "page.css"):
        assert "</" not in (folder.parent / name).read_text(encoding="utf-8")


@settings(max_examples=10)
@given(st.lists(st.sampled_from(["a", "b.c", "d"]), unique=True))
def test_members_of_any_parameters_have_a_table(paths: list[str]) -> None:
    members = [result(number, dict.fromkeys(paths, number)) for number in range(3)]
    assert page(facts(*members)).count('<th scope="row">') >= 3
