"""executor(spec, site, folder): Python functions as jobs, with submitit's interface.

Every submission, also of an array, is a run directory made by `submission.submit`, with castoff's script.
docs/how-to/submitit.md lists the differences from submitit. `PbsExecutor` is for programs that use submitit's
AutoExecutor, which has no executor for PBS and accepts only one executor of each installed package.

submitit imports this module in every rank, so modules that only a submission needs are imported late.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from submitit.core import core, utils

from castoff.launcher.errors import CastoffError, InvalidInput, Problem

if TYPE_CHECKING:
    from castoff.launcher.config.job import JobSpec
    from castoff.launcher.config.site import Site
    from castoff.launcher.executors.function_job import FunctionJob

R = TypeVar("R")
P = ParamSpec("P")


class SubmissionError(utils.FailedSubmissionError, CastoffError):
    """A scheduler refused a job, or did not confirm that it accepted the job. The text is the scheduler's."""


def executor(
    spec: JobSpec | Mapping[str, Any] | None = None,
    site: Site | str | None = None,
    folder: str | Path | None = None,
) -> CastoffExecutor:
    """Run Python functions as jobs: a submitit executor.

    `spec`: a job, or the fields of a job file; its `command` is ignored. `site`: a site or its name; None:
    the site that `castoff submit` would choose. `folder`: the folder for run directories; None:
    CASTOFF_RUNS_DIR, else castoff-runs in the working directory.

    >>> import castoff
    >>> executor = castoff.executor({"ranks_per_node": 2}, "local")
    >>> executor.submit(divmod, 7, 2).results()
    [(3, 1), (3, 1)]

    Raises:
        InvalidInput: with every invalid field.
        CastoffError: there is no such site.
    """
    import os

    from castoff.launcher.runs.run import runs_folder

    return CastoffExecutor(runs_folder(os.environ) if folder is None else folder, spec, site)


