"""Requests an interactive allocation for a job, by the scheduler's own command, and writes the script that
starts on its first host.

The directives are those of the job's script, without fields that only batch jobs have.
"""

from __future__ import annotations

import getpass
import os
import shlex
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from castoff.launcher import clock
from castoff.launcher.config.job import JobSpec
from castoff.launcher.config.site import Site
from castoff.launcher.errors import CastoffError, report
from castoff.launcher.interactive.in_allocation import find
from castoff.launcher.interactive.terminal import run_on_terminal
from castoff.launcher.planning.planner import decide
from castoff.launcher.planning.render import filters_for, template_folder
from castoff.launcher.process import files
from castoff.launcher.process.attached import Ended, run_attached
from castoff.launcher.process.files import make_folders
from castoff.launcher.runs.directory import check_folder
from castoff.launcher.runs.plan import Plan
from castoff.launcher.runs.run import runs_folder
from castoff.launcher.runs.secrets import SECRETS, secrets
from castoff.launcher.schedulers.base import QueuedScheduler
from castoff.launcher.schedulers.command import command_environment
from castoff.launcher.schedulers.registry import is_own, queued_of
from castoff.launcher.submission.submit import working_directory
from castoff.launcher.text.quoting import visible_word

OF_BATCH_JOBS = ("array", "after", "requeue", "snapshot", "stage", "container", "teardown")
"""Job fields that have no meaning for an allocation. Fields about ranks apply to `castoff launch` in it."""

_FOLDER = "$CASTOFF_ALLOC_DIR"
"""The folder in printed commands; only a real request creates one."""

_LAG = 5.0
"""Seconds until a file that another host has written is visible."""


_THREADS = "OMP_NUM_THREADS"
"""A variable that depends on the cores of each rank, which `castoff launch` chooses in the allocation."""


class Request(NamedTuple):
    """A request for an allocation."""

    plan: Plan
    scheduler: QueuedScheduler
    script: str
    """The script that starts on the allocation's first host."""
    interactive: bool
    """Whether the script is a shell for the user."""
    jupyter: bool

    def command(self, folder: str, *, terminal: bool) -> list[str]:
        """The scheduler's command line, for the script in `folder`."""
        words = [shlex.split(self.plan.shell)[0], f"{folder}/enter.sh"]
        return self.scheduler.interactive_command(self.plan.directives, words, terminal)

    @property
    def shown(self) -> str:
        """The command line as `--dry-run` shows it."""
        words = self.command(_FOLDER, terminal=True)
        return " ".join(f'"{word}"' if word.startswith(_FOLDER) else visible_word(word) for word in words)


def request(
    spec: JobSpec, site: Site, program: Sequence[str] | None, *, job: str | None, jupyter: bool
) -> Request:
    """Plan a job's allocation on a site. `program`: the command in it; None: a shell. `job`: the job file.

    Raises:
        InvalidInput: the job cannot run there.
        CastoffError: the site has no scheduler, or the job has no jupyter.
    """
    if is_own(site.scheduler):
        raise CastoffError(
            f"site {site.name} is this machine alone, which gives no allocations: start ranks here with "
            f"castoff launch {visible_word(job) if job else '-- python train.py'}; or name a cluster's site "
            "with --site"
        )
    plain = JobSpec()
    left_out = {name: getattr(plain, name) for name in OF_BATCH_JOBS}
    decided, _ = decide(spec.changed(**left_out), site)
    scheduler = queued_of(site.scheduler)
    if jupyter:
        _check_jupyter(decided)
    # Without -n, it would start one rank for each device of a node.
    launch = f"castoff launch {visible_word(job) if job else f'-n {decided.ranks} -- python train.py'}"
    of_site = {*site.env, *site.defaults.env}
    variables = {
        "plan": decided,
        "directory": working_directory(),
        "castoff": str(Path(sys.argv[0] if os.sep in sys.argv[0] else sys.executable).absolute().parent),
        "interactive": program is None and not jupyter,
        "jupyter": jupyter,
        "default_env": {
            name: text for name, text in decided.default_env.items() if name != _THREADS or name in of_site
        },
        "program": list(program or []),
        "login": visible_word(f"{getpass.getuser()}@{socket.getfqdn()}"),
        "hint": f"; `{launch}` starts ranks on the allocation's hosts, and exit gives them back",
    }
    from castoff.launcher.planning import templates  # late: it loads Jinja

    environment = templates.environment(template_folder(), None, filters_for())
    script = environment.get_template("interactive/alloc.sh.j2").render(variables)
    return Request(decided, scheduler, script, variables["interactive"] is True, jupyter)


