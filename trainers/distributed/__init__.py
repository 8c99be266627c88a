"""The ranks' processes: how they connect, agree, stop, and detect that one has failed."""
