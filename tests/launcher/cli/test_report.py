"""castoff report: which runs a page is about, and pages that are written again while they run."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from castoff.launcher import clock
from castoff.launcher.cli import elsewhere
from castoff.launcher.errors import CastoffError

from ..conftest import Castoff, LocalJobs

REFRESH = '<meta http-equiv="refresh" content="10">'


def test_several_runs_are_compared(jobs: LocalJobs, castoff: Castoff) -> None:
    for name in ("one", "two"):
        jobs.wait(jobs.submit("--name", name, sh="true"))
    text = castoff("report", "one", "two").stdout
    assert "<h1>2 runs compared</h1>" in text and ">one</th>" in text
    assert castoff("report", "two").stdout.count("<h1>two") == 1
    newest = castoff("report")
    assert "<h1>two" in newest.stdout and newest.stderr.endswith(": the newest run\n")
    assert "no such run" in castoff("report", "one", "three").stderr


@pytest.fixture
def at_each_pause(monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[float]]:
    """What happens when the verb waits, in place of waiting; what events wait for takes its time."""

    def use(*events: Callable[[], Any]) -> list[float]:
        left, paused, real = [*events], list[float](), clock.sleep

        def sleep(seconds: float) -> None:
            paused.append(seconds)
            monkeypatch.setattr(clock, "sleep", real)
            left.pop(0)()
            if left:
                monkeypatch.setattr(clock, "sleep", sleep)

        monkeypatch.setattr(clock, "sleep", sleep)
        return paused

    return use


def test_a_watched_page_is_written_until_the_run_is_over(
    jobs: LocalJobs, castoff: Castoff, tmp_path: Path, at_each_pause: Callable[..., list[float]]
) -> None:
    run = jobs.submit(sh=f"while [ ! -e {tmp_path}/end ]; do sleep 0.01; done")
    page, seen = tmp_path / "page.html", list[str]()

    def ends() -> None:
        seen.append(page.read_text())
        (tmp_path / "end").touch()
        jobs.wait(run)

    with_pauses = at_each_pause(lambda: seen.append(page.read_text()), ends)
    answer = castoff("report", run.id, "-o", page, "--watch")
    assert (answer.returncode, answer.stdout, with_pauses) == (0, "", [10, 10])
    assert answer.stderr == (f"castoff: writes {page} every 10 s; Ctrl-C ends this\ncastoff: wrote {page}\n")
    assert all(REFRESH in text and "loads itself again every 10 s" in text for text in seen)
    last = page.read_text()
    assert 'http-equiv="refresh"' not in last and "Not over yet" not in last and last.endswith("</html>\n")


def test_ctrl_c_leaves_a_whole_page_that_is_not_loaded_again(
    jobs: LocalJobs, castoff: Castoff, tmp_path: Path, at_each_pause: Callable[..., list[float]]
) -> None:
    run = jobs.submit(sh="sleep 600")
    page = tmp_path / "page.html"

    def interrupted() -> None:
        assert REFRESH.replace("10", "60") in page.read_text()
        raise KeyboardInterrupt

    at_each_pause(interrupted)
    assert castoff("report", run.id, "-o", page, "--watch", "--interval", "1m").returncode == 130
    assert 'http-equiv="refresh"' not in page.read_text() and page.read_text().endswith("</html>\n")
    assert [path.name for path in tmp_path.glob(".castoff-*")] == []
    castoff("cancel", run.id)


def test_pages_of_another_machine_are_written_one_after_the_other(tmp_path: Path) -> None:
    path = tmp_path / "page.html"
    pages = elsewhere._Pages("far", str(path))
    whole = f"<!DOCTYPE html>\n{REFRESH}\n1</html>\n"
    for part in re.findall(".{1,7}", whole, re.DOTALL):
        assert not path.exists()
        pages.take(part.encode())
    assert path.read_text() == whole
    pages.take(b"2</html>\n3</ht")
    assert path.read_text() == "2</html>\n"
    pages.take(whole[3:].encode())  # what was cut is no page of its own
    pages.stop()
    assert path.read_text() == f"3</ht{whole[3:].replace(f'{REFRESH}{chr(10)}', '')}"
    pages.take(bytes(60 << 20))
    with pytest.raises(CastoffError, match="far: the page is larger than 6"):
        pages.take(bytes(10 << 20))
