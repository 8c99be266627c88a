"""A link that breaks, stalls or is slow: afterwards the same command leads to exactly one job."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests import patience
from tests.cases import others_long
from tests.command_line import COMMAND
from tests.remote.conftest import Laptop

pytestmark = pytest.mark.costly

_HERE = (2000, 7700)
"""From which byte on to which a break can matter, of those that go there: before, ssh greets."""

_BACK = (2000, 5400)
"""The same of those from the machine."""

_BREAKING = """#!{python}
# The castoff of a machine, whose connection breaks just before it can send a message of this kind.
import os, signal, subprocess, sys
sys.path.insert(0, {checkout!r})
from castoff.launcher.remote import messages
if sys.argv[1:3] != ["on", "serve"] or not os.path.exists({flag!r}):
    os.execv({castoff!r}, [{castoff!r}, *sys.argv[1:]])
process = subprocess.Popen([{castoff!r}, *sys.argv[1:]], stdout=subprocess.PIPE)
while (message := messages.read(process.stdout)) is not None:
    if type(message).__name__ == {kind!r}:
        os.unlink({flag!r})
        os.kill(os.getppid(), signal.SIGKILL)  # sshd's, of this connection
        break
    messages.write(sys.stdout.buffer, message)
"""


def submit_until_answered(laptop: Laptop, *words: str) -> list[str]:
    """Call the same command until it is answered, with a whole link from the second time on; all messages."""
    said = []
    for _ in range(4):
        answer = laptop("--on", "far", "submit", *words)
        said.append(answer.stderr)
        if answer.returncode == 0:
            laptop.machine.order_link("")
            return said
        assert "far: " in answer.stderr, answer.stderr
        known = ("nothing is lost: `castoff --on far submit", "was not reached, so nothing was done there")
        assert any(words in answer.stderr for words in known), answer.stderr
        assert "Traceback" not in answer.stderr
        laptop.machine.order_link("")
    raise AssertionError(said)


def one_job_and_nothing_else(laptop: Laptop) -> None:
    assert laptop("--on", "far", "wait", "--name", "toy").returncode == 0
    assert len(laptop.runs()) == 1, laptop.runs()
    assert laptop.times_run() == 1
    (project,) = (laptop.far / "code").iterdir()
    assert len([*project.glob("[!.]*")]) == 1
    hidden = {path.name for path in project.glob(".*")} - {".lock"}
    assert [Path(name).suffix for name in hidden] == [".files"]
    assert not [*(laptop.home / ".local/state/castoff/on/pending").glob("*")]


def cut_link(laptop: Laptop) -> None:
    """Break the connection of the user `broken` as it is."""
    words = ["pkill", "-KILL", "-f", f"broken_link.py {laptop.machine.link_orders}"]
    assert subprocess.run(words, check=False).returncode == 0


@pytest.mark.parametrize("at", others_long(range(*_HERE, 100), everyday=(3000, 6300)))
def test_a_link_that_breaks_on_the_way_there(laptop: Laptop, at: int) -> None:
    laptop.add("far", "broken")
    laptop.a_job()
    laptop.machine.order_link(f"cut {at}")
    submit_until_answered(laptop, "job.yaml")
    one_job_and_nothing_else(laptop)


@pytest.mark.parametrize("at", others_long(range(*_BACK, 100), everyday=(4000,)))
def test_a_link_that_breaks_on_the_way_back(laptop: Laptop, at: int) -> None:
    laptop.add("far", "broken")
    laptop.a_job()
    laptop.machine.order_link(f"cut-back {at}")
    submit_until_answered(laptop, "job.yaml")
    one_job_and_nothing_else(laptop)


@pytest.mark.long
@pytest.mark.parametrize("kind", ["Hello", "Lacking", "Stored", "Submitted"])
def test_a_link_that_breaks_at_each_stage(laptop: Laptop, kind: str) -> None:
    flag = laptop.far / "breaks"
    flag.touch()
    program = laptop.far / "castoff"
    program.write_text(
        _BREAKING.format(
            python=sys.executable,
            checkout=str(Path(__file__).parents[2]),
            flag=str(flag),
            castoff=str(COMMAND),
            kind=kind,
        )
    )
    program.chmod(0o755)
    laptop.add("far", castoff=str(program))
    laptop.a_job()
    first, second = submit_until_answered(laptop, "job.yaml")
    what = {
        "Hello": "castoff was starting there",
        "Lacking": "castoff sent the list of files",
        "Stored": "castoff sent the code; the files that arrived stay there",
        "Submitted": "was submitted, which may have arrived",
    }
    assert "far: the connection to sh broke while" in first and what[kind] in first, first
    was_there = kind == "Submitted"
    assert ("was submitted by an earlier command; nothing was submitted again" in second) == was_there
    assert ("the machine has all of it already" in second) == (kind in ("Stored", "Submitted")), second
    one_job_and_nothing_else(laptop)


def test_a_laptop_that_dies_while_it_submits(laptop: Laptop) -> None:
    laptop.add("far", "broken")
    laptop.a_job()
    kept = laptop.home / ".local/state/castoff/on/pending"
    submitting = laptop.start("--on", "far", "submit", "job.yaml")
    patience.until(lambda: submitting.poll() is not None or (kept.is_dir() and [*kept.iterdir()]))
    submitting.kill()
    cut_link(laptop)
    submitting.communicate()
    if submitting.returncode:
        submit_until_answered(laptop, "job.yaml")
    one_job_and_nothing_else(laptop)


def test_another_job_learns_what_became_of_one_that_was_not_answered(laptop: Laptop) -> None:
    laptop.add("far", "broken")
    laptop.a_job()
    laptop.machine.order_link("cut 7300")  # within the job, or just behind it
    first = laptop("--on", "far", "submit", "job.yaml")
    laptop.machine.order_link("")
    other = laptop("--on", "far", "submit", "--name", "other", "job.yaml")
    assert other.returncode == 0
    assert len(laptop.runs()) == 1 + (
        first.returncode == 0 or "although its command got no answer" in other.stderr
    )
    assert not [*(laptop.home / ".local/state/castoff/on/pending").glob("*")]


def test_a_link_that_stalls_is_given_up(laptop: Laptop) -> None:
    laptop.add("far", "broken")
    laptop.a_job()
    laptop.machine.order_link("stall 6300")
    first, _ = submit_until_answered(laptop, "job.yaml")
    assert "the connection to broken broke while" in first, first
    one_job_and_nothing_else(laptop)


def test_a_transfer_continues_where_it_broke(laptop: Laptop) -> None:
    laptop.add("far", "broken")
    laptop.a_job()
    for number in range(10):
        (laptop.project / f"weights {number}").write_bytes(os.urandom(400_000))
    laptop.machine.order_link("cut 3500000")  # of which 2 MiB may be on the way: ssh's window
    first, second = submit_until_answered(laptop, "job.yaml")
    assert "code: 12 files" in first and "12 files" in first.partition(";")[2]
    assert (found := re.search(r"; (\d+) files?, .* to send", second)) and int(found[1]) < 10, second
    one_job_and_nothing_else(laptop)


def test_a_slow_link_is_only_slow(laptop: Laptop) -> None:
    laptop.add("far", "broken")
    laptop.a_job()
    (laptop.project / "weights").write_bytes(os.urandom(60_000))
    laptop.machine.order_link("slow 40000")
    answer = laptop("--on", "far", "submit", "--follow", "job.yaml")
    assert answer.returncode == 0 and "here is " in answer.stdout, answer.stderr
    one_job_and_nothing_else(laptop)


def test_waiting_goes_through_a_break(laptop: Laptop) -> None:
    laptop.add("far", "broken")
    laptop.a_job()
    gate = laptop.far / "gate"
    script = f'while ! test -e "{gate}"; do sleep 0.1; done; exit 7'
    run = str(laptop.submitted("far", "submit", "--", "sh", "-c", script)["id"])
    waiting = laptop.start("--on", "far", "wait", run)
    is_there = ["pgrep", "-f", f"on run .*wait {run}"]
    patience.until(lambda: subprocess.run(is_there, capture_output=True, check=False).returncode == 0)
    cut_link(laptop)
    assert waiting.stderr is not None
    assert "the connection broke, and the runs are unaffected" in waiting.stderr.readline()
    gate.touch()
    output, _ = waiting.communicate(timeout=patience.SECONDS)
    assert waiting.returncode == 7 and output.startswith(f"{run}: failed: ")


def test_following_logs_goes_through_a_break(laptop: Laptop) -> None:
    """Each line once: those before the break, those during it, and those after it."""
    laptop.add("far", "broken")
    laptop.a_job()
    first, second = laptop.far / "first", laptop.far / "second"
    script = (
        f'echo one; until test -e "{first}"; do sleep 0.1; done; echo two; touch "{laptop.far}/printed"; '
        f'until test -e "{second}"; do sleep 0.1; done; echo three'
    )
    run = str(laptop.submitted("far", "submit", "--", "sh", "-c", script)["id"])
    following = laptop.start("--on", "far", "logs", "-f", run)
    assert following.stdout is not None and following.stderr is not None
    patience.until(lambda: "one" in following.stdout.readline())  # type: ignore[union-attr]
    cut_link(laptop)
    patience.until(lambda: "the connection broke, and the runs are" in following.stderr.readline())  # type: ignore[union-attr]
    first.touch()
    patience.until((laptop.far / "printed").exists)
    patience.until(lambda: "two" in following.stdout.readline())  # type: ignore[union-attr]
    second.touch()
    output, errors = following.communicate(timeout=patience.SECONDS)
    assert following.returncode == 0 and output == "[0] three\n"
    assert errors.count(f"{run}: done") == 1


def test_logs_that_are_printed_say_how_to_print_them_again(laptop: Laptop) -> None:
    laptop.add("far", "broken")
    laptop.a_job()
    run = str(laptop.submitted("far", "submit", "--", "sh", "-c", "seq 1000000")["id"])
    assert laptop("--on", "far", "wait", run).returncode == 0
    laptop.machine.order_link("cut-back 100000")
    printed = laptop("--on", "far", "logs", run)
    assert printed.returncode == 1
    assert "broke while it printed the logs; the run is unaffected" in printed.stderr
    assert f"`castoff --on far logs {run}` continues" in printed.stderr


def test_a_machine_that_is_not_reached_is_no_answer(laptop: Laptop) -> None:
    laptop.add("far", "broken")
    laptop.a_job()
    laptop.machine.order_link("cut 0")
    for words in (["list"], ["wait"], ["submit", "job.yaml"]):
        failed = laptop("--on", "far", *words)
        assert failed.returncode == 1
        assert "far: broken was not reached, so nothing was done there" in failed.stderr, failed.stderr
