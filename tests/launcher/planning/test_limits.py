"""What a site would refuse, said before anything is queued."""

from __future__ import annotations

from typing import Any, cast

import msgspec
import pytest

from castoff.launcher.config.job import JobSpec
from castoff.launcher.config.quantities import clock, seconds
from castoff.launcher.config.site import Site
from castoff.launcher.config.site_fields import Queue, Range
from castoff.launcher.errors import InvalidInput
from castoff.launcher.launchers.base import Layout, Request
from castoff.launcher.planning.limits import notes, site_problems
from castoff.launcher.planning.planner import DEFAULT_GRACE, plan
from castoff.launcher.planning.raw_directives import directive_problems
from castoff.launcher.schedulers.registry import scheduler_of

FACT: dict[str, Any] = {"source": "the guide", "date": "2026-08-19"}


@pytest.fixture(scope="module")
def aurora() -> Site:
    return Site.load("aurora")


def site(scheduler: str, **fields: Any) -> Site:
    launcher = {"slurm": "srun", "pbs": "hydra", "local": "local"}[scheduler]
    return Site(name="there", description="d", scheduler=scheduler, launcher=launcher, **fields)  # type: ignore[arg-type]


def problems(at: Site, *, name: str = "job", grace: int = DEFAULT_GRACE, **fields: Any) -> dict[str, str]:
    spec = JobSpec.of({"command": ["x"], **fields})
    walltime = seconds(spec.walltime) if spec.walltime else None
    asked = Request(Layout([(1, 1)]), None, [], 0, 0, at, name=name, walltime=walltime, grace=grace)
    own = scheduler_of(at.scheduler)
    found = [
        *site_problems(spec, at, own, name, walltime, grace),
        *directive_problems(spec.directives, spec, at, own, asked),
    ]
    assert len({field for field, _ in found}) == len(found)
    return dict(found)


GOOD: dict[str, Any] = {
    "account": "a",
    "walltime": "30m",
    "directives": {"filesystems": "home"},
}


