"""Job files for dpo in place of scripts that people had: what each requests, and passes to the program."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path

import pytest

from castoff import JobSpec, Plan, Site, plan, render
from castoff.trainers.configuration.config import Config
from castoff.trainers.dpo.start.configuration import read
from castoff.trainers.dpo.start.flags import COMMAND_LINE
from tests.command_line import Castoff
from tests.launcher.scripts.harness import PROBE
from tests.systems.systems import DPO

EXAMPLES = Path(__file__).parents[2] / "examples"
OTHERS = [
    (EXAMPLES / "aurora" / "dpo.yaml", "aurora", 24),
    (EXAMPLES / "aurora" / "dpo_6_ranks.yaml", "aurora", 12),
    (EXAMPLES / "local" / "dpo.yaml", "local", 4),
]
"""That stand for scripts that people had: (file, site, ranks)."""


def planned(path: Path, site: str) -> Plan:
    return plan(JobSpec.load(path), Site.load(site))


def configured(found: Plan) -> Config:
    """What the program makes of its words."""
    assert found.command[:3] == ["castoff", "train", "dpo"]
    return read({}, COMMAND_LINE.from_flags(COMMAND_LINE.parsed(found.command[3:])))


@pytest.mark.parametrize(("path", "site", "ranks"), OTHERS, ids=lambda value: getattr(value, "stem", None))
def test_what_scripts_by_hand_had(path: Path, site: str, ranks: int) -> None:
    """Their flags, under castoff's command: nothing of them needs another spelling."""
    found = planned(path, site)
    assert found.ranks == ranks
    config = configured(found)
    training = config.training
    assert (training.num_epochs, training.batch_size, training.optimizer_kwargs["lr"]) == (10, 1, 3e-7)
    assert (config.parallel.backend == "xccl") == (site == "aurora")
    assert config.task_kwargs["preference"]["beta"] == config.task_kwargs["preference"]["temperature"] == 0.1
    assert "29500" not in render(found)


@pytest.mark.parametrize(("path", "site", "ranks"), OTHERS, ids=lambda value: getattr(value, "stem", None))
def test_the_commands_of_the_comments(path: Path, site: str, ranks: int, castoff: Castoff) -> None:
    for words in re.findall(r"^#   castoff (.*?)(?:  +.*|;.*)?$", path.read_text(), re.MULTILINE):
        dry = ["--dry-run"] if words.startswith("submit") else []
        answer = castoff(*shlex.split(words), *dry, cwd=EXAMPLES.parent)
        assert answer.returncode == 0, answer.stderr
        assert f"{ranks} ranks" in answer.stdout


@pytest.mark.usefixtures("for_real")
def test_four_ranks_of_one_training_on_this_machine(tmp_path: Path, castoff: Castoff) -> None:
    """As torchrun --nproc_per_node=4 makes them."""
    probe = {"command": json.dumps(PROBE), "env.PROBE_FOLDER": str(tmp_path)}
    changed = [word for name, value in probe.items() for word in ("--set", f"{name}={value}")]
    answer = castoff("submit", EXAMPLES / "local" / "dpo.yaml", "--site", "local", *changed, cwd=tmp_path)
    assert answer.returncode == 0, answer.stderr
    ended = castoff("wait", "dpo", cwd=tmp_path)
    assert ended.returncode == 0, castoff("logs", "dpo", cwd=tmp_path).stdout
    found = [json.loads((tmp_path / f"rank-{rank}.json").read_text())["detected"] for rank in range(4)]
    fields = ("rank", "world_size", "local_rank", "local_world_size")
    assert [tuple(rank[field] for field in fields) for rank in found] == [(at, 4, at, 4) for at in range(4)]
    assert len({(rank["master_addr"], rank["master_port"]) for rank in found}) == 1


@pytest.mark.long
@pytest.mark.usefixtures("for_real")
def test_it_trains(tmp_path: Path, castoff: Castoff) -> None:
    """The file for this machine, on a few made-up structures beside their pairs."""
    (tmp_path / "data" / "input").mkdir(parents=True)
    (tmp_path / "models").mkdir()
    DPO.write_data(tmp_path / "data" / "input")
    (tmp_path / "data/input/pairs.json").rename(tmp_path / "data/input/test_data_real.json")
    (tmp_path / "data/input/base.pt").rename(tmp_path / "models/v_48_020.pt")
    path = EXAMPLES / "local" / "dpo.yaml"
    command = [*planned(path, "local").command, "--num_epochs=1"]
    here = ["--site", "local", "--set", f"command={json.dumps(command)}"]
    answer = castoff("submit", path, *here, cwd=tmp_path)
    assert answer.returncode == 0, answer.stderr
    ended = castoff("wait", "dpo", cwd=tmp_path)
    told = castoff("logs", "dpo", cwd=tmp_path).stdout
    assert ended.returncode == 0, told
    assert "Loaded 43 training and 5 validation pairs" in told
    assert "Batch size per GPU: 1, Total batch size: 4" in told
    models = {each.name for each in (tmp_path / "outputs" / "dpo_ddp_local").glob("*.pt")}
    assert models == {"best_model.pt", "latest_model.pt", "checkpoint_epoch_1.pt"}
