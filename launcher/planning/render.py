"""render(plan) -> the job script, through templates/. Pure but for templates and their cache.

A script's bytes follow from the Plan alone. A user's template folder wins block by block; there,
`{% include "castoff/blocks/setup.j2" %}` still reaches castoff's own. docs/templates.md is the
contract: blocks, variables and filters.
"""

from __future__ import annotations

import itertools
import os
import textwrap
import traceback
from collections.abc import Callable
from pathlib import Path, PurePosixPath
from typing import Any

import jinja2

from launcher.config.document import Document
from launcher.config.job import JobSpec
from launcher.config.site import Site
from launcher.errors import CastoffError, InvalidInput, Problem, printable
from launcher.planning.containers import RUNTIMES
from launcher.planning.template_cache import template_cache
from launcher.quoting import comment, interpreter, pbs_directive, shell_word, slurm_directive, yaml_word
from launcher.ranks import STALE_VARIABLES
from launcher.runs.plan import ContainerPlan, Plan
from launcher.starters.registry import STARTERS

_WIDTH = 96

# What an expression or a file of a user's template may raise, beside Jinja's own errors.
_TEMPLATE_FAULTS = (TypeError, AttributeError, LookupError, ArithmeticError, OSError, RecursionError)


def render(plan: Plan) -> str:
    """The script of a plan, byte for byte what is submitted.

    Raises:
        InvalidInput: a value cannot stand in a script.
        CastoffError: a template of the user's fails; the text names its file and line.
    """
    environment = _environment(plan.templates)
    try:
        return environment.get_template(f"{plan.scheduler}.sh.j2").render(_variables(plan))
    except jinja2.TemplateSyntaxError as error:
        raise CastoffError(f"{error.filename}:{error.lineno}: {error.message}") from error
    except UnicodeDecodeError as error:
        raise CastoffError(f"{plan.templates}: a template is not UTF-8: {error}") from error
    except ValueError as error:
        raise InvalidInput([Problem(f"{plan.name} on {plan.site}", "", str(error))]) from error
    except (jinja2.TemplateError, *_TEMPLATE_FAULTS) as error:
        raise CastoffError(f"{_place(error)}: {_reason(error)}") from error


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
            raise CastoffError(f"templates: there is no folder {user_folder}")
        loaders.insert(0, jinja2.FileSystemLoader(user_folder))
    environment = jinja2.Environment(
        loader=jinja2.ChoiceLoader(loaders),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        bytecode_cache=template_cache(os.environ),
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
        return f"there is no template {error.name}"
    if isinstance(error, RecursionError):
        return "it includes itself; castoff's own is castoff/blocks/…"
    return str(error)


def _variables(plan: Plan) -> dict[str, Any]:
    """What templates are given; docs/templates.md explains each."""
    starter = STARTERS[plan.starter]
    layout = [(1, plan.nodes)] if plan.torchrun else plan.layout
    # On TERM Open MPI kills its ranks a second later and srun (22.05.8) at once; both hand USR1 on.
    ends_by_usr1 = plan.starter in ("openmpi", "srun")
    return {
        "plan": plan,
        "stale_variables": _stale(plan),
        "program": _program(plan),
        "device_masks": _device_masks(plan),
        "processes": plan.nodes if plan.torchrun else plan.ranks,
        "node_rank": _node_rank(layout),
        "local_world_size": _local_world_size(plan),
        "local_size_variable": starter.local_size,
        "hostfile": _hostfile(plan, layout),
        "hostfile_flag": starter.hostfile_flag,
        "goes_on": starter.goes_on,
        "terminate_signal": "USR1" if ends_by_usr1 else "TERM",
        "first_log": "rank-00000.log" if plan.per_rank_logs else "node-00000.log",
        **_container_variables(plan),
        "staged_path": _staged_path(plan),
        "stage_hostfile": _hostfile(plan, [(1, plan.nodes)]) if plan.stage else None,
    }


def _device_masks(plan: Plan) -> list[tuple[str, list[int]]]:
    """The masks of a node's local ranks, each with the ranks that share it."""
    sharing: dict[str, list[int]] = {}
    for rank, mask in enumerate(plan.devices.per_rank):
        sharing.setdefault(mask, []).append(rank)
    return list(sharing.items())


def _container_variables(plan: Plan) -> dict[str, Any]:
    container = plan.container
    if container is None:
        return {
            "pyxis": False,
            "image": None,
            "image_file": False,
            "bind_flag": None,
            "mounts": [],
            "kept": [],
        }
    folder = '"$CASTOFF_STAGE_DIR"/' if container.staged else ""
    flag = RUNTIMES[container.runtime].bind_flag
    return {
        "pyxis": container.runtime == "pyxis",
        "image": folder + shell_word(container.image),
        "image_file": container.image.startswith("/") and container.runtime in ("apptainer", "pyxis"),
        "bind_flag": flag,
        "mounts": [word for mount in container.mounts for word in ([flag, mount] if flag else [mount])],
        "kept": _kept(plan, container),
    }


def _kept(plan: Plan, container: ContainerPlan) -> list[str]:
    """Variables that the job decides, whatever an image says; under pyxis the shim is inside."""
    names = ["MASTER_ADDR", "MASTER_PORT"]
    if container.runtime != "pyxis":
        names = ["RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "NODE_RANK", *names]
        names += [plan.device_variable] if plan.device_variable else []
    names += ["OMP_NUM_THREADS", *plan.env, *plan.env_from]
    return [name for name in dict.fromkeys(names) if name not in container.env]


def _staged_path(plan: Plan) -> str | None:
    """PATH with the environments that `stage` activates, as a shell word."""
    folders = [f'"$CASTOFF_STAGE_DIR"/{shell_word(item.to)}/bin:' for item in plan.stage if item.activate]
    return "".join(folders) + '"$PATH"' if folders else None


def _stale(plan: Plan) -> list[str]:
    """What a start block unsets by name; on PBS all of Slurm's goes, by its prefix."""
    by_prefix = plan.scheduler == "pbs"
    return [name for name in STALE_VARIABLES if not (by_prefix and name.startswith("SLURM_"))]


def _program(plan: Plan) -> str:
    """The program as shell words, with what the starter must start in front of it."""
    words = _one_program(plan)
    if plan.torchrun:  # which would take $$ for $ and put the local rank in place of ${local_rank}
        words = [word.replace("$", "$$") for word in words]
    program = _submitit_program(plan) if plan.function else _words(words)
    if plan.torchrun and plan.starter == "local":  # elsewhere each node's shim starts torchrun
        agent = ["python", "-m", "torch.distributed.run", "--standalone"]
        agent += [f"--nproc-per-node={plan.ranks}", "--no-python"]
        shim = '"$CASTOFF_ATTEMPT_DIR/torchrun_rank.sh"'
        return " \\\n    ".join((_words(agent), shim, program))
    return program


def _one_program(plan: Plan) -> list[str]:
    """The command; srun and every mpiexec would take a lone : for the start of another program."""
    if ":" not in plan.command or plan.starter == "local":
        return plan.command
    others = [word for word in plan.command if word != ":"]
    places = itertools.count(1)  # each word its own: together they might be longer than one may be
    line = " ".join(":" if word == ":" else f'"${{{next(places)}}}"' for word in plan.command)
    return ["sh", "-c", f"exec {line}", "sh", *others]


def _submitit_program(plan: Plan) -> str:
    python = shell_word(plan.python) if plan.python else '"${CASTOFF_PYTHON:-python}"'
    if plan.python is None and (plan.container or _staged_path(plan)):
        python = "python"  # theirs; CASTOFF_PYTHON is the submitter's
    return f'{python} -u -m submitit.core._submit "$CASTOFF_RUN_DIR"'


def _words(words: list[str]) -> str:
    """Shell words, over several lines where they are many; a flag stays with its value."""
    units: list[str] = []
    flag = False
    for word in words:
        if flag and not word.startswith("-"):
            units[-1] += f" {shell_word(word)}"
            flag = False
        else:
            units.append(shell_word(word))
            flag = word.startswith("-") and "=" not in word
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


def _folder(path: str) -> str:
    return str(PurePosixPath(path).parent)


def _layout_words(plan: Plan) -> str:
    groups = [f"{count} on each of {times} nodes" for count, times in plan.layout if times > 1]
    groups += [f"{count} on 1 node" for count, times in plan.layout if times == 1]
    ranks = "1 rank" if plan.ranks == 1 else f"{plan.ranks} ranks, " + " and ".join(groups)
    inner = ", started by torchrun" if plan.torchrun else ""
    return ranks + inner


FILTERS: dict[str, Callable[..., Any]] = {
    "sh": shell_word,
    "words": _words,
    "slurm_directive": slurm_directive,
    "pbs_directive": pbs_directive,
    "comment": comment,
    "interpreter": interpreter,
    "yaml": yaml_word,
    "folder": _folder,
    "wrapped": _wrapped,
    "layout_words": _layout_words,
}
"""What templates may put values through; docs/templates.md explains each."""


def _local_world_size(plan: Plan) -> str:
    if plan.own_distribution:  # then srun alone knows
        return '$(($(echo "$SLURM_GTIDS" | tr -cd , | wc -c) + 1))'
    return _per_node(plan.layout, "NODE_RANK", "sh")


def _per_node(layout: list[tuple[int, int]], node: str, language: str) -> str:
    """How many processes a node has, as an expression over its number from 0."""
    (first, times), *rest = layout
    if not rest:
        return str(first)
    ((second, _),) = rest
    if language == "awk":
        return f"({node} < {times} ? {first} : {second})"
    return f"$(({node} < {times} ? {first} : {second}))"


def _node_rank(layout: list[tuple[int, int]]) -> str:
    """NODE_RANK of a process by its number, in POSIX shell arithmetic, for a block layout."""
    (first, times), *rest = layout
    if not rest:
        return f"NODE_RANK=$((RANK / {first}))"
    ((second, _),) = rest
    edge = first * times
    return f"NODE_RANK=$((RANK < {edge} ? RANK / {first} : {times} + (RANK - {edge}) / {second}))"


def _hostfile(plan: Plan, layout: list[tuple[int, int]]) -> str | None:
    """The awk program that turns the job's hosts into the starter's host file."""
    count = _per_node(layout, "NR - 1", "awk")
    if plan.starter in ("hydra", "intelmpi"):
        return f'{{ print $0 ":" {count} }}'
    if plan.starter == "openmpi":
        return f'{{ print $0 " slots=" {count} }}'
    if plan.starter == "srun" and len(layout) > 1 and not plan.own_distribution:
        return f"{{ for (i = 0; i < {count}; i++) print }}"
    return None
