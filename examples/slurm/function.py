"""A Python function as a Slurm job: the ranks sum their numbers over the network.

python examples/slurm/function.py            two nodes, two ranks on each
python examples/slurm/function.py local      two ranks on this machine

docs/how-to/submitit.md describes the executor.
"""

import sys

import castoff


def add_up() -> tuple[int, int]:
    import torch
    import torch.distributed as dist

    dist.init_process_group("gloo")  # RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT are set already
    rank = dist.get_rank()
    total = torch.tensor([rank])
    dist.all_reduce(total)
    dist.destroy_process_group()
    return rank, int(total)


if __name__ == "__main__":
    site = sys.argv[1] if len(sys.argv) > 1 else "slurm"
    nodes = 1 if site == "local" else 2
    executor = castoff.executor({"nodes": nodes, "ranks_per_node": 2, "walltime": "5m"}, site, "castoff-runs")
    results = executor.submit(add_up).results()
    print("rank and sum of all ranks, from each rank:", results)
