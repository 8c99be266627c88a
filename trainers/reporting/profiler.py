"""Profiles some steps with torch.profiler, on request: a trace of each rank, and what it shows.

The run's folder `profile` gets a trace of each rank, STEPS-rank-N.json.gz, which Perfetto and Chrome open,
and a summary of them, STEPS.json. The summary is also written beside the attempt's metrics, for `castoff
report`.
"""

from __future__ import annotations

import gzip
import json
import logging
import os
import shutil
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

from torch.profiler import ProfilerAction, ProfilerActivity, profile, record_function

from castoff.trainers.configuration.config import Profile
from castoff.trainers.configuration.fields import ConfigError
from castoff.trainers.distributed.process_group import RankContext
from castoff.trainers.files.durable import draft_of, replace_file, replacing
from castoff.trainers.reporting.trace import PARTS, PAUSED, WAITING, Analysis, analysed
from castoff.trainers.task.training_state import TrainingState

logger = logging.getLogger(__name__)

Batch = TypeVar("Batch")

_RANKS = 16
"""The number of ranks that record if `profile.ranks` is left out."""

_NAME = 44
"""Characters of an operation's name in the log."""


class Profiler:
    """Records the steps that `wanted` asks for on this rank; does nothing if that is None.

    Raises:
        ConfigError: `profile.ranks` has a rank that does not exist.
    """

    def __init__(self, wanted: Profile | None, folder: Path, context: RankContext):
        self._wanted = wanted
        self._folder = folder / "profile"
        self._context = context
        self._ranks = _ranks(wanted, context.world_size)
        self._steps = range(0)
        """The numbers of the recorded steps, in the whole training; empty: there are none to record."""
        self._recording: profile | None = None
        self._analysis: Analysis | None = None

    @contextmanager
    def training(self, state: TrainingState) -> Iterator[None]:
        """A context for the steps of this start."""
        if self._wanted is None:
            yield
            return
        first = state.step + self._wanted.start
        self._steps = range(first, first + self._wanted.steps)
        self._begin_at(state.step)
        try:
            yield
            self._end_early(state.step)
        except Exception:
            self._steps = range(0)
            raise
        finally:
            self._stop()
            if self._steps and state.step > first - self._wanted.start and self._context.is_main:
                logger.warning(
                    "profile: nothing was recorded: training ended at step %d, and profile.from: %d with "
                    "profile.steps: %d asked for steps %s",
                    state.step,
                    self._wanted.start,
                    self._wanted.steps,
                    _words(self._steps),
                )

    def _end_early(self, last: int) -> None:
        """Write the steps that were recorded if training has ended before others; all ranks must call it."""
        asked, done = self._steps, range(self._steps.start, min(last + 1, self._steps.stop))
        if not done:
            return
        self._steps = done
        recording, self._recording = self._recording, None
        if recording is not None:
            self._try(recording.stop)
        self._report()
        self._steps = range(0)
        if self._context.is_main:
            logger.warning(
                "profile: training ended at step %d, so %d of the steps %s were recorded",
                *(last, len(done), _words(asked)),
            )

    def waits(self, batches: Iterable[Batch]) -> Iterable[Batch]:
        """Iterate over the batches; a trace shows the time in which each is waited for."""
        return batches if self._wanted is None else self._marked(batches)

    def _marked(self, batches: Iterable[Batch]) -> Iterator[Batch]:
        wanted = iter(batches)
        while True:
            try:
                if self._recording is None:
                    batch = next(wanted)
                else:
                    with record_function(WAITING):
                        batch = next(wanted)
            except StopIteration:
                return
            yield batch

    @contextmanager
    def paused(self) -> Iterator[None]:
        """A context for what does not belong to a step; a trace shows it."""
        if self._recording is None:
            yield
            return
        with record_function(PAUSED):
            yield

    def is_due(self, step: int) -> bool:
        """Whether `step_done` does something after this step."""
        return bool(self._steps) and self._steps.start - 2 <= step < self._steps.stop

    def step_done(self, step: int) -> None:
        """Begin or end recording after a step, if it is due; all ranks must call it."""
        if not self.is_due(step):
            return
        self._begin_at(step)
        if self._recording is not None and step >= self._steps.start - 1:
            self._try(self._recording.step)
        if step == self._steps.stop - 1:
            self._stop()
            self._report()
            self._steps = range(0)

    # --- On this rank -----------------------------------------------------------------------------

    def _begin_at(self, step: int) -> None:
        """Begin before the step that warms up, if this rank records."""
        if step == self._steps.start - 2 and self._context.rank in self._ranks:
            self._try(self._begin)

    def _begin(self) -> None:
        # Otherwise libkineto writes lines of its own to standard error. It reads this at its first use.
        os.environ.setdefault("KINETO_LOG_LEVEL", "99")
        activities = [ProfilerActivity.CPU]
        kind = self._context.device.type.upper()
        if hasattr(ProfilerActivity, kind) and kind != "CPU":
            activities.append(getattr(ProfilerActivity, kind))
        recording = profile(activities=activities, schedule=self._action, on_trace_ready=self._write)
        recording.step_num = self._steps.start - 1
        recording.start()
        self._recording = recording

    def _action(self, step: int) -> ProfilerAction:
        """What torch.profiler does in a step."""
        if step >= self._steps.stop:
            return ProfilerAction.NONE
        if step == self._steps.stop - 1:
            return ProfilerAction.RECORD_AND_SAVE
        return ProfilerAction.WARMUP if step < self._steps.start else ProfilerAction.RECORD

    def _write(self, recorded: profile) -> None:
        """Write the trace, and analyse it."""
        self._folder.mkdir(exist_ok=True)
        path = self._folder / f"{_file(self._steps)}-rank-{self._context.rank}.json.gz"
        plain = draft_of(path.with_suffix(""))
        try:
            recorded.export_chrome_trace(str(plain))
            with replacing(path) as draft, plain.open("rb") as trace, gzip.open(draft, "wb", 5) as packed:
                shutil.copyfileobj(trace, packed, 1 << 20)
            events = json.loads(plain.read_bytes())["traceEvents"]
        finally:
            plain.unlink(missing_ok=True)
        self._analysis = analysed(events, self._steps)

    def _stop(self) -> None:
        recording, self._recording = self._recording, None
        if recording is not None:
            recording.on_trace_ready = None  # a trace without all steps is not written
            self._try(recording.stop)

    def _try(self, do: Any) -> None:
        """Do a part of the profiling, whose failure must not end the training."""
        try:
            do()
        except Exception as error:  # noqa: BLE001  # a driver, a full disk, a profiler that is in use
            self._recording = None
            words = " ".join(str(error).split()) or type(error).__name__
            logger.warning("profile: this rank's steps cannot be recorded, training continues: %s", words)

    # --- Of all ranks -----------------------------------------------------------------------------

    def _report(self) -> None:
        """Log and write what the traces show, on rank 0; all ranks must call it."""
        found = self._context.gather_on_main(self._analysis)
        analyses = {rank: each for rank, each in enumerate(found) if each is not None}
        if not analyses:
            return
        logger.info("%s", in_words(analyses, self._steps, self._folder))
        content = json.dumps(summary(analyses, self._steps, self._folder)).encode() + b"\n"
        self._try(lambda: replace_file(self._folder / f"{_file(self._steps)}.json", content))
        metrics = os.environ.get("CASTOFF_METRICS_FILE")
        if metrics:
            self._try(lambda: replace_file(Path(metrics).with_name("profile.json"), content))


