"""The results of `castoff doctor --nodes`: the reports of its ranks, and the hosts that differ."""

from __future__ import annotations

import json
import re
import statistics
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from castoff.launcher.diagnosis.finding import Finding, Findings, Subject, has_problem
from castoff.launcher.logs.failures import FailedRank, failed_rank
from castoff.launcher.runs.run import RunDirectory
from castoff.launcher.runs.states import RunStatus, failure_words
from castoff.launcher.schedulers.registry import scheduler_of, title_of
from castoff.launcher.text.words import size_words

STAGES = ("start", "door", "reach", "torch", "rendezvous", "group", "sum", "pairs", "done")
"""The stages of a rank's program, in order."""

_ACTIVITIES = {
    "start": "starting its program",
    "door": "starting its program",
    "reach": "reaching the other hosts",
    "torch": "importing torch",
    "rendezvous": "meeting the other ranks at the rendezvous",
    "group": "connecting to the other ranks",
    "sum": "an all-reduce",
    "pairs": "exchanging data with one other host at a time",
}

_TIMEOUT = re.compile(r"timeout|timed out", re.IGNORECASE)
"""Matches torch's error after waiting for other ranks in vain."""

_SLOW_RATE = 0.5
"""Fraction of the median rate below which a host is slower than the others."""

_SLOW_LATENCY = 5.0
"""Multiple of the median latency above which a host is slower than the others."""

_SLOW_IMPORT = 30.0
"""Seconds above which an import of torch is slow."""

_JITTER = 100e-6
"""Seconds by which latencies may differ on any network."""


class RankFile(NamedTuple):
    """The reports of one rank from its file."""

    rank: int
    host: str
    reports: Mapping[str, Mapping[str, Any]]
    """The report of each stage, and of `failed` or `stuck`."""

    @property
    def last(self) -> str:
        """The last stage that the rank reached."""
        return next((stage for stage in reversed(STAGES) if stage in self.reports), STAGES[0])

    @property
    def waited(self) -> float:
        """Seconds from the rank's last stage to its failure."""
        last = self.reports[self.last]
        end = self.reports.get("stuck") or self.reports.get("failed") or last
        return float(end["time"]) - float(last["time"])

    @property
    def gave_up(self) -> bool:
        """Whether the rank gave up waiting for others, by its own watchdog or by torch's timeout."""
        error = self.reports.get("failed", {}).get("error", "")
        return "stuck" in self.reports or bool(_TIMEOUT.search(str(error)))


def read(run: RunDirectory) -> tuple[list[RankFile], list[str]]:
    """The rank files of a run's newest attempt, and the hosts of its job."""
    attempts = run.attempts()
    if not attempts:
        return [], []
    folder = attempts[-1][2]
    try:
        hosts = (folder / "hosts").read_text(encoding="utf-8", errors="replace").split()
    except OSError:
        hosts = []
    files = map(_rank_file, (folder / "doctor").glob("rank-*.jsonl"))
    return sorted(filter(None, files), key=lambda file: file.rank), list(dict.fromkeys(hosts))


def _rank_file(path: Path) -> RankFile | None:
    reports: dict[str, Mapping[str, Any]] = {}
    for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
        if (report := _object(line)) and {"stage", "rank", "host", "time"} <= report.keys():
            reports[str(report["stage"])] = report
    first = next(iter(reports.values()), None)
    return RankFile(int(first["rank"]), str(first["host"]), reports) if first else None


def read_preflight(run: RunDirectory) -> tuple[list[str], dict[str, str]]:
    """The hosts that were fit for ranks, and the unfit hosts with the reason of each."""
    unfit = {}
    for path in sorted((run.path / "set-aside").glob("*.json")):
        if record := _object(path.read_text(encoding="utf-8", errors="replace")):
            unfit[str(record.get("host", path.stem))] = str(record.get("reason", "no reason was recorded"))
    lines: list[str] = []
    for _, _, folder in run.attempts()[-1:]:
        path = folder / "host.sh.answers"
        if path.exists():
            lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
    answers = (_object(line.partition(" ")[2]) for line in lines)  # each line begins with a time
    hosts = dict.fromkeys(str(answer["host"]) for answer in answers if answer and "host" in answer)
    return [host for host in hosts if host not in unfit], unfit


def _object(text: str) -> Mapping[str, Any] | None:
    """Decode a JSON object; None if it is incomplete, since the job ended while it was written."""
    try:
        value = json.loads(text)
    except ValueError:
        return None
    return value if isinstance(value, dict) else None


