"""A Slurm of four nodes to try things on; root alone can have one.

python -m tests.cluster up                     start it; it stays until `down`
python -m tests.cluster shell HOST [COMMAND…]  a shell on head, n1, n2, n3 or n4, or a command there
python -m tests.cluster down                   end it, and all that runs on it
"""

from __future__ import annotations

import sys

from tests.cluster.slurm import PACKAGES, SlurmCluster
from tests.cluster.standing import Kind, main

SLURM = Kind("tests.cluster", SlurmCluster.title, SlurmCluster, PACKAGES)

if __name__ == "__main__":
    sys.exit(main(SLURM, sys.argv[1:]))
