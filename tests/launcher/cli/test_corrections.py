"""What castoff suggests after a mistake is typed as it stands, and accepted."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable
from importlib import import_module
from pathlib import Path

import pytest

from castoff.launcher.cli.group import castoff as castoff_group
from castoff.launcher.cli.help import VERBS, module_of
from castoff.launcher.config.synonyms import _file
from tests import command_line

from ..conftest import Castoff

ON_JOBS = """
submit --export=ALL job.yaml
submit --export ALL,A=1 job.yaml
submit --export=NONE -- python train.py
submit --export A,B -- python train.py
submit --export=A=1,B='x y' -- python train.py
submit -V -- python train.py
submit -V job.yaml
submit -v A=1,B=2 -- python train.py
submit -v job.yaml
submit --verbose job.yaml
-v submit job.yaml
--verbose submit job.yaml
--site slurm submit job.yaml
submit --container x.sif -- python train.py
submit --image x.sif -- python train.py
submit --container-image x.sif -- python train.py
submit run.sh
submit done.sh a b
submit train.py --lr 0.1
submit -N 2 train.py --lr 'a b'
submit batch.sh
batch.sh
job.yaml
train.py
submit python train.py
submit job.yaml python train.py
submit -m hello.world --lr 1
submit -N 2 -m hello
submit -ppn 2 -- python train.py
submit -np 2 -- python train.py
submit -nodes 2 job.yaml
submit -walltime 2h job.yaml
submit -name=x job.yaml
submit -gpus 2 job.yaml
submit -W depend=afterok:12 job.yaml
submit -W depend=afterany:12:13,group_list=lab job.yaml
submit -W group_list=lab job.yaml
submit -W block=true job.yaml
submit -W job.yaml
submit --host pbs job.yaml
submit --profile pbs job.yaml
submit --cluster=pbs job.yaml
submit --machine pbs job.yaml
submit --slurm job.yaml
submit --local job.yaml
submit --walltime 2 hours job.yaml
submit job.yaml -t 30 min
submit --walltime '2 hours' job.yaml
submit --walltime 1week job.yaml
submit -t 10 job.yaml
submit --time 30 job.yaml
submit --time=1-0 job.yaml
submit --time 2:00:00 job.yaml
submit --timeout_min 30 job.yaml
submit --gpu-type a100 --gpus 4 job.yaml
submit --set gpu_type=a100 -G 4 job.yaml
submit job.yaml -G 4 gpu_type=a100
submit job.yaml nodes=2
submit job.yaml LR=0.1
submit job.yaml 'comment=a b'
submit job.yaml --set nodes 2
submit --set partition=gpu job.yaml
submit --set env=A=1 job.yaml
submit --set nodez=2 job.yaml
submit --partition gpu job.yaml
submit --partition=gpu job.yaml
submit --job-name x job.yaml
submit --ntasks 4 -- python train.py
submit --ntasks-per-node=4 job.yaml
submit --nproc_per_node 4 job.yaml
submit --nnodes 2 job.yaml
submit --cpus-per-task 4 job.yaml
submit -c 4 job.yaml
submit --gpus-per-task=1 job.yaml
submit --gpus-per-node=4 job.yaml
submit --gpus-per-node a100:4 job.yaml
submit --gres gpu:4 job.yaml
submit --gres=gpu:a100:4 job.yaml
submit --gres=license:2 job.yaml
submit --mem 64G job.yaml
submit --mem=4000 job.yaml
submit --mem-per-cpu=2G job.yaml
submit --mail-user me@x.org job.yaml
submit --mail-type=END,FAIL job.yaml
submit --mail-type all job.yaml
submit --mail-type=ALL --mail-user=me@x.org job.yaml
submit -m abe -M me@x.org job.yaml
submit -M me@x.org job.yaml
submit --comment 'a b' job.yaml
submit --nodelist=n1 job.yaml
submit -w n1,n2 job.yaml
submit --exclude-nodes n1 job.yaml
submit --begin=now+1hour job.yaml
submit --requeue job.yaml
submit --no-requeue job.yaml
submit --signal=B:USR1@120 job.yaml
submit --hint=nomultithread job.yaml
submit --parsable job.yaml
submit --chdir /tmp job.yaml
submit -D /tmp job.yaml
submit --wrap 'python train.py --lr 1'
submit --env A -- python train.py
submit --array 9-0 job.yaml
submit --array-size 3 job.yaml
submit --dependency train job.yaml
submit --depends-on train job.yaml
submit --conda base job.yaml
submit --module cuda job.yaml
submit --retries 3 job.yaml
submit --setup 'module load cuda' job.yaml
submit --env-from KEY job.yaml
submit --torchrun job.yaml
submit --exclusive job.yaml
submit --launcher srun job.yaml
submit --directives nodelist=n1 job.yaml
submit --run-dir /tmp job.yaml
submit --config job.yaml
submit --file job.yaml
submit --print job.yaml
submit --nodez 2 job.yaml
submit --dry-run=yes job.yaml
submit job.yaml other.yaml
submit -l walltime=1:00:00 job.yaml
submit -l select=2:ncpus=8:mpiprocs=4:ngpus=4:mem=10gb -- python train.py
submit -l select=2:ncpus=4 -- python train.py
submit -l nodes=2:ppn=4 -- python train.py
submit --num-gpus 4 job.yaml
submit -q debug -e A=1 job.yaml
submit --set time=30 job.yaml
submit --set nodes = 2 -- python train.py
submit --set setup=module load cuda -- python train.py
submit --set array=0-7 job.yaml
submit --set after=train job.yaml
submit --set launcher=torchrun job.yaml
submit --set requeue=3 job.yaml
submit --memory 1.5G job.yaml
submit folder
submit --set ntasks=4 job.yaml
submit --set gpus=4 job.yaml
submit --set OMP_NUM_THREADS=4 job.yaml
submit --set 'modules=[cuda, gcc/12]' job.yaml
submit --set cluster=pbs job.yaml
submit --set mem=4G job.yaml
submit --memory 64GB job.yaml
submit --memory 64 job.yaml
submit --walltime 1:30 job.yaml
submit --walltime 2hours job.yaml
submit --nodes 2-4 job.yaml
submit --array 1..8 job.yaml
submit --after afterok:12 job.yaml
submit --dependency 12 job.yaml
submit --exclusive=user job.yaml
submit --nice job.yaml
submit --mail me@x.org job.yaml
submit --stage data.tar job.yaml
submit --snapshot job.yaml
submit --requeue 3 job.yaml
submit --restart 3 job.yaml
submit --array 0-7 --array-parallelism 3 job.yaml
submit --cpu-bind cores job.yaml
submit --mpi pmix job.yaml
submit -H job.yaml
submit -s job.yaml
submit -L lic job.yaml
submit --tmp=10G job.yaml
submit --site pbs -l mem=10gb job.yaml
submit --site pbs -l ncpus=4 job.yaml
submit --site pbs -l ngpus=4 job.yaml
submit --site pbs -l place=scatter job.yaml
submit --site pbs -l filesystems=home:flare job.yaml
submit --site pbs -P proj job.yaml
submit --site pbs -V -l select=4:system=polaris -l place=scatter -l walltime=0:30:00 job.yaml
submit --standalone job.yaml
submit --nproc-per-node gpu job.yaml
launch -bind-to core x
launch -ppn 2 x
launch --gpu 2 x
submit --command 'python train.py --lr 1'
submit --interactive job.yaml
submit -I job.yaml
sbatch job.yaml
sbatch -n 2 -- python train.py
qsub job.yaml
run job.yaml
render --dry-run job.yaml
render --test-only job.yaml
render --script job.yaml
render job.yaml --list-members --set 'array.parameters={lr: [1, 2]}'
render --gres=gpu:4 job.yaml
render -ppn 2 job.yaml
render --members=3 job.yaml --set 'array.parameters={lr: [1, 2]}'
alloc -I job.yaml
alloc --pty -- bash
alloc job.yaml bash
alloc --gres gpu:2
alloc --duration 1h
salloc -N 2
launch -m hello a b
launch -n 2 -m hello
launch --nproc_per_node 2 true
launch --nproc-per-node=2 true
launch -np 2 true
launch --num_processes 2 true
launch --standalone -n 2 true
launch --gpus-per-node 2 true
launch --env A=1 true
launch -x A=1 true
launch --oversubscribe -n 2 true
launch --dry-run -n 2 true
launch --master_addr localhost --node-rank 0 --nodes 1 true
launch -n 2 --export=ALL true
mpirun -np 2 true
srun -n 2 true
exec -n 2 true
"""
"""Mistakes of people who have a job: each suggestion makes a job."""

ON_RUNS = """
list running
list failed
list train
list 123
list --running
list --pending
list -r
list -a
list -A
list -l
list --me
list -j 123
list --job=123
list --last 3
list --tail 3
list -t running
list --status=failed
list --states running
list -J train
list --group train
list -S yesterday
list --start 2d
list -w
list -f
list -i 5
list --format json
list --state runing
list --since 1w
list --since '2 days'
list --since 3days
list --interval 5sec
list --verbose
list --json=1
ls
squeue -u nobody
squeue --me
qstat
ps
history
logs --since 1h
logs --lines 5
logs -t 5
logs -F
logs train --ranks 1
logs train --task 1
logs train --index 3
logs --stderr
logs train other
logs --run train
logs -j train
tail train
status --watch
status train -w
status train -f
status --all
status --long train
status -j 12
show train
sacct
results --metric loss
results sweep --sort=loss
results sweep --top 3
results sweep --max
results sweep --min
results sweep --format csv
results sweep -o a.csv
results --csv=1
report train --output-file a.html
report train --html a.html
report train --metric loss
report --open train
usage train
usage --start 7d
usage --days 7
usage --me
usage --since '30 days'
wait train --timeout '5 min'
wait train -t 5m
wait --all
wait -f train
cancel --all
cancel -n train
cancel -f train
cancel train --yes
cancel -j train
cancel -s USR1 train
scancel train
kill 'a b' c
stop --all
stop train --force
stop train --now
resubmit train other
resubmit train --resume
requeue train
clean --all --dry-run
clean --force --older-than 1d
clean -f --older-than 1d
clean -n --older-than 1d
clean --failed --dry-run
clean --state failed --dry-run
clean --days 30 --dry-run
clean --older-than 1month --dry-run
clean --ending faild --dry-run
clean --before 2026-11-01 --dry-run
rm train --dry-run
top --all
top -n 5
top --interval '5 s'
shell train hostname
shell train --task 1 -- hostname
shell train --node n1 -- hostname
init -o new.yaml
init --output new.yaml --site local
init a.yaml b.yaml
init --cluster local a.yaml
import batch.sh --out b.yaml
import batch.sh other.sh
convert batch.sh
sites list
sites chek
sites add x
sites check aurora pbs
sinfo
on aurora list
on aurora submit job.yaml
on rm lab
on delete lab
on test lab
on setup lab
on ls
notify rm phone
watch -n 5
pull train --dest there
on add lab me@lab --folder /scratch/me
on add lab me@lab
list --on lab
submit job.yaml --on lab
trust --list
trust --add folder
completion --shell bash
completion bsh
completion bash zsh
schema job.yaml
schema -o a.json
explain x
statsu train
help statsu
-v
-V
"""
"""Mistakes of others: each suggestion is a command line that castoff accepts, whatever there is to see."""


def line(message: str) -> str:
    """What a message is about, without the name before it and the help behind it."""
    first = message.splitlines()[0].removeprefix("castoff: ")
    return re.sub(r" \(see castoff[^()]*\)$", "", first)


def mended(words: list[str], message: str) -> list[str] | None:
    """The user's words, with what the message suggests in place of what it names."""
    text = line(message)
    text, has_fix, fix = text.partition("here: ")
    if not has_fix:
        return _replaced(words, text)
    fix = re.split(r" [|>] ", fix)[0]
    typed = shlex.split(fix)
    if typed[0] == "castoff":
        return typed[1:]
    named = re.search(
        r"no option (\S+?);?(?: |$)|^(-\S+) takes one word|^--set (.+?): there|^(-\S+): is", text
    )
    assert named, message
    option = next(filter(None, named.groups()))
    at = next(
        n
        for n, word in enumerate(words)
        if word == option or word.startswith((f"{option}=", option[:2] + "="))
    )
    rest = words[at + 1 :]
    if named[3]:
        at -= 1
    elif "takes one word" in text:
        rest = rest[2:]
    elif "=" not in words[at] and rest and not rest[0].startswith("-") and _is_used(rest[0], fix):
        rest = rest[1:]
    return [*words[:at], *typed, *rest]


