"""submit(spec, site): the one module that runs a scheduler's submit command.

Whoever kills it, and when: before the run directory has its name there is no run; afterwards there is
a whole one, which is started once or says that it never was.
"""

from __future__ import annotations

import contextlib
import os
import shlex
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import IO, Any, NamedTuple

import msgspec
import yaml

from launcher import provenance
from launcher.drafts import Draft, new_run, sweep_drafts
from launcher.errors import CastoffError
from launcher.index import Index
from launcher.planning import Plan, plan
from launcher.quoting import shell_word, visible_word
from launcher.rendering import render
from launcher.runs import Run, runs_folder, write_file, write_submission
from launcher.schedulers import local, pbs, slurm
from launcher.schedulers.submission import Submission
from launcher.site import Site
from launcher.spec import JobSpec

_SCHEDULERS = {"slurm": slurm, "pbs": pbs, "local": local}

_PATIENCE = 5.0
"""Seconds for a scheduler's answer after somebody has interrupted us."""

_PLACEHOLDER = f"/{os.urandom(16).hex()}"
"""Stands for the run directory, which only a real submission makes. At random, for then no text of a
job can hold it; what is shown in its place is always the same."""

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
    variables = [f"{name}={_shown(value)}" for name, value in submission.environment.items()]
    return DryRun(decided, render(decided), " ".join([*variables, *map(_shown, command)]))


def _shown(word: str) -> str:
    """A word of the command line, with the run directory as `$CASTOFF_RUN_DIR`.

    Where that stands, all else is castoff's own, and needs no quotes but these.
    """
    if _PLACEHOLDER in word:
        return '"' + word.replace(_PLACEHOLDER, "$CASTOFF_RUN_DIR") + '"'
    return visible_word(word)


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
    index = Index.of(environ)
    record = {
        "scheduler": decided.scheduler,
        "directory": working_directory(),
        "after": _resolve(decided, index),
        "time": time.time(),
        "node_hours": decided.node_hours,
        "job": None,
    }
    with recorded(spec, decided, script, record, runs_dir=runs_dir, environ=environ) as draft:
        run = draft.final
        command = local.submit_command(Submission(decided, str(run.path)))
        try:
            send(run, command, draft.lock, environ)
        except NotSent as error:
            try:
                write_submission(run, {**record, "error": error.said})
            except OSError:  # as where the disk is full
                draft.withdraw()
                raise CastoffError(f"{error.said}\nnothing was started, and nothing of it is left") from error
            raise
    return run


@contextlib.contextmanager
def recorded(
    spec: JobSpec,
    decided: Plan,
    script: str,
    record: Mapping[str, Any],
    *,
    runs_dir: Path | None,
    environ: Mapping[str, str],
) -> Iterator[Draft]:
    """Make the directory of a new run, with all that it holds before it begins, and list it in the index.

    Its lock is held as long as this lasts. If anything fails on the way, nothing is left.

    Raises:
        CastoffError: it cannot be made; or a variable that `env_from` names is not set.
    """
    files = _Files(_job_file(spec), decided.to_json() + "\n", script, secrets(decided.env_from, environ))
    index = Index.of(environ)
    index.prepare()
    folder = runs_dir or runs_folder(environ)
    for interrupted in sweep_drafts(folder):
        told = "its submission was interrupted before anything was sent; removed"
        print(f"castoff: {interrupted}: {told}", file=sys.stderr)
    with new_run(decided.name, folder) as draft:
        try:
            files.write(draft.run)
            provenance.record(
                draft.run.path,
                Path(record["directory"]),
                environ,
                secrets=decided.env_from,
                snapshot=decided.snapshot,
            )
            write_submission(draft.run, record)
            index.add(draft.final, decided.name)
            draft.publish()
        except OSError as error:
            raise CastoffError(f"{draft.final.path}: cannot be written: {error.strerror}") from error
        yield draft


class NotSent(CastoffError):
    """A script that its scheduler did not take."""

    def __init__(self, run: Run, command: list[str], code: int, said: str):
        self.said = said
        """The scheduler's own words."""
        how = f"{shlex.join(command)} failed with exit code {code}"
        super().__init__(f"{how}: {said}\nnothing was started; the script is {run.script}")


def send(run: Run, command: list[str], lock: IO[str], environ: Mapping[str, str]) -> None:
    """Run the local scheduler's command, once; it inherits the run's lock.

    Raises:
        NotSent: it does not run.
        CastoffError: it does, but somebody interrupted this before it could be said.
    """
    interrupted = False
    try:
        # From the run directory: a folder named launcher where the user works would win over ours.
        # In a session of its own: an interrupt at the terminal is not for it.
        process = subprocess.Popen(
            command,
            cwd=run.path,
            env=environ,
            stdin=lock,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
            encoding="utf-8",
            errors="replace",
        )
    except OSError as error:
        raise NotSent(run, command, 126, str(error)) from error
    try:
        answer, words = process.communicate()
    except KeyboardInterrupt:
        interrupted = True
        answer, words = _last_words(process)
    # The scheduler writes its id down before it lets go of our pipes: so it is certain by now.
    if local.parse_submit(answer) is None and run.job is None:
        said = words.strip().removeprefix("castoff: ") or answer.strip() or "without a word"
        raise NotSent(run, command, process.returncode, said)
    if interrupted:
        raise CastoffError(f"interrupted, but {run.id} was submitted; `castoff cancel {run.id}` ends it")


def _last_words(process: subprocess.Popen[str]) -> tuple[str, str]:
    """What a scheduler says that somebody interrupted us to wait for; it has a moment more."""
    try:
        return process.communicate(timeout=_PATIENCE)
    except subprocess.TimeoutExpired:
        process.kill()
        return process.communicate()


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


def working_directory() -> str:
    """The working directory.

    Raises:
        CastoffError: it was removed.
    """
    try:
        return str(Path.cwd())
    except FileNotFoundError:
        raise CastoffError("the working directory is gone; cd to one that is there") from None


def secrets(names: list[str], environ: Mapping[str, str]) -> str:
    """What the script reads to have the variables of env_from.

    Raises:
        CastoffError: one is not set.
    """
    missing = [name for name in names if name not in environ]
    if missing:
        raise CastoffError(
            f"env_from: {', '.join(missing)} not set in this environment; export before submitting"
        )
    return "".join(f"export {name}={shell_word(environ[name])}\n" for name in names)


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
