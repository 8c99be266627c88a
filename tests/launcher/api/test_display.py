"""A run in a notebook: what it shows, that nothing in it is taken for markup, and the line of who waits."""

from __future__ import annotations

import base64
import math
import re
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any
from xml.dom import minidom

import pytest
from hypothesis import given
from hypothesis import strategies as st

from castoff import CastoffError, JobSpec, Run, Site, submit
from castoff.launcher.api.display import curve_svg, of_member, run_html, status_line
from castoff.launcher.api.run import ProgressLine, as_table, joined
from castoff.launcher.history.metrics import Metrics, Point, Report
from castoff.launcher.runs.states import AttemptStatus, MemberStatus, RunStatus
from tests import patience

from ..conftest import LocalJobs

REPORTS = 'for i in 1 2 3; do echo "{\\"step\\": $i, \\"loss\\": 0.$i}"; done >>"$CASTOFF_METRICS_FILE"'


def attempt(**fields: Any) -> AttemptStatus:
    known = {"attempt": 0, "state": "running", "ending": None, "code": None, "reason": None}
    known |= {"host": "n1", "started": 1000.0, "ended": None, "failure": None, "logs": "/r/x/logs/0.0"}
    return AttemptStatus(**{**known, **fields})


def status(*members: MemberStatus, **fields: Any) -> RunStatus:
    known: dict[str, Any] = {"name": "x", "site": "big", "job": "7", "state": "running", "id": "x-1"}
    known |= {"directory": "/r/x", "final": False, "walltime": 3600, "submitted": 900.0}
    return RunStatus(members=[*members], **{**known, **fields})


def reported(*values: float, name: str = "loss", total: float | None = None) -> Metrics:
    reports = [Report(step, {name: value}, 1000.0 + step) for step, value in enumerate(values)]
    return Metrics(reports=reports, step=len(values) - 1, total_steps=total, time=999.0 + len(values))


RUNNING = MemberStatus(0, "running", None, [attempt()])


class TestHtml:
    def test_a_run_on_its_way(self) -> None:
        html = run_html(status(RUNNING), [reported(2, 1, 0.5, total=102)], at=1002, folder=Path("/elsewhere"))
        assert "<strong>x-1</strong>" in html and "</span> running" in html
        assert "step 2/102, loss 0.5, 1m to the last step" in html
        assert "<code>/r/x</code>" in html and "href" not in html
        assert html.count("<img") == 1 and 'alt="loss over steps: 2 to 0.5"' in html

    def test_a_loss_that_became_nan(self) -> None:
        html = run_html(status(RUNNING), [reported(2, 1, math.nan)], at=1002, folder=Path("/"))
        assert "step 2, loss nan" in html and 'alt="loss over steps: 2 to nan"' in html
        (drawn,) = re.findall(r"svg\+xml;base64,([^\"]+)", html)
        assert "nan" in (picture := base64.b64decode(drawn).decode()) and "1 to 2" in picture
        assert "<img" not in run_html(status(RUNNING), [reported(1, math.inf)], at=1, folder=Path("/"))

    def test_links_lead_below_the_working_directory(self) -> None:
        html = run_html(status(RUNNING, directory="/r/a b/x"), [], at=1002, folder=Path("/r"))
        assert 'href="a%20b/x"' in html and 'href="x/logs/0.0"' in html

    def test_an_array(self) -> None:
        members = [RUNNING, MemberStatus(1, "ended", "done", [attempt(state="ended", ending="done")])]
        html = run_html(status(*members), [], at=1002, folder=Path("/"))
        assert "1/2 done, 1 running" in html
        alone = of_member(status(*members), 1)
        assert (alone.state, alone.ending) == ("ended", "done")
        assert "members" not in run_html(alone, [], at=1002, folder=Path("/"))

    @given(st.text(), st.text())
    def test_no_text_is_markup(self, name: str, reason: str) -> None:
        html = run_html(
            status(RUNNING, id=name, reason=f"<{reason}>"),
            [reported(1, 2, name=f"<{name}>")],
            at=1002,
            folder=Path("/"),
        )
        assert set(re.findall(r"</?([^ >]*)", html)) <= {
            *("div", "p", "strong", "span", "table", "tbody", "tr", "th", "td", "code", "a", "br", "img")
        }

    def test_a_curve_is_a_picture_of_its_own(self) -> None:
        html = run_html(status(RUNNING), [reported(1, 2, 3)], at=1002, folder=Path("/"))
        source = re.search(r'src="data:image/svg\+xml;base64,([^"]*)"', html)
        assert source is not None
        minidom.parseString(base64.b64decode(source[1]))

    def test_long_and_flat_curves(self) -> None:
        noisy = [Point(step, step % 7) for step in range(100_000)]
        drawn = curve_svg(noisy, "loss")
        assert len(drawn) < 20_000 and "0 to 6" in drawn
        minidom.parseString(curve_svg([Point(5, 1), Point(5, 1)], "<&"))