def findings(run: RunDirectory, status: RunStatus, subject: Subject) -> Findings:
    """Judge the hosts of the test job, and its ending."""
    ranks, hosts = read(run)
    went_well = status.ending == "done" and bool(ranks) and all("done" in rank.reports for rank in ranks)
    if went_well:
        names = ", ".join(dict.fromkeys(rank.host for rank in ranks))
        yield Finding("nodes", "ok", f"{_ranks(ranks)} ran on {names} (run {run.id})")
    causes = [*_preflight(run, subject), *_network(ranks, subject)]
    # If a rank failed before it wrote a file, the job ended before others could write theirs.
    if not has_problem(causes) and (ranks or _first_failure(run, status) is None):
        causes = [*_absent(ranks, hosts, subject), *causes]
    yield from causes
    if not went_well:
        yield from _failure(run, status, ranks, subject, is_explained=has_problem(causes))
    yield from _torch(ranks)
    yield from _sum(ranks, subject)
    yield from _speed(ranks, subject)


def without_unfit(run: RunDirectory, status: RunStatus, subject: Subject) -> tuple[Subject, int] | None:
    """The next test, if unfit hosts prevented the first: its subject, and the number of fit hosts.

    None if no host was unfit, or if the scheduler cannot exclude hosts.
    """
    fit, unfit = read_preflight(run)
    can_exclude = "exclude" in scheduler_of(subject.site.scheduler).handles
    if status.ending != "node-failure" or not fit or not unfit or not can_exclude:
        return None
    exclude = ",".join(filter(None, [subject.spec.exclude, *unfit]))
    given, spec = subject.given.changed(exclude=exclude), subject.spec.changed(exclude=exclude)
    return subject._replace(given=given, spec=spec), len(fit)


def _preflight(run: RunDirectory, subject: Subject) -> Findings:
    """The results of the script's checks of hosts before it started ranks."""
    fit, unfit = read_preflight(run)
    for host, reason in unfit.items():
        yield Finding("preflight", "problem", f"{host} is not fit: {reason}", without(host, subject))
    if fit:
        yield Finding(
            "preflight", "ok", f"{', '.join(sorted(fit))}: devices, memory, disks, clock and network"
        )


def _absent(ranks: Sequence[RankFile], hosts: Sequence[str], subject: Subject) -> Findings:
    """The job's hosts on which no rank began."""
    began = {_short(rank.host) for rank in ranks}
    for host in hosts:
        if _short(host) not in began:
            fact = f"{host} did not answer: no rank began there"
            yield Finding("nodes", "problem", fact, without(host, subject))


def _network(ranks: Sequence[RankFile], subject: Subject) -> Findings:
    """Host names that resolve to another host's addresses, and hosts that others cannot reach."""
    reached = [(rank.host, rank.reports["reach"]["hosts"]) for rank in ranks if "reach" in rank.reports]
    answers = [(host, other, answer) for host, others in reached for other, answer in others.items()]
    wrong = [(host, other, answer) for host, other, answer in answers if answer["wrong"]]
    for host, other, answer in wrong:
        addresses: list[str] = next(
            (rank.reports["door"]["addresses"] for rank in ranks if rank.host == other), []
        )
        right = ", ".join(address for address in addresses if not address.startswith("127."))
        fact = f"{host} resolves {other} to {', '.join(answer['addresses'])}"
        fact += f", but {other} has {right or 'another address'}"
        fix = f"/etc/hosts or the name service of {host} is wrong: {without(host, subject)}"
        yield Finding("names", "problem", fact, fix)
    unreached: dict[str, list[tuple[str, str]]] = {}
    for host, other, answer in answers:
        if answer["failure"] and not answer["wrong"]:
            unreached.setdefault(other, []).append((host, answer["failure"]))
    for other, failures in unreached.items():
        fact = f"{other} cannot be reached from {', '.join(host for host, _ in failures)}: {failures[0][1]}"
        yield Finding("network", "problem", fact, without(other, subject))
    if len(reached) > 1 and not wrong and not unreached:
        interfaces = sorted(_interfaces(ranks))
        over = f", over {', '.join(interfaces)}" if interfaces else ""
        yield Finding("network", "ok", f"{len(reached)} hosts reach each other by their names{over}")


def _interfaces(ranks: Iterable[RankFile]) -> Counter[str]:
    """The interfaces by which hosts reach each other, with the number of connections."""
    return Counter(
        answer["by"]
        for rank in ranks
        for answer in rank.reports.get("reach", {}).get("hosts", {}).values()
        if answer["by"]
    )


