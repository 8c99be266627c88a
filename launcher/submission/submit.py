"""submit(spec, site): makes a run directory and submits its script once.

castoff may be killed at any time: before the run directory has its final name, there is no run; afterwards,
the run is complete, and is started once or records that it was not.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

import msgspec
import yaml

from castoff.launcher.config.job import JobSpec
from castoff.launcher.config.site import Site
from castoff.launcher.errors import CastoffError, report
from castoff.launcher.planning.planner import decide
from castoff.launcher.planning.render import Script, rendered, template_folder
from castoff.launcher.preflight.presence import check_in_snapshot, check_present
from castoff.launcher.preflight.syntax import check_syntax
from castoff.launcher.process import files
from castoff.launcher.process.linux import check_linux
from castoff.launcher.runs import provenance
from castoff.launcher.runs.drafts import Draft, new_run
from castoff.launcher.runs.index import record_runs
from castoff.launcher.runs.notices import NOTIFY
from castoff.launcher.runs.plan import Plan
from castoff.launcher.runs.records import Submission, encode
from castoff.launcher.runs.removal import sweep
from castoff.launcher.runs.run import RunDirectory, runs_folder
from castoff.launcher.runs.script import head_of
from castoff.launcher.runs.secrets import SECRETS, secrets
from castoff.launcher.runs.sweep import sweep_of
from castoff.launcher.schedulers.base import QueuedScheduler
from castoff.launcher.schedulers.base_queue import Configuration
from castoff.launcher.schedulers.dialect import dependency_words, own_dependency
from castoff.launcher.schedulers.local import control as local
from castoff.launcher.schedulers.submit_request import SubmitRequest
from castoff.launcher.submission.dependencies import check_pairs, resolve
from castoff.launcher.submission.send import send, unrecorded
from castoff.launcher.text.quoting import visible_word

_PLACEHOLDER = f"/{os.urandom(16).hex()}"
"""A stand-in for the run directory, which exists only after a real submission. It is random, so that no
text of a job can contain it; output always shows `$CASTOFF_RUN_DIR` in its place.
"""

_SAMPLER = "use.py"
"""The program that records what the job uses on each node, in templates/nodes and in the run directory."""


class Within(NamedTuple):
    """The group with which a run is submitted."""

    group: str
    """The group's id."""
    runs: Mapping[str, Path]
    """The directories of the group's runs, by the names of their jobs."""
    notify: Path | None = None
    """The folder of the records of messages, which the group's runs share."""


class DryRun(NamedTuple):
    """What a submission would do."""

    plan: Plan
    rendered: Script
    command: str
    """The submit command line, with the run directory as `$CASTOFF_RUN_DIR`. A chain, or an array that Slurm
    accepts only in parts, has a line for each job, with JOB for the id of the previous job.
    """

    @property
    def script(self) -> str:
        """The script's text."""
        return self.rendered.text


def dry_run(spec: JobSpec, site: Site, *, function: bool = False) -> DryRun:
    """Return what `submit` would do, without any effect.

    Raises:
        InvalidInput: the job cannot run at this site.
    """
    decided, site_scheduler = decide(spec, site, function=function)
    script = rendered(decided, site_scheduler)
    scheduler = site_scheduler if isinstance(site_scheduler, QueuedScheduler) else None
    commands: list[tuple[dict[str, str], list[str]]] = [({}, local.submit_command(_PLACEHOLDER))]
    if scheduler is not None:
        dependency = None
        if decided.after and own_dependency(decided.after) is None:
            dependency = dependency_words(decided.after)  # with names of runs in place of job ids
        request = SubmitRequest.of(decided, head_of(script.text), _PLACEHOLDER, dependency)
        largest = site.array.max_count if site.array else None
        submit_commands = enumerate(request.with_members(scheduler.submit_commands(request, largest)))
        commands = [
            (submit_command.environment, submit_command.argv("JOB" if number else None))
            for number, submit_command in submit_commands
        ]
    lines = (
        [*(f"{name}={_shown(value)}" for name, value in environment.items()), *map(_shown, command)]
        for environment, command in commands
    )
    return DryRun(decided, script, "\n".join(map(" ".join, lines)))


