"""python -m docs.pictures.measure FOLDER: keep what the benches of learning measured, for their pictures.

FOLDER holds those of `python -m bench.causets --folder FOLDER/causets --seeds 1`, and so of bench.proteins
and bench.inverse_folding. A curve is a metric over steps, from the run's metrics.jsonl.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from docs.pictures.recorded import CURVES, FOLDER

RUNS = {
    "causets": ("causets/seed-1/trained", "val/accuracy"),
    "dimension": ("causets/seed-1/trained", "val/dimension_error"),
    "proteins": ("proteins/trained/proteins", "train/loss"),
    "structures": ("structures/base", "recovery/sampled"),
}
"""The folder of each run below FOLDER, and the metric."""


def main(folder: Path) -> None:
    """Write what is there; a run that is not keeps what was measured before."""
    kept = json.loads((FOLDER / CURVES).read_text(encoding="utf-8")) if (FOLDER / CURVES).exists() else {}
    for name, (run, metric) in RUNS.items():
        file = folder / run / "metrics.jsonl"
        if file.exists():
            rows = map(json.loads, file.read_text(encoding="utf-8").splitlines())
            kept[name] = [[row["step"], round(row[metric], 4)] for row in rows if metric in row]
    (FOLDER / CURVES).write_text(json.dumps(kept) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
