"""castoff mcp, as a coding agent's program talks to it: the protocol's own client, and real runs."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("mcp")

from mcp.client import ClientRequestContext
from mcp.client.client import Client
from mcp.client.stdio import StdioServerParameters, stdio_client
from mcp.server.mcpserver import MCPServer
from mcp_types import CallToolResult, ElicitRequestParams, ElicitResult

from castoff.launcher.agents import server as tools
from castoff.launcher.agents.question import question
from castoff.launcher.agents.server import server_with_tools
from castoff.launcher.cli import mcp as verb
from castoff.launcher.process.own_program import own_program

from ..conftest import Castoff, LocalJobs

JOB = """
name: hello
command: [python3, -c, "print('hi')"]
ranks_per_node: 1
walltime: 5m
"""
MODES: list[Literal["auto", "legacy"]] = ["auto", "legacy"]
"""The protocol's revisions ask a person in two ways."""


class Person:
    """Who answers the questions of the agent's program."""

    def __init__(self, action: Literal["accept", "decline", "cancel"] = "accept", *, submits: bool = True):
        self.answer = ElicitResult(action=action, content={"submit": submits} if action == "accept" else None)
        self.asked: list[str] = []

    async def __call__(self, context: ClientRequestContext, params: ElicitRequestParams) -> ElicitResult:
        self.asked.append(params.message)
        return self.answer


def talk(
    does: Callable[[Client], Awaitable[Any]],
    person: Person | None = None,
    *,
    server: MCPServer[Any] | None = None,
    mode: Literal["auto", "legacy"] = "auto",
) -> Any:
    async def session() -> Any:
        used = server_with_tools(asks=True) if server is None else server
        async with Client(used, elicitation_callback=person, mode=mode) as client:
            return await does(client)

    return asyncio.run(session())


def call(tool: str, person: Person | None = None, *, asks: bool = True, **arguments: Any) -> CallToolResult:
    async def does(client: Client) -> CallToolResult:
        return await client.call_tool(tool, arguments)

    result = talk(does, person, server=server_with_tools(asks=asks))
    assert isinstance(result, CallToolResult)
    return result


def text(result: CallToolResult) -> str:
    return "".join(str(getattr(part, "text", "")) for part in result.content)


def answer(result: CallToolResult) -> Any:
    """What a tool that succeeded returned."""
    assert not result.is_error, text(result)
    assert result.structured_content is not None
    return result.structured_content


@pytest.fixture
def here(jobs: LocalJobs, monkeypatch: pytest.MonkeyPatch) -> LocalJobs:
    """The server works in the jobs' folder."""
    monkeypatch.chdir(jobs.folder)
    return jobs


def submitted(jobs: LocalJobs) -> int:
    return len(jobs.castoff("list", "--json", cwd=jobs.folder).stdout.splitlines())


def test_what_a_run_became(here: LocalJobs) -> None:
    run = here.submit(sh="echo one; echo two; exit 3")
    here.wait(run)
    assert [one["id"] for one in answer(call("list_runs"))["result"]] == [run.id]
    assert answer(call("list_runs", state="done"))["result"] == []
    assert answer(call("status", run=run.id))["code"] == 3
    assert "two" in text(call("logs", tail=1)) and "one" not in text(call("logs", tail=1, rank=0))


def test_a_command_s_failure_is_the_tool_s(here: LocalJobs) -> None:
    result = call("status", run="nothing")
    assert result.is_error and "nothing: no such run" in text(result)
    result = call("render", job_file="none.yaml", site="slurm")
    assert result.is_error and "none.yaml: no such file" in text(result)


@pytest.mark.parametrize("word", ["--all", "-h", ""])
def test_no_word_is_read_as_an_option(word: str, here: LocalJobs) -> None:
    for result in (call("status", run=word), call("render", job_file=word)):
        assert result.is_error and "can have this name" in text(result)
    # In one word with its option, a value may begin as it likes.
    assert "--set --help" in text(call("render", job_file=str(here.job(JOB)), fields=["--help"]))


def test_an_unknown_argument_is_not_dropped(here: LocalJobs) -> None:
    result = call("status", run_id="hello")
    assert result.is_error and text(result).endswith("no argument run_id; there are: run, machine")


def test_rendering_submits_nothing(here: LocalJobs) -> None:
    here.job(JOB)
    shown = answer(call("render", job_file="job.yaml", site="slurm", fields=["nodes=2"]))
    assert "#SBATCH --nodes=2" in shown["script"] and shown["plan"]["ranks"] == 2
    assert submitted(here) == 0


@pytest.mark.parametrize("mode", MODES)
def test_a_person_confirms(mode: Literal["auto", "legacy"], here: LocalJobs) -> None:
    here.job(JOB)
    person = Person()

    async def does(client: Client) -> Any:
        return await client.call_tool("submit", {"job_file": "job.yaml", "site": "local"})

    (run,) = answer(talk(does, person, mode=mode))["runs"]
    (asked,) = person.asked
    assert "hello on local (local): 1 node, 1 rank, walltime 5m; runs python3 -c" in asked
    assert "castoff submit --site=local job.yaml" in asked
    assert here.castoff("wait", run["id"], cwd=here.folder).returncode == 0
    assert submitted(here) == 1


