"""What may stand wherever somebody writes or prints something: text that wants a script to do something else,
any text at all, names of files, and values of JSON. All tests draw it from here.
"""

from __future__ import annotations

from typing import Any, Literal, TypeAlias

from hypothesis import strategies as st

CategoryName: TypeAlias = Literal["C", "Cc", "Cf", "Cn", "Co", "Cs", "Zl", "Zp"]
"""One of Unicode's."""

ARGUMENTS = [
    *("", "a b", " lead", "it's", '"', "\\", "$(touch x)", "`touch y`", "$HOME", "*", "?", "~", "!!"),
    *("line\nbreak", "cr\r\nlf", "\t", "-n", "--", "--help", "a:b", ":", "ü€🦊", "#", "&", ";", "{a,b}"),
    *("%s", "CASTOFF_RANK", "x\nCASTOFF_RANK\ny", "{{ plan }}", "", "a=b", "-"),
]
"""Words of a command, for tests that start one and draw none."""

FILES_OF_A_PROJECT = [
    b"two\nlines.py",
    b'it\'s "quoted".py',
    b"-leading.py",
    b"not\xffutf8.py",
    "ünïcode.py".encode(),
    b"  spaces .py ",
    b"a b/b a.py",
    b"tab\tand\\backslash.py",
    b"glob[*?].py",
    b":(top)magic.py",
]
"""Paths that a program which lists files may write otherwise, for tests that make them all."""


def any_text(
    *,
    min_size: int = 0,
    max_size: int = 40,
    without: str = "\0",
    categories: tuple[CategoryName, ...] = ("Cs",),
) -> st.SearchStrategy[str]:
    """Any characters but these, and those of these categories of Unicode; nothing that UTF-8 cannot hold."""
    characters = st.characters(exclude_characters=without, exclude_categories=categories)
    return st.text(characters, min_size=min_size, max_size=max_size)


ANY = any_text()
"""What an argument of a program may be."""

ANY_LINE = any_text(without="\0\n\r")

PRINTED = any_text(max_size=20, categories=("C", "Zl", "Zp"))
"""What YAML takes between quotes as it is."""

QUOTES = st.text(st.sampled_from("'\"\\ #$`,=:&!*[]{}~%-a"), max_size=30)
"""Little but what shells and directives quote."""

ASCII = st.text(st.characters(min_codepoint=32, max_codepoint=126), max_size=40)


_KEYS = st.text(max_size=5)


def json_values(
    scalars: st.SearchStrategy[Any], keys: st.SearchStrategy[str] = _KEYS
) -> st.SearchStrategy[Any]:
    """Such values, and lists and objects of them."""
    return st.recursive(
        scalars,
        lambda inner: st.lists(inner, max_size=4) | st.dictionaries(keys, inner, max_size=4),
        max_leaves=15,
    )


SCALARS = st.none() | st.booleans() | st.integers() | st.text(max_size=20)
"""What every reader of JSON and YAML gives back as it was."""

HERE = "@HERE@"
"""Stands for the case's own folder, which is not known while a case is drawn."""

COMMANDS = [
    *("$(touch CANARY)", "`touch CANARY`", "; touch CANARY;", "& touch CANARY &", "| touch CANARY"),
    *("&& touch CANARY", "' ; touch CANARY ; '", '" ; touch CANARY ; "', "'\"$(touch CANARY)\"'"),
    *(") ; touch CANARY ; (", "${x:-$(touch CANARY)}", "a[$(touch CANARY)]", "<(touch CANARY)", ">CANARY"),
    *("$(canary)", "`canary`", ";canary;", "|canary", "\\$(canary)", "\\`canary\\`", "$'\\x3bcanary'"),
]
"""Text that does something where a shell, or a shell inside it, reads it as code."""

SIGNS = [
    *(" ", "  ", "\t", "'", '"', "''", "\\", "\\\\", "$", "`", "${IFS}", "$HOME", "$((1+1))", "$@", "$0"),
    *("*", "?", "[a-z]", "~", "~root", "!", "!!", "#", " #", "--", "-", "-n", "--help", ":", ";", "{}"),
    *("{a,b}", "=", "a=b", "%", "%j", "%%", "%a", "%s", "^array_index^", ",", "&", "|", "<", ">", "(", ")"),
    *(
        "{{ plan }}",
        "{% raw %}",
        "{#",
        "CASTOFF_RANK",
        "EOF",
        "#PBS -q evil",
        "#SBATCH --x",
        "null",
        "1e3",
    ),
    "# === castoff ",
    *("é", "e\u0301", "ü€", "\u202e", "\u2028", "\u2029", "\u0085", "\u00a0", "\u200b", "\ufeff", "🦊"),
    *("\x01", "\x1b[31m", "\x7f", "\x0b", "\x0c", "\x1c", "\x81", "\x88", "a", "word", "0", "afterok"),
]
"""Text that means something to a shell, sbatch, qsub, YAML, Jinja or a terminal."""

