"""Scripts come apart into statements where bash says they do."""

from __future__ import annotations

import subprocess

import pytest
from hypothesis import given
from hypothesis import strategies as st

from launcher.importing.shell import statements

from .scripts_of_tests import NAMES, text_of

APART = {
    "a; b": ["a", "b"],
    "a && b || c": ["a && b || c"],
    "a & b": ["a &", "b"],
    "a | \\\n  b # c": ["a | \\\n  b"],
    "a &&\n\n# c\nb": ["a &&\n\n# c\nb"],
    "a 'x;\ny' \"z;$(b; c)\" `d; e`": ["a 'x;\ny' \"z;$(b; c)\" `d; e`"],
    "if a; then\nb\nelif c; then d; else e\nfi; f": ["if a; then\nb\nelif c; then d; else e\nfi", "f"],
    "for ((i=0; i<3; i++)); do a; done\nb": ["for ((i=0; i<3; i++)); do a; done", "b"],
    "for x in a b\ndo c; done": ["for x in a b\ndo c; done"],
    "case $x in\n a|b) c ;;\n (d) e ;&\n *) if f; then g; fi\nesac": [
        "case $x in\n a|b) c ;;\n (d) e ;&\n *) if f; then g; fi\nesac"
    ],
    "f() {\n a\n}\nfunction g\n{ b; }\nf": ["f() {\n a\n}", "function g\n{ b; }", "f"],
    "(a; b) > c\nd": ["(a; b) > c", "d"],
    "A=(1 2 # three\n 4)\nb": ["A=(1 2 # three\n 4)", "b"],
    "cat <<E | a <<-'F'\n1;\nE\n2\n\tF\nb": ["cat <<E | a <<-'F'\n1;\nE\n2\n\tF", "b"],
    "x=$(cat <<E\n)\nE\n)\nb": ["x=$(cat <<E\n)\nE\n)", "b"],
    "[[ a && b || ( c ) ]] && d\n((i++))": ["[[ a && b || ( c ) ]] && d", "((i++))"],
    "echo ${a:-'}'} ${#b} $# a#b\nc": ["echo ${a:-'}'} ${#b} $# a#b", "c"],
    "echo if then fi done\nb": ["echo if then fi done", "b"],
    "while read -r a; do b; done < <(c; d) 2>&1": ["while read -r a; do b; done < <(c; d) 2>&1"],
    "{ a; } 2>/dev/null; b": ["{ a; } 2>/dev/null", "b"],
}


@pytest.mark.parametrize("script", APART)
def test_statements(script: str) -> None:
    assert subprocess.run(["bash", "-n", "-c", script], check=False).returncode == 0
    found = statements(script)
    assert [one.text for one in found] == APART[script]
    assert not any(one.broken for one in found)


def test_lines_are_those_of_the_script() -> None:
    found = statements("# c\n\na; b\nif c\nthen d\nfi # e\n\nf <<X\ng\nX\nh\n")
    assert [(one.first, one.last) for one in found] == [(3, 3), (3, 3), (4, 6), (8, 10), (11, 11)]


COMMANDS = {
    "A=1 srun -n 2 python 'a b' > log 2>&1 <in": ["A=1 srun -n 2 python 'a b'"],
    "for x in 1 2; do a $x; b & done": ["a $x", "b"],
    "if a; then b; else c | d; fi": ["a", "b", "c", "d"],
    "f() { a; }": ["a"],
    "case $x in a) b;; esac": ["b"],
    "while ! a; do time b; done": ["a", "b"],
}


@pytest.mark.parametrize("script", COMMANDS)
def test_commands_within(script: str) -> None:
    (statement,) = statements(script)
    assert [" ".join(one.words) for one in statement.commands] == COMMANDS[script]


def test_redirections_are_no_words() -> None:
    ((command,),) = [one.commands for one in statements("a 2>&1 >> log b 3< in &> all <<< text <<E\nx\nE\n")]
    assert command.words == ["a", "b"]
    assert command.redirections == ["2>&1", ">>log", "3<in", "&>all", "<<<text", "<<E"]
    assert command.heredocs == ["x\nE\n"]


BROKEN = {
    "a\necho 'b\nc": "a quote (')",
    'a\necho "b\nc': 'a quote (")',
    "a\nfor x in 1\nc": "a command that done would end",
    "a\ncat <<E\nc": "a here-document, which E would end",
    "a\nx=$(b\nc": "a parenthesis",
    "a\n(b\nc": "a command that ) would end",
}


@pytest.mark.parametrize("script", BROKEN)
def test_what_has_no_end_is_one_line(script: str) -> None:
    one, broken, three = statements(script)
    assert (one.text, three.text) == ("a", "c")
    assert broken.broken.startswith(BROKEN[script])
    assert broken.first == broken.last == 2


PIECES = [
    *(
        "a",
        "b c",
        "if a; then b; fi",
        "for x in 1 2; do",
        "done",
        "while a; do b",
        "{",
        "}",
        "( a",
        ")",
        "case x in",
    ),
    *(
        "a) b;;",
        "esac",
        "f() {",
        "cat <<E",
        "E",
        "x='",
        'y="',
        "$(",
        "`",
        "# c",
        "a \\",
        "&& b",
        "| c",
        "A=(1",
        "fi",
    ),
    *("[[ a", "]]", "((i=1))", "then", "else", "do", "echo if", "2>&1", ";", "&"),
]


@given(st.lists(st.sampled_from(PIECES), max_size=10))
def test_what_bash_reads_comes_apart_into_what_bash_reads(pieces: list[str]) -> None:
    script = "\n".join(pieces) + "\n"
    if subprocess.run(["bash", "-n"], input=script, text=True, capture_output=True, check=False).stderr:
        return
    found = statements(script)
    assert not any(one.broken for one in found)
    again = "\n".join(one.text for one in found)
    done = subprocess.run(["bash", "-n"], input=again, text=True, capture_output=True, check=False)
    assert done.stderr == "", again


@pytest.mark.parametrize("name", NAMES)
def test_whole_scripts(name: str) -> None:
    for one in statements(text_of(name)):
        checked = subprocess.run(
            ["bash", "-n"], input=f"{one.text}\n", text=True, capture_output=True, check=False
        )
        assert (one.broken, checked.stderr) == ("", "")
