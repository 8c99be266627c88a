"""render(plan) -> the job script, by templates/. Pure, except that it reads those files.

Only the plan decides a script's bytes: the head comes from `<scheduler>.sh.j2`, and below it is the
machinery, whose parts are shell files. A user's template folder replaces single files: `blocks/NAME.sh` there
replaces that part of the machinery, and a head may extend castoff's own. docs/reference/templates.md is the
contract.
"""

from __future__ import annotations

import functools
import itertools
import os
import re
import textwrap
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import Any

import msgspec

from castoff.launcher.config import earlier_runs
from castoff.launcher.config.site import Site
from castoff.launcher.errors import CastoffError, InvalidInput, Problem, printable
from castoff.launcher.launchers.commands import LAUNCHERS
from castoff.launcher.planning import heads
from castoff.launcher.planning.drivers import delimiter
from castoff.launcher.planning.loading import for_program_alone
from castoff.launcher.planning.machinery import Machinery, machinery
from castoff.launcher.planning.parameters import for_torchrun, script_rows, with_marks
from castoff.launcher.planning.shares import share_words
from castoff.launcher.runs.plan import Plan
from castoff.launcher.schedulers.base import Scheduler
from castoff.launcher.schedulers.registry import NAMES, scheduler_of
from castoff.launcher.text.quoting import comment, interpreter, shell_word, yaml_word
from castoff.launcher.trust.decision import check

_WIDTH = 96

_FILLED_IN = re.compile(r"(?<=\{)(?=\{)")
"""Matches the places at which a word is split, so that no launcher takes {{…}} in the word for a
placeholder.
"""


def render(plan: Plan) -> str:
    """Return the script of a plan, exactly as it is submitted.

    Raises:
        InvalidInput: a script cannot hold a value.
        CastoffError: a template of the user's fails, and the text names its file and line; or others could
            have written it.
    """
    return rendered(plan, scheduler_of(plan.scheduler)).text


class Script(msgspec.Struct, frozen=True):
    """A plan's script, and which parts of it the user has replaced."""

    text: str
    theirs: Mapping[str, str]
    """The parts that the user's template folder replaces, by part name."""


def rendered(plan: Plan, scheduler: Scheduler) -> Script:
    """Like `render`, for callers that have the plan's scheduler; raises the same errors."""
    below, theirs = machinery(plan, scheduler), _own_parts(plan)
    text = below.text(lambda name: theirs[name] if name in theirs else _own_part(name))
    script = _head(plan, scheduler, below).rstrip("\n") + "\n" + below.marker(theirs) + text
    if why := scheduler.refused(script):
        raise InvalidInput([Problem(f"{plan.name} on {plan.site}", "", why)])
    return Script(script, theirs)


def _head(plan: Plan, scheduler: Scheduler, below: Machinery) -> str:
    given = _variables(plan, below)
    try:
        if plan.templates is None and (compiled := _compiled(plan.scheduler)):
            return compiled(filters_for(scheduler), **given)
        from castoff.launcher.planning import templates  # late: it loads Jinja

        filters = filters_for(*map(scheduler_of, NAMES))
        found = templates.environment(template_folder(), plan.templates, filters)
        return templates.head(plan.scheduler, given, found)
    except UnicodeDecodeError as error:
        raise CastoffError(f"{plan.templates}: a template is not UTF-8: {error}") from error
    except ValueError as error:
        raise InvalidInput([Problem(f"{plan.name} on {plan.site}", "", str(error))]) from error


def _compiled(scheduler: str) -> Callable[..., str] | None:
    """Return the function that renders castoff's own head; None if the templates have been edited, as in a
    checkout.
    """
    folder, names = template_folder(), (heads.HEAD, f"{scheduler}.sh.j2")
    if any(zlib.crc32((folder / name).read_bytes()) != heads.SOURCES.get(name) for name in names):
        return None
    found: Callable[..., str] = getattr(heads, scheduler)
    return found


@functools.cache
def _own_part(name: str) -> str:
    """Return the text of one of castoff's own files of the machinery."""
    return _part(template_folder() / "machinery" / f"{name}.sh")


