"""Sweeps: what the tags mean, which trainings they make, and which of them is trained."""

from __future__ import annotations

import importlib
import os
import sys
from itertools import product
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from castoff.trainers.checkpointing.run_folder import run_name
from castoff.trainers.configuration.config import Config
from castoff.trainers.configuration.fields import ConfigError
from castoff.trainers.configuration.pyobject import PyObject
from castoff.trainers.configuration.sweep import by_hand, members
from castoff.trainers.configuration.tags import Sweep, below, place_in
from castoff.trainers.configuration.yaml_text import get_loader, read_yaml, to_yaml
from castoff.trainers.ddp import TrainerDDP
from castoff.trainers.program import command_line
from tests.trainers import toys

SEARCH = """
name: search
training:
  path: FOLDER
  num_epochs: 1
  device: cpu
  optimizer_type: !pyobject torch.optim.SGD
  optimizer_kwargs:
    lr: !sweep {values: [0.1, 0.01, 0.001]}
  batch_size: !sweep {values: [8, 16]}
  gradient_accumulation_steps: !coupled-sweep {target: training.batch_size, values: [2, 1]}
task: !pyobject tests.trainers.toys.Toy
task_kwargs:
  samples: !reference {target: training.batch_size}
"""


def swept(text: str) -> list[dict[str, Any]]:
    """The values of each member."""
    return [each["member"]["values"] for each in members(read_yaml(text))]


def problems(text: str) -> str:
    """What is wrong with a text."""
    with pytest.raises(ConfigError) as error:
        members(read_yaml(text))
    return str(error.value)