def _shown(word: str) -> str:
    """Quote a word of the command line, with the run directory as `$CASTOFF_RUN_DIR`.

    A word that contains the run directory otherwise contains only text by castoff, which needs no quotes.
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
    function: bool = False,
    prepare: Callable[[Path], None] | None = None,
    run_id: str | None = None,
    is_code: bool = False,
    within: Within | None = None,
) -> RunDirectory:
    """Make the run directory, submit the script once, and return the run.

    `environ` is the submitter's environment (default: this process's). With `function`, the job runs a
    function that submitit has pickled: `prepare` is called with the run directory, to put the pickled
    function there before the submission. `run_id`: the run's id, if it is already chosen. `is_code`: every
    file in the working directory has been chosen as code, so that a snapshot leaves no file out. `within`:
    the group to which the run belongs, whose runs `after` names first.

    Raises:
        RunExists: there is a run of that id.
        InvalidInput: the job cannot run at this site, or a file that the job names is missing.
        NotSent: the scheduler refuses the script, or cannot be reached.
        Unclear: it is not known whether the scheduler accepted the script; `castoff status` finds out.
        CastoffError: this host cannot submit the job.
    """
    environ = os.environ if environ is None else environ
    decided, scheduler, script, directory = checked(
        spec, site, runs_dir=runs_dir, environ=environ, function=function
    )
    after, dependency, named = resolve(decided.after, scheduler, environ, within.runs if within else {})
    check_pairs(decided, after)
    if (dependency or None) == own_dependency(decided.after):
        dependency = None  # the directive in the script says the same
    configuration = scheduler.queue(environ).configuration() if scheduler is not None else Configuration()
    record = Submission(
        scheduler=decided.scheduler,
        directory=directory,
        time=time.time(),
        after=after,
        group=within.group if within else None,
        node_hours=decided.node_hours,
        cluster=configuration.cluster,
    )
    with recorded(
        spec,
        decided,
        script.text,
        record,
        runs_dir=runs_dir,
        environ=environ,
        referred={name: named[name] for name in decided.refers_to if name in named},
        prepare=prepare,
        run_id=run_id,
        is_code=is_code,
        notify=within.notify if within else None,
    ) as draft:
        run = draft.final
        request = SubmitRequest.of(decided, head_of(script.text), str(run.path), dependency)
        largest = configuration.largest_array or (site.array.max_count if site.array else None)
        submit_commands = scheduler.submit_commands(request, largest) if scheduler else []
        submit_commands = request.with_members(submit_commands)
        try:
            send(run, record, scheduler, submit_commands, draft.lock, environ, decided.submit_timeout)
        except OSError as error:
            if record.error is None:
                raise unrecorded(run, record, error) from error
            draft.withdraw()  # the refusal cannot be recorded, for example because the disk is full
            raise CastoffError(f"{record.error}\nnothing was started, and no directory is left") from error
    return run


class Checked(NamedTuple):
    """A job that this host could submit."""

    plan: Plan
    scheduler: QueuedScheduler | None
    """None: castoff's own."""
    script: Script
    directory: str
    """The working directory."""


def checked(
    spec: JobSpec,
    site: Site,
    *,
    runs_dir: Path | None,
    environ: Mapping[str, str],
    function: bool = False,
) -> Checked:
    """Check all about a job that can be checked without submitting it. The arguments are those of `submit`.

    Raises:
        InvalidInput: the job cannot run at this site, or a file that the job names is missing.
        CastoffError: this host cannot submit the job.
    """
    decided, site_scheduler = decide(spec, site, function=function)
    scheduler = site_scheduler if isinstance(site_scheduler, QueuedScheduler) else None
    if scheduler is None:
        check_linux()
    script = rendered(decided, site_scheduler)
    check_syntax(decided, script, spec)
    directory = working_directory()
    check_present(spec, site, decided, Path(directory), environ)
    if scheduler is not None:
        scheduler.check_reachable(environ)
        scheduler.check_run_dir(str((runs_dir or runs_folder(environ)).resolve()))
    return Checked(decided, scheduler, script, directory)


