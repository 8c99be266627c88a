"""submit(spec, site): the one module that runs a scheduler's submit command."""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import shutil
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import yaml

from launcher.errors import CastoffError
from launcher.index import Index
from launcher.local.control import SUBMITTING
from launcher.planning import Plan, plan
from launcher.quoting import shell_word
from launcher.rendering import render
from launcher.runs import Run, locked, new_run, runs_folder, write_file
from launcher.schedulers import local, pbs, slurm
from launcher.schedulers.submission import Submission
from launcher.site import Site
from launcher.spec import JobSpec

_SCHEDULERS = {"slurm": slurm, "pbs": pbs, "local": local}

_PLACEHOLDER = "$CASTOFF_RUN_DIR"
"""Stands for the run directory, which only a real submission makes, in what a dry run shows."""

_LINE_BREAKS = frozenset("\x85\u2028\u2029")
"""Line breaks to YAML 1.1, text to everybody else."""


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
    variables = [f'{name}="{value}"' for name, value in submission.environment.items()]
    return DryRun(decided, render(decided), " ".join([*variables, *shown]))


def submit(
    spec: JobSpec,
    site: Site,
    *,
    runs_dir: Path | None = None,
    environ: Mapping[str, str] | None = None,
) -> Run:
    """Make the run directory, submit the script once, and return the run.

    `environ` is the submitter's environment (default: this process's).

    >>> from launcher import JobSpec, Site, submit
    >>> from launcher.watch import wait
    >>> job = JobSpec.of({"command": ["echo", "hello"], "ranks_per_node": 2})
    >>> run = submit(job, Site.load("local"))
    >>> wait(run).ending
    'done'
    >>> print((run.logs / "0.0" / "rank-00001.log").read_text(), end="")
    hello

    Raises:
        InvalidInput: the job cannot run there.
        CastoffError: it cannot be submitted from here, or the scheduler refuses it.
    """
    environ = os.environ if environ is None else environ
    decided = plan(spec, site)
    script = render(decided)
    if decided.scheduler != "local":
        raise CastoffError(_by_hand(decided))
    files = _Files(_job_file(spec), decided.to_json() + "\n", script, _secrets(decided, environ))
    index = Index.of(environ)
    after = _resolve(decided, index)
    directory = _working_directory()
    index.prepare()
    run = new_run(decided.name, runs_dir or runs_folder(environ))
    record = {
        "scheduler": decided.scheduler,
        "directory": directory,
        "after": after,
        "time": time.time(),
        "node_hours": decided.node_hours,
        "job": None,
    }
    with contextlib.ExitStack() as stack:
        try:
            files.write(run)
            _write_submission(run, record)
            stack.enter_context(locked(run.path / SUBMITTING))
            index.add(run, decided.name)
        except BaseException as error:
            shutil.rmtree(run.path, ignore_errors=True)
            if isinstance(error, OSError):
                raise CastoffError(f"{run.path}: cannot be written: {error.strerror}") from error
            raise
        _start(run, decided, record, environ)
    return run


class _Files(NamedTuple):
    """What a run directory holds before it is submitted."""

    job: str
    plan: str
    script: str
    secrets: str

    def write(self, run: Run) -> None:
        write_file(run.path / "job.yaml", self.job)
        write_file(run.path / "plan.json", self.plan)
        write_file(run.script, self.script, 0o700)
        if self.secrets:
            write_file(run.path / "secrets.sh", self.secrets)


def _job_file(spec: JobSpec) -> str:
    """The job as a file that renders to the same script, wherever it lies."""
    if spec.templates is not None:  # which counts from the job file's folder
        spec = msgspec.structs.replace(spec, templates=str(Path(spec.templates).absolute()))
    fields = msgspec.to_builtins(spec)
    text = str(yaml.safe_dump(fields, sort_keys=False, allow_unicode=True))
    if not _LINE_BREAKS.isdisjoint(text):  # a reader would take them for ordinary ones
        text = str(yaml.safe_dump(fields, sort_keys=False))
    return text


def _working_directory() -> str:
    try:
        return str(Path.cwd())
    except FileNotFoundError:
        raise CastoffError("the working directory is gone; cd to one that is there") from None


def _write_submission(run: Run, record: dict[str, Any]) -> None:
    write_file(run.path / "submission.json", json.dumps(record, indent=2) + "\n")


def _start(run: Run, decided: Plan, record: dict[str, Any], environ: Mapping[str, str]) -> None:
    """Run the scheduler's submit command, once, and write down its answer."""
    scheduler = _SCHEDULERS[decided.scheduler]
    submission = Submission(decided, str(run.path))
    command = scheduler.submit_command(submission)
    # From the run directory: a folder named launcher where the user works would win over ours.
    answer = subprocess.run(
        command,
        cwd=run.path,
        env={**environ, **submission.environment},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        encoding="utf-8",
        errors="replace",
        check=False,
    )
    record["job"] = scheduler.parse_submit(answer.stdout)
    if answer.returncode or record["job"] is None:
        said = answer.stderr.strip() or answer.stdout.strip() or "without a word"
        record["error"] = said
        _write_submission(run, record)
        raise CastoffError(
            f"{shlex.join(command)} failed with exit code {answer.returncode}: {said}\n"
            f"the script is {run.script}"
        )
    _write_submission(run, record)


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