class TestAurorasQueues:
    """Every edge of every queue: running-jobs-aurora, table of queues."""

    EDGES = (
        # queue, nodes, shortest and longest walltime
        ("debug", 1, 300, 3600),
        ("debug", 2, 300, 3600),
        ("debug-scaling", 2, 300, 3600),
        ("debug-scaling", 256, 300, 3600),
        ("prod", 256, 300, 12 * 3600),
        ("prod", 1024, 300, 12 * 3600),
        ("prod", 1025, 300, 18 * 3600),
        ("prod", 1999, 300, 18 * 3600),
        ("prod", 2000, 300, 24 * 3600),
        ("prod", 10624, 300, 24 * 3600),
        ("capacity", 1, 300, 168 * 3600),
        ("capacity", 16, 300, 168 * 3600),
        ("visualization", 1, 300, 8 * 3600),
        ("visualization", 32, 300, 8 * 3600),
    )

    def of_queue(self, aurora: Site, queue: str, nodes: int, walltime: int) -> str | None:
        fields = {**GOOD, "queue": queue, "nodes": nodes, "walltime": clock(walltime)}
        found = problems(aurora, **fields)
        assert set(found) <= {"queue"}
        return found.get("queue")

    @pytest.mark.parametrize(("queue", "nodes", "shortest", "longest"), EDGES)
    def test_the_edges_of_walltime(
        self, aurora: Site, queue: str, nodes: int, shortest: int, longest: int
    ) -> None:
        assert self.of_queue(aurora, queue, nodes, shortest) is None
        assert self.of_queue(aurora, queue, nodes, longest) is None
        assert self.of_queue(aurora, queue, nodes, longest + 1)
        assert self.of_queue(aurora, queue, nodes, shortest - 1)

    @pytest.mark.parametrize(
        ("queue", "nodes"),
        [
            ("debug", 3),
            ("debug-scaling", 1),
            ("debug-scaling", 257),
            ("prod", 1),
            ("prod", 255),
            ("prod", 10625),
            ("capacity", 17),
            ("visualization", 33),
        ],
    )
    def test_the_edges_of_nodes(self, aurora: Site, queue: str, nodes: int) -> None:
        assert self.of_queue(aurora, queue, nodes, 1800)

    def test_the_error_has_the_request_the_limits_and_a_queue_that_fits(self, aurora: Site) -> None:
        assert self.of_queue(aurora, "debug", 4, 2 * 3600) == (
            "is 'debug', which does not take 4 nodes for 02:00:00; it takes 1 to 2 nodes for 5m to 1h "
            "(aurora/running-jobs-aurora, table of queues, 2026-08-19); what would: capacity"
        )
        message = self.of_queue(aurora, "debug", 3, 1800)
        assert message is not None
        assert message.endswith("what would: debug-scaling, capacity"), "one job is not too many"
        message = self.of_queue(aurora, "prod", 1500, 20 * 3600)
        assert message is not None
        assert "256 to 1,024 nodes for 5m to 12h or 1,025 to 1,999 nodes for 5m to 18h or 2,000" in message
        assert "what would" not in message, "nothing would"

    @pytest.mark.parametrize("queue", ["small", "medium", "large"])
    def test_what_prod_routes_to_takes_nothing_itself(self, aurora: Site, queue: str) -> None:
        assert "takes no jobs itself: use `queue: prod`" in (self.of_queue(aurora, queue, 512, 3600) or "")

    def test_a_near_miss(self, aurora: Site) -> None:
        message = self.of_queue(aurora, "Debug", 1, 3600)
        assert message is not None
        assert "did you mean debug?" in message
        assert "profile" in message, "how to go on if there is such a queue after all"

    def test_a_reservation_is_a_queue_of_its_own(self, aurora: Site) -> None:
        assert self.of_queue(aurora, "R1234567", 5000, 3600) is None

    def test_without_a_walltime_the_nodes_still_count(self, aurora: Site) -> None:
        found = problems(aurora, **{**GOOD, "queue": "debug", "nodes": 4, "walltime": None})
        assert set(found) == {"queue", "walltime"}
        assert "does not take 4 nodes; it takes" in found["queue"]

    def test_an_array_that_prod_could_not_route_at_once(self, aurora: Site) -> None:
        # running-jobs/known-issues: PBS takes it, and it never runs.
        fields = {**GOOD, "queue": "prod", "nodes": 256}
        found = problems(aurora, **fields, array={"count": 11})
        assert found["array.max_concurrent"].startswith(
            "is not set, but of 11 members prod takes 10 at a time ("
        )
        assert found["array.max_concurrent"].endswith("use `array: {max_concurrent: 10}` or less")
        found = problems(aurora, **fields, array={"count": 100, "max_concurrent": 20})
        assert found["array.max_concurrent"].startswith("is 20, but of 100 members")
        for array in (
            {"count": 10},
            {"count": 100, "max_concurrent": 10},
            {"count": 10, "max_concurrent": 50},
        ):
            assert problems(aurora, **fields, array=array) == {}
        assert set(problems(aurora, **fields, array={"count": 101, "max_concurrent": 10})) == {"array.count"}

    def test_a_refused_array_is_answered_with_a_queue_that_takes_it(self, aurora: Site) -> None:
        def refusal(count: int, **fields: Any) -> str:
            return problems(aurora, **{**GOOD, **fields}, array={"count": count})["array.count"]

        message = refusal(8, queue="debug", nodes=2)
        assert message.startswith("is 8, but debug allows a user 1 job queued or running (")
        assert "; no queue takes 8 members of 2 nodes for 00:30:00" in message
        assert refusal(3, queue="debug", nodes=1).endswith("are taken by capacity")
        assert refusal(200, queue="prod", nodes=256).endswith(
            "; no queue takes 200 members of 256 nodes for 00:30:00: lower it, and send the rest later"
        )
        wrong = problems(aurora, **{**GOOD, "queue": "debug", "nodes": 4}, array={"count": 8})
        assert "what would" not in wrong["queue"], "capacity takes no array of 8"

    def test_a_queue_without_limits_takes_everything(self) -> None:
        short = Queue(ranges=[Range(max_nodes=1)], max_jobs=1, **FACT)
        at = site("slurm", queues={"short": short, "any": Queue(**FACT)})
        assert problems(at, queue="short", nodes=2)["queue"].endswith("; what would: any")
        assert problems(at, queue="short", array={"count": 2})["array.count"].endswith("are taken by any")


