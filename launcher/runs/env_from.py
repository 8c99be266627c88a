"""The variables of env_from in a run's directory: as long as something of the run may still read them."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping

from castoff.launcher.errors import CastoffError
from castoff.launcher.runs.run import RunDirectory
from castoff.launcher.text.quoting import shell_word

SECRETS = "secrets.sh"


def secrets(names: list[str], environ: Mapping[str, str]) -> str:
    """What the script reads to have these variables.

    Raises:
        CastoffError: one is not set.
    """
    missing = [name for name in names if name not in environ]
    if missing:
        raise CastoffError(
            f"env_from: {', '.join(missing)} not set in this environment; export before submitting"
        )
    return "".join(f"export {name}={shell_word(environ[name])}\n" for name in names)


def remove_secrets(run: RunDirectory, submitted: float | None) -> None:
    """Take them away once nothing of a run needs them; `castoff resubmit` writes them anew.

    `submitted`: when what has ended was submitted. A submission since keeps its own. What cannot be removed
    stays, for whoever looks at the run next.
    """
    path = run.path / SECRETS
    if not path.exists():
        return
    with contextlib.suppress(OSError, CastoffError), run.locked(patience=0):
        record = run.submission()
        if record is not None and record.time == submitted:
            path.unlink()
