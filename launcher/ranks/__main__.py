"""`python -m castoff.launcher.ranks`: this process's rank, and its source; exits with 1 if unknown."""

import json
import sys

from castoff.launcher.ranks.explanation import explain, explain_json

words = sys.argv[1:]
if words not in ([], ["--json"]):
    sys.exit("usage: python -m castoff.launcher.ranks [--json]")
report = explain_json()
print(json.dumps(report, indent=2) if words else explain())
sys.exit(report["error"] is not None)