class TestNewSites:
    """Edges of the queues and QOS of Polaris, Perlmutter and Frontier."""

    @pytest.mark.parametrize(
        ("name", "fields", "path"),
        [
            ("polaris", {"queue": "debug", "nodes": 2, "walltime": "1h"}, None),
            ("polaris", {"queue": "debug", "nodes": 3, "walltime": "1h"}, "queue"),
            ("polaris", {"queue": "debug", "walltime": "61m"}, "queue"),
            ("polaris", {"queue": "debug", "walltime": "4m"}, "queue"),
            ("polaris", {"queue": "debug-scaling", "nodes": 10, "walltime": "1h"}, None),
            ("polaris", {"queue": "debug-scaling", "nodes": 11}, "queue"),
            ("polaris", {"queue": "prod", "nodes": 10, "walltime": "3h"}, None),
            ("polaris", {"queue": "prod", "nodes": 24, "walltime": "181m"}, "queue"),
            ("polaris", {"queue": "prod", "nodes": 25, "walltime": "6h"}, None),
            ("polaris", {"queue": "prod", "nodes": 99, "walltime": "361m"}, "queue"),
            ("polaris", {"queue": "prod", "nodes": 496, "walltime": "24h"}, None),
            ("polaris", {"queue": "prod", "nodes": 497}, "queue"),
            ("polaris", {"queue": "prod", "nodes": 9}, "queue"),
            ("polaris", {"queue": "small", "nodes": 10}, "queue"),
            ("polaris", {"queue": "preemptable", "nodes": 10, "walltime": "72h"}, None),
            ("polaris", {"queue": "preemptable", "array": {"count": 21}}, "array.count"),
            ("polaris", {"queue": "capacity", "nodes": 4, "walltime": "168h"}, None),
            ("polaris", {"queue": "capacity", "nodes": 5}, "queue"),
            ("polaris", {"queue": "debug", "requeue": {"max": 1}}, "requeue"),
            ("polaris", {"queue": "R123456", "nodes": 200}, None),
            ("perlmutter", {"qos": "debug", "nodes": 8, "walltime": "30m"}, None),
            ("perlmutter", {"qos": "debug", "nodes": 9}, "qos"),
            ("perlmutter", {"qos": "debug", "walltime": "31m"}, "qos"),
            ("perlmutter", {"qos": "regular", "nodes": 1500, "walltime": "48h"}, None),
            ("perlmutter", {"qos": "regular", "walltime": "49h"}, "qos"),
            ("perlmutter", {"qos": "interactive", "nodes": 5}, "qos"),
            ("perlmutter", {"qos": "preempt", "nodes": 129}, "qos"),
            ("perlmutter", {"qos": "shared", "nodes": 2}, "qos"),
            ("perlmutter", {"qos": "debug", "array": {"count": 6}}, "array.count"),
            ("perlmutter", {"qos": "regular", "array": {"count": 5001}}, "array.count"),
            ("perlmutter", {"qos": "realtime", "nodes": 1000}, None),
            ("frontier", {"nodes": 91, "walltime": "2h"}, None),
            ("frontier", {"nodes": 91, "walltime": "121m"}, "queue"),
            ("frontier", {"queue": "batch", "nodes": 92, "walltime": "6h"}, None),
            ("frontier", {"queue": "batch", "nodes": 183, "walltime": "361m"}, "queue"),
            ("frontier", {"queue": "batch", "nodes": 184, "walltime": "12h"}, None),
            ("frontier", {"queue": "batch", "nodes": 9472, "walltime": "12h"}, None),
            ("frontier", {"queue": "batch", "nodes": 9473}, "queue"),
            ("frontier", {"queue": "extended", "nodes": 64, "walltime": "24h"}, None),
            ("frontier", {"queue": "extended", "nodes": 65}, "queue"),
            ("frontier", {"qos": "debug", "nodes": 200, "walltime": "2h"}, None),
            ("frontier", {"qos": "debug", "nodes": 200, "walltime": "121m"}, "qos"),
            ("frontier", {"qos": "debug", "array": {"count": 2}}, "array.count"),
            ("frontier", {"queue": "batch", "array": {"count": 101}}, "array.count"),
            ("frontier", {"qos": "debug", "requeue": {"max": 3}}, None),  # Slurm starts the same job again
        ],
    )
    def test_edges(self, name: str, fields: dict[str, Any], path: str | None) -> None:
        needed: dict[str, Any] = {"account": "m1234"} if name in ("perlmutter", "frontier") else {}
        needed |= {"constraint": "gpu"} if name == "perlmutter" else {}
        if name == "polaris":
            needed = {**GOOD, "directives": {"filesystems": "home:eagle"}}
        found = problems(Site.load(name), **{"walltime": "30m", **needed, **fields})
        assert list(found) == ([path] if path else [])

    def test_what_counts_where_nothing_is_named(self) -> None:
        found = problems(Site.load("perlmutter"), constraint="gpu", walltime="2h")
        assert found["qos"].startswith(
            "is not set, and debug, which is the default, does not take 1 node for 02:00:00; it takes 1 to 8"
        )
        assert "what would: interactive, regular, shared, preempt, premium, overrun" in found["qos"]
        found = problems(Site.load("polaris"), **{**GOOD, "walltime": "30m"})
        assert found["queue"].startswith("is not set, and prod, which is the default, does not take 1 node")

    def test_a_machine_that_chooses_the_partition_itself(self) -> None:
        found = problems(Site.load("perlmutter"), constraint="gpu", qos="debug", queue="gpu_ss11")
        assert found["queue"].startswith(
            "is 'gpu_ss11', but perlmutter chooses the queue itself: drop it, and choose a QOS (debug, "
        )

    def test_a_qos_by_the_schedulers_own_name(self) -> None:
        message = problems(Site.load("perlmutter"), constraint="gpu", qos="gpu_regular")["qos"]
        assert (
            "is 'gpu_regular', which perlmutter does not have; did you mean regular? (a qos that" in message
        )

    def test_what_sbatch_insists_on(self) -> None:
        found = problems(Site.load("perlmutter"), qos="debug")
        assert set(found) == {"account", "walltime", "constraint"}
        assert (
            '"Job request does not match any supported policy"; give it, as in `constraint: gpu`'
            in (found["constraint"])
        )

    @pytest.mark.parametrize("name", ["perlmutter", "frontier"])
    def test_a_missing_account_or_walltime_is_answered_with_an_example(self, name: str) -> None:
        at = Site.load(name)
        found = problems(at, constraint="gpu")
        for field, example in (("account", "account: "), ("walltime", 'walltime: "00:30:00"')):
            assert f"is missing, and {name} needs it: " in found[field]
            assert f"; give it, as in `{example}" in found[field]
        assert {"account", "walltime"} & set(problems(at, account="a", walltime="30m")) == set()

    def test_a_limit_that_a_project_changed_is_the_one_that_counts(self) -> None:
        mine = Queue(ranges=[Range(max_nodes=16, max_walltime="2h")], **FACT)
        at = msgspec.structs.replace(Site.load("perlmutter"), qos={"debug": mine}, required=[])
        assert problems(at, constraint="gpu", qos="debug", nodes=16, walltime="2h") == {}
        assert "(the guide, 2026-08-19)" in problems(at, constraint="gpu", qos="debug", nodes=17)["qos"]


