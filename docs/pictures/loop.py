"""One optimizer step of the training loop, in the words of the code."""

from __future__ import annotations

from castoff.launcher.text.svg import arrow, document, rect, text

STEPS = (
    ("agree on stopping", "stopping.agreed", "all ranks stop at the same step"),
    ("load the micro-batches", "train.groups", "each sample once per epoch, at any world size"),
    ("forward", "_loss", "the task's loss, in the chosen precision"),
    ("backward", "engine.backward", "gradients are averaged over all ranks"),
    ("clip, check, update", "engine.apply", "optimizer, learning rate, averaged weights"),
    ("log", "reports.log", "every log_every steps"),
    ("validate", "_validate", "after each epoch, or every so many steps, over all ranks"),
    ("save", "_save", "a checkpoint, when one is due"),
)
"""What happens, the name that it has in `castoff.trainers.ddp`, and a remark."""


def loop() -> str:
    """The steps from top to bottom, and the way back."""
    parts = [text(20, 30, "One step of TrainerDDP, on every rank", "title")]
    for at, (name, _, remark) in enumerate(STEPS):
        y = 50 + at * 54
        parts += [rect(60, y, 220, 38, kind="box"), text(170, y + 24, name, "", "middle")]
        parts.append(text(300, y + 24, remark, "small"))
        if at + 1 < len(STEPS):
            parts.append(arrow((170, y + 38), (170, y + 54)))
    last = 50 + (len(STEPS) - 1) * 54 + 19
    parts.append(arrow((60, last), (30, last), (30, 69), (60, 69)))
    words = "; ".join(f"{name} ({remark})" for name, _, remark in STEPS)
    return document(640, last + 40, f"The loop of a training: {words}; then again", parts)
