"""Jobs with one thing in them that no script can express: each has to be refused."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import strategies as st

_BAD_LINES = ["\n", "\r", "\x00", "\udcff", "\ntouch CANARY\n"]
_BAD_TEXTS = {
    "command": ["\x00", "\udcff", "\x00$(touch CANARY)", "x" * 131_072],
    "env": ["\x00", "\udcff", "\x00$(touch CANARY)", "x" * 131_072],
    **{name: ["\r", "\r\n", "\x00", "\udcff"] for name in ("setup", "teardown")},
}
"""What may stand nowhere in a text, by the field; in all others stand lines."""

_BAD_NUMBERS = ["1; touch CANARY", "$(canary)", "-1", "1e3", "٣", "0x"]

_BAD_VARIABLES = [
    *("A B", "1A", "x;touch CANARY", "a-b", "$(canary)", "é", "A\n", "RANK", "CASTOFF_JOB", "castoff_job"),
    *("RANDOM", "SRANDOM", "OPTIND", "UID", "IFS", "SECONDS", "SHELLOPTS", "PWD", "_", "BASH_COMPAT"),
    "POSIXLY_CORRECT",
]

_BAD_DIRECTIVES = ("a b", "a;touch CANARY", "a=b", "-x", "1", "é", "a\nb")

_BAD_VALUES: dict[str, list[Any]] = {
    **dict.fromkeys(("nodes", "walltime", "memory", "grace", "ranks", "devices_per_rank"), _BAD_NUMBERS),
    "command": [["-x"], [""], ["\x00"], []],
    "binding": ["0;touch CANARY", "$(canary)", "0:", ":", "0-", "٣", "0\n", "list:0", ""],
    "name": ["a/b", "..", ".", "/", "x" * 201],
    "env": [{name: "a[$(touch CANARY)]"} for name in _BAD_VARIABLES],
    "env_from": [[name] for name in _BAD_VARIABLES],
    "inherit": [["A B"], ["x;touch CANARY"], ["$(canary)"], ["a\nb"], "$(canary)"],
    "python": ["python", "./python", "/a:b/python", "-", "~/python"],
    "directives": [
        *({name: "x"} for name in _BAD_DIRECTIVES),
        *({"pbs": {name: "x"}} for name in _BAD_DIRECTIVES),
        *({"slurm": value} for value in ("$(touch CANARY)", True, {"comment": "\ntouch CANARY"})),
        {"pbs": {"site": "a\ntouch CANARY"}},
        {"site": {"x": "$(touch CANARY)"}},
    ],
    "container": [
        {"runtime": "apptainer"},
        {"image": "$(canary)"},
        {"image": "$(canary)", "runtime": "apptainer"},
        {"image": "a image", "runtime": "shifter"},
        {"image": "x", "runtime": "podman"},
        *({"image": "x", "runtime": "podman-hpc", "binds": [bind]} for bind in ("x", "a:/b", "/a:/b:/c")),
        {"image": "x", "runtime": "podman-hpc", "args": ["--mpi"]},
        {"image": "x", "runtime": "podman-hpc", "env": {"A B": "x"}},
    ],
    "stage": [
        *([{"from": "x", "to": place}] for place in ("../x", "/x", ".", "a/../../x", ".castoff", "")),
        [{"from": "x"}, {"from": "y", "to": "x/$(canary)"}],
        [{"from": "x", "unpack": True}],
        [{"from": "x", "sha256": "$(canary)"}],
        [{"from": "[a].zip"}],
        [{"from": "x", "to": "a:b", "activate": True}],
        [{"to": "x"}],
    ],
    "$(touch CANARY)": ["no field"],
}

_BAD_ON_PBS: dict[str, list[Any]] = {
    "name": ["a b", "1a", "$(canary)", "é", "-x", "a\tb", "x" * 201],
    "directives": [
        *({"site": value} for value in ("a&b", "é", "a\tb", "'\"", "\x7f")),
        {"pbs": {"site": "a&b"}},
    ],
    "qos": ["x"],
}

_BAD_ON_FLUX: dict[str, list[Any]] = {
    **{name: ["a\tb", "\x7f", "a'''b", 'a"""b'] for name in ("name", "account", "queue", "constraint")},
    "directives": [{"conf": value} for value in ("a\tb", "\x1b[31m", "'''", '"""')],
    "array": [{"count": 2}],
    "memory": ["4G"],
    "mail": [{"to": "x"}],
    **{name: ["x"] for name in ("qos", "exclude", "reservation")},
}

_BAD_IN_PROFILES: dict[str, list[Any]] = {
    "mpiexec": ["a b", "A=b", "./x", "$(canary)", "/a\nb"],
    "shell": ["bash", "/bin/sh\ntouch CANARY", "/bin/\x1b[31m", "-x"],
    "env": [{name: "x"} for name in _BAD_VARIABLES],
    "master_suffix": ["\x00", " a", "$(canary)", "a\n", "`b`", "é"],
    "launcher_args": [["a\nb"], ["\x00"], [""]],
    "setup": [["a\r"], ["\x00"]],
    "local_storage": ["a\nb", "\x00", ""],
}


@st.composite
def poisoned(
    draw: st.DrawFn, clean: dict[str, Any], profile: dict[str, Any] | None, kind: str
) -> tuple[dict[str, Any], dict[str, Any] | None, str]:
    """A job and a site's profile with one thing that cannot be, and the field where it stands."""
    fields: dict[str, Any] = json.loads(json.dumps(clean))
    values = {**_BAD_VALUES, **{"pbs": _BAD_ON_PBS, "flux": _BAD_ON_FLUX}.get(kind, {})}
    fields.get("container", {}).pop("env", None)  # it may hold lines, as env may
    texts = [field for field in fields if _texts_in(fields, field)]
    way = draw(st.sampled_from(["value", "text", "profile"] if profile is not None else ["value", "text"]))
    if way == "profile" and profile is not None:
        field = draw(st.sampled_from(sorted(_BAD_IN_PROFILES)))
        return fields, {**profile, field: draw(st.sampled_from(_BAD_IN_PROFILES[field]))}, field
    if way == "value":
        field = draw(st.sampled_from(sorted(values)))
        fields[field] = draw(st.sampled_from(values[field]))
        return fields, profile, field
    field = draw(st.sampled_from(texts))
    holder, key = draw(st.sampled_from(_texts_in(fields, field)))
    bad = draw(st.sampled_from(_BAD_TEXTS.get(field, _BAD_LINES)))
    at = draw(st.integers(0, len(holder[key])))
    holder[key] = holder[key][:at] + bad + holder[key][at:]
    return fields, profile, field


def _texts_in(holder: Any, key: Any) -> list[tuple[Any, Any]]:
    """Where a field's texts stand: (what holds one, its key)."""
    value = holder[key]
    if isinstance(value, str):
        return [(holder, key)]
    if isinstance(value, dict):
        return [place for inner in value for place in _texts_in(value, inner)]
    if isinstance(value, list):
        return [place for inner in range(len(value)) for place in _texts_in(value, inner)]
    return []
