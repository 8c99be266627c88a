"""castoff completion, and what castoff offers a shell for a word: runs, sites, fields.

click has the protocol, the shells' functions, verbs, flags and files. Each `complete_…` answers while
somebody waits for a key, so it loads what it needs and no more.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeAlias, TypeVar, get_origin

import click
from click import shell_completion as shells
from click.shell_completion import CompletionItem

from launcher.errors import CastoffError

F = TypeVar("F", bound=Callable[..., Any])
_Items: TypeAlias = "list[CompletionItem[str]]"

_PLAIN = re.compile(r"\w[\w.+%/-]*")
"""Words that mean themselves in every shell, and that are no flags."""


class _Answers(shells.ShellComplete):
    def get_completions(self, args: list[str], incomplete: str) -> _Items:
        if "--" in args:  # the program's words
            return [CompletionItem(incomplete, type="file")]
        try:
            offered = super().get_completions(args, incomplete)
        except (click.UsageError, CastoffError, OSError):  # no reason to write into the line being typed
            return []
        option = re.match("-[^=]*=|", incomplete)[0]  # type: ignore[index]
        return [CompletionItem(option + item.value, item.type, item.help) for item in offered]


@shells.add_completion_class
class _Bash(_Answers, shells.BashComplete):
    # No space behind a name that goes on, as below for zsh; fish sees to that.
    source_template = shells.BashComplete.source_template.replace(
        "    return 0\n", "    [[ ${COMPREPLY-} != *[.=] ]] || compopt -o nospace\n    return 0\n"
    )

    def get_completion_args(self) -> tuple[list[str], str]:
        """bash takes = and : for words: `--site=x` is three, of which the last is replaced."""
        args, incomplete = super().get_completion_args()
        words = re.sub("\n([=:]+)\n?", r"\1", "\n".join([*args, incomplete]))
        *args, incomplete = re.sub("(^|\n)(-[^=\n]*)=(.*)$", r"\1\2\n\3", words).split("\n")
        return args, incomplete


@shells.add_completion_class
class _Zsh(_Answers, shells.ZshComplete):
    source_template = shells.ZshComplete.source_template.replace(
        "compadd -U", 'compadd -q -S "${${completions[1]##*[.=]}:+ }" -U'
    )


@shells.add_completion_class
class _Fish(_Answers, shells.FishComplete):
    pass


@click.command("completion")
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def command(shell: str) -> None:
    """Print what makes a shell complete castoff's verbs, flags, runs and sites.

    Keep it in a file that the shell reads: castoff completion bash >~/.castoff.bash, and in ~/.bashrc:
    . ~/.castoff.bash
    """
    root = click.get_current_context().find_root().command
    shells.shell_complete(root, {}, "castoff", "_CASTOFF_COMPLETE", f"{shell}_source")


def complete_runs(context: click.Context, parameter: click.Parameter, incomplete: str) -> _Items:
    """Names of 50 runs, the newest first, and ids once a word has begun; folders where it is a path."""
    from launcher.runs.index import Index

    if "/" in incomplete or incomplete.startswith((".", "~")):
        return [CompletionItem(incomplete, type="dir")]
    seen = {*(context.params.get(parameter.name or "") or ())}
    offered: list[str] = []
    for entry in reversed(Index.of(os.environ).entries()):
        for word in [entry.name, entry.id] if incomplete else [entry.name]:
            if word not in seen and word.startswith(incomplete) and _PLAIN.fullmatch(word):
                seen.add(word)
                offered += [word] if entry.is_there else []
        if len(offered) >= 50:
            break
    return _items(incomplete, offered)


def complete_sites(context: click.Context, parameter: click.Parameter, incomplete: str) -> _Items:
    """The names of all profiles."""
    from launcher.config.site import Search

    return _items(incomplete, filter(_PLAIN.fullmatch, Search.here().profiles()))


def complete_fields(context: click.Context, parameter: click.Parameter, incomplete: str) -> _Items:
    """The fields of a job file as `--set` names them: `nodes=`, `array.count=`, `env.`."""
    from launcher.config.job import JobSpec

    return _items(incomplete, [] if "=" in incomplete else _fields(JobSpec))


def _fields(kind: Any, prefix: str = "") -> Iterator[str]:
    """`name=` for a field, `name.` for one that holds names of the user's."""
    from launcher.typed.structure import bare, fields_of, is_struct, members

    for name, field in fields_of(kind).items():
        options = [bare(option) for option in members(bare(field.type))]
        inner = [option for option in options if is_struct(option)]
        if any(get_origin(option) is dict for option in options):
            yield f"{prefix}{name}."
        if not inner or len(options) > 2:
            yield f"{prefix}{name}="
        for other in inner:
            yield from _fields(other, f"{prefix}{name}.")


def _items(begun: str, words: Iterable[str]) -> _Items:
    return [CompletionItem(word) for word in words if word.startswith(begun)]


set_option = click.option(
    "--set",
    "overrides",
    multiple=True,
    metavar="FIELD=VALUE",
    help="Set any field, as in env.A=1.",
    shell_complete=complete_fields,
)


def site_option(words: str) -> Callable[[F], F]:
    """Add --site."""
    return click.option("--site", "site_name", help=words, shell_complete=complete_sites)
