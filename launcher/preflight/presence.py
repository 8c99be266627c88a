"""Checks before submission that the files that a job names exist.

A file that the job cannot find either is an error; one that only nodes may have, or that setup may create, is
a warning. Files about which this host cannot tell are not reported.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from shutil import which
from typing import NamedTuple

from castoff.launcher.config.job import JobSpec
from castoff.launcher.config.references import filled, references
from castoff.launcher.config.site import Site
from castoff.launcher.config.workdir import as_path
from castoff.launcher.errors import InvalidInput, Problem
from castoff.launcher.planning.findings import Findings
from castoff.launcher.preflight.modules import unknown_modules
from castoff.launcher.preflight.named_files import (
    Module,
    Named,
    changes_folder,
    expands,
    loaded,
    makes_nothing,
    others,
    program,
    runs_scripts,
    sourced,
)
from castoff.launcher.preflight.shell_words import near_miss, shell_warning
from castoff.launcher.preflight.warnings import NOWHERE, is_typed, warn
from castoff.launcher.runs.directory import names_in
from castoff.launcher.runs.plan import Plan
from castoff.launcher.runs.secrets import secret_part
from castoff.launcher.schedulers.registry import queued
from castoff.launcher.typed.suggestion import did_you_mean, nearest, setting

_OF_A_HOST = ("/tmp", "/var", "/dev", "/run", "/local", "/scratch/local", "/usr", "/opt", "/etc")
"""Folders that are different on each host."""

_TOP = 2
"""Number of leading parts of a path that many hosts have, such as `/` and `scratch`. If only these parts of
the path exist on this host, nodes may have another file system there.
"""


_FOR_A_SHELL = re.compile(r"\$\{?[A-Za-z_]|(?:^|:)~(?:/|$)")
"""Variables and home folders that users write for a shell to expand."""

_PARAMETER = re.compile(r"(?:-*[A-Za-z_][\w.-]*=)?\{([A-Za-z_]\w*)\}")
"""A word that is an array's parameter, or an option with one. Other braces are JSON, or texts to format."""

_CHECKED = 1000
"""The largest number of members whose own folders are checked."""


class _Missing(NamedTuple):
    field: str
    message: str
    is_certain: bool
    """Whether the job will certainly not find the file."""


def check_present(
    spec: JobSpec,
    site: Site,
    plan: Plan,
    directory: Path,
    environ: Mapping[str, str],
    *,
    refuses: bool = True,
) -> None:
    """Check that the files that a job names exist; `directory`: the folder of submission.

    Files that may be missing are reported on standard error. If `refuses` is false, so are files that are
    certainly missing: a laptop on which a job is only shown lacks files of its cluster.

    Raises:
        InvalidInput: a file is certainly missing.
    """
    problems, warnings = missing(spec, site, plan, directory, environ)
    if not refuses:
        problems, warnings = [], [*problems, *warnings]
    for warning in warnings:
        warn(warning)
    if problems:
        raise InvalidInput(problems)


def missing(
    spec: JobSpec, site: Site, plan: Plan, directory: Path, environ: Mapping[str, str]
) -> tuple[list[Problem], list[Problem]]:
    """The named files that are certainly missing, and those that may be missing."""
    look = _Look(spec, plan, directory, environ)
    absent = look.shell_words()
    if not any(item.field == "command.0" for item in absent):
        absent += look.workdir() or look.program() or look.environment()
    absent += [*look.variables(), *look.parameters(), *look.files(), *look.webhooks()]
    problems, warnings = (Findings(plan.name, site, spec.source, spec.directives) for _ in range(2))
    for item in absent:
        (problems if item.is_certain else warnings).report(item.field, item.message)
    if not problems.problems:  # only then, since it starts a shell
        for field, message in unknown_modules([*loaded(spec.setup)], plan.setup, environ):
            warnings.report(field, message)
    return problems.problems, warnings.problems


def check_in_snapshot(plan: Plan, code: Path) -> None:
    """Check that a snapshot contains the job's program. `code`: the folder of the snapshot in which the job
    starts.

    Raises:
        InvalidInput: the program is only in the original folder.
    """
    named = program([_texts(plan, word)[0] for word in plan.command])
    if not isinstance(named, Named) or named.word.startswith("/") or ("/" not in named.word and named.runs):
        return
    if not (code / as_path(_texts(plan, plan.workdir or "")[0]) / named.word).exists():
        fix = "take it out of .gitignore, or name it: snapshot: {paths: [.]} takes what git does not ignore"
        reason = "git ignores it"
        if secret_part(named.word):
            reason = "its name looks like a secret's"
            fix = f"git add it, or name it in the job: snapshot: {{paths: [., {named.word}]}}"
        message = f"is {named.word!r}, which is not in the snapshot, because {reason}: {fix}"
        raise InvalidInput([Problem("", named.field, message)])


