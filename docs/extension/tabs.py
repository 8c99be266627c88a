"""Tabs for what differs by scheduler, from Markdown that reads well without them.

A paragraph that is only `**Slurm**`, or another of NAMES, begins a tab. The last tab ends where the section
does, or at `<!-- end of tabs -->`. Who chooses a scheduler once sees it in all tabs.
"""

from __future__ import annotations

from docutils import nodes
from sphinx.transforms import SphinxTransform
from sphinx_design.shared import create_component

NAMES = ("Slurm", "PBS", "Flux", "One machine")
_END = "<!-- end of tabs -->"


class SchedulerTabs(SphinxTransform):
    """Builds sphinx-design's tab sets."""

    default_priority = 500

    def apply(self, **kwargs: object) -> None:
        """On reading a page."""
        labels = [each for each in self.document.findall(nodes.paragraph) if _name(each) is not None]
        for label in labels:
            if label in label.parent.children:  # else it is in a tab set by now
                _build(label)


def _name(node: nodes.Node) -> str | None:
    """The scheduler whose tab begins here."""
    text = node.astext()
    strong = isinstance(node, nodes.paragraph) and any(
        isinstance(each, nodes.strong) for each in node.children
    )
    return text if strong and text in NAMES else None


def _build(first: nodes.paragraph) -> None:
    """Move what follows the first label into tabs, up to the end."""
    parent = first.parent
    begin, taken = parent.index(first), 0
    tabs, content = create_component("tab-set", classes=["sd-tab-set"]), nodes.container()
    for node in parent.children[begin:]:
        if isinstance(node, nodes.section):
            break
        taken += 1
        if isinstance(node, nodes.raw) and node.astext().strip() == _END:
            break
        if (name := _name(node)) is not None:
            label = nodes.rubric(name, name, classes=["sd-tab-label"], sync_id=name, sync_group="scheduler")
            content = create_component("tab-content", classes=["sd-tab-content"])
            tabs += create_component("tab-item", classes=["sd-tab-item"], children=[label, content])
        else:
            content += node
    parent.children[begin : begin + taken] = []
    parent.insert(begin, tabs)
