"""Record what real launchers tell their ranks, for the tests of `castoff.launcher.ranks`.

    python tests/launcher/record_environments.py --list
    python tests/launcher/record_environments.py --to tests/launcher/environments hydra-one-host
    python tests/launcher/record_environments.py --hosts n1,n2 --rsh 'ssh' hydra-uneven …

Each scenario starts this very file as the ranks' program, under a launcher that prefixes each
line of output with the rank it comes from. That label and the host's name are what a rank is
*expected* to be; its variables are what it is *told*. So a recording never trusts the code that
it will test. Kept are the variables a launcher may set, without paths, addresses and secrets; of
those dropped, the names only.

Scenarios with `flux` want a Flux instance of two brokers that are hosts to themselves, as FLUX_URI names it.
Scenarios with `srun` or `sbatch` want a Slurm cluster of three nodes with four tasks each;
`--rsh` names what the mpiexecs use to reach other hosts. MPIEXEC_HYDRA, MPIEXEC_OPENMPI,
MPIEXEC_INTEL and TORCHRUN name the programs, where they are not called as in Debian.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import shlex
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests import patience

PREFIXES = (
    *("CASTOFF_", "RANK", "WORLD_SIZE", "LOCAL_", "NODE_RANK", "GROUP_", "ROLE_", "MASTER_"),
    *("TORCHELASTIC_", "PMI_", "PMIX_", "OMPI_", "MPI_", "HYDRA_", "HYDI_", "I_MPI_HYDRA_"),
    *("PALS_", "PBS_", "FLUX_", "SLURM_"),
)
DROPPED = (
    *("_DIR", "_PATH", "_HOST", "_USER", "_UID", "_GID", "_CONF", "_CLUSTER", "_ADDR", "_FILE"),
    *("TMPDIR", "_URI", "_SECRET", "_LOCALHOST", "_HOSTNAME", "OMPI_MCA_", "CLUSTER_NAME"),
    *("OMPI_COMMAND", "OMPI_ARGV", "OMPI_FILE", "_DSTORE_", "PMIX_MCA", "TOPOLOGY", "IPADDR"),
    *("HYDRA_BSTRAP_DOWNSTREAM", "SLURM_PTY", "COMM_PORT", "LAUNCHER_PORT"),
)
"""Parts of names whose values tell of the machine that recorded, not of the rank."""
KEPT = ("MASTER_ADDR",)
SHOWN = {
    **{"probe": "PROGRAM", "sbatch": "sbatch", "tty": "typed into", "hydra": "mpiexec.mpich"},
    **{"intel": "mpiexec.hydra", "openmpi": "mpiexec.openmpi", "torchrun": "torchrun"},
    **{"rsh": "RSH", "a": "n1", "b": "n2", "machines": "n1:3,n2:1"},
}
"""How a recording spells its command."""


@dataclass(frozen=True)
class Scenario:
    """One way of starting ranks."""

    launcher: str
    """What RankEnv shall recognise."""
    command: str
    """The command line; see `fill` for the words in braces."""
    batch: str = ""
    """Options of sbatch, to run the command inside a batch script of these."""
    error: str = ""
    """Words of the error that a process started so must get; empty where it is a rank."""
    node_rank: bool = True
    """Whether this launcher's variables tell the node index."""


