"""A command that has this process's terminal, until it ends."""

from __future__ import annotations

import contextlib
import signal
import subprocess
from collections.abc import Iterator, Mapping, Sequence

from launcher.errors import CastoffError


def run_attached(argv: Sequence[str], environ: Mapping[str, str]) -> int:
    """Run a command with our standard streams and return its code; 128 + N where signal N has ended it.

    A terminal's Ctrl-C is the command's, which gets it as we do; TERM and HUP are passed on. Call it in the
    main thread.

    Raises:
        CastoffError: it cannot be started.
    """
    try:
        process = subprocess.Popen(argv, env=dict(environ))
    except OSError as error:
        raise CastoffError(f"{argv[0]}: cannot be started: {error.strerror}") from error
    with _passing_on(process):
        code = process.wait()
    return code if code >= 0 else 128 - code


@contextlib.contextmanager
def _passing_on(process: subprocess.Popen[bytes]) -> Iterator[None]:
    def pass_on(number: int, _: object) -> None:
        process.send_signal(number)

    before = {
        number: signal.signal(number, handler)
        for number, handler in (
            (signal.SIGINT, lambda *_: None),  # a handler, which a new program does not inherit
            (signal.SIGQUIT, lambda *_: None),
            (signal.SIGTERM, pass_on),
            (signal.SIGHUP, pass_on),
        )
    }
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
