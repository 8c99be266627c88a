"""Checks the job's Python after setup: its version, and whether torch and castoff are installed."""

from __future__ import annotations

import itertools
import json
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from castoff.launcher.config.workdir import as_path
from castoff.launcher.diagnosis.finding import Finding, Findings, Subject
from castoff.launcher.preflight.named_files import makes_nothing, runs_scripts
from castoff.launcher.preflight.shell_words import is_python
from castoff.launcher.schedulers.command import SchedulerUnreachable, run_to_end
from castoff.launcher.text.quoting import visible_word

PATIENCE = 30.0
"""Seconds for setup and the interpreter, which take long on a busy file system."""

_MARK = "castoff-python"

_ASKS = """
import importlib.metadata as metadata, importlib.util as util, json, sys
def version(name):
    try:
        return metadata.version(name)
    except Exception:
        return None
def place(name):
    try:
        found = util.find_spec(name)
        return found and found.origin
    except Exception:
        return None
print(json.dumps({"version": sys.version.split()[0], "torch": version("torch"), "torch_at": place("torch"),
                  "castoff": place("castoff")}))
"""
"""The program that the interpreter runs; find_spec of a name without a dot imports nothing."""

_KEPT = ("HOME", "LANG", "LOGNAME", "SHELL", "TERM", "TMPDIR", "USER")
"""The variables of a job's login shell if the job inherits none."""


def findings(subject: Subject) -> Findings:
    """Check that the job's Python runs and has what the job needs."""
    plan = subject.plan
    if plan is None or plan.container or not (_word(subject) or plan.python):
        return
    fix = subject.setting("python", "/path/to/env/bin/python")
    if not makes_nothing(plan.setup) or runs_scripts(plan.setup):
        fact = "setup runs other commands, too, so only the job itself can show which Python it gets"
        yield Finding(
            "python", "unknown", fact, f"`castoff doctor {_nodes_words(subject)}` tests it in a job"
        )
        return
    try:
        done = run_to_end([*_shell(subject), "-c", _script(subject)], PATIENCE, _environment(subject))
    except SchedulerUnreachable as error:
        fact = f"setup and Python: {error}"
        yield Finding("python", "unknown", fact, "a job would be delayed by as much")
        return
    path, _, answer = done.stdout.rpartition(f"\n{_MARK} ")[2].partition("\n")
    try:
        facts = json.loads(answer)
    except ValueError:
        message = " ".join(done.stderr.split())[-200:] or "no message"
        word = path or _word(subject)
        reason = "does not exist" if "/" in word else "is not on the job's PATH"
        reason = f"does not run: {message}" if path else reason
        yield Finding("python", "problem", f"{word}{_origin(subject)} {reason}", fix)
        return
    yield from _judge(path, facts, subject, fix)


def _judge(path: str, facts: Mapping[str, Any], subject: Subject, fix: str) -> Findings:
    python = visible_word(path)
    yield Finding("python", "ok", f"{path}{_origin(subject)} is Python {facts['version']}")
    if facts["torch_at"] is None:
        install = f"{python} -m pip install torch, if the program needs it; or another environment: {fix}"
        yield Finding("torch", "warning", f"{path} has no torch", install)
    else:
        folder = Path(facts["torch_at"]).parent
        yield Finding("torch", "ok", f"torch {facts['torch'] or 'of an unknown version'} in {folder}")
    if _needs_castoff(subject) and facts["castoff"] is None:
        install = f"{python} -m pip install castoff; or the environment that castoff is in: {fix}"
        yield Finding(
            "castoff", "problem", f"{path} cannot import castoff, to which the program belongs", install
        )


def _script(subject: Subject) -> str:
    """The script of the check: the job's setup, `python:` and `env:`, and its interpreter with `_ASKS`."""
    plan = subject.plan
    assert plan is not None
    word = _word(subject) or "python"
    if "/" in word:
        word = str(subject.directory / as_path(plan.workdir) / word)
    default = [f"export {name}={shlex.quote(value)}" for name, value in plan.default_env.items()]
    lines = [f"cd -- {shlex.quote(str(subject.directory))}", *default, *plan.setup]
    if plan.python:
        lines += [f"PATH={shlex.quote(str(Path(plan.python).parent))}:$PATH"]
        word = plan.python if not _word(subject) else word
    for name, value in plan.env.items():
        lines.append(f"unset -v {name}" if value is None else f"export {name}={shlex.quote(value)}")
    ask = shlex.quote(_ASKS)
    lines += [f"printf '\\n{_MARK} %s\\n' \"$(command -v {shlex.quote(word)})\"", "cd /"]
    return "\n".join([*lines, f"{shlex.quote(word)} -c {ask}"])


def _shell(subject: Subject) -> list[str]:
    """The shell of the job's script, from its first line: on clusters a login shell."""
    return subject.script.partition("\n")[0].removeprefix("#!").split()


def _environment(subject: Subject) -> dict[str, str]:
    """The environment in which the job's shell starts."""
    plan = subject.plan
    assert plan is not None
    if plan.inherit == "all":
        return dict(subject.environ)
    kept = (*_KEPT, *plan.inherit) if isinstance(plan.inherit, list) else _KEPT
    values = {name: subject.environ[name] for name in kept if name in subject.environ}
    return {"PATH": "/usr/local/bin:/usr/bin:/bin", **values}


def _word(subject: Subject) -> str:
    """The word of the job's command that starts Python; empty if there is none."""
    if subject.spec.launcher.torchrun:
        return "python"
    word = subject.spec.command[0] if subject.spec.command else ""
    return word if is_python(word) else ""


def _origin(subject: Subject) -> str:
    """Where the interpreter comes from, in words to follow its path."""
    plan = subject.plan
    if plan is None or plan.python or "/" in _word(subject):
        return ""
    if plan.setup:
        return " (after setup)"
    return "" if plan.inherit == "all" else " (a login shell's, as inherit is none)"


def _needs_castoff(subject: Subject) -> bool:
    """Whether the job's program is a module of castoff, as in `-m castoff.trainers.gnn`."""
    words = subject.spec.command
    modules = [module for option, module in itertools.pairwise(words) if option == "-m"]
    return any(name.partition(".")[0] == "castoff" for name in modules)


def _nodes_words(subject: Subject) -> str:
    job = f"{visible_word(subject.source)} " if subject.source else ""
    return f"{job}--nodes {min(subject.plan.nodes, 2) if subject.plan else 1}"
