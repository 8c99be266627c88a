"""castoff's messages in Python programs: they name arguments instead of the command line's flags."""

from __future__ import annotations

import re
from contextlib import ContextDecorator
from types import TracebackType

from castoff.launcher.errors import CastoffError, InvalidInput

_WORDS = (
    (r"castoff resubmit --all-hosts\b", "all_hosts=True"),
    (r"--(include|all)-(done|hosts)\b", r"\1_\2=True"),
    (r"`castoff submit` takes it, and `castoff render` with --only NAME", "castoff.submit_all takes it"),
    (r"; drop one of the two \(--set [^)]*\)", "; drop one of the two"),
    (r"\(--set (\w+)=null clears it\)", r"(\1=None clears it)"),
    (r" or --set can name", " can name"),
    (r"later by --only \S+", "later by itself"),
    (r"`[^`]* --new` begins anew", "another name begins anew"),
    (r"--(rank|member|attempt|site)\b", r"\1"),
    (r"--runs-dir\b", "runs_dir"),
)
"""Patterns of castoff's own messages: those of schedulers have other flags, which stay."""


def in_python(message: str) -> str:
    """A message that names arguments instead of castoff's flags."""
    for pattern, words in _WORDS:
        message = re.sub(pattern, words, message)
    return message


class speaks_python(ContextDecorator):
    """Has castoff's errors from a function name arguments instead of flags."""

    def __enter__(self) -> None:
        """Change nothing."""

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Replace the words of an error, whose type and other attributes stay."""
        if isinstance(error, InvalidInput):
            problems = error.problems
            error.problems = [problem._replace(message=in_python(problem.message)) for problem in problems]
            error.args = ("\n".join(map(str, error.problems)),)
        elif isinstance(error, CastoffError) and error.args and isinstance(error.args[0], str):
            error.args = (in_python(error.args[0]), *error.args[1:])