class TestQueues:
    def test_a_qos_means_nothing_elsewhere(self) -> None:
        limited = {"q": Queue(ranges=[Range(max_nodes=1)], **FACT)}
        assert problems(site("local", qos=limited), qos="q", nodes=4) == {}
        assert "qos" in problems(site("slurm", qos=limited), qos="q", nodes=4)

    def test_a_queue_that_the_profile_does_not_list_is_noted(self) -> None:
        at, scheduler = site("slurm", queues={"debug": Queue(**FACT)}), scheduler_of("slurm")
        noted = {
            queue: [*notes(JobSpec.of({"command": ["true"], "queue": queue}), at, scheduler)]
            for queue in ("debug", "R1234")
        }
        message = f"queue R1234: its limits are not checked, as {at.name} does not list it"
        assert noted == {"debug": [], "R1234": [message]}

    def test_a_site_whose_queues_are_all_known(self) -> None:
        at = site("slurm", other_queues=False, queues={"a": Queue(**FACT), "b": Queue(**FACT)})
        add = "on its machine, castoff sites check there --update adds a new queue"
        missing = {"queue": f"is 'zzz', which there does not have; there are: a, b ({add})"}
        assert problems(at, queue="zzz") == problems(at, queue="a,zzz") == missing
        assert problems(at, queue="a", nodes=10_000) == problems(at, queue="a,b") == {}

    def test_of_several_queues_one_has_to_take_the_job(self) -> None:
        """Slurm's `--partition=a,b`."""
        small = Queue(ranges=[Range(max_nodes=2)], **FACT)
        at = site("slurm", other_queues=False, queues={"a": small, "b": Queue(**FACT), "c": small})
        assert problems(at, queue="a,b", nodes=3) == {}
        assert problems(at, queue="a,c", nodes=3)["queue"].startswith("is 'a,c', none of which takes 3 nodes")

    @pytest.mark.parametrize(
        ("range_", "words"),
        [
            (Range(1, 1, "5m", "1h"), "1 node for 5m to 1h"),
            (Range(1, 2), "1 to 2 nodes"),
            (Range(4, None, None, "1h"), "at least 4 nodes for up to 1h"),
            (Range(1, None, "20h", None), "any number of nodes for at least 20h"),
        ],
    )
    def test_a_range_in_words(self, range_: Range, words: str) -> None:
        at = site("slurm", queues={"q": Queue(ranges=[range_], **FACT)})
        found = problems(at, queue="q", nodes=3, walltime="10h")
        assert found["queue"].startswith(
            f"is 'q', which does not take 3 nodes for 10:00:00; it takes {words} (the guide, 2026-08-19)"
        )

    def test_a_users_jobs(self, aurora: Site) -> None:
        found = problems(aurora, **GOOD, queue="capacity", array={"count": 6})
        assert found["array.count"].startswith("is 6, but capacity allows a user 5 jobs queued or running (")
        assert problems(aurora, **GOOD, queue="capacity", array={"count": 5}) == {}


