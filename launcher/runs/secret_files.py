"""Which files of a project, and which variables, look as if they held secrets, by their names alone."""

from __future__ import annotations

import re

_OF_PROGRAMS = re.compile(
    r"\.(ssh|gnupg|aws|azure|kube|docker|password-store|netrc|pgpass|pypirc|git-credentials|env.*)"
    r"|_netrc|id_(rsa|dsa|ecdsa|ed25519).*|.*\.(pem|p12|pfx|ppk|jks|kdbx)",
    re.IGNORECASE,
)
"""Folders and files in which programs keep what lets somebody in."""

_WORD = re.compile("key|secret|credential|passw", re.IGNORECASE)

_HARMLESS = re.compile(
    "key[_-]?(point|board|frame|word|note|stroke|phrase)|(mon|tur|hoc|don|joc)key|whiskey", re.IGNORECASE
)
"""What is about no secret though it has such a word in it."""

_SOURCE = re.compile(r"\.(py|pyi|pyx|ipynb|c|cc|cpp|cu|cuh|h|hpp|f90|jl|rs|go|js|ts|md|rst)$", re.IGNORECASE)
"""Source text is often about keys, as that of an attention is; without it the program does not start."""

_IN_SOURCE = re.compile("(api|secret|private|access|auth)[_-]?keys?[._-]", re.IGNORECASE)


def secret_part(name: str) -> str | None:
    """What of a relative path looks like a secret: `conf/.ssh` of `conf/.ssh/id`; None: nothing does."""
    parts = name.rstrip("/").split("/")
    word = _IN_SOURCE if _SOURCE.search(parts[-1]) else _WORD
    for number, part in enumerate(parts, start=1):
        if _OF_PROGRAMS.fullmatch(part) or word.search(_HARMLESS.sub("", part)):
            return "/".join(parts[:number])
    return None


_IN_VARIABLES = re.compile(
    rf"{_WORD.pattern}|passphrase|[_.-]pwd|(?<![a-z])token(?![a-z])|(?<![a-z])auth(?![a-z])", re.IGNORECASE
)
"""As `_WORD`, with what only variables are called: a file of tokens is mostly one of texts."""

_OF_TEXTS = re.compile("(pad|bos|eos|unk|mask|cls|sep|special|image)[_-]token", re.IGNORECASE)
"""Tokens of language models."""


def is_secret_name(name: str) -> bool:
    """Whether a variable looks like a secret: `HF_TOKEN`, `wandb.api_key`."""
    return _IN_VARIABLES.search(_OF_TEXTS.sub("", _HARMLESS.sub("", name))) is not None
