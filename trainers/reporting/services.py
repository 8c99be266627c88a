"""Writes metrics to Weights & Biases and to MLflow: each training is one run there, in all its attempts."""

from __future__ import annotations

import importlib
import json
import logging
import os
import re
import secrets
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from castoff.trainers.configuration.config import Mlflow, Wandb
from castoff.trainers.configuration.fields import ConfigError
from castoff.trainers.configuration.pyobject import PyObject
from castoff.trainers.files.durable import replace_file
from castoff.trainers.files.lock_file import Holder

logger = logging.getLogger(__name__)

_PATIENCE = 30
"""Seconds that the other ranks may wait for a service that does not answer."""

FURTHER_NAMES = {
    "step": ("train/step",),
    "epoch": ("train/epoch",),
    "train/lr": ("train/learning_rate",),
    "train/step_time": ("train/batch_time",),
    "train/memory_allocated_gb": ("system/gpu_memory_allocated_gb",),
    "train/memory_reserved_gb": ("system/gpu_memory_reserved_gb",),
    "val/loss": ("validation/loss", "checkpoint/current_loss"),
    "val/best_loss": ("validation/best_loss", "checkpoint/best_loss"),
    "val/without_improvement": ("validation/steps_without_improvement",),
}
"""Second names of metrics for Weights & Biases: those of UniRef50 SEDD."""


def with_further_names(values: Mapping[str, float]) -> dict[str, float]:
    """The metrics by their names, and again by their second names."""
    further = {
        name: values[ours] for ours, names in FURTHER_NAMES.items() if ours in values for name in names
    }
    return {**values, **further}


class WeightsAndBiases:
    """A wandb run, the same in each attempt; offline it is in the run's folder `wandb`.

    Its curves are drawn over our `step`: wandb's step counts lines and cannot decrease.
    """

    def __init__(self, folder: Path, config: Wandb, run_name: str, resolved: Mapping[str, Any]):
        if config.mode == "offline":
            os.environ.setdefault("WANDB_ERROR_REPORTING", "false")  # compute nodes may have no network
        wandb: Any = importlib.import_module("wandb")
        run, member = _castoff_run()
        arguments = {
            "project": config.project,
            "entity": config.entity,
            "group": config.group or run,
            "job_type": None if config.group or run is None else f"member {member}",
            "tags": list(config.tags),
            "name": config.name or run_name,
            "id": _kept_id(folder / "wandb-run-id"),
            "reinit": "finish_previous",  # a previous training in this process
            "dir": str(folder),
            "config": json.loads(json.dumps(resolved, default=plain_text)),
            "settings": wandb.Settings(console="off", silent=True, init_timeout=_PATIENCE),
        }
        mode = config.mode
        try:
            self._run: Any = wandb.init(mode=mode, resume="allow" if mode == "online" else None, **arguments)
        except wandb.errors.UsageError as error:
            text = f"{' '.join(str(error).split())}; `wandb login` once, or write mode: offline"
            raise ConfigError([f"logging.wandb: {text}"]) from error
        except wandb.errors.CommError as error:
            if mode == "offline":
                raise
            mode = "offline"
            logger.warning("logging.wandb: the service does not answer, so wandb is offline (%s)", error)
            wandb.teardown()  # its process still holds the run
            self._run = wandb.init(mode=mode, resume=None, **arguments)
        self._run.define_metric("step")
        self._run.define_metric("*", step_metric="step")
        if mode == "offline":
            logger.info("wandb writes to %s; `wandb sync` there uploads it", folder / "wandb")

    def write(self, step: int, values: Mapping[str, float]) -> None:
        """Add a line to the run's history."""
        self._run.log(with_further_names({"step": step, **values}))

    def flush(self) -> None:
        """Do nothing: wandb's process writes, and outlives this one."""

    def close(self) -> None:
        """Write, or if online upload, what wandb has not written yet."""
        self._run.finish()


