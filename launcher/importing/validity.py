"""Check an imported job with the rules of job files. Pure functions."""

from __future__ import annotations

from castoff.launcher.config.job import JobSpec
from castoff.launcher.errors import InvalidInput
from castoff.launcher.importing.imported import Entry, Imported, brief, nested
from castoff.launcher.importing.sizes import Unproven


def check_lifted(result: Imported) -> None:
    """Check that a job whose ranks castoff starts is a valid job file.

    Raises:
        Unproven: a field is invalid.
    """
    try:
        JobSpec.of(nested(result.fields))
    except InvalidInput as error:
        raise Unproven(f"{error.problems[0].path} {error.problems[0].message}") from None


def make_valid(result: Imported) -> None:
    """Remove fields that are invalid in a job file, and list them as refused."""
    while True:
        try:
            JobSpec.of(nested(result.fields))
        except InvalidInput as error:
            problem = error.problems[0]
            outer = problem.path.split(".")[0]
            names = [name for name in result.fields if name.split(".")[0] == outer]
            if not names or outer in ("script", "command"):
                raise
            for name in names:
                value = result.fields.pop(name)
                text = brief(f"{name}: {value}")
                result.refused.append(Entry(0, text, f"{problem.path} {problem.message}"))
        else:
            return