def _ranks(wanted: Profile | None, world_size: int) -> range | list[int]:
    if wanted is None or wanted.ranks is None:
        return range(min(world_size, _RANKS))
    missing = [str(rank) for rank in wanted.ranks if rank >= world_size]
    if missing:
        last = "there is only rank 0" if world_size == 1 else f"the ranks are 0 to {world_size - 1}"
        raise ConfigError([f"profile.ranks: has {', '.join(missing)}, but {last}"])
    return wanted.ranks


def _file(steps: range) -> str:
    return f"steps-{steps.start}-{steps.stop - 1}"


def _words(steps: range) -> str:
    return f"{steps.start} to {steps.stop - 1}"


def summary(analyses: Mapping[int, Analysis], steps: range, folder: Path) -> dict[str, Any]:
    """What the traces show, as data; `operations` are those of the first rank that recorded."""
    rank, first = next(iter(analyses.items()))
    return {
        "first_step": steps.start,
        "steps": len(steps),
        "folder": str(folder.absolute()),
        "ranks": [{"rank": rank, "seconds": each.seconds, **each.shares} for rank, each in analyses.items()],
        "operations_of": rank,
        "operations": [
            {**each._asdict(), "share": each.seconds / first.seconds} for each in first.operations
        ],
    }


def in_words(analyses: Mapping[int, Analysis], steps: range, folder: Path) -> str:
    """What the traces show, for the log."""
    rank, first = next(iter(analyses.items()))
    lines = [
        f"Profile of steps {_words(steps)}: {first.seconds / len(steps):.4g} s per step; traces for "
        f"https://ui.perfetto.dev in {folder}",
        "  ".join(["rank", *(f"{part:>13}" for part in PARTS)]),
    ]
    for number, each in analyses.items():
        lines.append("  ".join([f"{number:4}", *(f"{each.shares[part]:>13.1%}" for part in PARTS)]))
    of_rank = f"on rank {rank}, of a step" if len(analyses) > 1 else "of a step"
    lines.append(f"{f'most expensive operations {of_rank}':{_NAME}}  {'ms':>9}  {'share':>6}  {'calls':>6}")
    for one in first.operations:
        name = one.name if len(one.name) <= _NAME else f"{one.name[: _NAME - 1]}…"
        milliseconds, calls = 1e3 * one.seconds / len(steps), one.calls / len(steps)
        share = one.seconds / first.seconds
        lines.append(f"{name:{_NAME}}  {milliseconds:>9.3f}  {share:>6.1%}  {calls:>6.4g}")
    return "\n".join(lines)
