"""The application by its keys, without a terminal."""

from __future__ import annotations

import asyncio
import html
import os
import re
import threading
import time
from collections import defaultdict
from collections.abc import Awaitable, Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest
from textual import events

from bench.many_runs import make_runs
from castoff.launcher.errors import CastoffError
from castoff.launcher.runs.index import Entry, Index
from castoff.launcher.runs.run import RunDirectory
from castoff.launcher.runs.states import RunStatus
from castoff.launcher.screen import app as application
from castoff.launcher.screen.app import TopApp
from castoff.launcher.screen.looking import Looker
from castoff.launcher.screen.screens import RunsScreen
from castoff.launcher.status.watch import status
from castoff.launcher.submission.cancel import CancelRequest
from tests import patience
from tests.launcher.status.test_watch import Made

from ..conftest import LocalJobs

SIZE = (80, 24)
Pilot = Any
"""textual's own type depends on what the application returns."""


_CELL = 12.2
"""How wide a character is in textual's pictures."""
_TEXT = re.compile(
    r'<text [^>]*?x="([\d.]+)" y="[\d.]+"[^>]*?clip-path="url\(#[^)]*-line-(\d+)\)"[^>]*>(.*?)</text>',
    re.DOTALL,
)


def shown(app: TopApp) -> str:
    """The screen as text, from the picture that textual makes of it."""
    rows: dict[int, str] = defaultdict(str)
    for x, line, text in _TEXT.findall(app.export_screenshot()):
        rows[int(line)] = rows[int(line)].ljust(round(float(x) / _CELL)) + html.unescape(text)
    lines = (rows[at].replace("\xa0", " ").rstrip() for at in range(max(rows, default=-1) + 1))
    return "\n".join(lines)


async def until(pilot: Pilot, holds: Callable[[], object]) -> None:
    """Wait until something holds, while the application lives."""
    give_up = time.monotonic() + patience.SECONDS
    while not holds():
        assert time.monotonic() < give_up, shown(pilot.app)
        await pilot.pause(0.02)


async def reads(pilot: Pilot, *words: str) -> str:
    """The screen, once it shows all of these words."""
    await until(pilot, lambda: all(word in shown(pilot.app) for word in words))
    return shown(pilot.app)


def used(
    use: Callable[[Pilot], Awaitable[None]], *, size: tuple[int, int] = SIZE, index: Index | None = None
) -> TopApp:
    """An application that somebody has used."""
    app = TopApp(Looker(index or Index.of(os.environ), 0.05))

    async def run() -> None:
        async with app.run_test(size=size) as pilot:
            await use(pilot)

    asyncio.run(run())
    return app


@pytest.fixture
def runs(tmp_path: Path) -> list[RunDirectory]:
    return make_runs(tmp_path / "runs", Index.of(os.environ), 30)


def test_of_no_runs() -> None:
    async def use(pilot: Pilot) -> None:
        await reads(pilot, "no runs yet; castoff submit starts one", "q quit")
        for key in ("enter", "l", "s", "c", "x", "up", "down", "f", "a"):
            await pilot.press(key)
        assert pilot.app.is_running
        await pilot.press("q")

    assert used(use).return_value == 0


def test_a_list_and_one_of_it(runs: list[RunDirectory]) -> None:
    newest, failed = runs[-2], runs[-1]

    async def use(pilot: Pilot) -> None:
        text = await reads(pilot, "castoff top, 20 ended, 10 older (a)")
        assert text.splitlines()[1].split() == ["run", "state", "progress", "age"]
        assert [line.split()[0] for line in text.splitlines()[2:4]] == ["preprocess..001d", "causets..001c"]
        assert "rank 1 on node7 failed first" in text and text.splitlines()[-1].startswith(
            "Enter open  l logs"
        )
        await pilot.press("enter")
        text = await reads(
            pilot, failed.id, "state     ended, failed (code 3)", "── rank 1 on node7 failed first", "epoch 1"
        )
        await pilot.press("escape", "down", "enter")
        await reads(pilot, newest.id, "state     ended, done", "the end of rank 0's log", "setup 9m")
        await pilot.press("escape")
        await reads(pilot, "castoff top, 20 ended")
        await pilot.press("ctrl+c")

    assert used(use).return_value == 130