class TestTags:
    def test_the_last_sweep_of_a_file_varies_fastest_and_coupled_ones_follow(self) -> None:
        found = members(read_yaml(SEARCH))
        stated = [
            (
                each["training"]["optimizer_kwargs"]["lr"],
                each["training"]["batch_size"],
                each["training"]["gradient_accumulation_steps"],
                each["task_kwargs"]["samples"],
            )
            for each in found
        ]
        assert stated == [(rate, *sizes) for rate in (0.1, 0.01, 0.001) for sizes in ((8, 2, 8), (16, 1, 16))]
        assert [each["member"]["number"] for each in found] == list(range(6))
        assert found[3]["member"] == {
            "number": 3,
            "of": 6,
            "values": {
                "training.optimizer_kwargs.lr": 0.01,
                "training.batch_size": 16,
                "training.gradient_accumulation_steps": 1,
            },
        }

    @pytest.mark.parametrize(
        ("fields", "values"),
        [
            ("start: 10, stop: 30, step: 5", [10, 15, 20, 25, 30]),
            ("start: 0, stop: 11, step: 3", [0, 3, 6, 9]),
            ("start: 1, stop: 3", [1, 2, 3]),
            ("start: 0.1, stop: 0.5, step: 0.2", [0.1, 0.3, 0.5]),
            ("start: 0.1, stop: 0.7, step: 0.1", [0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7]),
            ("start: 0, stop: 0.3", [0.0, 0.1, 0.2, 0.3]),
            ("start: 3, stop: 1, step: -1", [3, 2, 1]),
            ("start: 1e-3, stop: 3e-3, step: 1e-3", [0.001, 0.002, 0.003]),
            ("start: 4, stop: 4, step: 2", [4]),
        ],
    )
    def test_a_range_has_its_end_and_nothing_beyond_it(self, fields: str, values: list[Any]) -> None:
        found = [each["a"] for each in swept(f"a: !range {{{fields}}}")]
        assert [(value, type(value)) for value in found] == [(value, type(value)) for value in values]

    def test_what_is_drawn_follows_from_seed_and_place(self) -> None:
        text = "training: {{seed: {seed}}}\n{name}: !random_uniform {{start: 1e-5, stop: 1e-2, log: true}}"
        drawn = swept(text.format(seed=3, name="a"))
        assert len(drawn) == len({each["a"] for each in drawn}) == 5
        assert drawn == swept(text.format(seed=3, name="a"))
        assert drawn != swept(text.format(seed=4, name="a"))
        values = [each["a"] for each in drawn]
        assert values != [each["b"] for each in swept(text.format(seed=3, name="b"))]
        assert sum(value < 1e-3 for value in values) > 1  # half of them in the middle, on a log scale

    def test_more_of_what_is_drawn_begins_alike(self) -> None:
        few, many = (swept(f"a: !random_uniform {{start: 0, stop: 1, size: {size}}}") for size in (2, 4))
        assert many[:2] == few

    def test_a_seed_that_is_swept_draws_the_same_for_all(self) -> None:
        rates = "a: !random_uniform {start: 0, stop: 1, size: 2}"
        found = swept(f"training: {{seed: !sweep {{values: [1, 2]}}}}\n{rates}")
        assert [each["a"] for each in found] == 2 * [each["a"] for each in swept(rates)]

    def test_anything_is_a_value_of_a_sweep(self) -> None:
        text = """
        width: 3
        model: !sweep
          values:
            - {type: !pyobject torch.nn.Linear, in: !reference {target: width}}
            - null
        """
        first, second = members(read_yaml(text))
        assert first["model"] == {"type": PyObject("torch.nn.Linear"), "in": 3}
        assert first["member"]["values"] == {"model": first["model"]}
        assert second["model"] is None

    def test_reading_imports_and_draws_nothing(self) -> None:
        data = yaml.load("a: !sweep {values: [!pyobject this.s]}", get_loader())
        assert data["a"] == Sweep([PyObject("this.s")], 1)
        assert "this" not in sys.modules

    @pytest.mark.parametrize(
        ("text", "says"),
        [
            ("a:\n- b: !sweep {}", r"config:2: a\.0\.b: !sweep: values is missing; write !sweep {values:"),
            (
                "a: !sweep {values: []}",
                r"config:1: a: !sweep: values is \[\], but takes a list of at least one",
            ),
            ("a: !sweep [1, 2]", r"!sweep: holds \[1, 2\], but takes fields"),
            ("a: !sweep 3", "!sweep: holds '3', but takes fields"),
            ("a: !sweep {vlaues: [1]}", "!sweep: there is no field vlaues; did you mean values"),
            ("a: !sweep {values: [!range {start: 1, stop: 2}]}", "values holds a !range; a sweep's"),
            ("a: !range {start: 1, stop: 2, step: 0}", "!range: step is 0, which leads nowhere from 1"),
            ("a: !range {start: 3, stop: 2}", "!range: no step of 1 leads from 3 to 2"),
            ("a: !range {start: x, stop: 2}", "!range: start is 'x', but takes a number"),
            ("a: !range {start: 1, stop: .inf}", "!range: stop is inf, but takes a number"),
            ("a: !random_uniform {start: 0, stop: 1, log: true}", "with log: true both ends take a number"),
            ("a: !random_uniform {start: 2, stop: 1}", "start is 2, above stop, which is 1"),
            ("a: !random_uniform {start: 0, stop: 1, size: 0}", "size is 0, but takes a whole number of"),
            ("a: !random_uniform {start: 0, stop: 1, log: 3}", "log is 3, but takes true or false"),
            ("a: !reference {target: b..c}", "target is 'b..c', but takes the path of a field"),
            ("a: !reference {target: b.c}\nb: {d: 1}", "leads to b.c, but b has no c"),
            ("a: !reference {target: bc}\nbcd: 1", "leads to bc, but there is no bc; did you mean bcd"),
            ("a: !reference {target: 'b[3]'}\nb: [1]", "leads to b.3, but b has no 3"),
            ("a: !reference {target: a}", "a .line 1.: !reference is circular: a to a"),
            ("a: {b: !reference {target: a}}", "is circular: a.b to a.b"),
            ("a: !coupled-sweep {target: b, values: [1]}", "is coupled to b, but there is no such field"),
            (
                "a: !coupled-sweep {target: b, values: [1]}\nb: 2",
                "is coupled to b, which is 2; name a !sweep",
            ),
            (
                "a: !coupled-sweep {target: b, values: [1]}\nb: !range {start: 1, stop: 2}",
                "to b, which is a !range",
            ),
            (
                "a: !coupled-sweep {target: b, values: [1]}\nb: !sweep {values: [1, 2]}",
                r"a \(line 1\): !coupled-sweep has 1 values, but b, to which it is coupled, has 2",
            ),
            (
                "a: !range {start: 0, stop: 1.0e+21, step: 1}\nb: !sweep {values: [1, 2]}",
                r"2000000000000000000002 trainings \(a: 1000000000000000000001, b: 2\), but at most",
            ),
            ("a: !swep {values: [1]}", "!swep is not known here; did you mean sweep"),
        ],
    )
    def test_mistakes_are_reported_with_their_place(self, text: str, says: str) -> None:
        with pytest.raises(ConfigError, match=says):
            members(read_yaml(text))

    def test_all_mistakes_at_once(self) -> None:
        stated = problems("a: !sweep {values: []}\nb: !range {start: 1, stop: 2, step: 0}\nc: !sweep 3")
        assert [line.split(": ")[:2] for line in stated.splitlines()] == [
            [f"config:{line}", name] for line, name in enumerate("abc", 1)
        ]

    def test_a_circle_is_reported_once(self) -> None:
        stated = problems(
            "a: !reference {target: b}\nb: !reference {target: c}\n"
            "c: !reference {target: a}\nd: !reference {target: a}"
        )
        assert stated.count("circular") == 1

    def test_references_lead_through_references(self) -> None:
        text = """
        layers: [{out: !sweep {values: [1, 2]}}, {out: !reference {target: 'layers[0].out'}}]
        last: !reference {target: again.1.out}
        again: !reference {target: layers}
        tasks: {0: x}
        first: !reference {target: tasks.0}
        """
        found = members(read_yaml(text))
        assert [(each["last"], each["first"]) for each in found] == [(1, "x"), (2, "x")]