def _is_used(value: str, fix: str) -> bool:
    """Whether a suggestion has the value, perhaps translated."""
    numbers = re.findall(r"\d+", value)
    known = value.lower() in fix.lower() or (bool(numbers) and all(number in fix for number in numbers))
    return known or (
        not value.endswith((".yaml", ".sh")) and value not in ("true", "train") and "…" not in fix
    )


_SHOWN = (
    re.compile(r"`castoff ([^`]*)`"),
    re.compile(r"follows? --: castoff (.*)$"),
    re.compile(r"as in castoff (.*)$"),
)
_RIGHT = (
    r"did you mean (\S+)\?",
    r"; use (.+)$",
    r"write (\S+)$",
    r"is (\S+) in castoff",
    r"as in (-.*)$",
    r": (-.*)$",
)
_WRONG = re.compile(
    r"no (?:option|verb|site) '?([^' ;]+)|^--set ([^ =]+)\S*: there is|is '?(.*?)'?, but|holds '?(.*?)'?,"
)


def _replaced(words: list[str], text: str) -> list[str] | None:
    """The user's words with one in place of another."""
    for pattern in _SHOWN:
        if shown := pattern.search(text):
            return shlex.split(shown[1])
    if field := re.search(r"a field is set by --set (.*)$", text):
        wrong = re.search(r"takes no word '(.*?)'", text)
        assert wrong
        at = words.index(wrong[1])
        return [*words[:at], "--set", *shlex.split(field[1]), *words[at + 1 :]]
    wrong = _WRONG.search(text)
    right = next(filter(None, (re.search(pattern, text) for pattern in _RIGHT)), None)
    if not wrong or not right:
        return None
    old, new = next(filter(None, wrong.groups())), shlex.split(right[1])
    for at, word in enumerate(words):
        before, equals, value = word.partition("=")
        if old == word or (old == before and len(new) == 1):
            both = bool(at) and words[at - 1] == new[0]
            end = f"{equals}{value}" if old == before and "=" not in new[0] else ""
            return [*words[: at - both], *new[:-1], f"{new[-1]}{end}", *words[at + 1 :]]
        if value == old and bool(at) and words[at - 1] == new[0]:
            return [*words[: at - 1], *new, *words[at + 1 :]]
        if value == old:
            return [*words[:at], *(new if len(new) > 1 else [f"{before}={new[0]}"]), *words[at + 1 :]]
    return None


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """What people have: job files, scripts, an image. Nothing is started, and nothing waits."""
    for name, text in {
        "job.yaml": "name: train\ncommand: [python, train.py]\n",
        "run.sh": "python train.py\n",
        "done.sh": "true\n",
        "batch.sh": "#!/bin/bash\n#SBATCH -N 2\nsrun python train.py\n",
        "train.py": "",
        "x.sif": "",
    }.items():
        (tmp_path / name).write_text(text)
    (tmp_path / "done.sh").chmod(0o755)
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "job.yaml").write_text("command: [true]\n")
    monkeypatch.setattr("castoff.launcher.cli.launch.run", lambda request: 0)
    monkeypatch.setattr("castoff.launcher.cli.follow.pause", lambda seconds: exit(0))
    monkeypatch.setattr(command_line, "_PROCESSES", ())
    return tmp_path