class MLflowRun:
    """An MLflow run, the same in each attempt; without a server it is in the run's folder `mlflow`.

    Its client is used alone, without the current run of `mlflow.log_metric`, which belongs to the program.
    """

    def __init__(self, folder: Path, config: Mlflow, run_name: str, resolved: Mapping[str, Any]):
        # MLflow's own would have all ranks wait for minutes.
        os.environ.setdefault("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "2")
        os.environ.setdefault("MLFLOW_HTTP_REQUEST_TIMEOUT", str(_PATIENCE))
        store = config.tracking_uri or os.environ.get("MLFLOW_TRACKING_URI")
        if store is None:
            # SQLite needs locks, which file systems of clusters may not have, and packages that mlflow-skinny
            # does not bring.
            os.environ.setdefault("MLFLOW_ALLOW_FILE_STORE", "true")
            store = (folder / "mlflow").absolute().as_uri()
            logger.info("MLflow writes to %s", folder / "mlflow")
        tracking: Any = importlib.import_module("mlflow.tracking")
        self._entities: Any = importlib.import_module("mlflow.entities")
        self._client: Any = tracking.MlflowClient(tracking_uri=store)
        kept = folder / "mlflow-run-id"
        self._id = kept.read_text(encoding="utf-8").strip() if kept.exists() else ""
        if self._id:
            self._client.update_run(self._id, status="RUNNING")
            return
        run, member = _castoff_run()
        ours = {} if run is None else {"castoff.run": run, "castoff.member": str(member)}
        experiment = self._client.get_experiment_by_name(config.experiment)
        number = experiment.experiment_id if experiment else self._client.create_experiment(config.experiment)
        name = config.name or run_name
        self._id = self._client.create_run(number, run_name=name, tags={**ours, **config.tags}).info.run_id
        replace_file(kept, f"{self._id}\n".encode())
        parameters = [
            self._entities.Param(_FORBIDDEN.sub("_", name), plain_text(value)[:_LONGEST])
            for name, value in _flat(json.loads(json.dumps(resolved, default=plain_text)))
        ]
        for first in range(0, len(parameters), _MOST):
            self._client.log_batch(self._id, params=parameters[first : first + _MOST])

    def write(self, step: int, values: Mapping[str, float]) -> None:
        """Add a point to each metric's history."""
        now = int(1000 * time.time())
        points = [
            self._entities.Metric(_FORBIDDEN.sub("_", name), float(value), now, step)
            for name, value in values.items()
        ]
        self._client.log_batch(self._id, metrics=points)

    def flush(self) -> None:
        """Do nothing: all has been sent."""

    def close(self) -> None:
        """End the run; another attempt resumes it."""
        self._client.set_terminated(self._id)


_FORBIDDEN = re.compile(r"[^\w. /:-]", re.ASCII)
"""Characters that MLflow's names do not have."""

_MOST, _LONGEST = 100, 500
"""The most parameters of a batch, and characters of a value, that every MLflow server takes."""


def plain_text(value: object) -> str:
    """A value of the configuration as text."""
    return value.path if isinstance(value, PyObject) else str(value)


def _flat(values: Mapping[str, Any], within: str = "") -> list[tuple[str, Any]]:
    """The values in nested dicts, by their paths."""
    flat: list[tuple[str, Any]] = []
    for name, value in values.items():
        path = f"{within}{name}"
        flat += _flat(value, f"{path}.") if isinstance(value, dict) and value else [(path, value)]
    return flat


def _castoff_run() -> tuple[str | None, int]:
    """The castoff run's id and this member's number; no id outside a castoff run."""
    me = Holder.here(os.environ)
    return me.run, me.member


def _kept_id(path: Path) -> str:
    """The id of the folder's wandb run, created at the first call."""
    if path.exists():
        kept = path.read_text(encoding="utf-8", errors="replace").strip()
        if kept.isascii() and kept.isalnum():
            return kept
    made = secrets.token_hex(4)
    replace_file(path, f"{made}\n".encode())
    return made
