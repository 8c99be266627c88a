"""The results of `castoff doctor --nodes`, with the hosts that differ."""

from __future__ import annotations

import re
import statistics
from collections import Counter
from collections.abc import Iterable, Sequence

from castoff.launcher.diagnosis.finding import Finding, Findings, has_problem
from castoff.launcher.diagnosis.node_files import STAGES, RankFile, read, read_preflight
from castoff.launcher.diagnosis.subject import Subject
from castoff.launcher.logs.failures import FailedRank, failed_rank
from castoff.launcher.runs.run import RunDirectory
from castoff.launcher.runs.states import RunStatus, failure_words
from castoff.launcher.schedulers.registry import scheduler_of, title_of
from castoff.launcher.text.words import size_words

_DOES = {
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
"""In the error of a torch that has waited for others in vain."""

_SLOWER = 0.5
"""Of the median rate: a host below is clearly slower than the others."""

_LATER = 5.0
"""Of the median latency, likewise."""

_JITTER = 100e-6
"""Seconds by which latencies differ anyway."""


def findings(run: RunDirectory, now: RunStatus, subject: Subject) -> Findings:
    """What the job has found, and how it ended."""
    ranks, hosts = read(run)
    went_well = now.ending == "done" and bool(ranks) and all("done" in one.said for one in ranks)
    if went_well:
        there = ", ".join(dict.fromkeys(one.host for one in ranks))
        yield Finding(
            "nodes",
            "ok",
            f"{_ranks(ranks)} ran on {there} (run {run.id})",
        )
    causes = [*_preflight(run, subject), *_names(ranks, subject)]
    # Where a rank failed before it had a file, none of them has one, whatever its host.
    if not has_problem(causes) and (ranks or _first_failure(run, now) is None):
        causes = [*_absent(ranks, hosts, subject), *causes]
    yield from causes
    if not went_well:
        yield from _failure(run, now, ranks, subject, is_known=has_problem(causes))
    yield from _torch(ranks)
    yield from _sum(ranks, subject)
    yield from _speed(ranks, subject)


def without_unfit(run: RunDirectory, now: RunStatus, subject: Subject) -> tuple[Subject, int] | None:
    """What to try after a job that measured nothing because of unfit hosts: as many hosts as were fit.

    None: there were none, or the scheduler cannot keep a job off hosts.
    """
    fit, unfit = read_preflight(run)
    handled = "exclude" in scheduler_of(subject.site.scheduler).handles
    if now.ending != "node-failure" or not fit or not unfit or not handled:
        return None
    exclude = ",".join(filter(None, [subject.spec.exclude, *unfit]))
    given, spec = subject.given.changed(exclude=exclude), subject.spec.changed(exclude=exclude)
    return subject._replace(given=given, spec=spec), len(fit)


def _preflight(run: RunDirectory, subject: Subject) -> Findings:
    """What the script found of each host before it started ranks."""
    fit, unfit = read_preflight(run)
    for host, reason in unfit.items():
        yield Finding("preflight", "problem", f"{host} is not fit: {reason}", without(host, subject))
    if fit:
        yield Finding(
            "preflight", "ok", f"{', '.join(sorted(fit))}: devices, memory, disks, clock and network"
        )


def _absent(ranks: Sequence[RankFile], hosts: Sequence[str], subject: Subject) -> Findings:
    """Hosts of the job where no rank began."""
    began = {_short(one.host) for one in ranks}
    for host in hosts:
        if _short(host) not in began:
            fact = f"{host} did not answer: no rank began there"
            yield Finding("nodes", "problem", fact, without(host, subject))


def _names(ranks: Sequence[RankFile], subject: Subject) -> Findings:
    """Names that stand for other hosts' addresses, and hosts that are not reached."""
    asked = [(one.host, one.said["reach"]["hosts"]) for one in ranks if "reach" in one.said]
    wrong = [(host, other, how) for host, known in asked for other, how in known.items() if how["wrong"]]
    for host, other, how in wrong:
        has: list[str] = next((one.said["door"]["addresses"] for one in ranks if one.host == other), [])
        own = ", ".join(address for address in has if not address.startswith("127."))
        fact = (
            f"{host} takes {other} for {', '.join(how['addresses'])}, and that has {own or 'another address'}"
        )
        fix = f"/etc/hosts or the name service of {host} is wrong: {without(host, subject)}"
        yield Finding("names", "problem", fact, fix)
    cut: dict[str, list[tuple[str, str]]] = {}
    for host, known in asked:
        for other, how in known.items():
            if how["failure"] and not how["wrong"]:
                cut.setdefault(other, []).append((host, how["failure"]))
    for other, those in cut.items():
        by, why = ", ".join(host for host, _ in those), those[0][1]
        yield Finding("network", "problem", f"{other} is not reached by {by}: {why}", without(other, subject))
    if asked and not wrong and not cut and len(asked) > 1:
        yield Finding("network", "ok", f"{len(asked)} hosts reach each other by their names{_by(ranks)}")


def _by(ranks: Iterable[RankFile]) -> str:
    used = sorted(_interfaces(ranks))
    return f", over {', '.join(used)}" if used else ""


def _interfaces(ranks: Iterable[RankFile]) -> Counter[str]:
    """By which interfaces hosts reach each other, and how often."""
    found: Counter[str] = Counter()
    for one in ranks:
        found.update(how["by"] for how in one.said.get("reach", {}).get("hosts", {}).values() if how["by"])
    return found


def _failure(
    run: RunDirectory, now: RunStatus, ranks: Sequence[RankFile], subject: Subject, *, is_known: bool
) -> Findings:
    """Why the job did not end well: the errors of ranks, else where it hung.

    `is_known`: whether something was found already that explains it.
    """
    log = f"castoff logs {run.id}"
    errors: dict[tuple[str, str], list[str]] = {}
    for one in ranks:
        said = one.said.get("failed")
        if said and not _waited(one):
            errors.setdefault((str(said["at"]), str(said["error"])), []).append(one.host)
    if first := min(errors, key=lambda one: _place(one[0]), default=None):
        stage, error = first
        hosts = ", ".join(dict.fromkeys(errors[first]))
        fact = f"{hosts} failed at {_DOES.get(stage, stage)}: {error}"
        yield Finding("nodes", "problem", fact, f"{_remedy(stage, error, ranks, subject)}; {log}")
    elif any(_waited(one) for one in ranks):
        yield _hang(ranks, subject, log)
    elif failed := _first_failure(run, now):
        last = b" ".join(failed.excerpt()[-1:]).decode(errors="replace").strip()
        fact = failure_words(failed.failure) + (f": {last}" if last else "")
        yield Finding("nodes", "problem", fact, f"{_remedy('', last, ranks, subject)}; {log}")
    elif not is_known:
        reason = f": {now.reason}" if now.reason else ""
        fact = f"the job ended as {now.ending or now.state}{reason}"
        yield Finding("nodes", "problem", fact, log)


def _first_failure(run: RunDirectory, now: RunStatus) -> FailedRank | None:
    attempts = now.members[0].attempts if now.members else []
    return failed_rank(run, now.members[0].member, attempts[-1]) if attempts else None


def _hang(ranks: Sequence[RankFile], subject: Subject, log: str) -> Finding:
    """The hosts that came least far are those for which the others waited, above all silent ones."""
    least = min(_place(one.last) for one in ranks)
    last = [one for one in ranks if _place(one.last) == least]
    silent = [one for one in last if not _waited(one)]
    behind = list(dict.fromkeys(one.host for one in silent or last))
    waited = max((one for one in ranks if _waited(one)), key=lambda one: one.spent)
    at = STAGES[min(least + 1, len(STAGES) - 1)]
    others = [one.host for one in ranks if one.host not in behind]
    who = f"{', '.join(behind)}" if others else "all hosts"
    fact = f"a hang at {_DOES.get(at, at)}: {who} came no further in {waited.spent:.0f} s"
    fact += ", and the others waited" if others else ""
    fix = without(behind[0], subject) if others and len(behind) == 1 else _remedy(at, "", ranks, subject)
    return Finding("nodes", "problem", fact, f"{fix}; {log}")


def _waited(one: RankFile) -> bool:
    """Whether a rank has given up waiting, by its own watch or by torch's."""
    return "stuck" in one.said or bool(_TIMEOUT.search(str(one.said.get("failed", {}).get("error", ""))))


def _place(stage: str) -> int:
    return STAGES.index(stage) if stage in STAGES else 0


def _remedy(stage: str, error: str, ranks: Sequence[RankFile], subject: Subject) -> str:
    """What to do about an error or a hang at a stage."""
    own = subject.setting("python", "/path/to/env/bin/python")
    if "is not on PATH" in error:
        return f"a job does not have your terminal's PATH: {own}, or load a module in `setup:`"
    if "No module named" in error:
        executable = next((one.said["start"]["executable"] for one in ranks if "start" in one.said), "python")
        return f"the job's Python is {executable}: install torch there, or name another: {own}"
    if "address already in use" in error.lower():
        return "something of another job has the port; try again, and if it stays, tell your site's support"
    if stage in ("group", "sum", "pairs"):
        backend = next((one.said["torch"]["backend"] for one in ranks if "torch" in one.said), "gloo")
        variable = "GLOO_SOCKET_IFNAME" if backend == "gloo" else "NCCL_SOCKET_IFNAME"
        name = next((one for one, _ in _interfaces(ranks).most_common() if one != "lo"), "INTERFACE")
        return f"name the interface that hosts share: `env: {{{variable}: {name}}}` in the job file"
    if stage == "rendezvous":
        return "the first host's name or port is not reached from the others; see `network` and `names` above"
    return "see the log"


def without(host: str, subject: Subject) -> str:
    """How to do without a host."""
    scheduler = scheduler_of(subject.site.scheduler)
    tell = "tell your site's support"
    if "exclude" not in scheduler.handles:
        return f"{tell} of {host}; {title_of(scheduler.name)} cannot keep a job off it"
    known = f"{subject.spec.exclude}," if subject.spec.exclude else ""
    return f"{subject.setting('exclude', known + host)}, and {tell}"


def _torch(ranks: Sequence[RankFile]) -> Findings:
    said = [(one, one.said["torch"]) for one in ranks if "torch" in one.said]
    if not said:
        return
    versions = Counter(str(facts["version"]) for _, facts in said)
    backends = Counter(str(facts["backend"]) for _, facts in said)
    for counts, what in ((versions, "version"), (backends, "backend")):
        if len(counts) > 1:
            usual = counts.most_common(1)[0][0]
            other = next(one for one in said if str(one[1][what]) != usual)
            fact = f"{other[0].host} has the {what} {other[1][what]} of torch, and others {usual}"
            fix = (
                "the same modules or environment on every node; devices that a host does not show are broken"
            )
            yield Finding("torch", "problem", fact, fix)
    times = {one.host: float(facts["seconds"]) for one, facts in said}
    slowest = max(times, key=lambda host: times[host])
    first = said[0][1]
    fact = f"torch {first['version']} with {first['backend']}, imported in {times[slowest]:.1f} s at most"
    if times[slowest] > 30:
        fix = "`stage:` an archive of the environment to the nodes' own disks, or use a container"
        yield Finding("torch", "warning", f"{fact}, on {slowest}, which is slow", fix)
    elif len(versions) == len(backends) == 1:
        yield Finding("torch", "ok", fact)


def _sum(ranks: Sequence[RankFile], subject: Subject) -> Findings:
    said = [(one, one.said["sum"]) for one in ranks if "sum" in one.said]
    wrong = [(one, facts) for one, facts in said if not facts["exact"]]
    for one, facts in wrong:
        fact = f"rank {one.rank} on {one.host} got {facts['got']:g} where {facts['right']:g} is right"
        yield Finding("all-reduce", "problem", fact, without(one.host, subject))
    if not said or wrong:
        return
    sizes = {
        int(size): statistics.median(
            float(facts["seconds"][size]) for _, facts in said if size in facts["seconds"]
        )
        for size in said[0][1]["seconds"]
    }
    largest, smallest = max(sizes), min(sizes)
    fact = (
        f"exact on {_ranks(said)}; {size_words(smallest)} in {_milliseconds(sizes[smallest])}, "
        f"{size_words(largest)} in {_milliseconds(sizes[largest])} ({_rate(largest / sizes[largest])})"
    )
    yield Finding("all-reduce", "ok", fact, values={"seconds": {str(size): sizes[size] for size in sizes}})


def _speed(ranks: Sequence[RankFile], subject: Subject) -> Findings:
    """Each host's best latency and rate with another: a slow host is slow with all of them."""
    measured = {
        one.host: [*partners.values()]
        for one in ranks
        if (partners := one.said.get("pairs", {}).get("partners"))
    }
    latencies = {host: min(one["latency"] for one in those) for host, those in measured.items()}
    rates = {host: max(one["rate"] for one in those) for host, those in measured.items()}
    if not measured:
        return
    usual, usual_rate = statistics.median(latencies.values()), statistics.median(rates.values())
    slowest = min(rates, key=lambda host: (rates[host] / usual_rate) * (usual / latencies[host]))
    for host in measured:
        fact = f"{host}: {_milliseconds(latencies[host])} and {_rate(rates[host])} with another host"
        values = {"host": host, "latency": latencies[host], "rate": rates[host]}
        is_slow = rates[host] < _SLOWER * usual_rate or latencies[host] > _LATER * usual + _JITTER
        if host == slowest and is_slow and len(measured) > 2:
            fact += f", clearly slower than the median ({_milliseconds(usual)}, {_rate(usual_rate)})"
            yield Finding("speed", "warning", fact, without(host, subject), values)
        else:
            yield Finding("speed", "ok", fact, values=values)


def _ranks(some: Sequence[object]) -> str:
    return "1 rank" if len(some) == 1 else f"{len(some)} ranks"


def _milliseconds(took: float) -> str:
    return f"{took * 1000:.2f} ms" if took < 0.1 else f"{took:.1f} s"


def _rate(rate: float) -> str:
    return f"{size_words(int(rate))}/s"


def _short(host: str) -> str:
    return host.partition(".")[0]