def _texts(plan: Plan, text: str) -> list[str]:
    """What a text with parameters is for the first members, each text once."""
    if plan.parameters is None or not references(text):
        return [text]
    members = range(min(plan.parameters.size, _CHECKED))
    return [*dict.fromkeys(filled(text, plan.parameters.values(member)) for member in members)]


class _Look:
    """Looks for the files of one job."""

    def __init__(self, spec: JobSpec, plan: Plan, directory: Path, environ: Mapping[str, str]):
        self._spec, self._plan, self._environ = spec, plan, environ
        self._directory = directory
        self._folder = directory / as_path(_texts(plan, plan.workdir or "")[0])
        self._moves = changes_folder(plan.setup)
        self._is_as_now = makes_nothing(plan.setup) and not plan.after
        """Whether the job will see the same files as this host now."""
        self._runs_scripts = runs_scripts(plan.setup)
        """Whether setup sources scripts, which may create files or change the folder."""

    def workdir(self) -> list[_Missing]:
        """A missing folder in which the ranks should start."""
        for folder in filter(None, _texts(self._plan, self._plan.workdir or "")):
            # here ~ is part of a name
            plain = folder if folder.startswith("./~") else folder.removeprefix("./")
            if missing := self._file(Named("workdir", plain), self._directory):
                return missing
        return []

    def webhooks(self) -> list[_Missing]:
        """Webhooks that are not on this host; another host may have them, and send the messages."""
        if not (hooks := self._plan.notify.hooks if self._plan.notify else []):
            return []
        from castoff.launcher.runs.notices import webhooks_folder  # late: few jobs send messages

        known = names_in(webhooks_folder(self._environ))
        return [
            _Missing(
                "notify.to",
                f"is {name!r}, which is not a webhook on this host{did_you_mean(name, known)}; "
                f"`castoff notify add {name}` adds it",
                is_certain=False,
            )
            for name in hooks
            if name not in known
        ]

    def program(self) -> list[_Missing]:
        """Problems with the program."""
        if self._plan.function:
            return []
        named = program([_texts(self._plan, word)[0] for word in self._plan.command])
        if isinstance(named, Module):
            return self._module(named)
        if named is None:
            return []
        if named.runs and "/" not in named.word and not expands(named.word):
            return self._on_path(named)
        return self._file(named, self._folder)

    def environment(self) -> list[_Missing]:
        """An environment that is active in this terminal but not in the job."""
        folder = self._environ.get("VIRTUAL_ENV") or self._environ.get("CONDA_PREFIX")
        inherit = self._plan.inherit
        sets_path = "PATH" in {*self._plan.env, *self._plan.env_from}
        inherits_path = inherit == "all" or "PATH" in inherit
        resets_path = inherits_path and _is_login_shell(self._plan)
        of_its_own = self._plan.setup or self._plan.python or self._plan.container or self._plan.function
        is_everywhere = self._environ.get("CONDA_DEFAULT_ENV") == "base"  # most login shells activate it
        if not folder or sets_path or (inherits_path and not resets_path) or of_its_own or is_everywhere:
            return []
        if "/" in self._plan.command[0] or which(self._plan.command[0], path=f"{folder}/bin") is None:
            return []
        fix = f"give --python {folder}/bin/python, or activate it in setup"
        absent = "is not in the job"
        if resets_path:
            fix = f"set shell: {self._plan.shell.split()[0]}, or {fix}"
            absent = (
                f"may not be in the job, whose login shell ({self._plan.shell}) may reset PATH after inherit"
            )
        message = f"is not set, and {folder}, which is active in this terminal, {absent}: {fix}"
        return [_Missing("python", message, False)]

    def variables(self) -> list[_Missing]:
        """Problems with values of `env` that seem to be written for a shell to expand."""
        return [
            _Missing(
                f"env.{name}", f"is {value!r}, which is passed on as written: {_in_setup(name, value)}", False
            )
            for name, value in self._spec.env.items()
            if value is not None and _FOR_A_SHELL.search(value)
        ]

    def parameters(self) -> list[_Missing]:
        """Problems with words that are a parameter, as `{lr}`, of a job that has none."""
        array = self._spec.array
        if array is not None and (array.parameters is not None or array.commands is not None):
            return []
        typed = is_typed(self._spec)
        return [
            _Missing(
                f"command.{number}",
                f"is {word!r}, which is passed on as written, since the job has no parameters; "
                f"{_values_of(found[1], typed=typed)} makes a member of each value",
                False,
            )
            for number, word in enumerate(self._spec.command)
            if (found := _PARAMETER.fullmatch(word))
        ]

    def files(self) -> list[_Missing]:
        """Problems with other files that the job names and that do not exist."""
        named = [*sourced(self._spec.setup), *others(self._spec)]
        return [missing for file in named for missing in self._file(file, self._directory)]

    def _on_path(self, named: Named) -> list[_Missing]:
        """A program named without a folder. The PATH of this process shows little about the job's PATH."""
        path = self._environ.get("PATH", os.defpath)
        sets_path = "PATH" in self._plan.env or any("PATH" in line for line in self._plan.setup)
        if which(named.word, path=path):
            return []
        if sets_path or self._moves or not _is_file(self._folder / named.word):
            return self._nowhere(named, sets_path)
        starts = "python " if named.word.endswith(".py") else "./"
        is_there = f"is {named.word!r}, which is looked up on PATH, not in {self._folder}"
        return [
            _Missing(named.field, f"{is_there}: write {starts}{named.word}", self._plan.container is None)
        ]

    def _nowhere(self, named: Named, sets_path: bool) -> list[_Missing]:
        """A program that this host does not find. Other hosts, setup and containers may have it."""
        plan = self._plan
        of_its_own = sets_path or plan.setup or plan.python or plan.container or plan.stage
        near = near_miss(named.word)
        if near is None and (of_its_own or queued(plan.scheduler) is not None):
            return []
        hint = f"; did you mean {near}?" if near else "; add its folder to PATH, or write its whole path"
        return [_Missing(named.field, NOWHERE.format(named.word, hint), False)]

    def shell_words(self) -> list[_Missing]:
        """A word of the command that only a shell understands."""
        found = shell_warning(self._plan.command, typed=is_typed(self._spec))
        return [_Missing(f"command.{found[0]}", found[1], False)] if found else []

    def _module(self, module: Module) -> list[_Missing]:
        """A module in a package in the job's folder, in which Python looks first."""
        if self._moves or "PYTHONPATH" in self._plan.env or expands(module.name):
            return []
        top, *rest = module.name.split(".")
        package = self._folder / top
        if not _is_file(package / "__init__.py"):
            return self._module_elsewhere(module, top)
        for name in rest:
            modules = [entry.name.partition(".")[0] for entry in _entries(package) if _imports(entry)]
            if modules and name not in modules:  # empty if the folder cannot be listed
                hint = did_you_mean(name, modules)
                message = f"is {module.name!r}, but {package} has no module {name}{hint}"
                return [_Missing(module.field, message, self._is_as_now and not self._runs_scripts)]
            package /= name
        return []

    def _module_elsewhere(self, module: Module, top: str) -> list[_Missing]:
        """A module that may be installed in the job's environment, unless the folder has a similar name."""
        modules = [
            entry.stem
            for entry in _entries(self._folder)
            if entry.suffix == ".py" or _is_file(entry / "__init__.py")
        ]
        near = nearest(top, modules)
        if top in modules or (self._folder / top).is_dir() or near is None:
            return []
        message = f"is {module.name!r}, and {self._folder} has no such module; did you mean {near}?"
        return [_Missing(module.field, message, False)]

    def _file(self, named: Named, folder: Path) -> list[_Missing]:
        """A file named by its path."""
        word = named.word
        if expands(word) and named.field.startswith("command"):
            return self._unexpanded(named)
        path = folder / _home(word, self._environ)
        try:
            is_there = path.exists()
        except OSError:  # not known
            return []
        relative = not word.startswith(("/", "~"))
        certain = self._is_as_now if relative else self._is_everywhere(path)
        if self._runs_scripts and relative and named.field.startswith("command"):
            certain = False
        if is_there:
            return self._unusable(named, path, certain)
        if relative and self._moves:
            return []
        where = f"not in {folder}" if relative else "not there"
        beside = self._beside_job_file(word) if relative and folder == self._folder else ""
        verb = "sources" if named.field.startswith("setup") else "is"
        message = f"{verb} {word!r}, which is {where}{beside}{_near(word, path, folder)}"
        inside = self._plan.container is not None and named.field.startswith("command") and not relative
        return [_Missing(named.field, message, certain and not inside)]

    def _is_everywhere(self, path: Path) -> bool:
        """Whether a path is on a file system that all hosts share, as far as this host can tell."""
        home = self._environ.get("HOME")
        if queued(self._plan.scheduler) is None or (home and path.is_relative_to(home)):
            return True
        existing = next(folder for folder in path.parents if folder.is_dir())
        return len(existing.parts) > _TOP and not any(map(path.is_relative_to, _OF_A_HOST))

    def _unexpanded(self, named: Named) -> list[_Missing]:
        """A problem with a word that only a shell would expand."""
        if (self._folder / named.word).exists():
            return []
        home = _home(named.word, self._environ)
        expanded = os.path.expandvars(home)
        fix = f"write {expanded}" if "$" not in expanded and expanded != named.word else "write the path"
        message = f"is {named.word!r}, but no shell reads the command: {fix}, or command: [bash, -c, …]"
        return [_Missing(named.field, message, True)]

    def _unusable(self, named: Named, path: Path, certain: bool) -> list[_Missing]:
        """A problem with a file that exists but cannot be executed."""
        if not named.runs or (path.is_file() and os.access(path, os.X_OK)):
            return []
        if path.is_dir():
            return [_Missing(named.field, f"is {named.word!r}, which is a folder", certain)]
        starts = "python" if path.suffix == ".py" else "bash"
        fix = f"chmod +x {named.word}, or write {starts} before it"
        return [_Missing(named.field, f"is {named.word!r}, which is not executable: {fix}", certain)]

    def _beside_job_file(self, word: str) -> str:
        """A hint if the file is in the job file's folder."""
        source = self._spec.source
        origin = (
            Path(source.origin).resolve().parent
            if source and source.origin.endswith((".yaml", ".yml"))
            else None
        )
        if origin is None or origin == self._folder or not (origin / word).exists():
            return ""
        return f", but in the job file's folder: submit from {origin}, or set workdir: {origin}"