class TestLine:
    def test_of_a_run(self) -> None:
        assert status_line(status(RUNNING), [reported(2, 1)], at=1002) == (
            "x-1: running, step 1, loss 1, 59m to the walltime"
        )
        waits = status(MemberStatus(0, "pending", None, []), state="pending", reason="others come first")
        assert status_line(waits, [], at=1002) == "x-1: pending, others come first"

    def test_nobody_sees_it(self, capsys: pytest.CaptureFixture[str]) -> None:
        line = ProgressLine()
        line.show("one")
        line.end()
        assert capsys.readouterr() == ("", "")

    def test_on_a_terminal(self, monkeypatch: pytest.MonkeyPatch) -> None:
        written: list[str] = []
        stderr = SimpleNamespace(isatty=lambda: True, write=written.append, flush=lambda: None)
        monkeypatch.setattr(sys, "stderr", stderr)
        monkeypatch.setenv("COLUMNS", "20")
        line = ProgressLine()
        for words in ("a long line of words", "short", "short", "\x1b[2J"):
            line.show(words)
        line.end()
        assert written == ["\ra long line of word", "\rshort" + 14 * " ", "\r\\x1b[2J", "\n"]

    def test_in_a_notebook(self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
        shown: list[dict[str, str]] = []

        def display(data: dict[str, str], **_: object) -> object:
            shown.append(data)
            return SimpleNamespace(update=lambda data, **_: shown.append(data))

        ipython, of_display = ModuleType("IPython"), ModuleType("IPython.display")
        monkeypatch.setattr(ipython, "get_ipython", lambda: SimpleNamespace(kernel=1), raising=False)
        monkeypatch.setattr(of_display, "display", display, raising=False)
        monkeypatch.setitem(sys.modules, "IPython", ipython)
        monkeypatch.setitem(sys.modules, "IPython.display", of_display)
        line = ProgressLine()
        for words in ("one", "two"):
            line.show(words)
        line.end()
        assert shown == [{"text/plain": "one"}, {"text/plain": "two"}]
        assert capsys.readouterr() == ("", "")


class TestMetrics:
    @pytest.fixture
    def ran(self, jobs: LocalJobs, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Run]:
        monkeypatch.chdir(jobs.folder)

        def run(**fields: Any) -> Run:
            run = submit(JobSpec(command=["sh", "-c", REPORTS], **fields), Site.load("local"))
            run.wait(patience.SECONDS)
            return run

        return run

    def test_of_one_program(self, ran: Callable[..., Run]) -> None:
        run = ran()
        found = run.metrics()
        assert list(found["step"]) == [1, 2, 3] and list(found["loss"]) == [0.1, 0.2, 0.3]
        assert "loss 0.3" in run._repr_html_()

    def test_of_an_array(self, ran: Callable[..., Run]) -> None:
        run = ran(array={"indices": "3,5"})
        assert list(run.metrics()["member"]) == [3, 3, 3, 5, 5, 5]
        assert list(run.metrics(5)["step"]) == [1, 2, 3]
        with pytest.raises(CastoffError, match="has no member 4; it has 3,5"):
            run.metrics(4)

    def test_members_need_not_report_the_same(self) -> None:
        columns: dict[int, dict[str, list[float | None]]] = {
            0: {"step": [1.0], "loss": [2.0]},
            7: {"step": [1.0, 2.0], "f1": [0.5, None]},
            8: {},
        }
        assert joined(columns) == {
            "member": [0, 7, 7],
            "step": [1, 1, 2],
            "loss": [2, None, None],
            "f1": [None, 0.5, None],
        }

    def test_without_pandas(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setitem(sys.modules, "pandas", None)
        assert as_table({"step": [1.0]}) == {"step": [1.0]}
