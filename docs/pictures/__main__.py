"""python -m docs.pictures: write the pictures that need nothing but the code."""

from __future__ import annotations

from docs.pictures.drawn import FOLDER, drawn

for name, svg in drawn().items():
    path = FOLDER / name
    if not path.exists() or path.read_text(encoding="utf-8") != svg:
        path.write_text(svg, encoding="utf-8")
        print(f"wrote docs/pictures/{name}")