def _failure(
    run: RunDirectory, status: RunStatus, ranks: Sequence[RankFile], subject: Subject, *, is_explained: bool
) -> Findings:
    """The cause of a failed test: an error of ranks, or else the stage at which they hung.

    `is_explained`: whether an earlier finding explains the failure.
    """
    log = f"castoff logs {run.id}"
    errors: dict[tuple[str, str], list[str]] = {}
    for rank in ranks:
        report = rank.reports.get("failed")
        if report and not rank.gave_up:
            errors.setdefault((str(report["at"]), str(report["error"])), []).append(rank.host)
    if first := min(errors, key=lambda key: _order(key[0]), default=None):
        stage, error = first
        hosts = ", ".join(dict.fromkeys(errors[first]))
        fact = f"{hosts} failed at {_ACTIVITIES.get(stage, stage)}: {error}"
        yield Finding("nodes", "problem", fact, f"{_remedy(stage, error, ranks, subject)}; {log}")
    elif any(rank.gave_up for rank in ranks):
        yield _hang(ranks, subject, log)
    elif failed := _first_failure(run, status):
        line = b" ".join(failed.excerpt()[-1:]).decode(errors="replace").strip()
        fact = failure_words(failed.failure) + (f": {line}" if line else "")
        yield Finding("nodes", "problem", fact, f"{_remedy('', line, ranks, subject)}; {log}")
    elif not is_explained:
        reason = f": {status.reason}" if status.reason else ""
        fact = f"the job ended as {status.ending or status.state}{reason}"
        yield Finding("nodes", "problem", fact, log)


def _first_failure(run: RunDirectory, status: RunStatus) -> FailedRank | None:
    attempts = status.members[0].attempts if status.members else []
    return failed_rank(run, status.members[0].member, attempts[-1]) if attempts else None


def _hang(ranks: Sequence[RankFile], subject: Subject, log: str) -> Finding:
    """Find the ranks that held up the others: those that reached the fewest stages and, if possible, did
    not give up waiting.
    """
    least = min(_order(rank.last) for rank in ranks)
    behind = [rank for rank in ranks if _order(rank.last) == least]
    silent = [rank for rank in behind if not rank.gave_up]
    hosts = list(dict.fromkeys(rank.host for rank in silent or behind))
    seconds = max(rank.waited for rank in ranks if rank.gave_up)
    stage = STAGES[min(least + 1, len(STAGES) - 1)]
    others = [rank.host for rank in ranks if rank.host not in hosts]
    late = ", ".join(hosts) if others else "all hosts"
    fact = f"a hang at {_ACTIVITIES.get(stage, stage)}: {late} made no progress for {seconds:.0f} s"
    fact += ", and the other hosts waited" if others else ""
    is_one = bool(others) and len(hosts) == 1
    fix = without(hosts[0], subject) if is_one else _remedy(stage, "", ranks, subject)
    return Finding("nodes", "problem", fact, f"{fix}; {log}")


def _order(stage: str) -> int:
    return STAGES.index(stage) if stage in STAGES else 0


def _remedy(stage: str, error: str, ranks: Sequence[RankFile], subject: Subject) -> str:
    """The remedy for an error or a hang at a stage."""
    python = subject.setting("python", "/path/to/env/bin/python")
    if "is not on PATH" in error:
        return f"a job does not have your terminal's PATH: {python}, or load a module in `setup:`"
    if "No module named" in error:
        programs = (rank.reports["start"]["executable"] for rank in ranks if "start" in rank.reports)
        program = next(programs, "python")
        return f"the job's Python is {program}: install torch there, or name another: {python}"
    if "address already in use" in error.lower():
        return "another job uses the port; try again, and if the error stays, tell your site's support"
    if stage in ("group", "sum", "pairs"):
        backends = (rank.reports["torch"]["backend"] for rank in ranks if "torch" in rank.reports)
        variable = "GLOO_SOCKET_IFNAME" if next(backends, "gloo") == "gloo" else "NCCL_SOCKET_IFNAME"
        names = (name for name, _ in _interfaces(ranks).most_common() if name != "lo")
        setting = f"`env: {{{variable}: {next(names, 'INTERFACE')}}}`"
        return f"name the interface that hosts share: {setting} in the job file"
    if stage == "rendezvous":
        return "the other hosts cannot reach the first host's name or port; see `network` and `names` above"
    return "see the log"


