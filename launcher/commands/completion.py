"""castoff completion, and how castoff answers a shell that asks what may stand next.

click has the protocol: a function of the shell calls castoff with _CASTOFF_COMPLETE set. Beyond what
click's own scripts do, no shell expands or splits an answer here, `--site=x` is understood, and a name
that goes on (`array.`, `nodes=`, a folder) gets no space behind it.
"""

from __future__ import annotations

import os
import re

import click
from click.shell_completion import (
    BashComplete,
    CompletionItem,
    FishComplete,
    ShellComplete,
    ZshComplete,
    add_completion_class,
    get_completion_class,
    split_arg_string,
)

from launcher.errors import CastoffError

_VARIABLE = "_CASTOFF_COMPLETE"
"""click's name for it; `launcher.cli` looks for it too."""

_BASH = """\
%(complete_func)s() {
    local IFS=$'\\n' kind value
    COMPREPLY=()
    while IFS=, read -r kind value; do
        case $kind in
            file) compopt -o default ;;
            dir) compopt -o dirnames ;;
            open)
                compopt -o nospace
                COMPREPLY+=("$value")
                ;;
            plain) COMPREPLY+=("$value") ;;
        esac
    done < <(env COMP_WORDS="${COMP_WORDS[*]}" COMP_CWORD="$COMP_CWORD" \\
        %(complete_var)s=bash_complete "$1" 2>/dev/null)
}
complete -o nosort -F %(complete_func)s %(prog_name)s 2>/dev/null || # older than bash 4.4
    complete -F %(complete_func)s %(prog_name)s
"""

_ZSH = """\
#compdef %(prog_name)s
%(complete_func)s() {
    local -a plain described open answer
    local kind value help
    answer=("${(@f)$(COMP_WORDS="${words[*]}" COMP_CWORD=$((CURRENT - 1)) %(complete_var)s=zsh_complete \\
        ${~words[1]} 2>/dev/null)}")
    for kind value help in "${answer[@]}"; do
        case $kind in
            file) _path_files -f ;;
            dir) _path_files -/ ;;
            open) open+=("$value") ;;
            plain) if [[ $help == _ ]]; then plain+=("$value"); else described+=("$value:$help"); fi ;;
        esac
    done
    (( $#described )) && _describe -V unsorted described -U
    (( $#plain )) && compadd -U -V unsorted -a plain
    (( $#open )) && compadd -U -S '' -V unsorted -a open
    return 0
}
if [[ $zsh_eval_context[-1] == loadautofunc ]]; then
    %(complete_func)s "$@"
else
    compdef %(complete_func)s %(prog_name)s
fi
"""


class _Answers(ShellComplete):
    """What to offer, in any shell."""

    def get_completions(self, args: list[str], incomplete: str) -> list[CompletionItem[str]]:
        """What may stand in place of `incomplete`; nothing where the words before it are wrong."""
        if "--" in args:  # the program's words
            return [CompletionItem(incomplete, type="file")]
        try:
            offered = super().get_completions(args, incomplete)
        except (click.UsageError, CastoffError, OSError):
            return []
        option, equals, _ = incomplete.partition("=")
        if option.startswith("-") and equals and not self._splits_at_equals():
            for item in offered:
                item.value = f"{option}={item.value}"
        return offered

    def _splits_at_equals(self) -> bool:
        """Whether the shell takes what stands behind a = for a word of its own."""
        return False


@add_completion_class
class _Bash(_Answers, BashComplete):
    source_template = _BASH

    def source(self) -> str:
        return ShellComplete.source(self)  # click's starts a bash to ask for its version

    def get_completion_args(self) -> tuple[list[str], str]:
        """bash splits words at = and : too, unless COMP_WORDBREAKS was changed; this puts them together."""
        count = int(os.environ["COMP_CWORD"])
        words: list[str] = []
        joined = False
        for word in os.environ["COMP_WORDS"].split("\n")[: count + 1]:
            glue = bool(re.fullmatch("[=:]+", word))
            if words and (glue or joined):
                words[-1] += word
            else:
                words.append(word)
            joined = glue
        unquoted = [" ".join(split_arg_string(word)) for word in words]
        return unquoted[1:-1], unquoted[-1]

    def _splits_at_equals(self) -> bool:
        words = os.environ["COMP_WORDS"].split("\n")
        return "=" not in words[int(os.environ["COMP_CWORD"])].strip("=")


@add_completion_class
class _Zsh(_Answers, ZshComplete):
    source_template = _ZSH


@add_completion_class
class _Fish(_Answers, FishComplete):
    def format_completion(self, item: CompletionItem[str]) -> str:
        if item.type == "open":  # fish itself puts no space after = . and /
            item.type = "plain"
        item.help = item.help and item.help.replace(",", "")  # click's script ends it at a comma
        return super().format_completion(item)


@click.command("completion")
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def command(shell: str) -> None:
    """Print what makes a shell complete castoff's verbs, flags, runs and sites.

    Keep it in a file that the shell reads: castoff completion bash >~/.castoff.bash, and in ~/.bashrc:
    . ~/.castoff.bash
    """
    kind = get_completion_class(shell)
    assert kind is not None
    root = click.get_current_context().find_root().command
    click.echo(kind(root, {}, "castoff", _VARIABLE).source(), nl=False)