@pytest.mark.parametrize("size", [(60, 24), (80, 24), (200, 60), (30, 8)])
def test_any_size(runs: list[RunDirectory], size: tuple[int, int]) -> None:
    async def use(pilot: Pilot) -> None:
        await reads(pilot, "sweep", "q quit")
        await pilot.press("enter")
        await reads(pilot, runs[-1].id[:20], "failed")
        await pilot.resize_terminal(100, 30)
        await reads(pilot, "node7 failed first")

    used(use, size=size)


def test_search_filter_and_all(runs: list[RunDirectory]) -> None:
    async def use(pilot: Pilot) -> None:
        await reads(pilot, "20 ended")
        await pilot.press("f", "f")
        text = await reads(pilot, "filter: failed")
        assert len([line for line in text.splitlines() if "  failed  " in line]) == 2
        await pilot.press("f", "slash", *"quit")  # letters that are keys elsewhere
        await reads(pilot, "search: quit", "no such runs")
        await pilot.press("escape", "slash", *"causets", "enter")
        text = await reads(pilot, "search: causets")
        assert len([line for line in text.splitlines() if line.startswith("causets-2026")]) == 5
        await pilot.press("escape", "a")
        text = await reads(pilot, "castoff top, 30 ended")
        assert "older" not in text

    used(use)


def test_help_covers_the_keys(runs: list[RunDirectory]) -> None:
    async def use(pilot: Pilot) -> None:
        await reads(pilot, "20 ended")
        await pilot.press("question_mark")
        await reads(pilot, "another member of an array", "a shell next to its ranks")
        await pilot.press("q")  # which only ends the help
        await reads(pilot, "20 ended")

    used(use, size=(60, 24))


def test_more_than_fit_the_screen(tmp_path: Path) -> None:
    runs = make_runs(tmp_path / "runs", Index.of(os.environ), 120)

    async def use(pilot: Pilot) -> None:
        await reads(pilot, "100 older")
        await pilot.press("a")
        await reads(pilot, "castoff top, 120 ended")
        await pilot.press("end", "enter")
        await reads(pilot, runs[0].id)

    used(use)


def test_the_mouse_chooses_and_opens(runs: list[RunDirectory]) -> None:
    async def use(pilot: Pilot) -> None:
        await reads(pilot, "20 ended")
        await pilot.click("#runs", offset=(3, 2))
        await pilot.click("#runs", offset=(3, 2))
        await reads(pilot, runs[-3].id)

    used(use)


def test_the_chosen_run_stays_chosen_where_others_come(runs: list[RunDirectory], tmp_path: Path) -> None:
    async def use(pilot: Pilot) -> None:
        await reads(pilot, "20 ended")
        await pilot.press("down")
        make_runs(tmp_path / "more", Index.of(os.environ), 3)
        await reads(pilot, "0002")
        await pilot.press("enter")
        await reads(pilot, runs[-2].id)

    used(use)