@contextlib.contextmanager
def recorded(
    spec: JobSpec,
    decided: Plan,
    script: str,
    record: Submission,
    *,
    runs_dir: Path | None,
    environ: Mapping[str, str],
    referred: Mapping[str, Path] = MappingProxyType({}),
    prepare: Callable[[Path], None] | None = None,
    run_id: str | None = None,
    is_code: bool = False,
    notify: Path | None = None,
) -> Iterator[Draft]:
    """Make the directory of a new run, with all of its files, and add the run to the index. `referred`: the
    directories of the runs to which the job refers, by name. `notify`: the folder of the records of messages,
    if several runs share one.

    `prepare` is called with the directory before the directory gets its final name, which is `run_id` if
    given. The run's lock is held within the context. If anything fails before, no directory is left.

    Raises:
        RunExists: there is a run of that id.
        CastoffError: the directory cannot be made; or a variable that `env_from` names is not set.
    """
    indent = 2 if decided.parameters is None else None  # a line for each value would triple a long table
    texts = {"job.yaml": _job_file(spec), "plan.json": encode(decided, indent) + "\n"}
    if decided.sample_use:
        texts[_SAMPLER] = (template_folder() / "nodes" / _SAMPLER).read_text(encoding="utf-8")
    if hidden := secrets(decided.env_from, environ):
        texts[SECRETS] = hidden
    folder = runs_dir or runs_folder(environ)
    for interrupted in sweep(folder):
        report(
            f"{interrupted}: its submission was interrupted before it reached the scheduler; "
            "its directory was removed"
        )
    with new_run(decided.name, folder, run_id) as draft:
        try:
            for name, text in texts.items():
                files.replace(draft.run.path / name, text)
            files.replace(draft.run.script, script, 0o700)
            if referred:
                (draft.run.path / "after").mkdir(mode=0o700)
            for name, path in referred.items():
                (draft.run.path / "after" / name).symlink_to(path)
            if notify is not None and decided.notify is not None:
                (draft.run.path / NOTIFY).symlink_to(notify)
            provenance.record(
                draft.run.path,
                Path(record.directory or "."),
                environ,
                secrets=decided.env_from,
                snapshot=decided.snapshot,
                is_code=is_code,
            )
            if decided.snapshot:
                check_in_snapshot(decided, draft.run.path / "code.workdir")
            draft.run.write_submission(record)
            if prepare:
                prepare(draft.run.path)
            shown_path = visible_word(str(draft.final.path))
            record_runs(
                environ,
                lambda index: index.add(
                    draft.final, decided.name, decided.scheduler, record.group, sweep_of(decided.parameters)
                ),
                f"`castoff list` will not show {draft.final.id}; use its path: castoff status {shown_path}",
            )
            draft.publish()
        except OSError as error:
            raise CastoffError(f"{draft.final.path}: cannot be written: {error.strerror}") from error
        yield draft


def _job_file(spec: JobSpec) -> str:
    """Write the job as a file that renders to the same script from every folder."""
    if spec.templates is not None:  # the path is relative to the job file's folder
        spec = msgspec.structs.replace(spec, templates=str(Path(spec.templates).absolute()))
    # libyaml's dumper: Python's would take half a minute for the parameters of 100,000 members
    return str(yaml.dump(msgspec.to_builtins(spec), Dumper=yaml.CSafeDumper, sort_keys=False))


def working_directory() -> str:
    """Return the working directory.

    Raises:
        CastoffError: the working directory was removed.
    """
    try:
        return str(Path.cwd())
    except FileNotFoundError:
        raise CastoffError("the working directory is gone; cd to an existing folder") from None