def _values_of(parameter: str, *, typed: bool) -> str:
    """What gives a parameter values: a line of a job file, or, if the program was `typed`, a flag."""
    field, values = f"array.parameters.{parameter}", "[1e-3, 1e-4]"
    return f"--set '{field}={values}'" if typed else setting(field, values)


def _in_setup(name: str, value: str) -> str:
    """How to have a shell expand a value."""
    quoted = value if value.startswith("~") else f'"{value}"'
    return (
        f"castoff expands no variables; to have them expanded in the job: setup: ['export {name}={quoted}']"
    )


def _is_login_shell(plan: Plan) -> bool:
    """Whether the job's script starts in a login shell, whose profiles may change PATH."""
    return any(re.fullmatch(r"--login|-[a-zA-Z]*l[a-zA-Z]*", word) for word in plan.shell.split()[1:])


def _near(word: str, path: Path, folder: Path) -> str:
    """A hint with a name similar to the first missing part of the path."""
    missing = path
    while not missing.parent.is_dir() and missing.parent != missing:
        missing = missing.parent
    near = nearest(missing.name, [entry.name for entry in _entries(missing.parent)])
    if near is None:
        return ""
    suggestion = missing.parent / near / path.relative_to(missing)
    if not suggestion.exists():
        return ""
    relative = not word.startswith(("/", "~")) and suggestion.is_relative_to(folder)
    return f"; did you mean {suggestion.relative_to(folder) if relative else suggestion}?"


def _is_file(path: Path) -> bool:
    """Whether a file exists, as far as this user may see."""
    try:
        return path.is_file()
    except OSError:
        return False


def _imports(path: Path) -> bool:
    """Whether Python can import a path: a module, an extension module (NAME.cpython-….so), or a package."""
    return path.suffix in (".py", ".pyc", ".so") or path.is_dir()


def _entries(folder: Path) -> list[Path]:
    try:
        return [folder / entry.name for entry in os.scandir(folder)][:10_000]
    except OSError:
        return []


def _home(word: str, environ: Mapping[str, str]) -> str:
    """A path with the user's own `~` expanded."""
    home = environ.get("HOME")
    return f"{home}{word[1:]}" if home and re.match(r"~(/|$)", word) else word