SCENARIOS = {
    "srun-one-node": Scenario("srun", "srun -l -N1 -n2 {probe}"),
    "srun-two-nodes": Scenario("srun", "srun -l -N2 --ntasks-per-node=2 {probe}"),
    "srun-three-nodes": Scenario("srun", "srun -l -N3 -n4 {probe}"),
    "srun-uneven": Scenario("srun", "srun -l -n4 -N2 -m arbitrary -w {a},{a},{a},{b} {probe}"),
    "srun-cyclic": Scenario("srun", "srun -l -N2 -n4 --ntasks-per-node=2 -m cyclic {probe}"),
    "srun-pmi2": Scenario("srun", "srun -l --mpi=pmi2 -N2 --ntasks-per-node=2 {probe}"),
    "srun-in-batch": Scenario("srun", "srun -l -N1 -n2 {probe}", batch="-N2 --ntasks-per-node=2"),
    "batch-body": Scenario("", "{probe}", "-N2 --ntasks-per-node=2", error="not in a step"),
    "batch-body-one-task": Scenario("single", "{probe}", "-N1 -n1"),
    "batch-body-from-a-step": Scenario(
        "", "srun -N1 -n2 {sbatch} -N2 --ntasks-per-node=2 {probe}", error="not in a step"
    ),
    "salloc-command": Scenario("", "salloc -N2 -n4 {probe}", error="not in a step"),
    "salloc-shell": Scenario("", "{tty} 'salloc -N2 -n4' {probe}", error="not in a step"),
    "hydra-one-host": Scenario("hydra", "{hydra} -l -n 2 {probe}"),
    "hydra-uneven": Scenario(
        "hydra",
        "{hydra} -l -launcher ssh -launcher-exec {rsh} -hosts {a}:3,{b}:1 -n 4 {probe}",
        node_rank=False,
    ),
    "hydra-in-slurm": Scenario("hydra", "{hydra} -l -n 4 -ppn 2 {probe}", batch="-N2 --ntasks-per-node=2"),
    "intelmpi-one-host": Scenario("intelmpi", "{intel} -l -n 2 {probe}"),
    "intelmpi-uneven": Scenario(
        "intelmpi",
        "{intel} -l -bootstrap ssh -bootstrap-exec {rsh} -machinefile {machines} -n 4 {probe}",
    ),
    "intelmpi-in-slurm": Scenario(
        "intelmpi", "{intel} -l -n 4 -ppn 2 {probe}", batch="-N2 --ntasks-per-node=2"
    ),
    "openmpi-one-host": Scenario("openmpi", "{openmpi} --tag-output --oversubscribe -n 2 {probe}"),
    "openmpi-uneven": Scenario(
        "openmpi",
        "{openmpi} --tag-output --mca plm_rsh_agent {rsh} -H {a}:3,{b}:1 -n 4 {probe}",
        node_rank=False,
    ),
    "openmpi-in-slurm": Scenario(
        "openmpi",
        "{openmpi} --tag-output -n 4 {probe}",
        batch="-N2 --ntasks-per-node=2",
        node_rank=False,
    ),
    "flux-two-nodes": Scenario("flux", "flux run -l -N2 -n4 {probe}", node_rank=False),
    "flux-uneven": Scenario("flux", "flux run -l -N2 -n3 {probe}", node_rank=False),
    "torchrun-one-host": Scenario(
        "torchrun", "{torchrun} --standalone --nproc-per-node 2 --no-python {probe}"
    ),
    "torchrun-in-srun": Scenario(
        "torchrun",
        "srun -N2 --ntasks-per-node=1 sh -c '{torchrun} --nnodes 2 --nproc-per-node 2"
        " --node-rank $SLURM_NODEID --master-addr {a} --master-port 29511 --no-python {probe}'",
    ),
}


def probe(folder: Path) -> None:
    """Be one rank: write the variables down, and print the file's name behind the label."""
    host = os.uname().nodename
    path = folder / f"{host}-{os.getpid()}-{time.monotonic_ns()}.json"
    path.write_text(json.dumps({"host": host, "variables": dict(os.environ)}))
    print(f"@{path.name}@", flush=True)


