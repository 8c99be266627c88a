"""PBS: qsub's command line and answer (qsub(1B) of OpenPBS)."""

from __future__ import annotations

from launcher.schedulers.submission import Submission


def submit_command(submission: Submission) -> list[str]:
    """The qsub command. Its -o and -v replace those of the script's directives."""
    plan, run_dir = submission.plan, submission.run_dir
    member = "^array_index^" if (plan.array_count or 1) > 1 else "0"
    inherited = plan.inherit if isinstance(plan.inherit, list) else []
    command = ["qsub", "-o", f"{run_dir}/logs/job-{member}.log"]
    command += ["-v", ",".join([*inherited, *submission.environment])]
    if submission.dependency:
        command += ["-W", f"depend={submission.dependency}"]
    return [*command, submission.script]


def parse_submit(answer: str) -> str | None:
    """The job id that qsub prints alone, as `3.head` or `7[].head`; None if there is none."""
    first = answer.strip().partition("\n")[0].strip()
    return first if first[:1].isdigit() and " " not in first else None