@pytest.mark.usefixtures("for_real")
class TestWithARealRun:
    def test_it_is_stopped_only_after_yes(self, jobs: LocalJobs) -> None:
        run = jobs.submit(
            "--name",
            "loop",
            sh='until [ -e "$CASTOFF_STOP_FILE" ]; do sleep 0.05; done; echo resume >"$CASTOFF_OUTCOME_FILE"',
        )

        async def use(pilot: Pilot) -> None:
            await reads(pilot, "loop", "running")
            for no in ("n", "escape", "enter", "q"):
                await pilot.press("s")
                await reads(pilot, f"Ask {run.id} to save and stop?")
                await pilot.press(no)
                await reads(pilot, "Enter open")
            assert not (run.path / "stop").exists()
            await pilot.press("s", "y")
            await reads(pilot, "loop: asked to stop; a program that ignores CASTOFF_STOP_FILE keeps running")
            await reads(pilot, "castoff top, 1 ended", "resume")
            await pilot.press("s")
            await reads(pilot, f"{run.id} is over already")

        used(use)

    def test_it_is_cancelled_only_after_yes(self, jobs: LocalJobs) -> None:
        run = jobs.submit("--name", "loop", sh="sleep 600")
        ended: list[RunStatus] = []

        async def use(pilot: Pilot) -> None:
            await reads(pilot, "loop", "running")
            await pilot.press("enter", "c")
            await reads(pilot, f"Cancel {run.id}?")
            await pilot.press("n", "c", "y")
            await reads(pilot, "loop: ended, cancelled", "state     ended, cancelled")
            ended.append(status(run))

        used(use)
        assert ended[0].ending == "cancelled" and jobs.nothing_left(run)

    def test_members_one_after_the_other(self, jobs: LocalJobs) -> None:
        run = jobs.submit(
            "--name", "few", "--set", "array={count: 3}", sh="exit $((CASTOFF_ARRAY_INDEX == 1))"
        )
        jobs.wait(run)

        async def use(pilot: Pilot) -> None:
            await reads(pilot, "2/3 done, 1 failed")
            await pilot.press("enter")
            await reads(pilot, "member    1 of 0-2: failed")
            await pilot.press("left")
            await reads(pilot, "member    0 of 0-2: done")
            await pilot.press("right", "right", "right")
            await reads(pilot, "member    2 of 0-2: done")

        used(use)


