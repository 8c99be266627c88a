"""array.parameters and array.commands: tables, files, texts that refer to parameters, and mistakes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from castoff import InvalidInput, JobSpec
from castoff.launcher.config.parameters import Table, json_scalar, same, size_of
from castoff.launcher.config.references import filled, references, replaced, without_references
from tests.hostile import ANY_LINE

GRID: dict[str, Any] = {"lr": ["1e-3", "1e-4"], "seed": ["0", "1", "2"]}


def rows(parameters: Any) -> list[dict[str, str]]:
    table = Table.of(parameters)
    assert table.size == size_of(parameters)
    return [table.values(member) for member in range(table.size)]


class TestTable:
    def test_a_mapping_is_every_combination_the_last_name_fastest(self) -> None:
        found = rows(GRID)
        assert [(row["lr"], row["seed"]) for row in found] == [
            *(("1e-3", seed) for seed in "012"),
            *(("1e-4", seed) for seed in "012"),
        ]

    def test_zip_goes_in_step_and_combines_with_others(self) -> None:
        zipped = {"zip": {"lr": ["1", "2"], "steps": ["10", "20"]}}
        assert rows(zipped) == [{"lr": "1", "steps": "10"}, {"lr": "2", "steps": "20"}]
        both = rows({"seed": ["0", "1"], **zipped})
        assert [[*row.values()] for row in both] == [
            ["0", "1", "10"],
            ["0", "2", "20"],
            ["1", "1", "10"],
            ["1", "2", "20"],
        ]

    def test_a_list_is_what_it_says_in_any_order_of_names(self) -> None:
        assert rows([{"a": "1", "b": "2"}, {"b": "4", "a": "3"}]) == [
            {"a": "1", "b": "2"},
            {"a": "3", "b": "4"},
        ]

    @pytest.mark.parametrize(
        ("value", "scalar"),
        [
            ("1e-3", "1e-3"),
            ("-0.50", "-0.50"),
            ("007", '"007"'),
            (".5", '".5"'),
            ("1e999", '"1e999"'),
            ("9" * 5000, f'"{"9" * 5000}"'),
            ("True", "true"),
            ("false", "false"),
            ("tRUE", '"tRUE"'),
            ("", '""'),
            ('ü\t\\"', '"ü\\t\\\\\\""'),
            ("١", '"١"'),
        ],
    )
    def test_what_a_value_is_in_json(self, value: str, scalar: str) -> None:
        assert json_scalar(value) == scalar
        json.loads(scalar)

    @pytest.mark.parametrize(
        ("one", "other", "equal"),
        [("1e-3", "0.001", True), ("1", "1.0", True), ("a", "A", False), ("True", "true", True)],
    )
    def test_numbers_are_compared_as_numbers(self, one: str, other: str, equal: bool) -> None:
        assert same(one, other) is equal


class TestReferences:
    @pytest.mark.parametrize(
        ("text", "result"),
        [
            ("{lr}", "1e-3"),
            ("--lr={lr}/{lr}", "--lr=1e-3/1e-3"),
            ("{{lr}}", "{lr}"),
            ("{{{lr}}}", "{1e-3}"),
            ("{{{{lr}}}}", "{{lr}}"),
            ('{"a": {lr}}', '{"a": 1e-3}'),
            ('{"a": {"b": {lr}}}', '{"a": {"b": 1e-3}}'),
            ("{{lr}: 1}", "{1e-3: 1}"),
            ("${lr} $lr ${{lr}}", "${lr} $lr ${{lr}}"),
            *(
                (text, text)
                for text in ('{"a": {"b": 1}}', "{a,b}", "{print $1}", "a{2,3}", "{3}", "{}", "{ lr }")
            ),
        ],
    )
    def test_which_braces_are_replaced(self, text: str, result: str) -> None:
        assert filled(text, {"lr": "1e-3"}) == result

    def test_names(self) -> None:
        assert references("{a} {{b}} ${c} {d}{a} {e f} {{{g}}}") == ["a", "d", "g"]
        assert without_references("train-{lr}-{seed}") == "train"
        assert without_references("{model}-big_{lr}") == "big"

    @given(text=st.text(st.sampled_from('{}$lr "a')), value=ANY_LINE)
    @settings(max_examples=50)
    def test_values_are_not_read_again(self, text: str, value: str) -> None:
        once = filled(text, {"lr": value})
        assert replaced(text, lambda _: "\0").replace("\0", value) == once or "{lr}" not in text

    @given(text=st.text(st.sampled_from('{}$lr "a')))
    @settings(max_examples=50)
    def test_texts_without_names_in_braces_stay_as_they_are(self, text: str) -> None:
        if not references(text) and "{{" not in text:
            assert filled(text, {"lr": "x"}) == text


def wrong(folder: Path, text: str, *overrides: str, **files: str | bytes) -> dict[str, str]:
    """The problems of a job file, by field."""
    for name, content in files.items():
        data = content if isinstance(content, bytes) else content.encode()
        (folder / name.replace("_", ".")).write_bytes(data)
    (folder / "job.yaml").write_text(text)
    with pytest.raises(InvalidInput) as caught:
        JobSpec.load(folder / "job.yaml", overrides=overrides)
    return {problem.path: problem.message for problem in caught.value.problems}


def loaded(folder: Path, text: str, **files: str | bytes) -> JobSpec:
    for name, content in files.items():
        data = content if isinstance(content, bytes) else content.encode()
        (folder / name.replace("_", ".")).write_bytes(data)
    (folder / "job.yaml").write_text(text)
    return JobSpec.load(folder / "job.yaml")


def table_of(spec: JobSpec) -> list[dict[str, str]]:
    assert spec.array is not None and spec.array.table is not None
    return [spec.array.table.values(member) for member in range(spec.array.size)]


JOB = 'command: [train, "{lr}", "{seed}"]\n'


class TestJobFiles:
    def test_values_keep_their_spelling(self, tmp_path: Path) -> None:
        spec = loaded(
            tmp_path, 'command: [x, "{v}"]\narray: {parameters: {v: [1e-3, .5, 1., 010, true, "2", a b]}}'
        )
        assert [row["v"] for row in table_of(spec)] == ["1e-3", "0.5", "1.0", "010", "true", "2", "a b"]

    def test_references_without_quotes_are_read_as_meant(self, tmp_path: Path) -> None:
        fields = "env: {A: {lr}}\nworkdir: {lr}\nname: {lr}\narray: {parameters: {lr: [1]}}"
        spec = loaded(tmp_path, f"command: [x, {{lr}}]\n{fields}")
        assert (spec.command, spec.env, spec.workdir, spec.name) == (
            ["x", "{lr}"],
            {"A": "{lr}"},
            "{lr}",
            "{lr}",
        )

    def test_without_parameters_braces_mean_nothing(self, tmp_path: Path) -> None:
        spec = loaded(tmp_path, 'command: [x, "{lr}", "{{a}}"]\nenv: {A: "{b}"}\narray: {count: 2}')
        assert spec.command == ["x", "{lr}", "{{a}}"]

    @pytest.mark.parametrize(
        ("fields", "field", "message"),
        [
            (
                "array: {parameters: {lr: [1], sed: [1]}}",
                "command.2",
                "holds {seed}, but there is no parameter seed; did you mean sed?",
            ),
            (
                "array: {parameters: {lr: [1], seed: [1], x: [1]}}",
                "array.parameters",
                "has x, but neither command, env,",
            ),
            (
                "array: {parameters: {zip: {lr: [1, 2], seed: [1]}}}",
                "array.parameters.zip",
                "takes lists of the same length, one value of each for a member: lr has 2, seed has",
            ),
            (
                "array: {parameters: {zip: {lr: [1], seed: [1]}, lr: [1]}}",
                "array.parameters.zip.lr",
                "is also outside of zip",
            ),
            (
                "array: {parameters: {lr: 1e-3, seed: [1]}}",
                "array.parameters.lr",
                "is '1e-3', but takes a list of values, as in [1e-3, 1e-4]",
            ),
            ("array: {parameters: {lr: [], seed: [1]}}", "array.parameters.lr", "is an empty list"),
            (
                "array: {parameters: {lr: [null], seed: [1]}}",
                "array.parameters.lr.0",
                "is empty, but takes one line of text, a number, true or false",
            ),
            (
                'array: {parameters: {lr: ["a\\nb"], seed: [1]}}',
                "array.parameters.lr.0",
                "is 'a\\nb', but takes one line of text",
            ),
            (
                "array: {parameters: {lr-x: [1]}}",
                "array.parameters.lr-x",
                "is 'lr-x', but takes as its name a parameter's name",
            ),
            (
                "array: {parameters: {lr: {a: [1]}, seed: [1]}}",
                "array.parameters.lr",
                "is a mapping, but takes a list of values; only zip",
            ),
            ("array: {parameters: []}", "array.parameters", "is empty: give names and their values"),
            (
                "array: {parameters: [{lr: 1, seed: 1}, {lr: 2}]}",
                "array.parameters.1",
                "has no seed, unlike the first combination",
            ),
            (
                "array: {parameters: [{lr: 1, seed: 1}, {lr: 2, seed: 1, x: 1}]}",
                "array.parameters.1",
                "has x too, unlike the first",
            ),
            (
                "array: {parameters: runs.txt}",
                "array.parameters",
                "is 'runs.txt', but takes lists of values by name, or a file that",
            ),
            (
                "array: {parameters: {lr: [1, null], seed: [1]}}",
                "array.parameters.lr.1",
                'is empty, but takes one line of text, a number, true or false; for an empty text write ""',
            ),
            (
                "array: {parameters: runs.XLSX}",
                "array.parameters",
                "is 'runs.XLSX', a spreadsheet: save it as CSV (UTF-8)",
            ),
            (
                "array: {parameters: {lr: [1], seed: [1]}, count: 4}",
                "array.count",
                "excludes array.parameters",
            ),
            (
                "array: {parameters: {lr: [1], seed: [1]}}\nsetup: ['mkdir {lr}']",
                "setup.0",
                'holds {lr}, which stays as it is here: in shell lines a parameter is a variable: write "$',
            ),
            (
                "array: {parameters: {lr: [1], seed: [1]}}\nqueue: 'q-{lr}'",
                "queue",
                "holds {lr}, which stays as it is here: parameters are replaced in command,",
            ),
            ("array: {parameters: none.csv}", "array.parameters", "names "),
            ("array: {commands: none.txt}", "array.commands", "names "),
        ],
    )
    def test_mistakes(self, fields: str, field: str, message: str, tmp_path: Path) -> None:
        assert wrong(tmp_path, JOB + fields)[field].startswith(message)

    def test_a_program_whose_name_is_an_option(self, tmp_path: Path) -> None:
        text = 'command: ["{p}"]\narray: {parameters: {p: [ls, --x]}}'
        assert wrong(tmp_path, text) == {"command.0": "is '--x' for member 1, but must name a program"}

    @pytest.mark.parametrize(
        "fields",
        [
            "command: [x]",
            "command: [x]\nname: a-{lr}",
            "command: [x, {lr}, --file, $CASTOFF_PARAMETERS]",
            "command: [x, {lr}]\nsetup: [cp $CASTOFF_PARAMETERS params.json]",
        ],
    )
    def test_a_program_that_reads_the_file_needs_no_reference(self, fields: str, tmp_path: Path) -> None:
        spec = loaded(tmp_path, f"{fields}\narray: {{parameters: {{lr: [1, 2], seed: [0]}}}}")
        assert len(table_of(spec)) == 2


TAKES = "a parameter's name has letters, digits and _ only"


class TestTables:
    @pytest.mark.parametrize(
        "content",
        [
            "lr,seed\n1e-3,0\n1e-4,1\n",
            "lr,seed\r\n1e-3,0\r\n1e-4,1\r\n",
            "\ufefflr, seed\n1e-3, 0\n\n1e-4 , 1\n",
            '"lr","seed"\n"1e-3","0"\n1e-4,1',
        ],
    )
    def test_forms_of_a_table(self, content: str, tmp_path: Path) -> None:
        spec = loaded(tmp_path, JOB + "array: {parameters: runs.csv}", runs_csv=content)
        assert table_of(spec) == [{"lr": "1e-3", "seed": "0"}, {"lr": "1e-4", "seed": "1"}]

    def test_values_of_a_table(self, tmp_path: Path) -> None:
        content = 'lr,seed\n"say ""hi"", you",\nüñ,\'$x\'\n'
        spec = loaded(tmp_path, JOB + "array: {parameters: runs.csv}", runs_csv=content)
        assert [row["lr"] for row in table_of(spec)] == ['say "hi", you', "üñ"]
        assert [row["seed"] for row in table_of(spec)] == ["", "'$x'"]

    def test_tabs_and_the_command_line(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        (tmp_path / "here").mkdir()
        (tmp_path / "here" / "runs.tsv").write_text("lr\tseed\n1,5\t0\n")
        (tmp_path / "job.yaml").write_text(JOB)
        monkeypatch.chdir(tmp_path / "here")
        spec = JobSpec.load(tmp_path / "job.yaml", overrides=["array.parameters=runs.tsv"])
        assert table_of(spec) == [{"lr": "1,5", "seed": "0"}]

    def test_a_table_is_read_once(self, tmp_path: Path) -> None:
        spec = loaded(tmp_path, JOB + "array: {parameters: runs.csv}", runs_csv="lr,seed\n1,2\n")
        (tmp_path / "runs.csv").unlink()
        assert spec.array is not None and spec.array.parameters == [{"lr": "1", "seed": "2"}]

    @pytest.mark.parametrize(
        ("content", "message"),
        [
            (
                "learning rate,seed\n1,2\n",
                f"has a column 'learning rate', but {TAKES}: write it as learning_rate",
            ),
            ("2lr,seed\n1,2\n", f"has a column '2lr', but {TAKES}: write it as p_2lr"),
            (
                "lr;seed\n1;2\n",
                f"has a column 'lr;seed', but {TAKES}: its columns seem to be separated by ';', not by",
            ),
            (
                "lr\tseed\n1\t2\n",
                f"has a column 'lr\\tseed', but {TAKES}: its columns seem to be separated by tabs: give",
            ),
            (",lr,seed\n0,1,2\n", "has no name for column 1: name it (pandas"),
            ("lr,seed\n1,2,3\n", "has 3 values for 2 columns (lr, seed): quote a value that holds a comma"),
            ("lr,seed\n1\n", "has 1 value for 2 columns (lr, seed): add the missing ones, empty or not"),
            ("lr,lr\n1,2\n", "has two columns lr: rename one"),
            ("lr,seed\n", "names "),
            ("", "names "),
            ('lr,seed\n"a\nb",2\n', "has 'a\\nb' as lr, but a value is one line of text"),
            ('lr,seed\n"a,2\n', "is not a table: unexpected end of data"),
            (b"lr,seed\n\xff,2\n", "is not UTF-8 text; save it as UTF-8"),
        ],
    )
    def test_mistakes(self, content: str | bytes, message: str, tmp_path: Path) -> None:
        found = wrong(tmp_path, JOB + "array: {parameters: runs.csv}", runs_csv=content)
        assert found["array.parameters"].startswith(message)


class TestCommands:
    def test_each_line_is_a_member(self, tmp_path: Path) -> None:
        content = '# comment\r\n\r\n  train --lr 1 \r\ntrain\t{x} | tee "a b"\n'
        spec = loaded(tmp_path, "array: {commands: cmds.txt, max_concurrent: 2}", cmds_txt=content)
        assert [row["command"] for row in table_of(spec)] == ["train --lr 1", 'train\t{x} | tee "a b"']
        assert (spec.command, spec.name) == (["bash", "-c", "{command}"], "cmds")
        assert spec.array is not None and spec.array.max_concurrent == 2

    @pytest.mark.parametrize(
        ("content", "message"),
        [
            ("# nothing\n", "names "),
            ("a \\\n b\n", "ends in \\, but each command is one line: join it with the next"),
            ("a\x01\n", "has control characters"),
        ],
    )
    def test_mistakes(self, content: str, message: str, tmp_path: Path) -> None:
        found = wrong(tmp_path, "array: {commands: cmds.txt}", cmds_txt=content)
        assert found["array.commands"].startswith(message)

    def test_they_exclude_parameters(self, tmp_path: Path) -> None:
        found = wrong(tmp_path, "array: {commands: cmds.txt, parameters: {a: [1]}}", cmds_txt="a\n")
        assert found["array.commands"].startswith("excludes array.parameters")


@pytest.mark.parametrize("text", ["workdir: {lr}/x\n", "command: [a, {lr}/x, b]\n"])
def test_a_text_that_begins_with_braces_is_to_be_quoted(text: str, tmp_path: Path) -> None:
    assert wrong(tmp_path, text)[""].endswith('; quote a text that begins with braces: "{lr}/x"')
