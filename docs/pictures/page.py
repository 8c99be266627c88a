"""The page of `castoff report` in light and dark, in one picture.

python -m docs.pictures.page: train, write the page, and keep how Chromium shows it.
"""

from __future__ import annotations

import base64
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from docs.pictures.recorded import FOLDER, PAGE_SIZE, PAGES

TRAIN = """\
import json, math, os, random

rate = json.load(open(os.environ["CASTOFF_PARAMETERS"]))["lr"]
random.seed(int(1e4 * rate))
with open(os.environ["CASTOFF_METRICS_FILE"], "a") as file:
    for step in range(1, 1001):
        loss = 0.2 + 2 * math.exp(-rate * step)
        line = {"step": step, "total_steps": 1000, "train/loss": loss + random.gauss(0, 0.03)}
        if step % 20 == 0:
            line["val/loss"] = loss + 0.05 + rate * step / 200
        file.write(json.dumps(line) + "\\n")
"""
JOB = """\
name: rings
command: [python, train.py]
array:
  parameters: {lr: [0.003, 0.01, 0.03]}
ranks_per_node: 1
walltime: 10m
"""


_STYLE = """
  .dark { display: none }
  .frame { fill: none; stroke: #8c959f }
  @media (prefers-color-scheme: dark) { .light { display: none } .dark { display: inline } }
"""


def page() -> str:
    """As it was recorded."""
    width, height = PAGE_SIZE
    parts = []
    for theme, name in PAGES.items():
        data = base64.b64encode((FOLDER / name).read_bytes()).decode()
        size = f'width="{width}" height="{height}"'
        parts.append(f'<image class="{theme}" {size} href="data:image/webp;base64,{data}"/>')
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
            f'viewBox="0 0 {width} {height}" role="img">',
            "<title>The page of an array: its members by validation loss, and their curves</title>",
            f"<style>{_STYLE}</style>",
            *parts,
            f'<rect class="frame" x="0.5" y="0.5" width="{width - 1}" height="{height - 1}"/>',
            "</svg>",
            "",
        ]
    )


def record(folder: Path) -> dict[str, bytes]:
    """The page of an array, in the formats of PAGES."""
    (folder / "train.py").write_text(TRAIN, encoding="utf-8")
    (folder / "job.yaml").write_text(JOB, encoding="utf-8")
    castoff = str(Path(sys.executable).with_name("castoff"))
    for words in ("submit -f job.yaml --site local", "report rings -o page.html"):
        subprocess.run([castoff, *words.split()], cwd=folder, check=True, stdout=subprocess.DEVNULL)
    from tests.chromium import PROGRAM, Chromium  # late: only who records needs the tests

    program = shutil.which(PROGRAM)
    assert program is not None, f"{PROGRAM} is not installed"
    browser, shown = Chromium(Path(program), folder / "profile"), {}
    try:
        browser.call("Emulation.setScrollbarsHidden", hidden=True)
        for theme in PAGES:
            browser.open(folder / "page.html", width=PAGE_SIZE[0], height=PAGE_SIZE[1], dark=theme == "dark")
            browser.wait_for("document.querySelector('canvas') !== null")
            answer = browser.call("Page.captureScreenshot", format="webp", quality=80)
            shown[theme] = base64.b64decode(answer["data"])
    finally:
        browser.close()
    return shown


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as place:
        for theme, picture in record(Path(place)).items():
            (FOLDER / PAGES[theme]).write_bytes(picture)
