"""Slurm: sbatch's command line and answer (https://slurm.schedmd.com/sbatch.html)."""

from __future__ import annotations

from launcher.schedulers.submission import Submission


def submit_command(submission: Submission) -> list[str]:
    """The sbatch command. Its --output and --export replace those of the script's directives."""
    plan, run_dir = submission.plan, submission.run_dir
    pattern = run_dir.replace("%", "%%")
    member = "%a" if plan.array_count else "0"
    inherited = plan.inherit if isinstance(plan.inherit, list) else []
    names = ["ALL"] if plan.inherit == "all" else inherited
    command = ["sbatch", "--parsable", f"--output={pattern}/logs/job-{member}.log"]
    command.append("--export=" + ",".join([*names, *submission.environment]))
    if submission.dependency:
        command.append(f"--dependency={submission.dependency}")
    return [*command, submission.script]


def parse_submit(answer: str) -> str | None:
    """The job id that `sbatch --parsable` prints, as `id` or `id;cluster`; None if there is none."""
    first = answer.strip().partition("\n")[0].partition(";")[0]
    return first if first.isdecimal() else None