def typed(castoff: Castoff, words: list[str]) -> tuple[int, str]:
    """The exit code and the messages of a command line, without submitting anything."""
    verb = next((word for word in words if word in VERBS), "")
    at = words.index(verb) + 1 if verb else 0
    more = ["--dry-run"] if verb in ("submit", "alloc") else []
    more += ["--site", "slurm"] if verb in ("submit", "render", "alloc") and "--site" not in words else []
    answer = castoff(*words[:at], *more, *words[at:])
    return answer.returncode, answer.stderr


def tried(castoff: Castoff, mistake: str, accepted: Callable[[int, str], bool]) -> None:
    """Type a mistake, and then what each message suggests, until castoff accepts it."""
    words, shown = shlex.split(mistake), [mistake]
    code, message = typed(castoff, words)
    assert not accepted(code, message), f"{mistake}: is no mistake"
    while not accepted(code, message):
        assert_castoffs_own(message)
        shown.append(line(message))
        meant = mended(words, message)
        assert meant, "\n".join(shown)
        words = meant
        shown.append(f"castoff {shlex.join(words)}")
        assert len(shown) < 14, "\n".join(shown)
        code, message = typed(castoff, words)


@pytest.mark.parametrize("mistake", ON_JOBS.strip().splitlines())
def test_a_mistake_about_a_job_is_mended(mistake: str, castoff: Castoff, folder: Path) -> None:
    tried(castoff, mistake, lambda code, message: code == 0 or "--follow excludes --dry-run" in message)


