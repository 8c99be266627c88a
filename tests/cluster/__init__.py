"""Real clusters on one machine, and what is tested on them."""
