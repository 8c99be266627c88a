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
        offset = f"{local:%z}"
        return f"{local.tzname()} (UTC{offset[:3]}:{offset[3:5]})"

    def date(self, at: float | None) -> str | Markup:
        """A date and a time of day, to the second; empty for None."""
        if at is None:
            return ""
        local = _local(at)
        element = Markup('<time datetime="{}">{}</time>')
        return element.format(local.isoformat(timespec="seconds"), f"{local:%Y-%m-%d %H:%M:%S}")


def _local(at: float) -> datetime:
    return datetime.fromtimestamp(at, timezone.utc).astimezone()
