"""The manual page castoff(1), from the help of castoff and of each verb."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from pathlib import Path

import click

from castoff.launcher.cli.help import ABOUT, GROUPS
from docs.extension.verbs import castoff

FILE = Path(__file__).resolve().parents[1] / "castoff.1"

_FILES = {
    "castoff-runs/": "The directories of runs, where you submit.",
    ".castoff/": "A project's profiles and config.yaml: the nearest one, here or above.",
    "~/.config/castoff/": "Your own profiles, and the machines of --on.",
}
_VARIABLES = {
    "CASTOFF_SITE": "The site without --site.",
    "CASTOFF_ON": "The machine without --on.",
    "CASTOFF_RUNS_DIR": "The folder of runs without --runs-dir.",
    "NO_COLOR": "If set, output has no colours.",
}


def manual() -> str:
    """The page as roff."""
    lines = [
        '.TH CASTOFF 1 "" "castoff" "User commands"',
        ".SH NAME",
        _text("castoff - render, submit and run PyTorch jobs on Slurm, PBS and Flux"),
        ".SH SYNOPSIS",
        r"\fBcastoff\fR [\fB\-\-on\fR \fINAME\fR] \fIVERB\fR [\fIOPTIONS\fR] [\fIARGUMENTS\fR]",
        ".SH DESCRIPTION",
        *_paragraphs("\n\n".join(ABOUT)),
    ]
    for title, verbs in GROUPS.items():
        lines.append(f".SH {title.upper()}")
        for verb in verbs:
            lines += _verb(f"castoff {verb}", castoff.commands[verb])
    lines += [".SH ENVIRONMENT", *_list(_VARIABLES), ".SH FILES", *_list(_FILES)]
    lines += [
        ".SH SEE ALSO",
        r"\fBsbatch\fR(1), \fBqsub\fR(1), \fBflux\fR(1), https://castoff.readthedocs.io",
    ]
    return "\n".join(lines) + "\n"


def _verb(name: str, command: click.Command) -> Iterator[str]:
    """A verb, and each that it has below it."""
    context = click.Context(command, info_name=name)
    usage = " ".join(command.collect_usage_pieces(context))
    yield f".SS {_text(name)} {_text(usage)}"
    yield from _paragraphs(command.help or "")
    options = (each for each in command.params if isinstance(each, click.Option))
    yield from _list(dict(filter(None, (each.get_help_record(context) for each in options))))
    if isinstance(command, click.Group):
        for below, each in command.commands.items():
            yield from _verb(f"{name} {below}", each)


def _paragraphs(text: str) -> Iterator[str]:
    for paragraph in re.split(r"\n\s*\n", text.replace("\b\n", "").strip()):
        yield from (".PP", _text(" ".join(paragraph.split())))


def _list(entries: dict[str, str]) -> Iterable[str]:
    for name, meaning in entries.items():
        yield from (".TP", rf"\fB{_text(name)}\fR", _text(" ".join(meaning.split())))


def _text(words: str) -> str:
    """As roff reads it: no request, no escape, and a hyphen that can be copied."""
    escaped = words.replace("\\", r"\e").replace("-", r"\-")
    escaped = re.sub(r"[^\x00-\x7f]", lambda found: rf"\[u{ord(found[0]):04X}]", escaped)
    return rf"\&{escaped}" if escaped.startswith((".", "'")) else escaped
