"""The history of runs: their phases, what their programs reported, the hosts of ranks, and what they used."""
