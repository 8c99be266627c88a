"""castoff mcp: let a coding agent call castoff."""

from __future__ import annotations

import sys
from importlib.util import find_spec

import click

from castoff.launcher.cli.help import examples
from castoff.launcher.cli.output import is_terminal
from castoff.launcher.errors import CastoffError


@click.command("mcp", epilog=examples("claude mcp add castoff -- castoff mcp"))
@click.option("--yes", is_flag=True, help="Submit what the agent submits, without asking a person.")
def command(yes: bool) -> None:
    """Serve a coding agent that speaks the Model Context Protocol (MCP), on standard input and output.

    The agent's own program starts this command. Its tools are list_runs, status, logs, render and submit.
    Before a job is submitted, the agent's program asks you; if it cannot ask, castoff submits nothing.
    """
    if find_spec("mcp") is None:
        raise CastoffError(
            f"castoff mcp needs the package mcp, which {sys.executable} does not have: "
            "python -m pip install 'castoff[mcp]'"
        )
    if is_terminal(sys.stdin):
        raise CastoffError(
            "castoff mcp is started by a coding agent's program; to add it to one: "
            "claude mcp add castoff -- castoff mcp"
        )
    from castoff.launcher.agents.server import serve

    serve(asks=not yes)
