"""`castoff launch --here` as scripts write it: the same as through click, or left to click."""

from __future__ import annotations

import pytest

from castoff.launcher.cli import group, here, launch
from castoff.launcher.launchers.local.start import StartRequest

WRITTEN = [*here.WORDS, "--ranks-per-node", "3", "--job-id", "local-1.0.0"]


@pytest.mark.parametrize(
    "more",
    [
        [],
        ["--cores-per-rank", "2", "--devices-per-rank", "1"],
        ["--log-dir", "/a b/logs/", "--failure-file", "../failure.json"],
        ["--given", "HELD,KEPT"],
    ],
    ids=len,
)
def test_it_is_read_as_click_reads_it(more: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    requests: list[StartRequest] = []

    def run(request: StartRequest) -> int:
        requests.append(request)
        return 5

    monkeypatch.setattr(launch, "run", run)
    monkeypatch.setenv("CASTOFF_GIVEN_HELD", "a b")
    monkeypatch.setenv("HELD", "inherited")  # behind the other
    program = ["sh", "-c", "--here", "é"]
    assert group.call([*WRITTEN, *more], program) == 5
    assert requests == [here.read([*WRITTEN, *more], program)]
    assert ("--given" in more) == (requests[0].environment.get("HELD") == "a b")


@pytest.mark.parametrize(
    "words",
    [
        ["launch", "--ranks-per-node", "2", "--here"],
        [*here.WORDS, "--ranks-per-node"],
        [*here.WORDS, "job.yaml"],
        [*here.WORDS, "--ranks-per-node", "0"],
        [*here.WORDS, "--ranks-per-node", "-2"],
        [*here.WORDS, "--ranks-per-node", "²"],
        [*here.WORDS, "--devices-per-rank", "0"],
        [*here.WORDS, "--nodes", "1"],
        [*here.WORDS, "--help", "x"],
        [*here.WORDS, "--job-id", "--help"],
        [*here.WORDS, "--log-dir", ""],
        [*WRITTEN, "--ranks-per-node", "2"],
    ],
    ids=" ".join,
)
def test_what_else_is_left_to_click(words: list[str]) -> None:
    assert here.read(words, ["true"]) is None


def test_without_a_program_it_is_left_to_click() -> None:
    assert here.read(WRITTEN, None) is None
    assert here.read(WRITTEN, []) is None
