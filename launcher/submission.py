"""submit(spec, site): the one module that runs a scheduler's submit command."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import msgspec
import yaml

from launcher.errors import CastoffError
from launcher.planning import Plan, plan
from launcher.quoting import shell_word
from launcher.rendering import render
from launcher.runs import Index, Run, new_run, runs_folder, write_file
from launcher.schedulers import local, pbs, slurm
from launcher.schedulers.submission import Submission
from launcher.site import Site
from launcher.spec import JobSpec

_SCHEDULERS = {"slurm": slurm, "pbs": pbs, "local": local}

_PLACEHOLDER = "$CASTOFF_RUN_DIR"
"""Stands for the run directory, which only a real submission makes, in what a dry run shows."""


class DryRun(NamedTuple):
    """What a submission would do."""

    plan: Plan
    script: str
    command: str
    """The scheduler's command line, with the run directory as `$CASTOFF_RUN_DIR`."""


def dry_run(spec: JobSpec, site: Site) -> DryRun:
    """What `submit` would do: touches nothing.

    Raises:
        InvalidInput: the job cannot run there.
    """
    decided = plan(spec, site)
    submission = Submission(decided, _PLACEHOLDER, _words_of(decided))
    command = _SCHEDULERS[decided.scheduler].submit_command(submission)
    shown = [f'"{word}"' if _PLACEHOLDER in word else shell_word(word) for word in command]
    return DryRun(decided, render(decided), " ".join(shown))


def submit(
    spec: JobSpec,
    site: Site,
    *,
    runs_dir: Path | None = None,
    environ: Mapping[str, str] | None = None,
) -> Run:
    """Make the run directory, submit the script once, and return the run.

    `environ` is the submitter's environment (default: this process's).

    Raises:
        InvalidInput: the job cannot run there.
        CastoffError: it cannot be submitted from here, or the scheduler refuses it.
    """
    environ = os.environ if environ is None else environ
    decided = plan(spec, site)
    script = render(decided)
    if decided.scheduler != "local":
        raise CastoffError(_by_hand(decided))
    secrets = _secrets(decided, environ)
    index = Index.of(environ)
    after = _resolve(decided, index)
    run = new_run(decided.name, runs_dir or runs_folder(environ))
    job = yaml.safe_dump(msgspec.to_builtins(spec), sort_keys=False, allow_unicode=True)
    write_file(run.path / "job.yaml", job)
    write_file(run.path / "plan.json", decided.to_json() + "\n")
    write_file(run.script, script, 0o700)
    if secrets:
        write_file(run.path / "secrets.sh", secrets)
    index.add(run, decided.name)
    _start(run, decided, after, environ)
    return run


def _start(run: Run, decided: Plan, after: dict[str, list[str]], environ: Mapping[str, str]) -> None:
    scheduler = _SCHEDULERS[decided.scheduler]
    command = scheduler.submit_command(Submission(decided, str(run.path)))
    record = {
        "command": command,
        "directory": str(Path.cwd()),
        "after": after,
        "time": time.time(),
        "node_hours": decided.node_hours,
        "job": None,
    }
    write_file(run.path / "submission.json", json.dumps(record, indent=2) + "\n")
    # From the run directory: a folder named launcher where the user works would win over ours.
    answer = subprocess.run(
        command, cwd=run.path, env=dict(environ), capture_output=True, text=True, check=False
    )
    record["job"] = scheduler.parse_submit(answer.stdout)
    if answer.returncode or record["job"] is None:
        record["error"] = answer.stderr
        write_file(run.path / "submission.json", json.dumps(record, indent=2) + "\n")
        raise CastoffError(
            f"{shlex.join(command)} failed with exit code {answer.returncode}:\n"
            f"{answer.stderr.strip() or answer.stdout.strip()}\nthe script is {run.script}"
        )
    write_file(run.path / "submission.json", json.dumps(record, indent=2) + "\n")


def _secrets(decided: Plan, environ: Mapping[str, str]) -> str:
    missing = [name for name in decided.env_from if name not in environ]
    if missing:
        raise CastoffError(
            f"env_from: {', '.join(missing)} not set in this environment; export before submitting"
        )
    return "".join(f"export {name}={shell_word(environ[name])}\n" for name in decided.env_from)


def _resolve(decided: Plan, index: Index) -> dict[str, list[str]]:
    """The run directories that `after` names."""
    resolved: dict[str, list[str]] = {}
    for condition, names in decided.after.items():
        try:
            resolved[condition] = [str(index.find(name).path) for name in names]
        except CastoffError as error:
            raise CastoffError(f"after.{condition}: {error}") from error
    return resolved


def _words_of(decided: Plan) -> str | None:
    """The dependency as a dry run shows it: run names stand for the ids they will have."""
    if decided.scheduler == "local" or not decided.after:
        return None
    if any(name in ("dependency", "W") for name, _ in decided.directives):
        return None  # ids alone: the script's own directive says it
    return ",".join(":".join([condition, *names]) for condition, names in decided.after.items())


def _by_hand(decided: Plan) -> str:
    command = {"slurm": "sbatch", "pbs": "qsub"}[decided.scheduler]
    return (
        f"this version of castoff submits to the local scheduler only, and {decided.site} runs "
        f"{decided.scheduler}. The script stands alone; submit it yourself:\n"
        f"  castoff render JOB.yaml --site {decided.site} -o job.sh && {command} job.sh"
    )