def _own_parts(plan: Plan) -> dict[str, str]:
    """Return the parts in the user's template folder, by name.

    Raises:
        CastoffError: castoff has no such part; or a part cannot be read, or others could have written it.
    """
    if plan.templates is None:
        return {}
    found = {}
    known = {name for name, _ in _parts_in(template_folder() / "machinery")}
    for name, path in _parts_in(Path(plan.templates) / "blocks"):
        if name not in known:
            blocks, fix = printable(f"{plan.templates}/blocks"), "docs/reference/templates.md has all of them"
            raise CastoffError(f"{blocks}: castoff's scripts have no part {name}; {fix}")
        check(path)
        found[name] = _part(path)
    return found


def _parts_in(folder: Path) -> Iterator[tuple[str, Path]]:
    """Yield the shell files in a folder and its subfolders, each with its name without the ending."""
    for base, folders, names in os.walk(folder, followlinks=True):
        for path in (Path(base, name) for name in sorted([*folders, *names]) if not name.startswith(".")):
            if path.suffix in (".sh", ".j2"):  # a template in that folder replaces nothing, and is refused
                yield path.relative_to(folder).as_posix().removesuffix(".sh"), path


def _part(path: Path) -> str:
    try:
        if not path.is_file():
            raise OSError("it is not a file")  # reading a pipe would wait
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise CastoffError(f"{printable(str(path))}: cannot be read as UTF-8: {error}") from error
    return text.removesuffix("\n") + "\n"


def example_job(site: Site) -> str:
    """Return a job file for a site, with comments, as a starting point.

    Raises:
        CastoffError: the profile's examples do not form a valid job file.
    """
    from castoff.launcher.planning import templates  # late: it loads Jinja

    return templates.example_job(site, templates.environment(template_folder(), None, filters_for()))


def template_folder() -> Path:
    """Return the folder of castoff's own templates."""
    return Path(__file__).parents[2] / "templates"


def _variables(plan: Plan, below: Machinery) -> dict[str, Any]:
    """Return the variables for templates; docs/reference/templates.md explains each."""
    rows = [*script_rows(plan.parameters)] if plan.parameters else []
    plan = with_marks(plan)
    facts = {
        "plan": plan,
        "rows": rows,
        "features": below.features,
        "program": _program(plan),
        "program_alone": for_program_alone(plan.env, torchrun=plan.torchrun),
        "fullest": max(ranks for ranks, _ in plan.layout),
        "full_nodes": plan.layout[0][1],
        "groups": [f"{nodes}x{ranks}" for ranks, nodes in plan.layout],
    }
    if (container := plan.container) is None:
        return {**facts, "image": None, "kept": []}
    folder = '"$CASTOFF_STAGE_DIR"/' if container.staged else ""
    # The job's variables, which override those of an image, in addition to the variables that place the
    # ranks.
    names = [plan.device_variable, "OMP_NUM_THREADS", *plan.variables, *plan.env_from]
    apart = {*container.env, *for_program_alone(plan.env, torchrun=plan.torchrun)}
    kept = [name for name in dict.fromkeys(names) if name and name not in apart]
    return {**facts, "image": folder + shell_word(container.image), "kept": kept}


def _program(plan: Plan) -> str:
    """Return the program as shell words, preceded by programs that the launcher must start first."""
    words = _one_program(plan)
    if plan.torchrun:  # torchrun would replace $$ by $, and ${local_rank} by the local rank
        words = [for_torchrun(word) for word in words]
    program = _submitit_program(plan) if plan.function else _words(words, plan.refers_to)
    if plan.torchrun and LAUNCHERS[plan.launcher].here:  # otherwise each node's shim starts torchrun
        agent = ["python", "-m", "torch.distributed.run", "--standalone"]
        agent += [f"--nproc-per-node={plan.ranks}", "--no-python"]
        shim = '/bin/sh -c "$castoff_read" "$CASTOFF_ATTEMPT_DIR/torchrun_rank.sh"'
        return " \\\n    ".join((_words(agent), shim, program))
    return program


def _one_program(plan: Plan) -> list[str]:
    """Return the command, in words that the launcher passes on unchanged.

    srun and every mpiexec would take a lone : for a separator before another program.
    """
    launcher = LAUNCHERS[plan.launcher]
    pieces = [_FILLED_IN.split(word) if launcher.fills_in else [word] for word in plan.command]
    if launcher.here or plan.driver or not (":" in plan.command or any(len(some) > 1 for some in pieces)):
        return plan.command
    places = itertools.count(1)  # separate words: a single word with all of them might be too long
    words = [
        ":" if some == [":"] else f'"{"".join(f"${{{next(places)}}}" for _ in some)}"' for some in pieces
    ]
    others = [piece for some in pieces if some != [":"] for piece in some]
    return ["sh", "-c", f"exec {' '.join(words)}", "sh", *others]


