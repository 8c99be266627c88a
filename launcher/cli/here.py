"""Parse `castoff launch --here` as job scripts write it, without click, whose import takes a third of the
start-up time.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from castoff.launcher.launchers.local.start import StartRequest, start_ranks
from castoff.launcher.process.linux import check_linux
from castoff.launcher.runs.run import RESUME, inherited_lock, wants_resume

TYPE_CHECKING = False  # nothing else needs `typing`, which takes long to import
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

WORDS = ["launch", "--here"]
_GIVEN = "CASTOFF_GIVEN_"
_NUMBERS = ("--ranks-per-node", "--cores-per-rank", "--devices-per-rank", "--agent-for")
_TEXTS = ("--log-dir", "--failure-file", "--job-id", "--preload", "--given")


def read(words: Sequence[str], program: Sequence[str] | None) -> StartRequest | None:
    """Parse the words into a request; None if click has to parse them."""
    flags = dict(zip(words[2::2], words[3::2], strict=False))
    if [*words[:2]] != WORDS or not program or 2 * len(flags) + 2 != len(words):
        return None
    numbers = {name: _number(flags.pop(name)) for name in _NUMBERS if name in flags}
    texts = {name: flags.pop(name) for name in _TEXTS if name in flags}
    if flags or None in numbers.values() or any(value[:1] in ("", "-") for value in texts.values()):
        return None
    log_dir, failure_file = (texts.get(name) for name in ("--log-dir", "--failure-file"))
    return StartRequest(
        command=program,
        ranks=numbers.get("--ranks-per-node") or 1,
        cores_per_rank=numbers.get("--cores-per-rank"),
        devices_per_rank=numbers.get("--devices-per-rank"),
        environment=with_given(os.environ, texts.get("--given")),
        log_dir=None if log_dir is None else Path(log_dir),
        failure_file=None if failure_file is None else Path(failure_file),
        job_id=texts.get("--job-id") or os.urandom(8).hex(),
        preload=modules(texts.get("--preload")),
        agent_for=numbers.get("--agent-for"),
        inherited=inherited_lock(os.environ),  # keeps the run locked while a rank lives
    )


def modules(text: str | None) -> list[str] | None:
    """The modules of --preload; `none` means no preload. None: the flag is not given."""
    return text if text is None else [] if text == "none" else text.split(",")


def with_given(environment: Mapping[str, str], names: str | None) -> Mapping[str, str]:
    """The ranks' environment, with the variables that a job's script passes to ranks only.

    `names`: the variables' names, joined by commas. The script passes each as CASTOFF_GIVEN_NAME, since under
    its own name it would affect this process, too.
    """
    if not names:
        return environment
    passed_as = {name: f"{_GIVEN}{name}" for name in names.split(",")}
    others = {name: value for name, value in environment.items() if name not in passed_as.values()}
    return others | {name: environment[alias] for name, alias in passed_as.items() if alias in environment}


def _number(text: str) -> int | None:
    """A number above 0; None for any other text, which click then accepts or refuses."""
    return int(text) if text.isascii() and text.isdecimal() and len(text) < 10 and int(text) else None


def run(request: StartRequest) -> int:
    """Start the ranks on this host; returns their exit code, or 75 if the program can be resumed."""
    check_linux()
    of_job = request.environment.get("CASTOFF_OUTCOME_FILE")  # set inside a job, whose script reads the file
    if of_job and not request.driver:
        return start_ranks(request, output=sys.stdout.buffer, messages=sys.stderr)
    import tempfile  # late: it imports a dozen modules, and most ranks start inside a job

    from castoff.launcher.errors import report

    with tempfile.TemporaryDirectory(prefix="castoff-launch-") as folder:
        outcome, hosts = Path(of_job or Path(folder, "outcome")), Path(folder, "hosts")
        variables = {"CASTOFF_OUTCOME_FILE": str(outcome)}
        if request.driver:
            hosts.write_text(f"{os.uname().nodename}\n")
            variables["CASTOFF_HOST_FILE"] = str(hosts)
        request = request._replace(environment={**request.environment, **variables})
        code = start_ranks(request, output=sys.stdout.buffer, messages=sys.stderr)
        if code == 0 and not of_job and wants_resume(outcome):
            report("the program has stopped early and can be resumed: run the same command again")
            return RESUME
    return code