NAMES = st.text("abc_é 1", min_size=1, max_size=3)
STEPS = st.lists(st.one_of(NAMES, st.integers(0, 12)), min_size=1, max_size=4)


@given(NAMES, STEPS)
def test_a_place_is_read_as_it_is_written(first: str, steps: list[str | int]) -> None:
    place = (first, *steps)
    text = "".join(f"[{each}]" if isinstance(each, int) else f".{each}" for each in place)[1:]
    assert place_in(text) == place


LEAVES = st.one_of(st.integers(), st.lists(st.integers(), min_size=1, max_size=3).map(lambda v: Sweep(v, 1)))
TREES = st.recursive(
    LEAVES,
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(NAMES, inner, max_size=3)),
    max_leaves=5,
)


@given(st.dictionaries(NAMES, TREES, max_size=3))
def test_members_are_the_product_in_the_files_order(data: dict[str, Any]) -> None:
    nodes = [(place, node) for place, node in below(data) if isinstance(node, Sweep)]
    found = members(data)
    wanted = list(product(*(node.values for _, node in nodes)))
    assert len(found) == len(wanted)
    for mine, values in zip(found, wanted, strict=True):
        leaves = dict(below({name: value for name, value in mine.items() if name != "member"}))
        assert [leaves[place] for place, _ in nodes] == list(values)
        assert {place: value for place, value in leaves.items() if place not in dict(nodes)} == {
            place: value for place, value in below(data) if not isinstance(value, Sweep)
        }


# --- Which one is trained -----------------------------------------------------------------------------


def in_array(monkeypatch: pytest.MonkeyPatch, index: int, count: int) -> None:
    monkeypatch.setenv("CASTOFF_RUN_DIR", "/runs/a")
    monkeypatch.setenv("CASTOFF_ARRAY_INDEX", str(index))
    monkeypatch.setenv("CASTOFF_ARRAY_COUNT", str(count))


