"""What the documents show is true: their commands run, their files are valid, their links lead somewhere.

How to write a block so that it is checked here stands in CONTRIBUTING.md.
"""

from __future__ import annotations

import ast
import contextlib
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import pytest
import yaml

from castoff import plan, render
from castoff.launcher.cli.help import VERBS
from castoff.launcher.config.job import JobSpec
from castoff.launcher.config.job_group import JobGroup, load
from castoff.launcher.config.site import Search, Site
from castoff.trainers.configuration.config import Config
from castoff.trainers.configuration.sweep import members
from castoff.trainers.configuration.yaml_text import get_loader
from docs.generate.pages import without_generated
from tests import patience
from tests.cluster.slurm import HEAD, SlurmCluster
from tests.pbs.cluster import PbsCluster
from tests.trainers.logged import unwrapped
from tests.webhook import Server

CHECKOUT = Path(__file__).resolve().parents[1]
DOCUMENTS = sorted(
    [
        *(CHECKOUT / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md")),
        *(CHECKOUT / "docs").rglob("*.md"),
    ]
)


def name_of(document: Path) -> str:
    """As `how-to/logs.md`."""
    folder = CHECKOUT / "docs"
    return str(document.relative_to(folder if folder in document.parents else CHECKOUT))


SCHEDULER_COMMANDS = {"sbatch", "squeue", "sacct", "scancel", "srun", "scontrol", "qsub", "qstat", "qdel"}

RUN_ELSEWHERE = re.compile(r"(make|git clone|python3? -m (pip|venv)|pip install)\b")
"""Commands that set up an environment: the Makefile and test_packaging.py run those."""

STUB = """#!/bin/bash
# Stands for a scheduler: says no to what bash could not read, else gives an id.
if [[ $1 == --version ]]; then echo "{version}"; exit 0; fi
script=${{!#}}
if (($# == 0)); then script=$(mktemp) && cat >"$script"; fi
bash -n "$script" && grep -q '^#{directive} ' "$script" || exit 1
echo "$0 $*" >>"$HOME/submitted"
echo "{answer}"
"""


SSH = """#!/bin/bash
# Stands for ssh: a host here whose folders lie under one of this home.
cd() { mkdir -p "$HOME/remote$1" && builtin cd "$HOME/remote$1"; }
export -f cd
shift
exec bash -c "$*"
"""


NVIDIA_SMI = """#!/bin/bash
# Stands for the driver's tool on a host with eight devices, of which those that are to be seen have work.
echo "index, utilization.gpu [%], memory.used [MiB]"
for index in {0..7}; do
  [[ ,$CUDA_VISIBLE_DEVICES, == *,$index,* ]] && echo "$index, 97 %, 2143 MiB" || echo "$index, 0 %, 1 MiB"
done
"""

WATCH = """#!/bin/bash
# Stands for somebody who looks once, and ends it.
shift 2
exec "$@"
"""

DEVICES = """# Stands for a host with eight NVIDIA devices, where a command only asks how many are to be seen.
import sys

if any("torch.cuda" in word for word in sys.orig_argv):
    import torch

    torch.cuda.device_count = lambda: sum(index < 8 for index in torch.cuda._parse_visible_devices())
"""


class Block(NamedTuple):
    """A fenced block of a document."""

    document: Path
    line: int
    language: str
    text: str

    @property
    def file(self) -> str | None:
        """The file that it shows: its first line is a comment that names nothing but a path."""
        named = re.match(r"(?:# |\{# |// )([\w./-]+\.\w+)(?: #\})?\n", self.text)
        return named.group(1) if named else None

    def __str__(self) -> str:
        return f"{self.document.relative_to(CHECKOUT)}:{self.line}"


class Command(NamedTuple):
    """A command of a console block, the exit code it has, and the output that is shown."""

    words: str
    code: int
    output: list[str]


def blocks(document: Path) -> list[Block]:
    """A document's fenced blocks, in order."""
    found, open_at, language, lines = [], 0, "", list[str]()
    for number, line in enumerate(document.read_text(encoding="utf-8").splitlines(), 1):
        if line.lstrip().startswith("```"):
            if open_at:
                found.append(Block(document, open_at, language, "\n".join(lines) + "\n"))
                open_at = 0
            else:
                open_at, language, lines = number, line.strip().removeprefix("```"), []
        elif open_at:
            lines.append(line)
    assert not open_at, f"{document}:{open_at}: the block does not end"
    return found


def commands(block: Block) -> list[Command]:
    """The commands of a console block: `$ ` begins one, `> ` goes on, the rest is output."""
    found: list[Command] = []
    for line in block.text.splitlines():
        ends = re.search(r"\s+# exits with (\d+)$", line)
        words, code = (line[2 : ends.start()], int(ends.group(1))) if ends else (line[2:], 0)
        if line.startswith("$ "):
            found.append(Command(words, code, []))
        elif line.startswith("> ") and found and not found[-1].output:
            before = found[-1]
            found[-1] = before._replace(words=f"{before.words}\n{words}", code=code or before.code)
        else:
            assert found, f"{block}: a console block begins with `$ `"
            found[-1].output.append(line)
    return found


def cluster_of(document: Path) -> str | None:
    """The scheduler that a document's commands need: Slurm, PBS or none."""
    text = document.read_text("utf-8")
    found = re.search(r"^<!-- These commands run on a (Slurm|PBS) cluster. -->$", text, re.MULTILINE)
    return found[1] if found else None


EVERYDAY = {"README.md", "tutorials/laptop.md"}
"""The pages whose commands `make test` runs, too."""


def run_on(cluster: str | None) -> list[Any]:
    """The documents whose commands need this: costly, or long if a page says that of itself."""
    found = []
    for document in DOCUMENTS:
        if cluster_of(document) == cluster:
            takes_long = "\n<!-- These commands take long. -->\n" in document.read_text("utf-8")
            marks = [] if name_of(document) in EVERYDAY else [pytest.mark.costly]
            marks = [pytest.mark.long] if takes_long else marks
            found.append(pytest.param(document, marks=[*marks, pytest.mark.apart], id=name_of(document)))
    return found


ALL = [block for document in DOCUMENTS for block in blocks(document)]


def of_language(*languages: str) -> list[Block]:
    """The blocks in one of these languages."""
    return [block for block in ALL if block.language in languages]


# Running what is shown


@pytest.fixture(scope="module")
def tools(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The system's programs but for those of a scheduler, which this machine may or may not have."""
    folder = tmp_path_factory.mktemp("tools")
    for source in ("/usr/local/bin", "/usr/bin", "/bin"):
        for program in Path(source).iterdir() if Path(source).is_dir() else []:
            place = folder / program.name
            if program.name not in SCHEDULER_COMMANDS and not place.is_symlink():
                place.symlink_to(program)
    return folder


@pytest.fixture
def sandbox(tmp_path: Path, tools: Path, monkeypatch: pytest.MonkeyPatch, for_real: None) -> Iterator[Path]:
    """A folder as a reader has it: the checkout's examples, and `python` and `castoff` on PATH."""
    folder = tmp_path / "project"
    folder.mkdir()
    shutil.copytree(CHECKOUT / "examples", folder / "examples")
    monkeypatch.setenv("PATH", os.pathsep.join([str(Path(sys.executable).parent), str(tools)]))
    yield folder
    left = subprocess.run(
        ["castoff", "list", "--json"], cwd=folder, capture_output=True, text=True, check=True
    )
    for run in map(json.loads, left.stdout.splitlines()):
        if run["state"] in ("pending", "running"):
            subprocess.run(["castoff", "cancel", run["directory"]], cwd=folder, check=True)


def schedulers(folder: Path, shown: str) -> str | None:
    """A folder of stand-ins for the submit commands, and for those of a host's devices, that a text uses."""
    stubs = {
        "qsub": {"version": "pbs_version = 2025.2.1", "directive": "PBS", "answer": "4711.head"},
        "sbatch": {"version": "slurm 25.05", "directive": "SBATCH", "answer": "Submitted batch job 4711"},
    }
    texts = {name: STUB.format(**reported) for name, reported in stubs.items()} | {"ssh": SSH}
    texts |= {"nvidia-smi": NVIDIA_SMI, "watch": WATCH}
    begins = r"(^|&& |; |\| |watch -n 1 )"
    used = [name for name in texts if re.search(rf"{begins}{name}\b", shown, re.MULTILINE)]
    for name in used:
        folder.mkdir(exist_ok=True)
        (folder / name).write_text(texts[name])
        (folder / name).chmod(0o755)
    return str(folder) if used else None


def devices(folder: Path) -> str:
    """A folder for PYTHONPATH in which a host's devices are stood for."""
    folder.mkdir(exist_ok=True)
    (folder / "sitecustomize.py").write_text(DEVICES)
    return str(folder)


def run_block(shown: list[Command], folder: Path, at: str, where: Sequence[str] = ()) -> None:
    """Run commands in one shell, and compare each one's exit code and output with what is shown.

    `where`: the words before a command that have it run on another host.
    """
    mark = "-- end of command"
    script = "".join(f"{command.words}\nprintf '\\n%s %s\\n' '{mark}' $?\n" for command in shown)
    done = subprocess.run(
        [*where, "bash", "-c", script],
        cwd=folder,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=patience.SECONDS,
        check=False,
    )
    parts = re.split(rf"\n?^{mark} (\d+)\n", done.stdout, flags=re.MULTILINE)
    assert len(parts) == 2 * len(shown) + 1, f"{at}: the shell ended early:\n{done.stdout}"
    for command, text, code in zip(shown, parts[::2], parts[1::2], strict=False):
        assert int(code) == command.code, f"{at}: `{command.words}` exited with {code}:\n{text}"
        check_output(command, text, at)


def check_output(command: Command, text: str, at: str) -> None:
    """Every line shown stands in the output, in this order; … stands for anything.

    What trainers log is shown without the breaks that make it fit a terminal.
    """
    actual = iter(unwrapped(text).splitlines())
    for line in command.output:
        if line.strip() in ("…", ""):
            continue
        pattern = ".*".join(re.escape(part) for part in line.rstrip().split("…"))
        found = any(re.fullmatch(pattern, other.rstrip()) for other in actual)
        assert found, f"{at}: `{command.words}` does not print {line!r} there; it prints:\n{text[:3000]}"


@contextlib.contextmanager
def webhook(sandbox: Path) -> Iterator[None]:
    """Stands for a service to which castoff sends messages: its URL is in a file."""
    server = Server()
    (sandbox / "url.txt").write_text(f"{server.url}\n")
    try:
        yield
    finally:
        server.close()


@pytest.mark.apart
@pytest.mark.parametrize("document", run_on(None))
def test_commands_do_what_is_shown(
    document: Path, sandbox: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with webhook(sandbox) if "url.txt" in document.read_text() else contextlib.nullcontext():
        run_document(document, sandbox, tmp_path / "schedulers", monkeypatch)


@pytest.mark.parametrize("document", run_on("Slurm"))
def test_commands_on_a_cluster_do_what_is_shown(
    document: Path, slurm: SlurmCluster, sandbox: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ours = Path(sys.executable).parent
    monkeypatch.setenv("PATH", os.pathsep.join([str(ours), "/usr/bin", "/bin"]))
    activate = sandbox / "env" / "bin" / "activate"
    activate.parent.mkdir(parents=True)
    activate.write_text(f"export PATH={ours}:$PATH\n")
    run_document(document, sandbox, None, monkeypatch, slurm.hosts.enter(HEAD, sandbox))


@pytest.mark.parametrize("document", run_on("PBS"))
def test_commands_on_pbs_do_what_is_shown(
    document: Path, pbs: PbsCluster, sandbox: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ours = str(Path(sys.executable).parent)
    monkeypatch.setenv("PATH", os.pathsep.join([ours, pbs.environment()["PATH"]]))
    run_document(document, sandbox, None, monkeypatch, pbs.hosts.enter(HEAD, sandbox))


def run_document(
    document: Path,
    sandbox: Path,
    stubs_folder: Path | None,
    monkeypatch: pytest.MonkeyPatch,
    where: Sequence[str] = (),
) -> None:
    """Write and run a document's blocks, in order; with `stubs_folder`, submit commands are stand-ins."""
    for block in blocks(document):
        if block.file is not None:
            place = sandbox / block.file
            place.parent.mkdir(parents=True, exist_ok=True)
            # A script is shown with its name in front of its first line, which names its shell.
            place.write_text(re.sub(r"\A# .*\n(?=#!)", "", block.text))
        elif block.language == "console":
            shown = [one for one in commands(block) if not RUN_ELSEWHERE.match(one.words)]
            words = "\n".join(one.words for one in shown)
            stubs = schedulers(stubs_folder, words) if stubs_folder else None
            with monkeypatch.context() as patch:
                if stubs:
                    patch.setenv("PATH", os.pathsep.join([stubs, os.environ["PATH"]]))
                if stubs_folder and "torch.cuda" in words:
                    patch.setenv("PYTHONPATH", devices(stubs_folder))
                run_block(shown, sandbox, str(block), where)
        elif block.language == "python":
            (sandbox / "block.py").write_text(block.text)
            run_block([Command("python block.py", 0, [])], sandbox, str(block), where)


@pytest.mark.parametrize("block", of_language("bash", "sh"), ids=str)
def test_shell_is_shell(block: Block) -> None:
    subprocess.run(["bash", "-n"], input=block.text, text=True, check=True)


@pytest.mark.parametrize("block", of_language("python"), ids=str)
def test_python_is_python(block: Block) -> None:
    ast.parse(block.text)


@pytest.mark.parametrize("block", of_language("yaml"), ids=str)
def test_yaml_is_a_job_a_site_or_a_training(block: Block, tmp_path: Path) -> None:
    trains = re.search(r"^training:", block.text, re.MULTILINE) is not None
    data = yaml.load(block.text, get_loader() if trains else yaml.BaseLoader)
    assert isinstance(data, dict)
    if trains and len(swept := members(data)) > 1:
        for each in swept:
            Config.of(each)
    elif trains and block.document.name.startswith("sedd"):
        from castoff.trainers.sedd.start.configuration import read

        read(data)
    elif trains and block.document.name.startswith("dpo"):
        from castoff.trainers.dpo.start import configuration

        configuration.read(data)
    elif block.file == ".castoff/config.yaml":
        assert list(data) == ["site"]
    elif "jobs" in data:
        (tmp_path / "pipeline.yaml").write_text(block.text)
        assert isinstance(load(tmp_path / "pipeline.yaml"), JobGroup)
    elif trains:
        least = {"path": "trained", "batch_size": 1, "optimizer_type": "torch.optim.AdamW"}
        least |= {} if "num_steps" in data["training"] else {"num_epochs": 1}
        Config.of({**data, "training": {**least, **data["training"]}})
    elif set(data) <= {field.name for field in msgspec.structs.fields(JobSpec)}:
        job = tmp_path / "job.yaml"
        job.write_text(block.text if {"command", "script"} & {*data} else f"{block.text}\ncommand: [true]\n")
        JobSpec.load(job)
    else:
        folder = tmp_path / ".castoff" / "sites"
        folder.mkdir(parents=True)
        (folder / "shown.yaml").write_text(block.text)
        Site.load("shown", search=Search(os.environ, tmp_path))


@pytest.mark.parametrize(
    ("site", "expected"),
    [
        ("slurm", ("partition", "debug")),
        ("aurora", ("filesystems", "home:flare")),
        ("pbs", ("filesystems", "home:flare")),
        ("local", None),
    ],
)
def test_the_readmes_job_serves_every_scheduler(
    site: str, expected: tuple[str, str] | None, tmp_path: Path
) -> None:
    (job,) = [block for block in blocks(CHECKOUT / "README.md") if block.file == "job.yaml"]
    (tmp_path / "job.yaml").write_text(job.text)
    spec = JobSpec.load(tmp_path / "job.yaml", overrides=["nodes=1"] if site == "local" else [])
    decided = plan(spec, Site.load(site))
    assert expected is None or expected in decided.directives
    assert render(decided).startswith("#!/bin/bash")


@pytest.mark.parametrize("block", of_language("json"), ids=str)
def test_json_is_a_list_of_pairs(block: Block, tmp_path: Path) -> None:
    from castoff.trainers.dpo.samples.pairs import read_pairs

    (tmp_path / "pairs.json").write_text(block.text)
    assert read_pairs(tmp_path / "pairs.json")


def test_known_languages_only() -> None:
    known = {"console", "python", "yaml", "json", "bash", "sh", "text", "jinja"}
    shown = [block for block in ALL if not block.language.startswith("{")]  # a directive of MyST
    assert [f"{block}: {block.language!r}" for block in shown if block.language not in known] == []


def prose(document: Path) -> int:
    """The words that somebody wrote for people to read: without code, and what `make docs` writes."""
    text = re.sub(r"^```.*?^```$", "", document.read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE)
    return sum(any(map(str.isalnum, word)) for word in without_generated(text).split())


def test_the_documents_are_short() -> None:
    """All of them are an evening's reading, at 200 words a minute two and a half hours."""
    words = {name_of(document): prose(document) for document in DOCUMENTS if document.name != "CHANGELOG.md"}
    assert sum(words.values()) <= 37_000, words
    assert len((CHECKOUT / "README.md").read_text(encoding="utf-8").splitlines()) <= 120


def test_make_targets_exist() -> None:
    makefile = (CHECKOUT / "Makefile").read_text()
    targets = set(re.findall(r"^([\w-]+):", makefile, re.MULTILINE))
    shown = {
        target
        for document in DOCUMENTS
        for target in re.findall(
            r"(?:^\$ |`)(?:\w+=\S+ )?make (?:\w+=\S+ )?([\w-]+)", document.read_text(), re.MULTILINE
        )
    }
    assert {"demo", "test"} <= shown
    assert shown <= targets


def test_readme_begins_with_what_castoff_is_and_the_two_commands() -> None:
    readme = CHECKOUT / "README.md"
    first = blocks(readme)[0]
    name, _, sentence, *_ = readme.read_text(encoding="utf-8").splitlines()
    assert name == "# castoff" and sentence.startswith("castoff ")
    assert first.line <= 6
    assert [command.words.partition("#")[0].strip() for command in commands(first)] == [
        "make demo",
        "make test",
    ]


# Completeness


def described(document: str) -> set[str]:
    """The names in the first column of a document's tables."""
    text = (CHECKOUT / "docs" / document).read_text(encoding="utf-8")
    cells = re.findall(r"^\| (`[^|]*`) \|", text, re.MULTILINE)
    return {name for cell in cells for name in re.findall(r"`([\w./-]+)`", cell)}


def test_every_computed_feature_is_named() -> None:
    from castoff.trainers.gnn.causets.features import NODE, SCALARS

    page = CHECKOUT / "docs" / "reference" / "gnn-data-configuration.md"
    _, _, section = page.read_text(encoding="utf-8").partition("\n## Computed features\n")
    cells = re.findall(r"^\| (`[^|]*`) \|", section.partition("\n## ")[0], re.MULTILINE)
    assert re.findall(r"`([^`]+)`", " ".join(cells)) == [*NODE, *SCALARS]


def test_everything_that_a_task_may_have_is_described() -> None:
    from castoff.trainers import Task

    text = (CHECKOUT / "docs" / "reference" / "trainer.md").read_text(encoding="utf-8")
    _, _, section = text.partition("\n## A task\n")
    reported = set(re.findall(r"^\| `(\w+)\(", section.partition("\n## ")[0], re.MULTILINE))
    assert reported == {name for name, each in vars(Task).items() if callable(each) and name[0] != "_"}


def test_every_measure_of_how_fast_it_goes_is_described() -> None:
    from castoff.trainers.reporting.throughput import TIMED

    assert {f"train/{name}" for name in TIMED} - described("reference/training-runs.md") == set()


def test_every_further_name_of_a_measure_is_described() -> None:
    from castoff.trainers.reporting.services import FURTHER_NAMES

    text = (CHECKOUT / "docs" / "reference" / "training-runs.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| (`[^|]*`) \| (`[^|]*`) \|$", text, re.MULTILINE)
    found = {own: re.findall(r"`([^`]+)`", names) for own, names in rows}
    assert found == {f"`{own}`": list(names) for own, names in FURTHER_NAMES.items()}


def test_error_messages_are_those_of_the_code() -> None:
    page = (CHECKOUT / "docs" / "reference" / "errors.md").read_text(encoding="utf-8")
    rooms = (CHECKOUT / name for name in ("launcher", "trainers", "templates"))
    files = [path for room in rooms for path in room.rglob("*") if path.suffix in (".py", ".sh", ".yaml")]
    code = "\n".join(path.read_text(encoding="utf-8") for path in files)
    code = re.sub(r'"\s+f?"', "", code)  # one string in several pieces
    cells = re.findall(r"^\| (`.*?) \| ", page, re.MULTILINE)
    shown = [message for cell in cells for message in re.findall(r"`([^`]+)`", cell)]
    pieces = {piece.strip() for message in shown for piece in message.split("…")} - {""}
    assert len(shown) > 25
    assert [piece for piece in pieces if piece not in code] == []


@pytest.mark.parametrize("document", DOCUMENTS, ids=name_of)
def test_inline_verbs_exist(document: Path) -> None:
    text = document.read_text(encoding="utf-8")
    verbs = re.findall(r"`castoff ([a-z]+)\b", text)
    assert [verb for verb in verbs if verb not in VERBS] == []


@pytest.mark.parametrize("document", DOCUMENTS, ids=name_of)
def test_programs_of_a_page_that_works_beside_its_checkout_are_there(document: Path) -> None:
    """Who follows it installs ./castoff, and has examples/ where commands run only by copying it."""
    text = document.read_text(encoding="utf-8")
    runs = re.search(r"^(?:\$ .*|command: .*)\bexamples/", text, re.MULTILINE)
    if "./castoff # a checkout" in text and runs is not None:
        assert "\ncp -r castoff/examples ." in text[: runs.start()], runs[0]


@pytest.mark.parametrize("document", DOCUMENTS, ids=name_of)
def test_links_lead_somewhere(document: Path) -> None:
    prose = re.sub(r"```.*?```", "", document.read_text(encoding="utf-8"), flags=re.DOTALL)
    for target in re.findall(r"\]\(([^)\s]+)\)", prose):
        if re.match(r"https?:", target):
            continue
        path, _, anchor = target.partition("#")
        file = (document.parent / path) if path else document
        assert file.exists(), f"{document.name} links to {target}"
        if anchor:
            headings = re.findall(r"^#+ (.*)$", file.read_text(encoding="utf-8"), re.MULTILINE)
            anchors = {
                re.sub(r"[^\w\- ]", "", heading).strip().lower().replace(" ", "-") for heading in headings
            }
            assert anchor in anchors, f"{document.name} links to {target}"