class CastoffExecutor(core.Executor):
    """Submits functions as jobs; made by `castoff.executor`.

    `submit` makes a run of one function, or of all functions in a `batch()`; `map_array` and `submit_array`
    make a run of many functions. They raise InvalidInput if the job cannot run on the site, and
    SubmissionError if its scheduler does not accept it.
    """

    def __init__(
        self,
        folder: str | Path,
        spec: JobSpec | Mapping[str, Any] | None = None,
        site: Site | str | None = None,
        *,
        max_pickle_size_gb: float = 1.0,
    ):
        import msgspec

        from castoff.launcher.config.job import JobSpec
        from castoff.launcher.executors.parameters import check_arguments, job_of

        check_arguments(spec, site, folder)
        super().__init__(folder, msgspec.to_builtins(spec) if isinstance(spec, JobSpec) else dict(spec or {}))
        self.spec: JobSpec = spec if isinstance(spec, JobSpec) else job_of(self.parameters)
        """The job. Fields that it does not set are derived from the functions."""
        self.site = self._site(site)
        self.max_pickle_size_gb = max_pickle_size_gb
        """Limit of the size of a submission's pickled functions and arguments, in GiB."""

    def _site(self, site: Site | str | None) -> Site:
        from castoff.launcher.schedulers.choice import choose_site, site_named

        if site is None:
            return choose_site()[0]
        return site_named(site) if isinstance(site, str) else site

    if TYPE_CHECKING:  # submitit's methods, annotated with castoff's job type

        def submit(  # noqa: D102
            self, fn: Callable[P, R], *args: P.args, **kwargs: P.kwargs
        ) -> FunctionJob[R]: ...
        # submitit declares list[Job], with which list[FunctionJob] is incompatible since lists are mutable
        def map_array(  # type: ignore[override]  # noqa: D102
            self, fn: Callable[..., R], *iterable: Iterable[Any]
        ) -> list[FunctionJob[R]]: ...
        def submit_array(  # type: ignore[override]  # noqa: D102
            self, fns: Sequence[Callable[[], R]]
        ) -> list[FunctionJob[R]]: ...

    def render(self, fn: Callable[..., Any], *, count: int = 1) -> str:
        """The script that `submit(fn)` sends, byte for byte; with `count`, that of an array of so many
        functions.

        Raises:
            InvalidInput: the job cannot run on the site.
        """
        from castoff.launcher.planning.planner import decide
        from castoff.launcher.planning.render import rendered
        from castoff.launcher.preflight.syntax import check_syntax

        decided, scheduler = decide(self._job([fn] * count), self.site, function=True)
        script = rendered(decided, scheduler)
        check_syntax(decided, script)
        return script.text

    def _job(self, functions: list[Callable[..., Any]]) -> JobSpec:
        from castoff.launcher.executors.parameters import for_functions

        return for_functions(self.spec, self.site, functions)

    def _internal_update_parameters(self, **kwargs: Any) -> None:
        """Set fields of the job. Each value replaces the whole field; None clears it.

        Raises:
            InvalidInput: with every invalid field; then no field is changed.
        """
        from castoff.launcher.executors.parameters import job_of

        self.spec = job_of({**self.parameters, **kwargs})
        self.parameters.update(kwargs)

    def _internal_process_submissions(
        self, delayed_submissions: list[utils.DelayedSubmission]
    ) -> list[core.Job[Any]]:
        from castoff.launcher.executors.function_job import FunctionJob, ids
        from castoff.launcher.submission.send import Unclear
        from castoff.launcher.submission.submit import submit
        from castoff.launcher.text.python_words import in_python

        spec = self._job([delayed_submission.function for delayed_submission in delayed_submissions])
        try:
            run = submit(
                spec,
                self.site,
                runs_dir=self.folder,
                function=True,
                prepare=lambda path: self._write(path, delayed_submissions),
            )
        except InvalidInput:
            raise
        except Unclear as error:
            ask = f"do not submit it again before `castoff status {error.run.id}` shows if it was submitted"
            raise SubmissionError(f"{error}\n{ask}") from error
        except CastoffError as error:
            raise SubmissionError(in_python(str(error))) from error
        ranks = range(run.facts().ranks or 0)
        return [FunctionJob(run.path, job, ranks, member=member) for member, job in sorted(ids(run).items())]

    def _write(self, run_path: Path, submissions: list[utils.DelayedSubmission]) -> None:
        """Write the functions into the draft of a run directory."""
        from castoff.launcher.executors.environment import pickle_of

        size = 0.0
        for member, submission in enumerate(submissions):
            path = pickle_of(run_path, member)
            path.parent.mkdir(mode=0o700, exist_ok=True)
            submission.dump(path)
            size += path.stat().st_size / 1024**3
            if size > self.max_pickle_size_gb:
                raise RuntimeError(
                    f"{member + 1} of {len(submissions)} functions with their arguments take {size:.3g} GiB, "
                    f"more than executor.max_pickle_size_gb={self.max_pickle_size_gb:g}; nothing was sent"
                )


class PbsExecutor(CastoffExecutor):
    """Functions as PBS jobs, with submitit's own parameters: `AutoExecutor(folder, cluster="pbs")`.

    AutoExecutor passes a job's fields and the site as `pbs_spec=` and `pbs_site=`.
    """

    _gpus_per_node: int | None = None

    @classmethod
    def affinity(cls) -> int:
        """Unused: AutoExecutor never chooses this executor by itself."""
        return 0

    @classmethod
    def _valid_parameters(cls) -> set[str]:
        from castoff.launcher.executors.parameters import AnyName

        return AnyName()

    def _internal_update_parameters(self, **kwargs: Any) -> None:
        """Set fields of the job, given under submitit's names or the job file's.

        Raises:
            InvalidInput: with every invalid parameter; then no field is changed.
        """
        from castoff.launcher.executors.parameters import translated

        gpus = kwargs.pop("gpus_per_node", self._gpus_per_node)
        super()._internal_update_parameters(**translated(kwargs))
        self._gpus_per_node = gpus

    def _job(self, functions: list[Callable[..., Any]]) -> JobSpec:
        from castoff.launcher.executors.parameters import with_tasks

        return with_tasks(super()._job(functions), self._gpus_per_node)

    def _site(self, site: Site | str | None) -> Site:
        """The named PBS site; otherwise the one that `castoff submit` would choose; otherwise the general
        profile for PBS.
        """
        chosen = super()._site(site)
        if chosen.scheduler == self.name():
            return chosen
        if site is None:
            return super()._site(self.name())
        message = f"is {chosen.name}, whose scheduler is {chosen.scheduler}: use castoff.executor"
        raise InvalidInput([Problem("executor", "site", message)])
