"""What a page shows of a job's use over time."""

from __future__ import annotations

from pathlib import Path

from castoff.launcher.history.attempt_use import with_advice
from castoff.launcher.history.use import Device, Node, NodeSamples, Sample, Use, summarised
from castoff.launcher.report.page import page
from castoff.launcher.report.using import use_plots, use_table
from castoff.launcher.runs.records import Facts
from tests.command_line import Castoff

from .made import BEGAN, facts

GIB = 1 << 30


def node(name: str, gpus: int = 2) -> NodeSamples:
    devices = [Device("A100", 80 * GIB)] * gpus
    samples = [
        Sample(
            t=BEGAN + 60 * minute,
            dt=60.0,
            cpu=1.0 + minute,
            mem=minute * GIB,
            cpus=8,
            read=4e6,
            gpu=[0.5, None][:gpus],
            gpu_mem=[GIB, 3 * GIB][:gpus],
        )
        for minute in (1, 2, 3)
    ]
    return NodeSamples(Node(name, "cgroup", 64, 256 * GIB, 16 * GIB, devices), samples)


def test_one_node_has_a_curve_for_each_gpu_that_is_measured() -> None:
    plots = {plot.title: plot for plot in use_plots([node("n1")], BEGAN)}
    computed, memory, cpus, held, storage = plots.values()
    assert [curve.label for curve in computed.curves] == ["GPU 0"]  # the other's use is not known
    assert [curve.label for curve in memory.curves] == ["GPU 0", "GPU 1"]
    assert [tuple(point) for point in cpus.curves[0].points] == [(1.0, 2.0), (2.0, 3.0), (3.0, 4.0)]
    assert [point.value for point in held.curves[0].points] == [1.0, 2.0, 3.0]
    assert storage.curves[0].points[0].value == 4.0  # no bytes went over the network, so there is no curve
    assert {plot.axis for plot in plots.values()} == {"minute"}


def test_each_of_several_nodes_has_the_mean_of_its_gpus() -> None:
    computed, memory, *_ = use_plots([node("n1"), node("n2"), node("n3", gpus=0)], BEGAN)
    assert [curve.label for curve in computed.curves] == ["n1", "n2"]
    assert [curve.points[0].value for curve in memory.curves] == [2.0, 2.0]


def test_the_table() -> None:
    shown = use_table(Use([summarised(node("n1"))], 3))
    assert dict(zip(shown.headings, shown.rows[0], strict=True)) == {
        "node": "n1",
        "CPUs": "3.0 of 8",
        "memory": "3.0 GiB of 16.0 GiB",
        "GPUs": "50%, ?",
        "GPU memory": "1.0 GiB of 80.0 GiB, 3.0 GiB of 80.0 GiB",
        "read": "3.8 MiB/s",
    }
    assert shown.note == "2 more nodes are left out"


def test_a_page_shows_them_with_advice() -> None:
    samples = [node("<n1>")]
    use = with_advice(Use([summarised(samples[0])], 1), Facts(devices_per_rank=1), 0.41)
    text = page(facts(use=use, use_plots=use_plots(samples, BEGAN)))
    assert "it waits for data 41% of the time" in text
    assert 'data-axis="minute"' in text
    assert "&lt;n1&gt;" in text and "<n1>" not in text
    assert 'id="use"' not in page(facts())


def test_the_page_of_a_run(castoff: Castoff, tmp_path: Path) -> None:
    sent = castoff("submit", "--site", "local", "--", "true")
    assert sent.returncode == 0
    (run,) = (tmp_path / "castoff-runs").iterdir()
    assert castoff("wait", run).returncode == 0
    folder = run / "attempts" / "0.0" / "use"
    folder.mkdir(exist_ok=True)
    (folder / "node-00000.jsonl").write_text(
        '{"host":"n1"}\n{"t":1796031827.6,"dt":5.0,"cpu":1.5,"mem":1024}\n'
    )
    assert castoff("report", run, "-o", "page.html").returncode == 0
    assert "1.5 CPUs, memory 1.0 KiB" in (tmp_path / "page.html").read_text()
