"""Console blocks: `$ ` begins a command, `> ` continues it, all else is output."""

from __future__ import annotations

from collections.abc import Iterator

from pygments.lexer import Lexer
from pygments.lexers.shell import BashLexer
from pygments.token import Generic, _TokenType


class ConsoleLexer(Lexer):
    """Pygments' own takes output that begins with `#` or `[0] $` for a prompt."""

    name = "castoff's console"

    def get_tokens_unprocessed(self, text: str) -> Iterator[tuple[int, _TokenType, str]]:
        """Yields the place, the kind and the text of each token."""
        shell = BashLexer(**self.options)
        at = 0
        for line in text.splitlines(keepends=True):
            if line.startswith(("$ ", "> ")):
                yield at, Generic.Prompt, line[:2]
                for place, kind, value in shell.get_tokens_unprocessed(line[2:]):
                    yield at + 2 + place, kind, value
            else:
                yield at, Generic.Output, line
            at += len(line)