def test_what_is_under_way_is_waited_for(
    runs: list[RunDirectory], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A second q leaves all the same."""
    made = Made(tmp_path)
    Index.of(os.environ).add(made.run, "made")

    release, threads = threading.Event(), []

    def slow(runs: list[RunDirectory]) -> set[str]:
        threads.append(threading.current_thread())
        release.wait()
        return set()

    monkeypatch.setattr(application, "stop", slow)

    async def use(pilot: Pilot) -> None:
        await reads(pilot, "1 pending")
        await pilot.press("s", "y")
        await reads(pilot, "stopping made …")
        await pilot.press("q")
        await reads(pilot, "stopping made: not finished; q again quits without waiting")
        await pilot.press("q")

    with made.alive():
        assert used(use).return_value == 0
    release.set()
    threads[0].join()


def test_an_action_that_fails_says_why(
    runs: list[RunDirectory], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    made = Made(tmp_path)
    Index.of(os.environ).add(made.run, "made")

    def refuse(_: object) -> set[str]:
        raise CastoffError("no\nspace")

    monkeypatch.setattr(application, "stop", refuse)

    async def use(pilot: Pilot) -> None:
        await reads(pilot, "1 pending")
        await pilot.press("s", "y")
        await reads(pilot, "made: no space")

    with made.alive():
        used(use)


def test_without_a_terminal_to_share(runs: list[RunDirectory]) -> None:
    async def use(pilot: Pilot) -> None:
        await reads(pilot, "20 ended")
        await pilot.press("l")
        await reads(pilot, "this terminal cannot be shared with another command")

    used(use)


def test_news_that_do_not_come(runs: list[RunDirectory], monkeypatch: pytest.MonkeyPatch) -> None:
    """As where a file system hangs: the keys live on, and the screen says so."""

    async def use(pilot: Pilot) -> None:
        await reads(pilot, "20 ended")
        late = application._LATE
        monkeypatch.setattr(application, "_LATE", 0.1)
        hangs.set()
        await reads(pilot, "reading the files of runs has taken ", " s so far: a file system may hang")
        await pilot.press("enter")
        await reads(pilot, "looking …")
        monkeypatch.setattr(application, "_LATE", late)  # later looks are as slow as the machine is
        hangs.clear()
        await reads(pilot, runs[-1].id, "state     ended, failed")
        assert "may hang" not in shown(pilot.app)

    hangs, entries = threading.Event(), Index.entries

    def slow(index: Index) -> list[Entry]:
        while hangs.is_set():
            time.sleep(0.01)
        return entries(index)

    monkeypatch.setattr(Index, "entries", slow)
    used(use)


def together(pilot: Pilot, *keys: str) -> None:
    """Keys that arrive before the application has handled any of them."""
    for key in keys:
        pilot.app.post_message(events.Key(key, key if len(key) == 1 else None))


@pytest.mark.parametrize("keys", [["a", "b"], ["a", "b", "c"], ["q", "up", "q", "down"]])
def test_keys_that_arrive_together_end_the_help_once(runs: list[RunDirectory], keys: list[str]) -> None:
    async def use(pilot: Pilot) -> None:
        await reads(pilot, "20 ended")
        await pilot.press("question_mark")
        await reads(pilot, "choose a run")
        together(pilot, *keys)
        await reads(pilot, "20 ended", "preprocess..001d")
        assert isinstance(pilot.app.screen, RunsScreen)

    used(use)


def test_keys_that_arrive_together_open_and_close_a_run_once(runs: list[RunDirectory]) -> None:
    async def use(pilot: Pilot) -> None:
        await reads(pilot, "20 ended")
        together(pilot, "enter", "enter")
        await reads(pilot, runs[-1].id)
        together(pilot, "question_mark", "question_mark")
        await reads(pilot, "choose a run")
        await pilot.press("a")
        await reads(pilot, runs[-1].id, "state     ended")
        together(pilot, "escape", "escape", "escape")
        await reads(pilot, "20 ended", "preprocess..001d")
        assert isinstance(pilot.app.screen, RunsScreen)

    used(use)


def test_keys_that_arrive_together_answer_a_question_once(
    runs: list[RunDirectory], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = Made(tmp_path)
    Index.of(os.environ).add(made.run, "made")
    stopped: list[object] = []

    def stop(runs: list[RunDirectory]) -> set[str]:
        stopped.append(runs)
        return {"x"}

    monkeypatch.setattr(application, "stop", stop)

    async def use(pilot: Pilot) -> None:
        await reads(pilot, "1 pending")
        together(pilot, "s", "s")
        await reads(pilot, f"Ask {made.run.id}")
        together(pilot, "n", "y", "y")
        await reads(pilot, "1 pending", "Enter open")
        await pilot.press("s")
        together(pilot, "y", "n", "y")
        await reads(pilot, "asked to stop", "Enter open")
        assert isinstance(pilot.app.screen, RunsScreen)

    with made.alive():
        used(use)
    assert len(stopped) == 1


def test_the_help_scrolls(runs: list[RunDirectory]) -> None:
    async def use(pilot: Pilot) -> None:
        await reads(pilot, "20 ended")
        await pilot.press("question_mark")
        assert "choose a run" in await reads(pilot, "choose a run")
        await pilot.press("down", "pagedown", "end")
        await reads(pilot, "which comes first")
        together(pilot, "up", "home", "up")
        await reads(pilot, "choose a run")
        await pilot.press("x")
        await reads(pilot, "20 ended")

    used(use, size=(60, 10))


def test_runs_are_sorted_by_a_column(runs: list[RunDirectory]) -> None:
    async def use(pilot: Pilot) -> None:
        await reads(pilot, "20 ended")
        await pilot.press("o")
        text = await reads(pilot, "run ▲")
        names = [line.split("..")[0] for line in text.splitlines()[2:22]]
        assert names == sorted(names) and len({*names}) > 1
        await pilot.press("O")
        text = await reads(pilot, "run ▼")
        assert [line.split("..")[0] for line in text.splitlines()[2:22]] == names[::-1]
        await pilot.press("o")
        await reads(pilot, "state ▲")

    used(use, size=(80, 26))


def test_several_runs_are_marked_and_stopped(
    runs: list[RunDirectory], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = [Made(tmp_path / name) for name in "ab"]
    for one in made:
        Index.of(os.environ).add(one.run, one.run.path.parent.name)
    stopped: list[list[Path]] = []

    def stop(runs: list[RunDirectory]) -> set[str]:
        stopped.append([run.path for run in runs])
        return {str(runs[0].path)}

    monkeypatch.setattr(application, "stop", stop)

    async def use(pilot: Pilot) -> None:
        await reads(pilot, "2 pending", "20 ended")
        await pilot.press("space", "space", "space", "escape")
        text = await reads(pilot, "2 pending")
        assert "marked" not in text and "\n*" not in text
        await pilot.press("home", "space", "space", "space")  # the third is over
        text = await reads(pilot, "3 marked")
        assert [line[0] for line in text.splitlines()[2:7]] == ["*", "*", "*", " ", " "]
        await pilot.press("s")
        await reads(
            pilot, "Ask 2 runs to save and stop?", "They start no further", *(one.run.id for one in made)
        )
        await pilot.press("n")
        await reads(pilot, "3 marked")
        await pilot.press("s", "y")
        text = await reads(pilot, "2 runs: asked to stop; a program")
        assert "marked" not in text
        await pilot.press("end", "up", "space", "space", "c")
        await reads(pilot, "all 2 marked runs are over already")

    with made[0].alive(), made[1].alive():
        used(use)
    assert [sorted(paths) for paths in stopped] == [sorted(one.run.path for one in made)]


def test_what_became_of_several_cancellations(
    runs: list[RunDirectory], monkeypatch: pytest.MonkeyPatch
) -> None:
    def end(runs: list[RunDirectory]) -> list[CancelRequest]:
        return [
            CancelRequest(run, status(run), problem="refused" if run is runs[0] else None) for run in runs
        ]

    monkeypatch.setattr(application, "end", end)
    assert application._cancelled(runs[:3]) == "2 cancelled; refused"
    assert application._cancelled(runs[:1]) == "refused"


SELECTS = int(version("textual").partition(".")[0]) >= 7
"""Whether textual's pilot selects text with the mouse."""


def test_an_id_or_the_selected_text_is_copied(runs: list[RunDirectory]) -> None:
    async def use(pilot: Pilot) -> None:
        await reads(pilot, "20 ended")
        await pilot.press("y")
        await reads(pilot, f"copied {runs[-1].id}")
        assert pilot.app.clipboard == runs[-1].id
        await pilot.press("space", "space", "y")
        await reads(pilot, "copied 2 lines")
        assert pilot.app.clipboard == f"{runs[-1].id}\n{runs[-2].id}"
        if not SELECTS:
            return
        await pilot.press("escape", "home", "enter")
        await reads(pilot, runs[-1].id, "state     ended")
        await pilot.mouse_down("#page", offset=(10, 0))
        await pilot.hover("#page", offset=(15, 0))
        await pilot.mouse_up("#page", offset=(15, 0))
        await pilot.press("y")
        assert pilot.app.clipboard.startswith("ended")

    used(use)


def test_a_wide_screen_shows_sites_and_queues(runs: list[RunDirectory], tmp_path: Path) -> None:
    made = Made(tmp_path)
    made.write("plan.json", {"name": "made", "site": "mine", "scheduler": "local", "queue": "debug-scaling"})
    Index.of(os.environ).add(made.run, "made")

    async def use(pilot: Pilot) -> None:
        await reads(pilot, "site", "queue", "mine", "debug-scaling")
        await pilot.resize_terminal(100, 24)
        await until(pilot, lambda: "queue" not in shown(pilot.app).splitlines()[1])

    used(use, size=(160, 24))
