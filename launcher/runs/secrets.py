"""Secrets: the variables of `env_from` in a run directory, and names that look like those of secrets."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Mapping

from castoff.launcher.errors import CastoffError
from castoff.launcher.runs.run import RunDirectory
from castoff.launcher.text.quoting import shell_word

SECRETS = "secrets.sh"


def secrets(names: list[str], environ: Mapping[str, str]) -> str:
    """The text of secrets.sh, which exports the variables with these names.

    Raises:
        CastoffError: a variable is not set.
    """
    missing = [name for name in names if name not in environ]
    if missing:
        raise CastoffError(
            f"env_from: {', '.join(missing)} not set in this environment; export it before submitting"
        )
    return "".join(f"export {name}={shell_word(environ[name])}\n" for name in names)


def remove_secrets(run: RunDirectory, submitted: float | None) -> None:
    """Remove secrets.sh once nothing of the run needs it; `castoff resubmit` writes it again.

    `submitted`: the time of the submission that has ended; the secrets of a later submission are kept. If the
    file cannot be removed now, the next command that reads the run's state tries again.
    """
    path = run.path / SECRETS
    if not path.exists():
        return
    with contextlib.suppress(OSError, CastoffError), run.locked(patience=0):
        record = run.submission()
        if record is not None and record.time == submitted:
            path.unlink()


# Names that look like those of secrets

_OF_PROGRAMS = re.compile(
    r"\.(ssh|gnupg|aws|azure|kube|docker|password-store|netrc|pgpass|pypirc|git-credentials|env.*)"
    r"|_netrc|id_(rsa|dsa|ecdsa|ed25519).*|.*\.(pem|p12|pfx|ppk|jks|kdbx)",
    re.IGNORECASE,
)
"""Folders and files in which programs keep credentials."""

_WORD = re.compile("key|secret|credential|passw", re.IGNORECASE)

_HARMLESS = re.compile(
    "key[_-]?(point|board|frame|word|note|stroke|phrase)|(mon|tur|hoc|don|joc)key|whiskey", re.IGNORECASE
)
"""Words that contain `key` and name no secret."""

_SOURCE = re.compile(r"\.(py|pyi|pyx|ipynb|c|cc|cpp|cu|cuh|h|hpp|f90|jl|rs|go|js|ts|md|rst)$", re.IGNORECASE)
"""Source files, whose names often contain `key`, as in attention layers. Without them the program does not
start, so only the stricter `_IN_SOURCE` applies.
"""

_IN_SOURCE = re.compile("(api|secret|private|access|auth)[_-]?keys?[._-]", re.IGNORECASE)


def secret_part(name: str) -> str | None:
    """The part of a relative path that looks like a secret, such as `conf/.ssh` of
    `conf/.ssh/id`; else None.
    """
    parts = name.rstrip("/").split("/")
    word = _IN_SOURCE if _SOURCE.search(parts[-1]) else _WORD
    for number, part in enumerate(parts, start=1):
        if _OF_PROGRAMS.fullmatch(part) or word.search(_HARMLESS.sub("", part)):
            return "/".join(parts[:number])
    return None


_IN_VARIABLES = re.compile(
    rf"{_WORD.pattern}|passphrase|[_.-]pwd|(?<![a-z])token(?![a-z])|(?<![a-z])auth(?![a-z])", re.IGNORECASE
)
"""`_WORD`, and words that mean a secret only in a variable's name: a file named tokens mostly holds text."""

_OF_TEXTS = re.compile("(pad|bos|eos|unk|mask|cls|sep|special|image)[_-]token", re.IGNORECASE)
"""Tokens of language models."""


def is_secret_name(name: str) -> bool:
    """Whether a variable looks like a secret: `HF_TOKEN`, `wandb.api_key`."""
    return _IN_VARIABLES.search(_OF_TEXTS.sub("", _HARMLESS.sub("", name))) is not None