def fill(scenario: Scenario, options: argparse.Namespace, folder: Path) -> list[str]:
    """Put programs and hosts into a scenario's command, and wrap it in sbatch if it says so."""
    me = [sys.executable, str(Path(__file__).resolve())]
    hosts = options.hosts.split(",")
    root = " --allow-run-as-root" if os.geteuid() == 0 else ""
    batch = "sbatch --wait -o " + str(folder / "batch-%j.out")
    words = {
        "probe": shlex.join([*me, "--probe", str(folder)]),
        # One task submits a job of its own, which inherits the step's variables.
        "sbatch": shlex.join([*me, "--submit", str(folder)]),
        "tty": shlex.join([*me, "--tty"]),
        "hydra": os.environ.get("MPIEXEC_HYDRA", "mpiexec.mpich"),
        "intel": os.environ.get("MPIEXEC_INTEL", "mpiexec.hydra"),
        "openmpi": os.environ.get("MPIEXEC_OPENMPI", "mpiexec.openmpi") + root,
        "torchrun": os.environ.get("TORCHRUN", "torchrun"),
        "rsh": options.rsh,
        "machines": str(folder / "machines"),
        "a": hosts[0],
        "b": hosts[-1],
    }
    (folder / "machines").write_text(f"{hosts[0]}:3\n{hosts[-1]}:1\n")
    command = scenario.command.format(**words)
    if not scenario.batch:
        return ["sh", "-c", command]
    script = folder / "batch.sh"
    script.write_text(f"#!/bin/sh\n{command}\n")
    return [*batch.split(), *scenario.batch.split(), str(script)]


def submit(folder: Path, arguments: list[str]) -> None:
    """Be a task of which the first submits a job: `[options of sbatch] program words`."""
    if os.environ["SLURM_PROCID"] != "0":
        return
    first = next(i for i, word in enumerate(arguments) if word == sys.executable)
    script = folder / "inner.sh"
    script.write_text(f"#!/bin/sh\n{shlex.join(arguments[first:])}\n")
    output = str(folder / "batch-%j.out")
    subprocess.run(["sbatch", "--wait", "-o", output, *arguments[:first], script], check=True)


def in_terminal(command: list[str]) -> None:
    """Type a command into the shell that another one (`salloc`) opens in a terminal."""
    typed = f"{shlex.join(command[1:])}; exit\n"
    subprocess.run(
        ["script", "-qec", command[0], "/dev/null"],
        input=typed,
        text=True,
        check=True,
        timeout=patience.SECONDS,
    )


def label(line: str, launcher: str) -> int | None:
    """Read the rank out of the prefix that the launcher puts before a line of output."""
    prefix = line.split("@")[0]
    if launcher == "openmpi":  # [job,3]<stdout>:
        prefix = prefix.partition(",")[2]
    digits = prefix.strip("[ :").partition("]")[0].partition(":")[0]
    return int(digits) if digits.isdigit() else None


def expect(scenario: Scenario, ranks: list[tuple[int, str]]) -> list[dict[str, Any]]:
    """Work out what each rank must be told, from all labels and hosts."""
    hosts = list(dict.fromkeys(host for _, host in ranks))
    expected = []
    for rank, host in ranks:
        here = [r for r, h in ranks if h == host]
        expected.append(
            {
                "launcher": scenario.launcher,
                "rank": rank,
                "world_size": len(ranks),
                "local_rank": here.index(rank),
                "local_world_size": len(here),
                "node_rank": hosts.index(host) if scenario.node_rank else None,
                "host": host,
            }
        )
    return expected


def relevant(variables: dict[str, str]) -> tuple[dict[str, str], list[str]]:
    """Part a rank's variables into those kept, and the names of those dropped."""
    kept, names = {}, []
    for name, text in sorted(variables.items()):
        if not name.startswith(PREFIXES):
            continue
        if name in KEPT or not any(part in name for part in DROPPED):
            kept[name] = text
        else:
            names.append(name)
    return kept, names


def versions(launcher: str, command: str) -> list[str]:
    """Ask the programs of a scenario what they are."""
    asked = {
        "hydra": [os.environ.get("MPIEXEC_HYDRA", "mpiexec.mpich"), "--version"],
        "openmpi": [os.environ.get("MPIEXEC_OPENMPI", "mpiexec.openmpi"), "--version"],
        "intelmpi": [os.environ.get("MPIEXEC_INTEL", "mpiexec.hydra"), "--version"],
        "torchrun": [sys.executable, "-c", "import torch; print('torch', torch.__version__)"],
        "flux": ["flux", "--version"],
    }
    commands = [asked[launcher]] if launcher in asked else []
    if any(word in command for word in ("srun", "sbatch", "salloc")):
        commands.append(["srun", "--version"])
    reported = []
    for words in commands:
        lines = subprocess.run(words, capture_output=True, text=True, check=True).stdout.split("\n")
        reported.append(" ".join(" ".join(lines[:2]).split()))
    if launcher == "intelmpi" and "Intel" not in reported[0]:
        sys.exit(f"{commands[0][0]} is not Intel's but {reported[0]}: set MPIEXEC_INTEL")
    return reported