def _check_jupyter(plan: Plan) -> None:
    """Check that jupyter lab is installed, as far as possible before the allocation.

    Raises:
        CastoffError: jupyter lab is not installed.
    """
    fix = (
        "install jupyterlab there, or name another python in the job file, as in python: /path/to/bin/python"
    )
    if plan.python is not None:
        if Path(plan.python).is_file():  # else it may exist only on the nodes
            probe = "import importlib.util as u; raise SystemExit(u.find_spec('jupyterlab') is None)"
            answer = subprocess.run([plan.python, "-c", probe], stdin=subprocess.DEVNULL, check=False)
            if answer.returncode:
                raise CastoffError(f"--jupyter: {plan.python} has no jupyterlab: {fix}")
    elif not plan.setup and not (shutil.which("jupyter") and shutil.which("jupyter-lab")):
        raise CastoffError(
            "--jupyter: no jupyter lab is on PATH, and the job has no setup that could provide it: install "
            "jupyterlab, or name the python that has it in the job file, as in python: /path/to/bin/python"
        )


def run(asked: Request, environ: Mapping[str, str], *, runs_dir: Path | None = None) -> int:
    """Request the allocation, wait for its end, and return its program's exit code; 130 if it was withdrawn.

    Raises:
        CastoffError: this shell is in an allocation already, or this host cannot request one.
    """
    if around := find(environ):
        raise CastoffError(
            f"this shell is in {around[0]} already: castoff launch starts ranks on its hosts; exit gives "
            "them back, and then castoff alloc asks for others"
        )
    asked.scheduler.check_reachable(environ)
    terminal = all(stream is not None and stream.isatty() for stream in (sys.stdin, sys.stdout))
    if asked.interactive and not terminal:
        raise CastoffError(
            "a shell needs a terminal, but standard input or output is not one; without a shell: castoff "
            "alloc … -- COMMAND"
        )
    folder = _folder(runs_dir or runs_folder(environ), asked, secrets(asked.plan.env_from, environ))
    try:
        argv = asked.command(str(folder), terminal=terminal)
        environment = command_environment(environ)
        if (prompt := asked.scheduler.interactive_prompt) is not None:
            ended = run_on_terminal(argv, environment, (folder / "begun").exists, *prompt)
        else:
            ended = run_attached(argv, environment)
        return _code(asked, folder, ended)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _folder(runs: Path, asked: Request, hidden: str) -> Path:
    """Make a folder that all hosts see, with the script that starts in the allocation."""
    try:
        make_folders(runs, 0o755)
        check_folder(runs)
        folder = Path(tempfile.mkdtemp(prefix=".alloc-", dir=runs))  # 0700
        files.replace(folder / ".gitignore", "*\n")
        files.replace(folder / "enter.sh", asked.script, 0o700)
        if hidden:
            files.replace(folder / SECRETS, hidden)
        if asked.jupyter:
            files.replace(folder / "token", f"{os.urandom(24).hex()}\n")
    except OSError as error:
        raise CastoffError(
            f"{runs}: cannot be written: {error.strerror}; choose another folder with --runs-dir"
        ) from error
    return folder


def _code(asked: Request, folder: Path, ended: Ended) -> int:
    """The exit code of the program, or the code for a request without an allocation."""
    title = asked.scheduler.title
    if not (folder / "begun").exists():
        if ended.interrupted:
            report(f"the request was withdrawn: {title} gave no hosts")
            return 130
        report(f"{title} gave no hosts; its message is above")
        return ended.code or 1
    text = clock.until(lambda: _text(folder / "code"), 0.1, _LAG)
    if text.isdecimal():
        return int(text)
    report("the allocation ended before the program in it: it reached its walltime, or was cancelled")
    return ended.code or 1


def _text(path: Path) -> str:
    try:
        return path.read_text().strip()
    except OSError:
        return ""
