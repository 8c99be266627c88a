"""The SVG elements of castoff's pictures. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from xml.sax.saxutils import escape, quoteattr

_STYLE = """
  .page { fill: #ffffff; stroke: #d0d7de }
  .box { fill: #f6f8fa; stroke: #8c959f }
  .none { fill: #eaeef2 }
  .dark { fill: #afb8c1 }
  .line { stroke: #59636e; stroke-width: 1.5; fill: none }
  .head { fill: #59636e }
  .dashed { stroke-dasharray: 5 4 }
  .curve { stroke: #d9480f; stroke-width: 2.5; fill: none }
  text { font-family: system-ui, sans-serif; font-size: 13px; fill: #1f2328 }
  .title { font-size: 16px; font-weight: 600 }
  .small { font-size: 11px }
  .code { font-family: ui-monospace, monospace; font-size: 12px; white-space: pre }
  .ink { fill: #0d1117 }
  @media (prefers-color-scheme: dark) {
    .page { fill: #15191f; stroke: #3d444d }
    .box { fill: #212830; stroke: #656c76 }
    .none { fill: #2a313c }
    .dark { fill: #59636e }
    .line { stroke: #9198a1 }
    .head { fill: #9198a1 }
    text { fill: #e6edf3 }
  }
"""
"""The class `ink` is for text on a coloured background, the same in light and dark mode."""


def document(width: int, height: int, description: str, parts: Iterable[str]) -> str:
    """A picture with its own background; `description`: its text for screen readers."""
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
            f'viewBox="0 0 {width} {height}" role="img">',
            f"<title>{escape(description)}</title>",
            f"<style>{_STYLE}</style>",
            rect(0.5, 0.5, width - 1, height - 1, kind="page", round_by=8),
            *parts,
            "</svg>",
            "",
        ]
    )


def text(x: float, y: float, words: str, kind: str = "", anchor: str = "start") -> str:
    """One line of text; (x, y) is the start of its base line, or its middle with the anchor `middle`."""
    attributes = f'x="{x:g}" y="{y:g}" text-anchor={quoteattr(anchor)}'
    return f"<text{_kind(kind)} {attributes}>{escape(words)}</text>"


def rect(
    x: float, y: float, width: float, height: float, *, kind: str = "", fill: str = "", round_by: float = 3
) -> str:
    """A box in the style of its kind, or in a given colour."""
    attributes = f'x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" rx="{round_by:g}"'
    return f"<rect{_kind(kind)} {attributes}{f' fill={quoteattr(fill)}' if fill else ''}/>"


def line(*points: tuple[float, float], kind: str = "line") -> str:
    """A line through these points."""
    return f'<polyline{_kind(kind)} points="{" ".join(f"{x:g},{y:g}" for x, y in points)}"/>'


def group(title: str, parts: Iterable[str]) -> str:
    """Parts with a text that is shown under the pointer."""
    return f"<g><title>{escape(title)}</title>{''.join(parts)}</g>"


def arrow(*points: tuple[float, float]) -> str:
    """A line through these points, with an arrowhead at its end."""
    (x0, y0), (x, y) = points[-2:]
    length = max(((x - x0) ** 2 + (y - y0) ** 2) ** 0.5, 1e-9)
    dx, dy = (x - x0) / length * 8, (y - y0) / length * 8
    head = f"{x:g},{y:g} {x - dx + dy / 2:g},{y - dy - dx / 2:g} {x - dx - dy / 2:g},{y - dy + dx / 2:g}"
    return f'{line(*points[:-1], (x - dx, y - dy))}<polygon class="head" points="{head}"/>'


def _kind(kind: str) -> str:
    return f" class={quoteattr(kind)}" if kind else ""
