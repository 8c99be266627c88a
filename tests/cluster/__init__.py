"""Real clusters on one machine, and what is tested on them."""

HEAD = "head"
NODES = ("n1", "n2", "n3", "n4")
