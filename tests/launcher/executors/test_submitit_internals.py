"""What castoff takes over from submitit, replaces, or relies on, is still what it was when that was read.

A failure here is not a mistake of castoff's: submitit has changed. Read the difference of that function
between the two versions, look at what is named beside it, and put the new fingerprint here.
"""

from __future__ import annotations

import hashlib
import inspect
from typing import Any

import pytest
import submitit
from submitit.auto import auto
from submitit.core import core, job_environment, plugins, submission, utils

RELIED_ON: list[tuple[Any, str, str]] = [
    (core.Executor.__init__, "1795b6d66edd", "CastoffExecutor.__init__ calls it"),
    (core.Executor.batch, "3cec0c31158b", "submissions reach _internal_process_submissions when it ends"),
    (core.Executor._submit_delayed_batch, "729502e395de", "how DelayedJob becomes a FunctionJob"),
    (core.Executor.submit, "b075cac89d18", "CastoffExecutor.submit calls it"),
    (core.Executor.map_array, "6ba9c6faa199", "CastoffExecutor.map_array calls it; one call of _internal_…"),
    (core.Executor.submit_array, "50cd513e818b", "CastoffExecutor.submit_array calls it"),
    (core.Executor.update_parameters, "80c6092b5b65", "ends in _internal_update_parameters"),
    (core.Executor.name, "9bb0b33b0d94", "the plugin's name, from the class's"),
    (core.DelayedJob, "0b22340b60b9", "takes a FunctionJob's __dict__ and class"),
    (core.Job, "9e4ec39000f0", "FunctionJob: __init__ and every method that it does not replace"),
    (core.AsyncJobProxy, "e3bb71902646", "awaits done(), result() and results()"),
    (core.InfoWatcher, "28b91eeac5ac", "RunWatcher: registered, finished, when to look"),
    (
        submission.process_job,
        "7c071bed6918",
        "the program of a job: paths, signals, delayed.result(), results",
    ),
    (submission.submitit_main, "f167e09af810", "the folder is its only argument"),
    (
        job_environment.JobEnvironment,
        "aacc83c52def",
        "CastoffJobEnvironment: every property that it does not replace",
    ),
    (job_environment._checkpoint, "cd20d458e419", "Stopping._checkpoint does its work"),
    (job_environment.SignalHandler, "2fe505b51910", "Stopping does its work"),
    (utils.JobPaths, "0ae5bd804512", "FunctionPaths: all names of files"),
    (
        utils.DelayedSubmission,
        "d1f72602b304",
        "Stopping replaces its result() and calls _checkpoint_function()",
    ),
    (utils.temporary_save_path, "a5f61907709e", "where results are written"),
    (utils.pickle_load, "f486db411a73", "how results are read"),
    (plugins._get_plugins, "a629f2fc15c8", "how the entry points are read"),
    (plugins.get_job_environment, "f99e93913b31", "how CastoffJobEnvironment is chosen"),
    (
        auto.AutoExecutor.__init__,
        "814aa1eb14a8",
        "names that are not a plugin's are taken for the last plugin's",
    ),
    (auto.flexible_init, "ef8399f59c20", "pbs_spec and pbs_site"),
    (
        auto.AutoExecutor._internal_update_parameters,
        "2b51bb69af5c",
        "PbsExecutor: what reaches its _internal_update_parameters, and that `in` alone asks AnyName",
    ),
    (core.Executor._convert_parameters, "753ae037c0aa", "PbsExecutor gets the generic names as they are"),
    (submitit.helpers.Checkpointable, "b514a54523c9", "whether a function can go on"),
]


def fingerprint(thing: Any) -> str:
    """Of a source, however it is broken into lines."""
    return hashlib.sha256("".join(inspect.getsource(thing).split()).encode()).hexdigest()[:12]


@pytest.mark.parametrize(
    ("thing", "known", "ours"), RELIED_ON, ids=lambda one: getattr(one, "__qualname__", "")
)
def test_submitit_is_what_it_was(thing: Any, known: str, ours: str) -> None:
    name = f"{thing.__module__}.{thing.__qualname__}"
    assert fingerprint(thing) == known, (
        f"submitit {submitit.__version__} has another {name}. What castoff relies on: {ours}. Read what "
        "changed, mend launcher/executors.py and launcher/functions if need be, and put the new fingerprint "
        f"here: {fingerprint(thing)}"
    )
