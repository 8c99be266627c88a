"""bsub's directives in scripts that castoff has not written, as bsub(1) reads them."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Mapping

from castoff.launcher.launchers.foreign.asked import Asked
from castoff.launcher.launchers.foreign.options import Option, Table
from castoff.launcher.schedulers.dialect import array_of
from castoff.launcher.schedulers.lsf import NAME
from castoff.launcher.schedulers.lsf.bsub_directives import CONDITIONS, DIALECT, SECTIONS
from castoff.launcher.schedulers.script_reader import (
    REQUEUE,
    SUBMITS,
    ScriptReader,
    as_written,
    raw,
    read_field,
)

_TABLE = Table(
    values="""
        a app b C c clusters cn_cu cn_mem cwd D data E Ep e env eo eptl ext F f freq G g gpu hostfile i is J
        Jd Jm k L Lp M m n network nnodes notify O o oo P p ptl Q q R S sla sp T t ti U u ul v W We w wa wt
        alloc_flags core_isolation jsm ln_mem ln_slots rnc
    """,
    flags="B csm H I Ip Is IS ISp ISs IX K N Ne r rn x XF Zs",
    one_dash=True,
)
_STREAMS = ("o", "oo", "e", "eo", "i", "is")
_EVENTS = {"B": "begin", "N": "end", "Ne": "fail"}
_OF_COMMAND = ("I", "Ip", "Is", "IS", "ISp", "ISs", "IX", "K")
_HOST = re.compile(r"hname\s*!=\s*'?([\w.-]+)'?")


def read(rest: str, asked: Asked) -> None:
    """What stands behind `#BSUB`."""
    try:
        words = shlex.split(rest, comments=True)
    except ValueError:
        words = rest.split()
    options, left = _TABLE.read(words)
    for option in options:
        _option(option, asked)
    if left:
        asked.refuse(f"{left[0]!r} is no option of bsub")


def _option(option: Option, asked: Asked) -> None:
    name, text = option.name, option.value or ""
    value, spelled = True if option.value is None else text, f"-{name}"
    if name in _SPECIAL:
        _SPECIAL[name](text, asked)
    elif name in _STREAMS:
        as_written(name, text, DIALECT, asked, spelled)
    elif name in _OF_COMMAND:
        asked.drop(f"{spelled}: {SUBMITS}")
    elif name in _EVENTS:
        asked.fields["mail.on"] = [*asked.fields.get("mail.on", []), _EVENTS[name]]
    elif not read_field(name, value, DIALECT, asked, spelled):
        raw(name, value, DIALECT, asked, spelled)


def _name(text: str, asked: Asked) -> None:
    found = re.fullmatch(r"([^\[\]]*)(?:\[([^\]]+)\](%\d+)?)?", text)
    if found is None:
        asked.refuse(f"-J is {text}, which is no name with indices")
        return
    if found[1]:
        asked.fields["name"] = found[1]
    if found[2]:
        try:
            asked.fields["array"] = array_of(found[2].replace(" ", "") + (found[3] or ""))
        except ValueError as error:
            asked.refuse(f"-J is {text}, whose indices {error}")


def _slots(text: str, asked: Asked) -> None:
    if asked.count("ranks", text, "-n"):
        as_written("n", text, DIALECT, asked, "-n")


def _requirement(text: str, asked: Asked) -> None:
    """Sections; what stands before the first one is a selection."""
    at = 0
    for found in re.finditer(rf"\s*({'|'.join(SECTIONS)})\[([^\[\]]*)\]\s*", text):
        before, at = text[at : found.start()].strip(), found.end()
        if before:
            _section("select", before, asked)
        _section(found[1], found[2].strip(), asked)
    if rest := text[at:].strip():
        _section("select", rest, asked) if not at else asked.refuse(f"-R ends in {rest}, which is no section")


def _section(name: str, text: str, asked: Asked) -> None:
    spelled = f"-R {name}[]"
    if name == "select":
        _select(text, asked)
    elif name == "span" and (found := re.fullmatch(r"ptile=(\d+)", text)):
        asked.count("ranks_per_node", found[1], spelled)
        as_written(name, text, DIALECT, asked, spelled)
    elif name == "span":
        asked.nodes = 1 if text == "hosts=1" else None
        if text != "hosts=1":
            asked.is_unclear(f"castoff has no field for span[{text}]")
        as_written(name, text, DIALECT, asked, spelled)
    elif name == "affinity" and (found := re.fullmatch(r"core\((\d+)\)", text)):
        asked.count("cpus_per_rank", found[1], spelled)
        as_written(name, text, DIALECT, asked, spelled)
    elif not read_field(name, text, DIALECT, asked, spelled):
        raw(name, text, DIALECT, asked, spelled)


def _select(text: str, asked: Asked) -> None:
    """Hosts to avoid, and whatever else a host must have."""
    parts = [part.strip() for part in text.split("&&")]
    hosts = [found[1] for part in parts if (found := _HOST.fullmatch(part))]
    if hosts:
        asked.fields["exclude"] = ",".join(hosts)
    if rest := " && ".join(part for part in parts if not _HOST.fullmatch(part)):
        whole = re.fullmatch(r"\(([^()]*)\)", rest)
        asked.fields["constraint"] = whole[1] if whole else rest


def _dependency(text: str, asked: Asked) -> None:
    words = {theirs: ours for ours, theirs in CONDITIONS.items()}
    parts = [
        re.fullmatch(r"(started|done|exit|ended)\((\d+)\)|(\d+)", one.strip()) for one in text.split("&&")
    ]
    if None in parts:
        asked.refuse(f"-w is {text}, which is more than `after` knows: conditions of job ids, joined by &&")
        return
    for part in parts:
        assert part is not None
        jobs = asked.fields.setdefault("after", {}).setdefault(words[part[1] or "done"], [])
        jobs.append(part[2] or part[3])


def _devices(text: str, asked: Asked) -> None:
    held = dict(part.partition("=")[::2] for part in text.split(":"))
    number, _, of = held.get("num", "1").partition("/")
    if asked.count("rank_devices" if of == "task" else "node_devices", number, "-gpu"):
        as_written("gpu", text, DIALECT, asked, "-gpu")
    if "gmodel" in held:
        asked.fields["device_type"] = held["gmodel"]
    if others := held.keys() - {"num", "gmodel", "j_exclusive", "mode"}:
        asked.is_unclear(f"castoff has no field for {min(others)} of -gpu")


def _environment(text: str, asked: Asked) -> None:
    names: list[str] = []
    for part in filter(None, map(str.strip, text.split(","))):
        name, equals, value = part.partition("=")
        if equals:
            asked.env[name] = value
        elif name not in ("all", "none"):
            names.append(name)
    everything = re.match(r"\s*all\b", text) is not None
    if any(name.startswith("~") for name in names):
        asked.refuse(f"-env is {text}, and castoff drops no single variable")
    asked.fields["inherit"] = "all" if everything else names or "none"


def _warning(text: str, asked: Asked) -> None:
    asked.is_unclear(f"the warning {text} reaches the script itself")
    asked.refuse(f"-wa and -wt ({text}): write signal, as in signal: USR1@300, which reaches the ranks alone")


_SPECIAL: dict[str, Callable[[str, Asked], object]] = {
    "J": _name,
    "n": _slots,
    "R": _requirement,
    "w": _dependency,
    "gpu": _devices,
    "env": _environment,
    "wa": _warning,
    "wt": _warning,
    "cwd": lambda text, asked: asked.fields.update(workdir=text),
    "r": lambda _, asked: asked.fields.update(requeue=dict(REQUEUE)),
    "rn": lambda _, asked: asked.drop("-rn: castoff's scripts have it, too"),
}


def finish(asked: Asked) -> None:
    """What bsub does where nothing is said: it hands on the submitter's environment, and chooses hosts."""
    if asked.fields.setdefault("inherit", "all") == "none":
        del asked.fields["inherit"]
    if "mail.to" in asked.fields and "mail.on" not in asked.fields:
        asked.drop("-u: bsub sends mail if -B, -N or -Ne asks for it, or where no file takes the output")
        del asked.fields["mail.to"]
    elif "mail.on" in asked.fields and "mail.to" not in asked.fields:
        events = asked.fields.pop("mail.on")
        for name in (name for name, event in _EVENTS.items() if event in events):
            raw(name, True, DIALECT, asked, f"-{name}")
    if asked.nodes is None:
        if (asked.ranks or 1) > 1 and not asked.ranks_per_node:
            asked.is_unclear("the directives leave the number of hosts to LSF")
        asked.nodes = -(-(asked.ranks or 1) // asked.ranks_per_node) if asked.ranks_per_node else 1


def variables(asked: Asked) -> Mapping[str, str | None]:
    """What LSF's variables will hold."""
    slots = None if asked.ranks is None else str(asked.ranks)
    return {"LSB_DJOB_NUMPROC": slots, "LSB_MAX_NUM_PROCESSORS": slots}


READER = ScriptReader(
    name=NAME,
    directive=re.compile(r"[ \t]*#[ \t]*BSUB\b[ \t]*(-.*)"),
    mistaken=re.compile(r"#[ \t]*[Bb]sub[ \t]+-|#BUSB|#BSBU"),
    ends_at_command=False,
    read=read,
    finish=finish,
    variables=variables,
    sizes=re.compile(r"LSB_(?:DJOB_NUMPROC|MAX_NUM_PROCESSORS)"),
    same_in_ranks=re.compile(r"LSB_(?:JOBID|JOBINDEX|JOBNAME|QUEUE|BATCH_JID|M?CPU_HOSTS|HOSTS)|LS_SUBCWD"),
    own=re.compile(
        r"\bLS[BF]_\w*|(?<![\w./-])(?:bsub|bjobs|bkill|bhist|bpeek|brequeue|blaunch|jsrun)(?![\w.-])"
    ),
    mark="#BSUB",
    title="bsub",
    scheduler="LSF",
    submit_dir="LS_SUBCWD",
    array_index="LSB_JOBINDEX",
    requeues=re.compile(r"^[^#\n]*\bbrequeue\b", re.MULTILINE),
)
"""How bsub's scripts are read."""
