"""python -m docs.generate: write the references anew; `make docs` calls it."""

from __future__ import annotations

from docs.generate.manual import FILE, manual
from docs.generate.pages import PAGES, written

for page in [*PAGES, FILE]:
    text = page.read_text(encoding="utf-8") if page.exists() else ""
    if (new := manual() if page == FILE else written(text)) != text:
        page.write_text(new, encoding="utf-8")
        print(f"wrote {page.relative_to(page.parents[1])}")
