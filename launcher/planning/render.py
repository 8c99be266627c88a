"""render(plan) -> the job script, through templates/. Pure but for those.

A script's bytes follow from the Plan alone: the head from `<scheduler>.sh.j2`, and below it the machinery,
whose parts are shell. A user's template folder wins file by file: `blocks/NAME.sh` there replaces that part
of the machinery, and a head may extend castoff's own. docs/templates.md is the contract.
"""

from __future__ import annotations

import itertools
import os
import re
import textwrap
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path, PurePosixPath
from typing import Any

import jinja2

from launcher.config.document import Document
from launcher.config.job import JobSpec
from launcher.config.site import Site
from launcher.errors import CastoffError, InvalidInput, Problem, printable
from launcher.launchers.commands import LAUNCHERS
from launcher.planning.machinery import STALE, Machinery, machinery, stale
from launcher.quoting import comment, interpreter, shell_word, yaml_word
from launcher.runs.plan import Plan
from launcher.schedulers.registry import scheduler_of, with_directives
from launcher.trust.decision import check

_WIDTH = 96

_FILLED_IN = re.compile(r"(?<=\{)(?=\{)")
"""Where a word is cut so that no launcher takes {{…}} in it for something to fill in."""

# What an expression or a file of a user's template may raise, beside Jinja's own errors.
_TEMPLATE_FAULTS = (TypeError, AttributeError, LookupError, ArithmeticError, OSError, RecursionError)


def render(plan: Plan) -> str:
    """The script of a plan, byte for byte what is submitted.

    Raises:
        InvalidInput: a script cannot hold a value.
        CastoffError: a template of the user's fails, and the text names its file and line; or others could
            have written it.
    """
    texts, own = _texts(plan)
    below = machinery(plan, texts)
    script = _head(plan, below).rstrip("\n") + "\n" + below.marker(own) + below.text(texts)
    if why := scheduler_of(plan.scheduler).refused(script):
        raise InvalidInput([Problem(f"{plan.name} on {plan.site}", "", why)])
    return script


def _head(plan: Plan, below: Machinery) -> str:
    environment = _environment(plan.templates)
    try:
        return environment.get_template(f"{plan.scheduler}.sh.j2").render(_variables(plan, below))
    except jinja2.TemplateSyntaxError as error:
        raise CastoffError(f"{error.filename}:{error.lineno}: {error.message}") from error
    except UnicodeDecodeError as error:
        raise CastoffError(f"{plan.templates}: a template is not UTF-8: {error}") from error
    except ValueError as error:
        raise InvalidInput([Problem(f"{plan.name} on {plan.site}", "", str(error))]) from error
    except (jinja2.TemplateError, *_TEMPLATE_FAULTS) as error:
        raise CastoffError(f"{_place(error)}: {_reason(error)}") from error


def _texts(plan: Plan) -> tuple[dict[str, str], set[str]]:
    """The machinery's parts by name, and which of them the user has replaced."""
    own = {name: _part(path) for name, path in _parts_in(template_folder() / "machinery")}
    own[STALE] = stale()
    theirs = own_parts(plan)
    for name in sorted(theirs.keys() - own.keys()):
        blocks, fix = printable(f"{plan.templates}/blocks"), "docs/templates.md has all of them"
        raise CastoffError(f"{blocks}: castoff's scripts have no part {name}; {fix}")
    return {**own, **theirs}, set(theirs)


def own_parts(plan: Plan) -> dict[str, str]:
    """The parts that the user's template folder puts in place of castoff's, by name.

    Raises:
        CastoffError: one cannot be read, or others could have written it.
    """
    found = {}
    for name, path in [] if plan.templates is None else _parts_in(Path(plan.templates) / "blocks"):
        check(path)
        found[name] = _part(path)
    return found


def _parts_in(folder: Path) -> Iterator[tuple[str, Path]]:
    """The shell files of a folder and of those in it, each with its name without the ending."""
    for base, folders, names in os.walk(folder, followlinks=True):
        for path in (Path(base, name) for name in sorted([*folders, *names]) if not name.startswith(".")):
            if path.suffix in (".sh", ".j2"):  # a template there replaces nothing, and is refused
                yield path.relative_to(folder).as_posix().removesuffix(".sh"), path


def _part(path: Path) -> str:
    try:
        if not path.is_file():
            raise OSError("it is not a file")  # and a pipe would be waited for
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise CastoffError(f"{printable(str(path))}: cannot be read as UTF-8: {error}") from error
    return text.removesuffix("\n") + "\n"


class _OwnFolder(jinja2.FileSystemLoader):
    """The user's templates, which become part of scripts."""

    def get_source(
        self, environment: jinja2.Environment, template: str
    ) -> tuple[str, str, Callable[[], bool]]:
        """As jinja2 has it; a CastoffError where others could have written the file."""
        source, path, is_current = super().get_source(environment, template)
        check(Path(path))
        return source, path, is_current


def example_job(site: Site) -> str:
    """A commented job file for a site, to start from.

    Raises:
        CastoffError: the profile's examples make no job file.
    """
    text = _environment(None).get_template("job.yaml.j2").render(site=site)
    try:
        JobSpec.of(Document.parse(text, "job.yaml").data)
    except InvalidInput as error:
        fix = "mend the examples under `required:` in its profile"
        raise CastoffError(f"site {printable(site.name)}: {fix}:\n{error}") from error
    return text


def template_folder() -> Path:
    """Where castoff's own templates are: inside the installed package, else beside it in a checkout."""
    package = Path(__file__).parents[1]
    inside = package / "templates"
    return inside if inside.is_dir() else package.parent / "templates"