@pytest.mark.parametrize("mistake", ON_RUNS.strip().splitlines())
def test_a_mistake_about_runs_is_mended(mistake: str, castoff: Castoff, folder: Path) -> None:
    tried(castoff, mistake, lambda _, message: "(see castoff" not in message)


CLICK = re.compile(
    r"[Mm]issing (argument|option|parameter)|[Gg]ot unexpected|is not a valid|is not in the range"
    r"|nvalid value|requires an argument|is not one of|take a value|[Nn]o such (command|option)"
    r"|unrecognized|RANGE"
)
"""Words of click and argparse."""


def assert_castoffs_own(message: str) -> None:
    assert message.count("\n") == 1 or message.startswith("castoff: -"), message
    assert not CLICK.search(message), message


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (
            "on add",
            "NAME, [USER@]HOST and --dir FOLDER are missing, as in castoff on add NAME [USER@]HOST --dir",
        ),
        ("on add lab me@lab --dir", "--dir needs a value: --dir FOLDER (see castoff on add --help)"),
        ("on foo", "on has no command 'foo'; there are: add, list, remove, install, check, clean (see"),
        (
            "on lab submit 'my job.yaml'",
            "on has no command 'lab'; here: castoff --on lab submit 'my job.yaml' (see",
        ),
        ("notify rm 'a b'", "notify has no command 'rm'; here: castoff notify remove 'a b' (see"),
        ("sites new", "NAME is missing, as in castoff sites new NAME (see castoff sites new --help)"),
        ("sites foo bar", "takes a site's name or one of show, check, new, probe, not 'foo'"),
        ("trust --remove", "--remove takes the folders to trust no longer"),
        ("launch -n", "-n needs a value: -n N (see castoff launch --help)"),
        ("launch -n 0 x", "-n: is 0, but takes a whole number of 1 or more"),
        ("launch --master-port 5 x", "--master-port: is 5, but takes a whole number from 1024 to 65535"),
        ("render --site", "--site needs a value: --site NAME"),
        ("submit -p --dry-run job.yaml", "-p needs a value: -p NAME (see castoff submit --help)"),
        ("launch -n --here true", "-n needs a value: -n N (see castoff launch --help)"),
        ("logs a --rank -1", "--rank: is -1, but takes a whole number of 0 or more"),
        ("completion", "SHELL is missing: one of bash, zsh, fish"),
        ("train", "NAME is missing: one of dpo, gnn, sedd"),
        ("import", "SCRIPT is missing, as in castoff import SCRIPT"),
        ("stop", "name a run, or all of a name by --name NAME; `castoff list` shows your runs"),
        ("list -u somebody", "-u: is 'somebody', but the list holds your own runs only; here: castoff list"),
        (
            "list --since tomorrow",
            "but takes an age, as 90s, 12h or 7d, or a date: 2026-11-01, today or yesterday",
        ),
        ("list --since 9999-01-01", "--since: is '9999-01-01', which is in the future"),
        ("--foo", "no option --foo; castoff's own are --on, --version and --help (see castoff --help)"),
        (
            "submit -G 4 -n 3 job.yaml",
            "--gpus is 4, which 3 ranks cannot share equally; use --devices-per-rank",
        ),
        ("submit --dependency '' job.yaml", "--dependency: is '', but takes after, afterok, "),
        ("submit --array '' job.yaml", "--array: array.indices: is '', but takes numbers and ranges"),
        ("submit --after '' job.yaml", "--after: after.afterok: is empty: name the runs or job ids"),
        ("submit --after 'after:a b' job.yaml", "takes a run or a job; here: --dependency 'after:a b' (see"),
        ("submit -G '' job.yaml", "--gpus: is '', but takes a number of GPUs"),
        ("submit -G four job.yaml", "--gpus: is 'four', but takes a number of GPUs, as in --gpus 4"),
        ("submit --clusters=a,b job.yaml", "here: --site a,b"),
        ("submit -J 0-7 --site pbs job.yaml", "qsub's -J is --array: --array 0-7"),
        ("submit -o out.txt job.yaml", "logs are in the run's directory, and castoff logs shows them"),
        ("launch --hostfile h true", "there is none: inside an allocation its hosts are used"),
    ],
)
def test_what_is_missing_or_wrong(words: str, said: str, castoff: Castoff, folder: Path) -> None:
    answer = castoff(*shlex.split(words))
    assert answer.returncode == 2
    assert said in answer.stderr, answer.stderr
    assert_castoffs_own(answer.stderr)