def without(host: str, subject: Subject) -> str:
    """The remedy that keeps the job off a host."""
    scheduler = scheduler_of(subject.site.scheduler)
    tell = "tell your site's support"
    if "exclude" not in scheduler.handles:
        return f"{tell} of {host}; {title_of(scheduler.name)} cannot keep a job off it"
    excluded = f"{subject.spec.exclude}," if subject.spec.exclude else ""
    return f"{subject.setting('exclude', excluded + host)}, and {tell}"


def _torch(ranks: Sequence[RankFile]) -> Findings:
    """Check that all ranks have the same torch, and report the longest time of its import."""
    reports = [(rank.host, rank.reports["torch"]) for rank in ranks if "torch" in rank.reports]
    if not reports:
        return
    is_alike = True
    for field in ("version", "backend"):
        usual, _ = Counter(str(report[field]) for _, report in reports).most_common(1)[0]
        for host, report in [(host, report) for host, report in reports if str(report[field]) != usual][:1]:
            is_alike = False
            fact = f"{host} has the {field} {report[field]} of torch, and others {usual}"
            fix = "use the same modules or environment on every node; a host that shows no devices is broken"
            yield Finding("torch", "problem", fact, fix)
    seconds, slowest = max((float(report["seconds"]), host) for host, report in reports)
    first = reports[0][1]
    fact = f"torch {first['version']} with {first['backend']}, imported in {seconds:.1f} s at most"
    if seconds > _SLOW_IMPORT:
        fix = "`stage:` an archive of the environment to the nodes' own disks, or use a container"
        yield Finding("torch", "warning", f"{fact}, on {slowest}, which is slow", fix)
    elif is_alike:
        yield Finding("torch", "ok", fact)


def _sum(ranks: Sequence[RankFile], subject: Subject) -> Findings:
    """Check that every rank got the right sum, and report the median times of an all-reduce."""
    reports = [(rank, rank.reports["sum"]) for rank in ranks if "sum" in rank.reports]
    wrong = [(rank, report) for rank, report in reports if not report["exact"]]
    for rank, report in wrong:
        fact = f"rank {rank.rank} on {rank.host} got {report['got']:g} instead of {report['right']:g}"
        yield Finding("all-reduce", "problem", fact, without(rank.host, subject))
    if not reports or wrong:
        return
    times = {
        int(size): statistics.median(
            float(report["seconds"][size]) for _, report in reports if size in report["seconds"]
        )
        for size in reports[0][1]["seconds"]
    }
    largest, smallest = max(times), min(times)
    fact = (
        f"exact on {_ranks(reports)}; {size_words(smallest)} in {_milliseconds(times[smallest])}, "
        f"{size_words(largest)} in {_milliseconds(times[largest])} ({_rate(largest / times[largest])})"
    )
    values = {"seconds": {str(size): seconds for size, seconds in times.items()}}
    yield Finding("all-reduce", "ok", fact, values=values)


def _speed(ranks: Sequence[RankFile], subject: Subject) -> Findings:
    """Report each host's best latency and rate with any other host: a slow host is slow with all of them."""
    partners = {
        rank.host: [*rank.reports["pairs"]["partners"].values()]
        for rank in ranks
        if rank.reports.get("pairs", {}).get("partners")
    }
    if not partners:
        return
    latencies = {host: min(pair["latency"] for pair in pairs) for host, pairs in partners.items()}
    rates = {host: max(pair["rate"] for pair in pairs) for host, pairs in partners.items()}
    latency, rate = statistics.median(latencies.values()), statistics.median(rates.values())
    slowest = min(rates, key=lambda host: (rates[host] / rate) * (latency / latencies[host]))
    for host in partners:
        fact = f"{host}: {_milliseconds(latencies[host])} and {_rate(rates[host])} with another host"
        values = {"host": host, "latency": latencies[host], "rate": rates[host]}
        is_slow = rates[host] < _SLOW_RATE * rate or latencies[host] > _SLOW_LATENCY * latency + _JITTER
        if host == slowest and is_slow and len(partners) > 2:
            fact += f", clearly slower than the median ({_milliseconds(latency)}, {_rate(rate)})"
            yield Finding("speed", "warning", fact, without(host, subject), values)
        else:
            yield Finding("speed", "ok", fact, values=values)


def _ranks(ranks: Sequence[object]) -> str:
    return "1 rank" if len(ranks) == 1 else f"{len(ranks)} ranks"


def _milliseconds(seconds: float) -> str:
    return f"{seconds * 1000:.2f} ms" if seconds < 0.1 else f"{seconds:.1f} s"


def _rate(rate: float) -> str:
    return f"{size_words(int(rate))}/s"


def _short(host: str) -> str:
    return host.partition(".")[0]