class TestGoingOnOnPbs:
    """A copy, or a chain's next job, is in the queue while the one before still runs."""

    GUIDE = "(aurora/running-jobs-aurora, table of queues, 2026-08-19)"

    def test_where_a_user_may_have_one_job(self, aurora: Site) -> None:
        limit = f"debug allows a user 1 job queued or running {self.GUIDE}"
        fix = "use another queue, or drop requeue and restart it with castoff resubmit"
        found = problems(aurora, **GOOD, queue="debug", requeue={"max": 1})
        what = "cannot work, because a job submits a copy of itself while it is still running"
        assert found == {"requeue": f"{what}, and {limit}; {fix}"}
        found = problems(aurora, **GOOD, queue="debug", requeue={"max": 1, "how": "chain"})
        what = "cannot work, because a chain is two jobs at least"
        assert found == {"requeue": f"{what}, and {limit}; {fix}"}

    def test_where_a_user_may_have_some(self, aurora: Site) -> None:
        for fits in ({"max": 9}, {"max": 4, "how": "chain"}, {"max": 0, "how": "chain"}):
            assert problems(aurora, **GOOD, queue="capacity", requeue=fits) == {}
        assert problems(aurora, **GOOD, queue="capacity", requeue={"max": 5, "how": "chain"}) == {
            "requeue.max": "is 5, which makes a chain of 6 jobs, but capacity allows a user 5 jobs queued or "
            f"running {self.GUIDE}; use `requeue: {{max: 4}}`, or `requeue: {{how: copy}}`, which takes "
            "two at a time"
        }

    def test_members_of_an_array(self, aurora: Site) -> None:
        asked: dict[str, Any] = {**GOOD, "queue": "capacity", "requeue": {"max": 1}}
        assert problems(aurora, **asked, array={"count": 2}) == {}
        assert problems(aurora, **asked, array={"count": 4, "max_concurrent": 1}) == {}
        assert problems(aurora, **asked, array={"count": 3}) == {
            "requeue": "cannot work, because each of 3 members may submit a copy of itself while it "
            "is still running, "
            f"which makes 6 jobs, and capacity allows a user 5 jobs queued or running {self.GUIDE}; "
            "lower array.count or array.max_concurrent, or use another queue"
        }
        too_many = problems(aurora, **asked, array={"count": 6})
        assert set(too_many) == {"array.count"}, "one thing after the other"

    def test_a_chain_of_an_array(self) -> None:
        chain = {"max": 1, "how": "chain"}
        assert problems(site("pbs"), array={"count": 3}, requeue=chain) == {
            "requeue.how": "is chain, but array's members would have to wait for each other: use "
            "`requeue: {how: copy}`, with which each member resumes by itself, or drop one of the two"
        }
        assert problems(site("pbs"), array={"count": 1}, requeue=chain) == {}, "which is not an array to PBS"

    @pytest.mark.parametrize("way", ["copy", "chain"])
    def test_where_the_same_job_starts_again(self, way: str) -> None:
        asked = {"max": 1, "how": way}
        fix = "drop it, since Slurm restarts the same job by itself"
        assert problems(site("slurm"), requeue=asked) == {
            "requeue.how": f"is not supported by Slurm, which there runs: {fix}"
        }
        assert "castoff's own scheduler" in problems(Site.load("local"), requeue=asked)["requeue.how"]


