"""What castoff's own loader refuses of an imported job. Pure."""

from __future__ import annotations

from castoff.launcher.config.job import JobSpec
from castoff.launcher.errors import InvalidInput
from castoff.launcher.importing.imported import Entry, Imported, brief, nested
from castoff.launcher.importing.sizes import Unproven


def check_lifted(result: Imported) -> None:
    """Look whether the loader takes a job whose ranks castoff starts.

    Raises:
        Unproven: it does not.
    """
    try:
        JobSpec.of(nested(result.fields))
    except InvalidInput as error:
        raise Unproven(f"{error.problems[0].path} {error.problems[0].message}") from None


def make_valid(result: Imported) -> None:
    """Take away what castoff's own loader refuses, and say so."""
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