@pytest.mark.parametrize("person", [Person(submits=False), Person("decline"), Person("cancel"), None])
def test_nothing_is_submitted_without_a_yes(person: Person | None, here: LocalJobs) -> None:
    here.job(JOB)
    result = call("submit", person, job_file="job.yaml", site="local")
    assert result.is_error
    if person is None:
        assert "cannot ask a person" in text(result)
        assert "castoff submit --site=local job.yaml" in text(result)
    assert submitted(here) == 0


def test_the_command_for_a_person_is_for_a_shell(here: LocalJobs) -> None:
    here.job(JOB, name="my job.yaml")
    assert "submit --site=local 'my job.yaml'" in text(
        call("submit", None, job_file="my job.yaml", site="local")
    )


def test_without_questions_if_the_user_said_so(here: LocalJobs) -> None:
    here.job(JOB)
    person = Person()
    answer(call("submit", person, asks=False, job_file="job.yaml", site="local"))
    assert (submitted(here), person.asked) == (1, [])


def test_an_answer_is_for_the_script_that_was_shown(here: LocalJobs) -> None:
    """The file changes while the person reads: they are asked again, about the new job."""
    here.job(JOB)

    class Slow(Person):
        async def __call__(
            self, context: ClientRequestContext, question: ElicitRequestParams
        ) -> ElicitResult:
            if not self.asked:
                here.job(JOB.replace("hi", "other"))
            return await super().__call__(context, question)

    person = Slow()
    result = call("submit", person, job_file="job.yaml", site="local")
    assert len(person.asked) == 2 and "other" in person.asked[1] and not result.is_error


def test_the_failed_members_of_a_large_array_come_first(
    here: LocalJobs, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = here.submit("--set", "array.count=3", sh="exit $((CASTOFF_ARRAY_INDEX == 2))")
    here.wait(run)
    monkeypatch.setattr(tools, "_MOST_MEMBERS", 1)
    shown = answer(call("status", run=run.id))
    assert [member["member"] for member in shown["members"]] == [2]
    assert shown["members_left_out"] == 2


def test_long_logs_keep_their_ends(here: LocalJobs, monkeypatch: pytest.MonkeyPatch) -> None:
    run = here.submit(sh="seq 1000")
    here.wait(run)
    monkeypatch.setattr(tools, "_MOST_CHARACTERS", 300)
    shown = text(call("logs", tail=2000))
    assert shown.rstrip().endswith("1000") and " characters left out]\n" in shown and len(shown) < 360


def test_the_schema_of_job_files(here: LocalJobs) -> None:
    async def does(client: Client) -> str:
        (content,) = (await client.read_resource("castoff://job-schema")).contents
        return str(getattr(content, "text", ""))

    assert talk(does) == here.castoff("schema").stdout


def test_the_installed_command(tmp_path: Path) -> None:
    """Over standard input and output, where nothing but the protocol may be."""

    async def session() -> list[str]:
        program, *words = own_program("castoff.__main__", "mcp")
        kept = {"PATH": os.environ["PATH"], "XDG_STATE_HOME": str(tmp_path)}
        server = StdioServerParameters(command=program, args=words, cwd=tmp_path, env=kept)
        async with Client(stdio_client(server)) as client:
            assert str(tmp_path) in str(client.instructions)
            return [tool.name for tool in (await client.list_tools()).tools]

    assert asyncio.run(session()) == ["list_runs", "status", "logs", "render", "submit"]


def test_it_says_what_it_needs(castoff: Castoff, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(verb, "find_spec", lambda _name: None)
    answer = castoff("mcp")
    assert answer.returncode == 1 and "python -m pip install 'castoff[mcp]'" in answer.stderr


PLAN = {
    **{"name": "a", "site": "aurora", "scheduler": "pbs", "nodes": 2, "ranks": 24, "array_count": None},
    **{"walltime": 3600, "account": "P", "queue": "debug", "script": None, "command": ["python", "a b.py"]},
}


def test_the_question_names_what_a_job_costs() -> None:
    asked = question([{"plan": PLAN, "script": "x"}], ["castoff", "submit", "a b.yaml"])
    assert asked.splitlines()[:3] == [
        "Submit 1 job?",
        "- a on aurora (pbs): 2 nodes, 24 ranks, walltime 1h00m, account P, queue debug; "
        "runs python 'a b.py'",
        "Command: castoff submit 'a b.yaml'",
    ]


@given(st.text(), st.text())
def test_another_script_is_another_question(one: str, other: str) -> None:
    asked = [question([{"plan": PLAN, "script": script}], ["castoff"]) for script in (one, other)]
    assert (asked[0] == asked[1]) == (one == other)


@given(st.lists(st.text(st.characters(categories=["L", "Zs", "P", "Cc"]), min_size=1), min_size=1))
def test_no_command_adds_lines_to_the_question(command: list[str]) -> None:
    job = {"plan": {**PLAN, "command": command}, "script": json.dumps(command)}
    assert len(question([job], ["castoff", *command]).splitlines()) == 4