class TestRequired:
    def test_all_that_aurora_needs(self, aurora: Site) -> None:
        found = problems(aurora)
        assert set(found) == {"account", "walltime", "directives.filesystems"}
        assert found["account"] == (
            'is missing, and aurora needs it: PBS refuses the job: "Account_Name is required to be set."; '
            "give it, as in `account: MyProject` (running-jobs/index, 2026-08-19)"
        )
        assert problems(aurora, **GOOD) == {}

    @pytest.mark.parametrize("value", [None, False])
    def test_a_directive_taken_back_is_missing(self, aurora: Site, value: bool | None) -> None:
        found = problems(aurora, **{**GOOD, "directives": {"filesystems": value}})
        assert set(found) == {"directives.filesystems"}

    def test_the_sites_own_directive_will_do(self) -> None:
        required = [{"field": "directives.x", "because": "b", "example": "e", **FACT}]
        assert problems(_of(required=required), walltime=None).keys() == {"directives.x"}
        assert problems(_of(required=required, directives={"x": "y"})) == {}
        assert problems(_of(required=required, directives={"x": "y"}), directives={"x": None}).keys() == {
            "directives.x"
        }


def _of(**fields: Any) -> Site:
    plain = {"name": "there", "description": "d", "scheduler": "slurm", "launcher": "srun", **fields}
    return msgspec.convert(plain, Site)


