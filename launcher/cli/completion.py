"""castoff completion: complete words in a shell.

click provides the protocol, the shells' functions, verbs, flags and files; `offers` completes values.
"""

from __future__ import annotations

import re
from typing import TypeAlias

import click
from click import shell_completion as shells
from click.shell_completion import CompletionItem

from castoff.launcher.cli.help import examples
from castoff.launcher.errors import CastoffError

_Items: TypeAlias = "list[CompletionItem[str]]"


class _Answers(shells.ShellComplete):
    def get_completions(self, args: list[str], incomplete: str) -> _Items:
        if "--" in args:  # the word belongs to the program
            return [CompletionItem(incomplete, type="file")]
        try:
            offered = _from_elsewhere(args, incomplete)
            if offered is None:
                offered = super().get_completions(args, incomplete)
        except (click.UsageError, CastoffError, OSError):  # a message would disturb the line being typed
            return []
        option = re.match("-[^=]*=|", incomplete)[0]  # type: ignore[index]
        return [CompletionItem(option + item.value, item.type, item.help) for item in offered]


def _from_elsewhere(args: list[str], incomplete: str) -> _Items | None:
    """What the machine of --on offers for a value, as its runs; None: this machine knows what to offer."""
    from castoff.launcher.cli.main import may_be_elsewhere

    if incomplete.startswith("-") or args[-1:] == ["--on"] or not may_be_elsewhere(args):
        return None
    from castoff.launcher.cli.elsewhere import machine_that_answers
    from castoff.launcher.remote.completing import words_there

    found = machine_that_answers(args)
    if found is None:
        return None
    machine, words = found
    return [CompletionItem(word) for word in words_there(machine, [*words, incomplete])]


@shells.add_completion_class
class _Bash(_Answers, shells.BashComplete):
    # A word that ends in . or = is incomplete, so bash must add no space. zsh: see below; fish adds none.
    source_template = shells.BashComplete.source_template.replace(
        "    return 0\n", "    [[ ${COMPREPLY-} != *[.=] ]] || compopt -o nospace\n    return 0\n"
    )

    def get_completion_args(self) -> tuple[list[str], str]:
        """Rejoin words that bash splits at = and :, such as `--site=x`, of which it replaces only x."""
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


@click.command("completion", epilog=examples("castoff completion bash >~/.castoff.bash"))
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def command(shell: str) -> None:
    """Print a script that makes a shell complete castoff's verbs, flags, runs and sites.

    Keep it in a file that the shell reads: castoff completion bash >~/.castoff.bash, and in ~/.bashrc:
    . ~/.castoff.bash
    """
    root = click.get_current_context().find_root().command
    shells.shell_complete(root, {}, "castoff", "_CASTOFF_COMPLETE", f"{shell}_source")
