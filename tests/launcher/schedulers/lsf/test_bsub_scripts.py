"""bsub's directives as bsub(1) reads them, in the fields of a job file; and what it cannot hold."""

from __future__ import annotations

import re
import shlex
from typing import Any

import pytest
from hypothesis import given

from castoff import JobSpec, Site
from castoff.launcher.errors import InvalidInput
from castoff.launcher.importing.script import read_script
from castoff.launcher.launchers.foreign.asked import Asked
from castoff.launcher.planning import planner
from castoff.launcher.schedulers.lsf.bsub_directives import dependency, directive, tasks
from castoff.launcher.schedulers.lsf.bsub_scripts import READER, finish, read
from tests.hostile import LINES
from tests.launcher.scripts.readers import read_lsf


def asked(*lines: str) -> Asked:
    found = Asked()
    for line in lines:
        read(line, found)
    return found


FIELDS: dict[str, dict[str, Any]] = {
    '-J "train" -P lab -q gpu -U resv': {
        "name": "train",
        "account": "lab",
        "queue": "gpu",
        "reservation": "resv",
    },
    '-J "sweep[1-10,20]%5"': {
        "name": "sweep",
        "array": {"indices": "1-10,20", "max_concurrent": 5},
    },
    "-W 90": {"walltime": "01:30:00"},
    "-W 2:05/hostA # hours": {"walltime": "02:05:00"},
    "-x": {"exclusive": True},
    "-R \"select[type==any && hname!='n1' && hname!=n2] rusage[mem=4G]\"": {
        "constraint": "type==any",
        "exclude": "n1,n2",
        "memory": "4G",
    },
    '-R "bigmem"': {"constraint": "bigmem"},
    '-w "done(12) && ended(7)&&3"': {"after": {"afterok": ["12", "3"], "afterany": ["7"]}},
    '-env "A, B=1"': {"inherit": ["A"]},
    "-env none": {"inherit": "none"},
    '-gpu "num=2:gmodel=A100"': {"device_type": "A100"},
    "-B -N -u me@x.org": {"mail.on": ["begin", "end"], "mail.to": "me@x.org"},
    "-cwd /data": {"workdir": "/data"},
}


@pytest.mark.parametrize("line", FIELDS)
def test_fields(line: str) -> None:
    assert asked(line).fields == FIELDS[line]
    assert not asked(line).remarks


def test_numbers() -> None:
    found = asked('-n 8 -R "span[ptile=4] affinity[core(2)]"', "-gpu num=2")
    assert (found.ranks, found.ranks_per_node, found.cpus_per_rank, found.node_devices) == (8, 4, 2, 2)
    finish(found)
    assert found.nodes == 2 and not found.unclear
    assert found.raw == {"n": "8", "span": "ptile=4", "affinity": "core(2)", "gpu": "num=2"}
    loose = asked("-n 8")
    finish(loose)
    assert loose.unclear == "the directives leave the number of hosts to LSF"


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ('-w "numdone(7,>3)"', "which is more than `after` knows"),
        ("-W x", "-W is x, which is not a duration"),
        ("-n 2,8", "which is not a number"),
        ('-env "all, ~A"', "castoff drops no single variable"),
        ("-wa USR2", "which reaches the ranks alone"),
        ("-J a]b[", "which is no name with indices"),
        ("-q gpu train.sh", "is no option of bsub"),
    ],
)
def test_what_no_field_holds_is_said(line: str, why: str) -> None:
    (remark,) = (one for one in asked(line).remarks if one.fate == "not expressed")
    assert why in remark.text


@pytest.mark.parametrize("line", ["#BSUB -n 2", "# BSUB -n 2", "  #BSUB   -n 2"])
def test_marks(line: str) -> None:
    """As OpenLava 2.2 skips blanks (parseLine() in lsbatch/cmd/cmd.sub.c)."""
    found = READER.directive.match(line)
    assert found is not None and found[1] == "-n 2"


def test_a_script_is_imported() -> None:
    text = (
        '#!/bin/bash\n#BSUB -J a\n#BSUB -n 4\n#BSUB -R "span[hosts=1] same[model]"\n#BSUB -o %J.log\n./prog\n'
    )
    found = read_script(text, "job.sh")
    assert (found.scheduler, found.refused) == ("lsf", [])
    assert found.fields["name"] == "a" and found.fields["directives"]["lsf"]["same"] == "model"
    assert "#BSUB" not in found.fields["script"]


def test_what_a_line_cannot_hold_is_refused() -> None:
    assert directive("q", "gpu") == "-q gpu" and directive("x", True) == "-x"
    assert directive("J", "a[1-2]%3") == '-J "a[1-2]%3"'
    assert directive("select", "hname!='a'") == "-R \"select[hname!='a']\""
    assert directive("app", 'a"b') == "-app 'a\"b'"
    for text in ("a\nb", "a\\b", "'\"", "#x"):
        with pytest.raises(ValueError, match=r"directives\.app: is "):
            directive("app", text)


@given(LINES)
def test_a_value_is_read_as_it_was_written(text: str) -> None:
    """By bsub from a script, and by castoff, which passes it to bsub as an option; or it is refused."""
    try:
        line = directive("app", text)
    except ValueError:
        assert re.search(r"^#|[\n\r\x00\\]|'.*\"|\".*'", text, re.DOTALL)
        return
    assert read_lsf(f"#BSUB {line}\n") == [("app", text)]
    assert shlex.split(line) == ["-app", text]


def test_dependencies_and_indices() -> None:
    assert dependency("after:1,afterok:2:3,afternotok:4,afterany:5") == (
        "started(1) && done(2) && done(3) && exit(4) && ended(5)"
    )
    assert [*tasks(range(4))] == [1, 2, 3, 4] and [*tasks([0, 7])] == [1, 2]
    assert tasks([3, 7]) == [3, 7]


@pytest.mark.parametrize("field", ["qos", "select", "requeue.how", "restart.spare_nodes"])
def test_what_lsf_lacks_is_refused(field: str) -> None:
    outer, _, inner = field.partition(".")
    values = {"qos": "high", "select": {"a": "b"}}
    held: Any = {"max": 2, inner: "copy" if inner == "how" else 1} if inner else values[field]
    with pytest.raises(InvalidInput, match="is not supported by LSF"):
        planner.plan(JobSpec.of({"command": ["x"], "walltime": "1h", outer: held}), Site.load("lsf"))