class TestDirectives:
    def test_what_follows_from_fields_on_slurm(self) -> None:
        instead = {
            "signal": "signal",
            "time": "walltime",
            "nodes": "nodes",
            "ntasks": "ranks",
            "ntasks-per-node": "ranks_per_node",
            "cpus-per-task": "cores_per_rank",
            "array": "array",
            "dependency": "after",
            "job-name": "name",
            "export": "inherit",
            "requeue": "requeue.max",
            "no-requeue": "requeue.max",
            "account": "account",
            "partition": "queue",
            "qos": "qos",
            "constraint": "constraint",
            "exclusive": "exclusive",
        }
        raw = {**dict.fromkeys(instead, "1"), "exclusive": True}
        assert problems(site("slurm"), directives=raw) == {
            f"directives.{name}": f"follows from other fields; set {field} instead"
            for name, field in instead.items()
        }

    def test_what_follows_from_fields_on_pbs(self) -> None:
        instead = {
            "N": "set name",
            "q": "set queue",
            "A": "set account",
            "walltime": "set walltime",
            "select": "set nodes, ranks_per_node",
            "J": "set array",
            "V": "set inherit",
            "v": "set inherit",
            "r": "set requeue.max",
            "l": "write each under its name",
            "ncpus": "set cores_per_rank",
            "ngpus": "set devices_per_rank",
            "mem": "set memory",
            "nodes": "set nodes",
        }
        raw = {**dict.fromkeys(instead, "1"), "W": "depend=afterok:7.head"}
        instead["W"] = "set after"
        found = problems(site("pbs"), directives=raw)
        assert found.keys() == {f"directives.{name}" for name in instead}
        for name, words in instead.items():
            assert words in found[f"directives.{name}"]

    @pytest.mark.parametrize("gone", [None, False])
    def test_what_a_feature_needs_stays(self, gone: bool | None) -> None:
        reasons = {
            "output": "logs are found through it",
            "open-mode": "would overwrite its first log",
            "no-requeue": "without counting it for castoff",
            "signal": "could not stop before its walltime",
            "nodes": "it follows from nodes",
        }
        found = problems(site("slurm"), directives=dict.fromkeys(reasons, gone), walltime="1h")
        assert found.keys() == {f"directives.{name}" for name in reasons}
        for name, reason in reasons.items():
            assert found[f"directives.{name}"].startswith("cannot be removed: ")
            assert reason in found[f"directives.{name}"]

    def test_a_directive_that_no_feature_needs_can_be_removed(self) -> None:
        # submitit 1632, 1758, dask-jobqueue 461: what a site forbids must be removable
        gone = ("wckey", "mem", "signal", "requeue", "array", "dependency", "time", "cpus-per-task", "gres")
        assert problems(site("slurm"), directives=dict.fromkeys(gone)) == {}
        gone = ("place", "k", "V", "v", "J", "W", "walltime", "A", "q")
        assert problems(site("pbs"), directives=dict.fromkeys(gone)) == {}

    def test_a_requested_requeue_stays(self) -> None:
        found = problems(site("slurm"), directives={"requeue": None, "no-requeue": None}, requeue={"max": 1})
        assert found == {"directives.requeue": "cannot be removed: requeue.max asks for it"}

    def test_a_directive_that_may_change_but_not_be_removed(self) -> None:
        changed = dict.fromkeys(("output", "open-mode"), "x")
        assert problems(site("slurm"), directives=changed, walltime="1h") == {}

    def test_pbss_needed(self) -> None:
        found = problems(site("pbs"), directives={"j": None, "r": None})
        assert found.keys() == {"directives.j", "directives.r"}
        assert all("cannot be removed" in message for message in found.values())

    @pytest.mark.parametrize(
        ("scheduler", "said"),
        [
            (
                "slurm",
                {
                    "p": "is a short flag; write the long one",
                    "parti": "is short for partition, which follows from other fields; set queue instead",
                    "ntasks-per": "is short for ntasks-per-node, which follows from other fields",
                    "outp": "is short for output; write it in full",
                    "clusters": "sends it where castoff could not ask about it; submit on that",
                    "hetjob": "makes a heterogeneous job, and castoff's jobs have nodes of one kind: submit",
                    "packjob": "makes a heterogeneous job",
                    "het-group": "makes a heterogeneous job",
                    "cluster": "is short for clusters, which sends it where castoff could not ask",
                },
            ),
            (
                "pbs",
                {
                    "WallTime": "is short for walltime, which follows from other fields; set walltime",
                    "NCPUS": "is short for ncpus, which follows from other fields; set cores_per_rank",
                },
            ),
        ],
    )
    def test_other_spellings_of_a_name_do_not_slip_past(self, scheduler: str, said: dict[str, str]) -> None:
        found = problems(site(scheduler), directives=dict.fromkeys(said, "x"))
        for name, words in said.items():
            assert found[f"directives.{name}"].startswith(words)

    @pytest.mark.parametrize("args", [["--het-group=1"], ["--label", ":"], ["--pack-group", "0"]])
    def test_a_heterogeneous_step_is_refused(self, args: list[str]) -> None:
        with pytest.raises(InvalidInput) as caught:
            plan(JobSpec.of({"command": ["x"], "launcher": {"args": args}}), Site.load("slurm"))
        path, message = caught.value.problems[0].path, caught.value.problems[0].message
        assert path.startswith("launcher.args.") and "submit one job for each kind" in message
        assert "which makes a heterogeneous job" in message

    def test_what_castoff_does_not_know_passes(self) -> None:
        of_slurm = dict.fromkeys(("container-image", "nodelist", "filesystems"), "x")
        assert problems(site("slurm"), directives=of_slurm) == {}
        assert problems(site("pbs"), directives=dict.fromkeys(("daos", "P"), "x")) == {}

    def test_directives_under_a_schedulers_name_are_checked_there(self) -> None:
        pbs = {"filesystems": "home", "N": "x", "l": "x", "j": None, "site": "a&b"}
        slurm = {"comment": "a", "time": "1h", "K": "gpu", "network": "a"}
        expected = {
            "pbs": {
                "N": "set name instead",
                "l": "write each under its name",
                "j": "cannot be removed: castoff keeps one log",
                "site": "is 'a&b', but PBS takes plain ASCII without &",
            },
            "slurm": {"time": "set walltime instead", "K": "write the long one"},
            "local": {},
        }
        for at, wrong in expected.items():
            found = problems(site(at), directives={"pbs": pbs, "slurm": slurm})
            assert found.keys() == {f"directives.{name}" for name in wrong}
            assert all(words in found[f"directives.{name}"] for name, words in wrong.items())

    def test_slurms_fields_on_pbs(self) -> None:
        given = dict.fromkeys(("qos", "constraint", "exclude", "reservation"), "x")
        found = problems(site("pbs"), **cast("dict[str, Any]", given))
        assert found.keys() == given.keys()
        for message in found.values():
            assert message.startswith("is not supported by PBS, which there runs: ")
            assert "directives.select" not in message, "which castoff would refuse"