BREAKS = [
    *("\n", "\r", "\r\n", "\n\n", "\\\n", "\ntouch CANARY\n", "\r\ncanary\r\n", "\nCASTOFF_RANK\n"),
    *("\n# === castoff for local\ntouch CANARY\ncastoff_loaded=1\n", "\ncastoff_loaded=1"),
    *("\n#SBATCH --comment=evil\n", "\n#PBS -A evil\n", "\n---\n", "\nEOF\ncanary\n"),
]
"""Line breaks, and what might stand behind them."""

LONG = ["it's $(canary) \\ é\" " * 2_000, "x" * 30_000]
"""Some tens of kilobytes."""

_LAST_CHARACTER = 0x10FFFF


def _texts(pieces: list[str]) -> st.SearchStrategy[str]:
    """Three pieces in a row, or some character of Unicode between two quotes.

    One number decides it all: a job has so many texts that drawing each piece would take longer than
    to run the job.
    """
    choices = ["", *pieces]
    combined = len(choices) ** 3

    def text(number: int) -> str:
        if number >= combined:
            return _character(number - combined)
        found = ""
        while number:
            number, at = divmod(number, len(choices))
            found = choices[at] + found
        return found

    return st.integers(0, combined + _LAST_CHARACTER).map(text)


def _character(code: int) -> str:
    character = chr(code)
    if 0xD800 <= code < 0xE000 or character in "\x00\n\r":  # no character, or one that ends a line
        character = "?"
    return f"'{character}\""


LINES = _texts([*COMMANDS, *SIGNS, *LONG[:1]]).map(lambda text: text or "x")
"""One line of text, not empty."""

TEXTS = _texts([*COMMANDS, *SIGNS, *BREAKS, *LONG])
"""Any text that a script can hold."""

SHELL_TEXTS = TEXTS.map(lambda text: text.replace("\r", ""))
"""What the value of a setup line may be."""

WORDS = TEXTS | st.sampled_from(["", ":", "--", ";", "{}", "!", "-", "-x", "a=b", "if", "exec", "~"])
"""A program's arguments."""

BYTES = st.builds(
    lambda text, odd: text.encode() + odd, TEXTS, st.sampled_from([b"", b"\xff", b"\xc3", b"\x80\x81\x88"])
)
"""A secret, or an inherited variable: no text, but bytes."""


def _as_resource(text: str) -> str:
    plain = "".join(c for c in text if c.isascii() and c.isprintable() and c != "&")
    return (plain.replace("'", "") if '"' in plain else plain) or "x"


RESOURCES = LINES.map(_as_resource)
"""What PBS can hold as the value of a resource."""


def _as_file_name(text: str) -> str:
    short = text.replace("/", "_").encode()[:120].decode(errors="ignore")
    return "_" if short in ("", ".", "..") else short


FILE_NAMES = TEXTS.map(_as_file_name)
"""A file's or folder's name."""

LINE_FILE_NAMES = LINES.map(_as_file_name)
"""One without line breaks."""

NAMES_OF_VARIABLES = st.sampled_from(
    [
        *("A", "GREETING", "lower_case", "_x", "LONG" * 30, "NCCL_DEBUG", "MPICH_X", "SLURM_HINT", "PBS_X"),
        # What shells and the programs of a script heed, and hand on all the same.
        *("BASH_ENV", "ENV", "CDPATH", "GLOBIGNORE", "TMOUT", "TIMEFORMAT", "PROMPT_COMMAND", "PS3", "TZ"),
        *("HISTFILE", "MAIL", "MAILPATH", "LANGUAGE", "TMPDIR", "TERM", "USER", "LOGNAME", "BASH_X"),
        *("PYTHONPATH", "REPLY", "MAPFILE", "OPTARG", "COPROC", "HOSTNAME", "OSTYPE", "LD_LIBRARY_PATH"),
        *("AWKPATH", "TAPE", "histchars", "READLINE_LINE", "BLOCK_SIZE", "LS_COLORS", "GREP_OPTIONS"),
    ]
)
"""Variables that a job may set. LD_PRELOAD, PATH and the locale's are left out: with a hostile value,
every program of the script would rightly complain, or not be found."""
