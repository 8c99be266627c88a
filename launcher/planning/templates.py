"""Renders heads and the example job file by Jinja, for users who replace castoff's templates.

castoff's own heads are compiled (`castoff.launcher.planning.heads`), so only this module imports Jinja.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import jinja2
from jinja2.sandbox import ImmutableSandboxedEnvironment

from castoff.launcher.config.job import JobSpec
from castoff.launcher.config.site import Site
from castoff.launcher.errors import CastoffError, InvalidInput, printable
from castoff.launcher.trust.decision import check
from castoff.launcher.typed.document import Document

# Errors that an expression or a file of a user's template may raise, in addition to Jinja's own errors.
_TEMPLATE_FAULTS = (TypeError, AttributeError, LookupError, ArithmeticError, OSError, RecursionError)


def head(scheduler: str, variables: Mapping[str, Any], found: jinja2.Environment) -> str:
    """Render the head of a script.

    Raises:
        ValueError: a filter refuses a value, or a template is not UTF-8.
        CastoffError: a template of the user's fails, and the text names its file and line; or others could
            have written it.
    """
    try:
        return found.get_template(f"{scheduler}.sh.j2").render(variables)
    except jinja2.TemplateSyntaxError as error:
        raise CastoffError(f"{error.filename}:{error.lineno}: {error.message}") from error
    except ValueError:
        raise
    except (jinja2.TemplateError, *_TEMPLATE_FAULTS) as error:
        raise CastoffError(f"{_place(error)}: {_reason(error)}") from error


def example_job(site: Site, found: jinja2.Environment) -> str:
    """See `castoff.launcher.planning.render.example_job`."""
    text = found.get_template("job.yaml.j2").render(site=site)
    try:
        JobSpec.of(Document.parse(text, "job.yaml").data)
    except InvalidInput as error:
        fix = "correct the examples under `required:` in its profile"
        raise CastoffError(f"site {printable(site.name)}: {fix}:\n{error}") from error
    return text


def environment(
    own_folder: Path, user_folder: str | None, filters: Mapping[str, Callable[..., Any]]
) -> jinja2.Environment:
    """Return the Jinja environment, which looks for templates in the user's folder before castoff's folder.

    A template may come from a stranger's project, so it can only write text, and has no access to Python.
    """
    own = jinja2.FileSystemLoader(own_folder)
    loaders: list[jinja2.BaseLoader] = [own, jinja2.PrefixLoader({"castoff": own})]
    if user_folder is not None:
        if not Path(user_folder).is_dir():
            raise CastoffError(f"templates: folder {user_folder} does not exist")
        loaders.insert(0, _OwnFolder(user_folder))
    found = ImmutableSandboxedEnvironment(
        loader=jinja2.ChoiceLoader(loaders),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        autoescape=False,  # shell, not HTML: every value passes a quoting filter
    )
    found.filters.update(filters)
    return found


class _OwnFolder(jinja2.FileSystemLoader):
    """A loader of the user's templates, which become part of scripts, so only the user may be able to write
    them.
    """

    def get_source(
        self, environment: jinja2.Environment, template: str
    ) -> tuple[str, str, Callable[[], bool]]:
        """Read a template for jinja2; raises a CastoffError if others could have written the file."""
        source, path, is_current = super().get_source(environment, template)
        check(Path(path))
        return source, path, is_current


def _place(error: BaseException) -> str:
    """Return the innermost line of a template that an error came from."""
    frames = [(frame.f_code.co_filename, line) for frame, line in traceback.walk_tb(error.__traceback__)]
    places = [f"{file}:{line}" for file, line in frames if file.endswith(".j2")]
    return places[-1] if places else "a template"


def _reason(error: Exception) -> str:
    if isinstance(error, jinja2.TemplateNotFound):
        return f"template {error.name} does not exist"
    if isinstance(error, RecursionError):
        return "it extends itself; castoff's template is castoff/…"
    return str(error)