class TestNames:
    def test_pbs_takes(self) -> None:
        for name in ("a", "A.b_c-d+1", "x" * 200):
            assert problems(site("pbs"), name=name) == {}

    def test_pbs_refuses(self) -> None:
        for name in ("1a", "a b", "a:b", "a/b", "ä", "", "x" * 201, "a\n", "-a"):
            assert "a PBS job's name starts with a letter" in problems(site("pbs"), name=name)["name"]

    def test_slurm_takes(self) -> None:
        for name in ("1a", "a b", "a:b", "ä", "x" * 200):
            assert problems(site("slurm"), name=name) == {}

    @pytest.mark.parametrize("scheduler", ["slurm", "local"])
    def test_a_name_is_also_a_files(self, scheduler: str) -> None:
        # NeMo-Run 38: a slash in a name fails obscurely, hours later.
        for name in ("a/b", "..", ".", "x" * 201, "ä" * 101):
            assert "names log files" in problems(site(scheduler), name=name)["name"]


class TestArraysAndTime:
    def test_the_largest_array(self) -> None:
        at = Site.load("pbs")
        assert problems(at, array={"count": 10_000}) == {}
        found = problems(at, array={"count": 10_001})
        assert found["array.count"].startswith("is 10001, but pbs takes 10000 at the most (")
        found = problems(at, array={"indices": "1-10001"})
        assert found["array.indices"].startswith("is 1-10001, 10001 members, but pbs takes 10000 at the most")
        assert problems(at, array={"indices": "1-40000:4"}) == {}
        # Slurm takes it in parts.
        assert problems(Site.load("slurm"), array={"count": 10_001}) == {}

    @pytest.mark.parametrize(
        ("walltime", "grace", "fits"),
        [("120s", 120, False), ("121s", 120, True), ("60s", 120, False), ("1s", 0, True)],
    )
    def test_grace_leaves_something_of_the_walltime(self, walltime: str, grace: int, fits: bool) -> None:
        assert ("grace" not in problems(site("pbs"), walltime=walltime, grace=grace)) is fits

    def test_the_proposed_grace_fits(self) -> None:
        found = problems(site("pbs"), walltime="100s")
        assert "`grace: 10s`" in found["grace"]
        assert problems(site("pbs"), walltime="100s", grace=10) == {}

    def test_no_time_at_all(self) -> None:
        assert problems(site("pbs"), walltime="0s") == {
            "walltime": "is zero; give the job some time, as in 30m"
        }

    def test_slurms_longest_grace(self) -> None:
        assert problems(site("slurm"), walltime="3d", grace=65535) == {}
        assert "65535 s at the most" in problems(site("slurm"), walltime="3d", grace=65536)["grace"]
        assert problems(site("pbs"), walltime="3d", grace=65536) == {}


def test_a_line_break_in_a_name_is_refused_even_before() -> None:
    with pytest.raises(InvalidInput):
        problems(site("slurm"), queue="a\n")