def record(name: str, options: argparse.Namespace) -> dict[str, Any]:
    """Run one scenario and collect its recording."""
    scenario = SCENARIOS[name]
    with tempfile.TemporaryDirectory(prefix="castoff-record-") as temporary:
        folder = Path(temporary)
        command = fill(scenario, options, folder)
        clean = {n: t for n, t in os.environ.items() if not n.startswith(PREFIXES)}
        clean |= {n: os.environ[n] for n in ("SLURM_CONF", "FLUX_URI") if n in os.environ}
        done = subprocess.run(command, capture_output=True, text=True, env=clean, timeout=patience.SECONDS)
        output = done.stdout + "".join(p.read_text() for p in folder.glob("batch-*.out"))
        if done.returncode:
            sys.exit(f"{name}: exit {done.returncode}\n{output}\n{done.stderr}")
        ranks = []
        for line in output.splitlines():
            if line.count("@") >= 2:
                reported = json.loads((folder / line.split("@")[1]).read_text())
                place = label(line, scenario.launcher)
                if scenario.launcher == "torchrun":  # it labels by local rank, if at all
                    place = int(reported["variables"]["RANK"])
                ranks.append((place or 0, reported["host"], reported["variables"]))
        answers = len(list(folder.glob("*.json")))
    if not ranks or len(ranks) != answers:
        sys.exit(f"{name}: {len(ranks)} of {answers} answers can be read\n{output}\n{done.stderr}")
    ranks.sort(key=lambda entry: entry[0])
    parts = [relevant(variables) for _, _, variables in ranks]
    shown = scenario.command.format_map(SHOWN)
    recording: dict[str, Any] = {
        "launcher": scenario.launcher,
        "recorded": options.date,
        "versions": versions(scenario.launcher, f"{scenario.command} {scenario.batch and 'sbatch'}"),
        "command": f"sbatch {scenario.batch}: {shown}" if scenario.batch else shown,
        "ranks": [kept for kept, _ in parts],
        "also_set": sorted({dropped for _, names in parts for dropped in names}),
    }
    if scenario.error:
        recording["error"] = scenario.error
    else:
        recording["expected"] = expect(scenario, [(rank, host) for rank, host, _ in ranks])
    return recording


def main() -> None:
    """Parse, record, write."""
    if sys.argv[1:2] == ["--probe"]:
        probe(Path(sys.argv[2]))
        return
    if sys.argv[1:2] == ["--submit"]:
        submit(Path(sys.argv[2]), sys.argv[3:])
        return
    if sys.argv[1:2] == ["--tty"]:
        in_terminal(sys.argv[2:])
        return
    parser = argparse.ArgumentParser(description="Record what launchers tell their ranks.")
    parser.add_argument("names", nargs="*", help="scenarios; see --list")
    parser.add_argument("--list", action="store_true", help="list the scenarios")
    parser.add_argument("--to", type=Path, default=Path(__file__).parent / "environments")
    parser.add_argument("--hosts", default="n1,n2", help="two hosts, the first being this one")
    parser.add_argument("--rsh", default="ssh", help="command that reaches the other host")
    parser.add_argument("--date", default=datetime.date.today().isoformat())
    options = parser.parse_args()
    if options.list:
        for name, scenario in SCENARIOS.items():
            print(f"{name:<24} {scenario.command}")
    for name in options.names:
        recording = record(name, options)
        path = options.to / f"{name}.json"
        path.write_text(json.dumps(recording, indent=1) + "\n")
        print(f"{path}: {len(recording['ranks'])} processes")


if __name__ == "__main__":
    main()