class TestArrays:
    def test_a_member_of_an_array_trains_its_own(self, monkeypatch: pytest.MonkeyPatch) -> None:
        names = set()
        for index in range(6):
            in_array(monkeypatch, index, 6)
            config = Config.of(read_yaml(SEARCH))
            assert config.training.optimizer_kwargs["lr"] == (0.1, 0.01, 0.001)[index // 2]
            assert config.training.batch_size == (8, 16)[index % 2]
            names.add(run_name(config, os.environ))
        assert names == {f"search_a-{index}" for index in range(6)}

    def test_an_array_of_another_size_trains_nothing(self, monkeypatch: pytest.MonkeyPatch) -> None:
        in_array(monkeypatch, 3, 4)
        with pytest.raises(ConfigError) as error:
            Config.of(read_yaml(SEARCH))
        assert "6 trainings (training.optimizer_kwargs.lr: 3, training.batch_size: 2)" in str(error.value)
        assert "this array has 4 members; write array: {count: 6} in the job file" in str(error.value)

    @pytest.mark.parametrize("count", ["", "1"])
    def test_without_an_array_the_error_lists_the_ways(
        self, count: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("CASTOFF_ARRAY_COUNT", count)
        with pytest.raises(ConfigError) as error:
            TrainerDDP(0, read_yaml(SEARCH))
        assert "stands for 6 trainings" in str(error.value)
        assert "array: {count: 6} in the job file" in str(error.value)
        assert "from 0 to 5, with --member N" in str(error.value)

    def test_a_sweep_of_one_needs_no_array(self) -> None:
        fields = toys.config("out")
        config = Config.of(fields, ["training.seed=!sweep {values: [4]}"])
        assert config.training.seed == 4 and run_name(config, {}) == "toy_0"

    def test_what_has_no_sweep_is_trained_in_any_array(self, monkeypatch: pytest.MonkeyPatch) -> None:
        in_array(monkeypatch, 3, 4)
        config = Config.of(toys.config("out"))
        assert config.member is None and run_name(config, {}) == "toy"

    def test_what_is_set_replaces_a_sweep(self) -> None:
        stated = ["training.batch_size=4", "training.optimizer_kwargs.lr=0.5"]
        with pytest.raises(
            ConfigError, match=r"is coupled to training\.batch_size, which is 4; name a !sweep"
        ):
            Config.of(read_yaml(SEARCH), stated)
        config = Config.of(read_yaml(SEARCH), [*stated, "training.gradient_accumulation_steps=1"])
        assert (config.training.batch_size, config.training.optimizer_kwargs) == (4, {"lr": 0.5})
        assert config.task_kwargs == {"samples": 4} and config.member is None

    def test_a_sweep_in_a_list_is_replaced_too(self) -> None:
        data = read_yaml("a: {b: [1, !sweep {values: [1, 2]}]}")
        stated = {"task_kwargs": data, **toys.config("out")}
        assert Config.of(stated, ["task_kwargs.a.b.1=7"]).task_kwargs == {"a": {"b": [1, 7]}}
        for path, says in {
            "task_kwargs.a.b.1.c": "a.b.1: is !sweep, which has no field 'c'; set it as a whole",
            "task_kwargs.a.b.2": "a.b: 2 is not an index of this list; it has 2 entries, counted from 0",
        }.items():
            with pytest.raises(ConfigError, match=says):
                Config.of(stated, [f"{path}=7"])

    @pytest.mark.parametrize(
        ("number", "says"),
        [(6, r"is 6, but there are 6 trainings .*; choose one from 0 to 5"), (-1, "is -1, but there are 6")],
    )
    def test_members_that_are_not_there(self, number: int, says: str) -> None:
        with pytest.raises(ConfigError, match=f"--member: {says}"):
            Config.of(read_yaml(SEARCH), (), by_hand(number))

    def test_a_member_of_what_has_no_sweep(self) -> None:
        with pytest.raises(ConfigError, match="--member: is 0, but there is no sweep to choose from"):
            Config.of(toys.config("out"), (), by_hand(0))


class TestTraining:
    def test_a_member_has_a_folder_and_plain_values_and_resumes(
        self, tmp_path: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        text = SEARCH.replace("FOLDER", str(tmp_path)).replace("values: [8, 16]", "values: [80, 160]")
        caplog.set_level("INFO")

        def train(*stated: str) -> TrainerDDP:
            trainer = TrainerDDP(0, Config.of(read_yaml(text), stated, by_hand(3)))
            loaders = trainer.prepare_dataloaders()
            trainer.run_training(*loaders[:2])
            return trainer

        first = train()
        assert first.folder == tmp_path / "search_3"
        words = "Member 3 of 6, counting from 0: training.optimizer_kwargs.lr=0.01, training.batch_size=160"
        assert words in caplog.text
        written = (first.folder / "config.yaml").read_text()
        assert "!sweep" not in written and "batch_size: 160" in written
        again = train("training.num_epochs=2")
        assert (again.folder, again.step) == (first.folder, 2 * first.step)
        # The same, from what the run's folder says of itself.
        alone = Config.of(read_yaml(written))
        assert to_yaml(alone) == written and run_name(alone, {}) == "search_3"


# --- The command line ---------------------------------------------------------------------------------


def command(text: str, folder: Path, monkeypatch: pytest.MonkeyPatch, *words: str) -> list[Config]:
    """What `castoff train toy` would train."""
    trained: list[Config] = []
    (folder / "search.yaml").write_text(text)
    monkeypatch.setattr(sys, "argv", ["castoff.trainers.toy", str(folder / "search.yaml"), *words])
    monkeypatch.setattr(sys, "path", list(sys.path))
    command_line.run("toy", "Train a toy.", (), trained.append)
    return trained


class TestCommand:
    def test_members_are_listed(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        with pytest.raises(SystemExit) as ended:
            command(SEARCH, tmp_path, monkeypatch, "--members")
        assert ended.value.code == 0
        lines = capsys.readouterr().out.splitlines()
        values = (
            "training.optimizer_kwargs.lr=0.01, training.batch_size=8, training.gradient_accumulation_steps=2"
        )
        assert (lines[2], lines[-1], len(lines)) == (f"2: {values}", "array: {count: 6}", 7)

    def test_a_mistake_in_one_of_them_is_reported_by_the_list(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
    ) -> None:
        with pytest.raises(SystemExit):
            command(SEARCH.replace("[8, 16]", "[8, many]"), tmp_path, monkeypatch, "--members")
        assert "training.batch_size: is 'many', but takes a whole number of at least 1 (member 1, 3, 5)" in (
            capfd.readouterr().err
        )

    def test_one_is_trained(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        (config,) = command(SEARCH, tmp_path, monkeypatch, "--member", "5")
        assert (config.training.batch_size, config.training.optimizer_kwargs["lr"]) == (16, 0.001)

    @pytest.mark.parametrize(
        ("system", "text"),
        [
            ("gnn", SEARCH),
            ("sedd", "training: {seed: !sweep {values: [1, 2, 3]}}\n"),
            ("dpo", "preference: {beta: !range {start: 0.1, stop: 0.3, step: 0.1}}\ndata: {train_data: x}\n"),
        ],
    )
    def test_every_system_lists_them(
        self,
        system: str,
        text: str,
        tmp_path: Path,
        monkeypatch: pytest.MonkeyPatch,
        capsys: pytest.CaptureFixture[str],
    ) -> None:
        (tmp_path / "sweep.yaml").write_text(text)
        more = ["--base_model_dir", ".", "--output_dir", "out"] if system == "dpo" else []
        monkeypatch.setattr(sys, "argv", [system, str(tmp_path / "sweep.yaml"), "--members", *more])
        monkeypatch.setattr(sys, "path", list(sys.path))
        with pytest.raises(SystemExit) as ended:
            importlib.import_module(f"castoff.trainers.{system}.__main__").main()
        assert ended.value.code == 0
        lines = capsys.readouterr().out.splitlines()
        assert lines[0].startswith("0: ") and lines[-1] == f"array: {{count: {len(lines) - 1}}}"