def _environment(user_folder: str | None) -> jinja2.Environment:
    own = jinja2.FileSystemLoader(template_folder())
    loaders: list[jinja2.BaseLoader] = [own, jinja2.PrefixLoader({"castoff": own})]
    if user_folder is not None:
        if not Path(user_folder).is_dir():
            raise CastoffError(f"templates: folder {user_folder} does not exist")
        loaders.insert(0, _OwnFolder(user_folder))
    environment = jinja2.Environment(
        loader=jinja2.ChoiceLoader(loaders),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        autoescape=False,  # shell, not HTML: every value passes a quoting filter
    )
    environment.filters.update(FILTERS)
    return environment


def _place(error: BaseException) -> str:
    """The innermost template line that an error came from."""
    frames = [(frame.f_code.co_filename, line) for frame, line in traceback.walk_tb(error.__traceback__)]
    places = [f"{file}:{line}" for file, line in frames if file.endswith(".j2")]
    return places[-1] if places else "a template"


def _reason(error: Exception) -> str:
    if isinstance(error, jinja2.TemplateNotFound):
        return f"template {error.name} does not exist"
    if isinstance(error, RecursionError):
        return "it extends itself; castoff's template is castoff/…"
    return str(error)


def _variables(plan: Plan, below: Machinery) -> dict[str, Any]:
    """What templates are given; docs/templates.md explains each."""
    facts = {
        "plan": plan,
        "parts": below.names,
        "program": _program(plan),
        "fullest": plan.layout[0][0],
        "full_nodes": plan.layout[0][1],
    }
    if (container := plan.container) is None:
        return {**facts, "image": None, "kept": []}
    folder = '"$CASTOFF_STAGE_DIR"/' if container.staged else ""
    # Variables of the job, whatever an image says, beside those that place the ranks.
    names = [plan.device_variable, "OMP_NUM_THREADS", *plan.env, *plan.env_from]
    kept = [name for name in dict.fromkeys(names) if name and name not in container.env]
    return {**facts, "image": folder + shell_word(container.image), "kept": kept}


def _program(plan: Plan) -> str:
    """The program as shell words, with what the launcher must start in front of it."""
    words = _one_program(plan)
    if plan.torchrun:  # which would take $$ for $ and put the local rank in place of ${local_rank}
        words = [word.replace("$", "$$") for word in words]
    program = _submitit_program(plan) if plan.function else _words(words)
    if plan.torchrun and LAUNCHERS[plan.launcher].here:  # elsewhere each node's shim starts torchrun
        agent = ["python", "-m", "torch.distributed.run", "--standalone"]
        agent += [f"--nproc-per-node={plan.ranks}", "--no-python"]
        shim = '/bin/sh -c "$castoff_read" "$CASTOFF_ATTEMPT_DIR/torchrun_rank.sh"'
        return " \\\n    ".join((_words(agent), shim, program))
    return program


def _one_program(plan: Plan) -> list[str]:
    """The command, in words that its launcher hands on as they are.

    srun and every mpiexec would take a lone : for the start of another program.
    """
    launcher = LAUNCHERS[plan.launcher]
    pieces = [_FILLED_IN.split(word) if launcher.fills_in else [word] for word in plan.command]
    if launcher.here or not (":" in plan.command or any(len(some) > 1 for some in pieces)):
        return plan.command
    places = itertools.count(1)  # each word its own: together they might be longer than one may be
    words = [
        ":" if some == [":"] else f'"{"".join(f"${{{next(places)}}}" for _ in some)}"' for some in pieces
    ]
    others = [piece for some in pieces if some != [":"] for piece in some]
    return ["sh", "-c", f"exec {' '.join(words)}", "sh", *others]


def _submitit_program(plan: Plan) -> str:
    python = shell_word(plan.python) if plan.python else '"${CASTOFF_PYTHON:-python}"'
    if plan.python is None and (plan.container or any(item.activate for item in plan.stage)):
        python = "python"  # theirs; CASTOFF_PYTHON is the submitter's
    return f'{python} -u -m submitit.core._submit "$CASTOFF_RUN_DIR"'


def _words(words: list[str]) -> str:
    """Shell words, over several lines where they are many; a flag stays with its value."""
    units: list[str] = []
    for before, word in itertools.pairwise(["", *words]):
        if before.startswith("-") and "=" not in before and not word.startswith("-"):
            units[-1] += f" {shell_word(word)}"
        else:
            units.append(shell_word(word))
    lines = units[:1]
    for unit in units[1:]:
        if len(lines[-1]) + 1 + len(unit) <= _WIDTH:
            lines[-1] += f" {unit}"
        else:
            lines.append(unit)
    return " \\\n  ".join(lines)


def _wrapped(names: list[str]) -> str:
    """Plain shell words over several lines."""
    lines = textwrap.wrap(" ".join(names), _WIDTH, subsequent_indent="  ", break_long_words=False)
    return " \\\n".join(lines)


def _layout_words(plan: Plan) -> str:
    groups = [f"{count} on each of {times} nodes" for count, times in plan.layout if times > 1]
    groups += [f"{count} on 1 node" for count, times in plan.layout if times == 1]
    ranks = "1 rank" if plan.ranks == 1 else f"{plan.ranks} ranks, " + " and ".join(groups)
    return ranks + (", started by torchrun" if plan.torchrun else "")


FILTERS: dict[str, Callable[..., Any]] = {
    "sh": shell_word,
    "words": _words,
    **{f"{one.name}_directive": one.dialect.line for one in with_directives() if one.dialect},
    "comment": comment,
    "interpreter": interpreter,
    "yaml": yaml_word,
    "folder": lambda path: str(PurePosixPath(path).parent),
    "wrapped": _wrapped,
    "layout_words": _layout_words,
}
"""What templates may put values through; docs/templates.md explains each."""
