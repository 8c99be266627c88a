"""Points in time on a page: in the local time of where it was made, whose zone it names once."""

from __future__ import annotations

from datetime import datetime, timezone

from markupsafe import Markup


class Moments:
    """Writes points in time; `at`: when the page is made, in seconds since the epoch."""

    def __init__(self, at: float):
        self._at = at

    @property
    def zone(self) -> str:
        """`CET (UTC+01:00)`."""
        local = _local(self._at)
        return f"{local.tzname()} (UTC{local:%z})"

    def date(self, at: float | None) -> str | Markup:
        """A date and a time of day, to the second; empty for None."""
        return "" if at is None else _element(at, "%Y-%m-%d %H:%M:%S")

    def short(self, at: float) -> str | Markup:
        """To the minute."""
        return _element(at, "%Y-%m-%d %H:%M")


def _local(at: float) -> datetime:
    return datetime.fromtimestamp(at, timezone.utc).astimezone()


def _element(at: float, form: str) -> Markup:
    local = _local(at)
    return Markup('<time datetime="{}">{}</time>').format(
        local.isoformat(timespec="seconds"), f"{local:{form}}"
    )
