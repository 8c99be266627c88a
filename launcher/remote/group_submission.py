"""Submit the jobs of a file on another machine: their code once, then all jobs in one message.

The machine keeps the group's journal, so the laptop only remembers the group's id until all jobs were
submitted: the same command continues the group of that id.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping

from castoff.launcher.config.job_group import JobGroup
from castoff.launcher.remote.code import Travelling
from castoff.launcher.remote.machine import Machine, RefusedByMachine, Session
from castoff.launcher.remote.messages import Grouped, Order, OrderedGroup, UnexpectedMessage
from castoff.launcher.remote.remembered import pending, remember_variables
from castoff.launcher.remote.submission import Planned, ordered, plain, send_code
from castoff.launcher.runs.secrets import secrets
from castoff.launcher.submission.group import submit_words
from castoff.launcher.submission.submit import working_directory
from castoff.launcher.text.quoting import visible_word


def submit_group_there(
    machine: Machine,
    group: JobGroup,
    jobs: list[Planned],
    codes: list[Travelling],
    session: Session,
    environ: Mapping[str, str],
    say: Callable[[str], object],
    *,
    selection: tuple[str, ...] = (),
    new: bool = False,
    runs_dir: str | None = None,
) -> Grouped:
    """Send the code and submit the jobs, each once; `codes`: the code of each. Calling this again after an
    error continues the submission, unless `new`.

    Raises:
        CastoffError: a variable of `env_from` is not set on this machine.
        RefusedByMachine: the machine's castoff or its scheduler refuses a job.
        ConnectionLost: the connection broke.
    """
    entry, file = machine.entry, str(group.file.absolute()) if group.file else ""
    names = list(dict.fromkeys(name for job in jobs for name in job.plan.env_from))
    secrets(names, environ)  # raises an error before anything is sent
    remember_variables(entry, names, environ)
    numbers: dict[int, int] = {}
    for code in codes:
        if id(code) not in numbers:
            numbers[id(code)] = len(numbers)
            if note := send_code(session, code, say).note:
                say(note)
    identity = json.dumps([group.name, file, working_directory(), selection]).encode()
    command = " ".join(map(visible_word, machine.command(*submit_words(file, selection))))
    with pending(entry, identity, group.name, environ, kind="groups", new=new) as chosen:
        order = Order(
            run=chosen.run,
            site=plain(jobs[0].site),
            jobs=[
                ordered(job, code, environ, numbers[id(code)]) for job, code in zip(jobs, codes, strict=True)
            ],
            group=OrderedGroup(group.name, file, list(selection), command),
            runs_dir=runs_dir,
        )
        try:
            answer = session.ask(order, f"{chosen.run} was submitted, which may have arrived")
        except RefusedByMachine as refusal:
            if refusal.is_final:
                chosen.answered()
            raise
        if not isinstance(answer, Grouped) or answer.jobs.keys() != {*group.names}:
            raise UnexpectedMessage("it did not report what became of the jobs")
        chosen.answered()
    return answer
