"""Asking a scheduler's programs, and what becomes of those that do not answer."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from castoff.launcher.config.site import Search, Site
from castoff.launcher.schedulers.machine_questions import QueryFailed, ask

Answers = Callable[..., dict[str, str]]


def at(name: str) -> Site:
    return Site.load(name, search=Search({}, None))


def test_slurm(answering: Answers) -> None:
    info = ask(at("slurm"), answering("slurm-accounting"))
    assert list(info.queues) == ["debug", "gpu", "long", "quiet"]
    assert info.qos is not None and info.qos["gpu_debug"].max_jobs == 5
    assert info.unanswered == ()


def test_slurm_without_accounting(answering: Answers) -> None:
    info = ask(at("slurm"), answering("slurm-plain"))
    assert info.qos is None
    (about, why), (also, _) = info.unanswered
    assert (about, also) == ("qos", "user")
    assert "failed with exit code 1: You are not running a supported accounting_storage plugin Only" in why


def test_pbs(answering: Answers) -> None:
    info = ask(at("polaris"), answering("pbs"))
    assert info.queues["prod"].max_nodes == 496
    assert info.counts_threads


def test_a_program_that_is_not_there(answering: Answers) -> None:
    environ = answering("slurm-accounting")
    Path(environ["PATH"], "scontrol").unlink()
    with pytest.raises(QueryFailed, match="scontrol is not on PATH here; ask on a login node"):
        ask(at("slurm"), environ)


def test_an_optional_program_that_is_not_there(answering: Answers) -> None:
    environ = answering("pbs")
    Path(environ["PATH"], "pbsnodes").unlink()
    info = ask(at("pbs"), environ)
    assert info.nodes == []
    assert info.unanswered == (
        ("nodes", "`pbsnodes -a`: pbsnodes is not on PATH here; ask on a login node of the machine"),
    )


@pytest.mark.parametrize(
    ("program", "why"),
    [
        (
            "echo 'slurm_load_partitions: Unable to contact slurm controller' >&2; exit 1",
            "`scontrol --all show partition --oneliner`: scontrol failed with exit code 1: "
            "slurm_load_partitions: Unable to contact slurm controller",
        ),
        ("echo said on standard output; exit 7", "exit code 7: said on standard output"),
        ("exit 3", "failed with exit code 3: without a message"),
        ("echo PartitionName=x MinNodes=few", "what scontrol and the other commands print cannot be read"),
        ("printf '\\377\\n'", "what scontrol and the other commands print cannot be read"),
        ("exec sleep 60", "gave no answer within 1 s"),
    ],
)
def test_one_that_fails(program: str, why: str, answering: Answers) -> None:
    patience = 1.0 if "sleep" in program else 60.0
    with pytest.raises(QueryFailed) as refused:
        ask(at("slurm"), answering("slurm-accounting", scontrol=program), patience=patience)
    assert why in str(refused.value)
    assert refused.value.exit_code == 2


def test_questions_are_asked_at_once(answering: Answers, tmp_path: Path) -> None:
    """Each of these waits until the other has been asked, too."""
    met = f"""touch {tmp_path}/$$.here
      until set -- {tmp_path}/*.here && [ $# -ge 2 ]; do sleep 0.05; done
      touch {tmp_path}/$$.met; exit 1"""
    info = ask(at("slurm"), answering("slurm-accounting", sacctmgr=f"PATH=/usr/bin:/bin\n{met}"))
    assert [about for about, _ in info.unanswered] == ["qos", "user"]
    assert len([*tmp_path.glob("*.met")]) == 2


def test_one_that_cannot_be_run(answering: Answers) -> None:
    environ = answering("slurm-accounting")
    Path(environ["PATH"], "scontrol").write_text("#!/no/such/shell\n")
    with pytest.raises(QueryFailed, match="cannot be run: No such file or directory"):
        ask(at("slurm"), environ)


def test_what_cannot_be_read(answering: Answers) -> None:
    with pytest.raises(QueryFailed, match="site polaris: what qstat and the other commands print cannot"):
        ask(at("polaris"), answering("pbs", qstat="echo something else"))


def test_one_that_says_nothing(answering: Answers) -> None:
    silent = answering("pbs", qstat="true", pbsnodes="true")
    with pytest.raises(QueryFailed, match="site polaris: no output from `qstat -Q -f`, `qstat -B -f`"):
        ask(at("polaris"), silent)


def test_variables_that_would_change_what_is_shown_stay_behind(answering: Answers) -> None:
    environ = answering(
        "slurm-accounting", sinfo='test -z "$SINFO_PARTITION" && echo "2|2|64|128|1|gpu:4|(null)"'
    )
    info = ask(at("slurm"), {**environ, "SINFO_PARTITION": "long"})
    assert [(one.cores, one.devices) for one in info.nodes] == [(128, 4)]


def test_a_site_without_a_scheduler() -> None:
    with pytest.raises(QueryFailed, match="site local: has no scheduler to query"):
        ask(at("local"), {})