def _submitit_program(plan: Plan) -> str:
    python = shell_word(plan.python) if plan.python else '"${CASTOFF_PYTHON:-python}"'
    if plan.python is None and (plan.container or any(item.activate for item in plan.stage)):
        python = "python"  # the rank's own Python; CASTOFF_PYTHON is the submitter's
    return f'{python} -u -m submitit.core._submit "$CASTOFF_RUN_DIR"'


def _words(words: list[str], refers_to: Sequence[str] = ()) -> str:
    """Return shell words, on several lines if there are many; a flag stays with its value."""
    units: list[str] = []
    for before, word in itertools.pairwise(["", *words]):
        if before.startswith("-") and "=" not in before and not word.startswith("-"):
            units[-1] += f" {_word(word, refers_to)}"
        else:
            units.append(_word(word, refers_to))
    lines = units[:1]
    for unit in units[1:]:
        if len(lines[-1]) + 1 + len(unit) <= _WIDTH:
            lines[-1] += f" {unit}"
        else:
            lines.append(unit)
    return " \\\n  ".join(lines)


def _wrapped(names: Sequence[object]) -> str:
    """Return plain words as shell words on several lines."""
    lines = textwrap.wrap(" ".join(map(str, names)), _WIDTH, subsequent_indent="  ", break_long_words=False)
    return " \\\n".join(lines)


def _word(text: str, refers_to: Sequence[str]) -> str:
    """Return a text as a shell word, with the run directories of the runs to which it refers."""
    word = ""
    for literal, name in earlier_runs.split(text, refers_to):
        word += shell_word(literal) if literal else ""
        word += f'"$CASTOFF_RUN_DIR"/after/{name}' if name else ""
    return word or shell_word("")


def _line(line: str, refers_to: Sequence[str]) -> str:
    """Return a shell line, with variables in place of references, which the line may put in quotes."""
    parts = earlier_runs.split(line, refers_to)
    return "".join(
        literal + (f"${{CASTOFF_RUN_DIR}}/after/{name}" if name else "") for literal, name in parts
    )


def _folder_word(folder: str, refers_to: Sequence[str]) -> str:
    """Return a folder as a shell word, in which a leading ~ still means the home directory."""
    home, slash, below = folder.partition("/")
    if home == "~":
        return f"~{slash}{_word(below, refers_to) if below else ''}"
    first, name = next(earlier_runs.split(folder, refers_to))
    is_reference = name is not None and first == "./"  # the run directory's path is absolute
    return _word(folder[2:] if is_reference else folder, refers_to)


def _layout_words(plan: Plan) -> str:
    if plan.script is not None:
        return "a batch script"
    if plan.driver:
        return f"a driver on the first of {plan.nodes} nodes" if plan.nodes > 1 else "a driver on 1 node"
    groups = [
        f"{count} on 1 node" if times == 1 else f"{count} on each of {times} nodes"
        for count, times in plan.layout
    ]
    ranks = "1 rank" if plan.ranks == 1 else f"{plan.ranks} ranks, " + " and ".join(groups)
    return ranks + (", started by torchrun" if plan.torchrun else "")


FILTERS: dict[str, Callable[..., Any]] = {
    "sh": shell_word,
    "words": _words,
    "comment": comment,
    "interpreter": interpreter,
    "yaml": yaml_word,
    "folder": lambda path: str(PurePosixPath(path).parent),
    "wrapped": _wrapped,
    "layout_words": _layout_words,
    "share_words": share_words,
    "delimiter": delimiter,
    "folder_word": _folder_word,
    "word": _word,
    "line": _line,
}
"""The filters for templates; docs/reference/templates.md explains each."""


def filters_for(*schedulers: Scheduler) -> dict[str, Callable[..., Any]]:
    """Return `FILTERS`, and the filters that write the directives of these schedulers."""
    for scheduler in schedulers:
        if scheduler.dialect is not None:
            FILTERS.setdefault(f"{scheduler.name}_directive", scheduler.dialect.line)
    return FILTERS