def options(verb: str) -> set[str]:
    """The options of a verb, or of one of its own commands."""
    first, _, second = verb.partition(" ")
    command = castoff_group if first == "castoff" else import_module(module_of(first)).command
    command = command.commands[second] if second else command
    return {option for parameter in command.params for option in (*parameter.opts, *parameter.secondary_opts)}


@pytest.mark.parametrize("kind", [kind for kind in _file() if kind.startswith("flags of ")])
def test_the_table_names_options_that_exist_and_none_that_a_verb_has(kind: str) -> None:
    verb = kind.removeprefix("flags of ")
    verb = {"a job": "submit", "a verb": "list"}.get(verb, verb)
    for meant, words in _file()[kind].items():
        fix = meant.partition("; here: ")[2] or meant.partition(" -- ")[0]
        if ": " in fix:  # a sentence
            continue
        typed = shlex.split(fix)
        own = typed[:2] == ["castoff", "VERB"] or typed[0] != "castoff" or typed[1].startswith("--")
        known = options(verb if own else typed[1]) | {"--on", "--version", "--help"}
        flags = {word for word in typed if re.match("--?[a-zA-Z]", word)}
        assert flags - {"-n" if "head" in typed else ""} <= known, meant
        spelled = {f"--{word.replace('_', '-')}" for word in words.split() if len(word) > 1}
        assert kind in ("flags of a job", "flags of a verb") or not spelled & options(verb), meant


@pytest.mark.parametrize("kind", [kind for kind in _file() if kind != "read by"])
def test_each_word_has_one_meaning(kind: str) -> None:
    words = [word for row in _file()[kind].values() for word in row.split()]
    assert len(words) == len({*words})
