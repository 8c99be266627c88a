"""A PBS of four nodes to try things on; root alone can have one.

python -m tests.pbs up                     start it; it stays until `down`
python -m tests.pbs shell HOST [COMMAND…]  a shell on head, n1, n2, n3 or n4, or a command there
python -m tests.pbs down                   end it, and all that runs on it
"""

from __future__ import annotations

import sys

from tests.cluster.standing import Kind, main
from tests.pbs.cluster import PACKAGES, PbsCluster

PBS = Kind("tests.pbs", PbsCluster.title, PbsCluster, PACKAGES)

if __name__ == "__main__":
    sys.exit(main(PBS, sys.argv[1:]))
