"""The life of a job: what follows what, and which endings lead on."""

from __future__ import annotations

from castoff.launcher.runs.states import ENDINGS
from castoff.launcher.text.svg import arrow, document, rect, text

CONTINUES = {
    "resume": "requeue",
    "walltime": "resubmit",
    "preempted": "requeue",
    "failed": "restart",
    "out-of-memory": "restart",
    "node-failure": "restart",
    "cancelled": "resubmit",
    "unknown": None,
    "done": None,
}
"""What can begin the next attempt after an ending."""

MEANS = {
    "restart": "same allocation, by the script: restart",
    "requeue": "new allocation, by itself: requeue",
    "resubmit": "new allocation, by you: castoff resubmit",
}
_COLOURS = {"restart": "#f0b37e", "requeue": "#8ec7f2", "resubmit": "#c9b3f0", None: "#d0d7de"}


def life() -> str:
    """From the job file to an ending, and back."""
    boxes = {"job file": 20, "script": 190, "queue": 360, "setup": 530, "ranks": 700}
    under = ["castoff submit", "castoff render", "pending", "running", "running"]
    parts = [text(20, 30, "The life of a job", "title")]
    for (name, x), words in zip(boxes.items(), under, strict=True):
        parts += [rect(x, 60, 120, 44, kind="box"), text(x + 60, 87, name, "", "middle")]
        parts.append(text(x + 60, 122, words, "small", "middle"))
        if name != "ranks":
            parts.append(arrow((x + 120, 82), (x + 170, 82)))
    parts += [arrow((760, 104 + 24), (760, 168)), text(20, 160, "Each attempt has one ending:")]
    for at, name in enumerate(reversed(ENDINGS)):
        x, y = 20 + at % 5 * 168, 176 + at // 5 * 44
        parts.append(rect(x, y, 150, 32, fill=_COLOURS[CONTINUES[name]]))
        parts.append(text(x + 75, y + 21, name, "ink", "middle"))
    for at, (how, words) in enumerate(MEANS.items()):
        y = 290 + at * 26
        parts += [rect(20, y - 13, 18, 18, fill=_COLOURS[how]), text(48, y, f"Next attempt: {words}")]
    return document(860, 372, _words(), parts)


def _words() -> str:
    after = "; ".join(f"{name}: {how}" for name, how in CONTINUES.items() if how)
    return (
        "A job file becomes a script, waits in the queue, runs its setup and then its ranks. "
        f"An attempt that ends may be followed by another one: {after}."
    )
