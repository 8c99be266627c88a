"""Asks the scheduler and writes profiles: new ones, and valid changes to the user's profiles."""

from __future__ import annotations

import os
import pwd
import re
import socket
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from msgspec.structs import replace

from castoff.launcher.config.site import Search, Site
from castoff.launcher.errors import CastoffError, InvalidInput, printable, report
from castoff.launcher.process import files
from castoff.launcher.process.files import make_folders
from castoff.launcher.schedulers.choice import check_profile
from castoff.launcher.schedulers.machine_info import MachineInfo
from castoff.launcher.schedulers.machine_questions import QueryFailed, ask_scheduler
from castoff.launcher.schedulers.registry import HAVE_DIRECTIVES, scheduler_of, title_of
from castoff.launcher.siting.check import Comparison, is_node
from castoff.launcher.siting.draft import Draft, chosen_kind, profile_text
from castoff.launcher.siting.probe import NodeFacts, merged
from castoff.launcher.siting.update import Updated, updated
from castoff.launcher.trust.decision import check
from castoff.launcher.typed.suggestion import did_you_mean

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


class Proposal(NamedTuple):
    """A profile that can be written."""

    path: Path
    text: str
    site: Site
    """The site that the text describes."""
    node: str
    """Which nodes the profile describes, in words, and whether there are other nodes."""


def destination(name: str, search: Search, *, project: bool) -> Path:
    """The file for a new profile, among the user's profiles or the project's.

    Raises:
        CastoffError: there is no project folder, or the name is invalid.
    """
    if not _NAME.fullmatch(name):
        raise CastoffError(
            f"{printable(name)}: is not a name for a site, which may have letters, digits, `-`, `_` and `.`, "
            "as in cluster-a100"
        )
    if project and search.project is None:
        raise CastoffError("--project: there is no project here; to make this folder one: mkdir .castoff")
    return dict(search.folders())["project" if project else "user"] / f"{name}.yaml"


def refuse_existing(path: Path, search: Search) -> None:
    """Refuse a name that a profile already has, since one of the two profiles would be hidden or lost.

    Raises:
        CastoffError: a file or a built-in profile has that name.
    """
    name = path.stem
    existing = search.profiles().get(name, [])
    if existing or os.path.lexists(path):
        origin, file = existing[0] if existing else ("", path)
        problem = "comes with castoff" if origin == "built-in" else f"exists already, {printable(str(file))}"
        raise CastoffError(
            f"site {name}: {problem}; `castoff sites check {name}` shows what has changed since then, and "
            f"writes it with --update; or choose another name, or print the profile: castoff sites new "
            f"{name} -o -"
        )


def proposal(
    path: Path,
    search: Search,
    *,
    queue: str | None,
    gpu_type: str | None,
    scheduler: str | None,
    project: bool,
) -> Proposal:
    """Make a profile of this machine for the file `path`, without writing it.

    `queue`: the queue whose nodes to describe; None: the default queue, or one with devices of `gpu_type`.
    `scheduler`: None means the first that this host has.

    Raises:
        QueryFailed: this host has no scheduler, or it does not answer.
        CastoffError: the scheduler has no such queue, or the queue has no such devices.
    """
    name, reason, *others = _scheduler(search, scheduler)
    report(f"site {path.stem}: asking {title_of(name)}: {reason}")
    try:
        info = ask_scheduler(name, search.environ, about=f"site {path.stem}")
    except QueryFailed as failure:
        if others:
            raise QueryFailed(
                f"{failure}\nthis host also has {others[0]}; to ask that: --scheduler {others[0]}"
            ) from None
        raise
    queue = _queue(queue, gpu_type, info, title_of(name))
    draft = Draft(
        name=path.stem,
        scheduler=name,
        title=title_of(name),
        date=time.strftime("%Y-%m-%d"),
        host=socket.gethostname(),
        queue=queue,
        gpu_type=gpu_type,
        shared=project,
        login_shell=_login_shell(),
    )
    text = profile_text(draft, info)
    return Proposal(path, text, validated(path, text, search), _node_words(draft, info))


class Change(NamedTuple):
    """The result of changing a profile."""

    path: Path
    left: list[str]
    """Values that could not be written, each with the reason."""
    changed: bool
    """Whether the profile's text has changed."""


def update_profile(site: Site, info: MachineInfo, comparison: Comparison, search: Search) -> Change:
    """Write the differences into the nearest profile of this name. A built-in profile is not changed; a new
    profile of the user's extends it.

    Raises:
        CastoffError: the profile cannot be read or written, or would become invalid; it is not changed.
    """
    path, text = _own(site, search)
    draft = Draft(
        name=site.name,
        scheduler=site.scheduler,
        title=title_of(site.scheduler),
        date=time.strftime("%Y-%m-%d"),
        host=socket.gethostname(),
        queue=site.default_queue,
    )
    new = updated(text, site, info, comparison, draft, lambda text: validated(path, text, search))
    return _changed(path, text, new, search, title_of(site.scheduler))


def probe_profile(
    site: Site, info: MachineInfo, facts: NodeFacts, remote_setup: Sequence[str], search: Search
) -> Change:
    """Write a node's facts into the profile that `update_profile` would change.

    Raises:
        CastoffError: the profile cannot be read or written, or would become invalid; it is not changed.
    """
    path, text = _own(site, search)
    node, threads = site.node, info.counts_threads
    cpu_counts = [kind.cores for kind in info.nodes if node and is_node(node, kind, threads)]
    new = merged(text, site, facts, time.strftime("%Y-%m-%d"), remote_setup, cpu_counts or None)
    return _changed(path, text, new, search, facts.host)


def _changed(path: Path, before: str, new: Updated, search: Search, who: str) -> Change:
    """Write a profile's new text if it is valid; `who`: the reporter of the new values, for an error."""
    if changed := new.text != before:
        try:
            validated(path, new.text, search)
        except InvalidInput as problem:
            raise CastoffError(
                f"{printable(str(path))}: is unchanged, since the values that {printable(who)} reports "
                f"would make it invalid; change it by hand\n{problem}"
            ) from None
        write_profile(path.resolve(), new.text)
    return Change(path, new.left, changed)


def _own(site: Site, search: Search) -> tuple[Path, str]:
    """The path and text of the nearest profile of a site's name; in place of a built-in one, a new one
    that extends it.
    """
    origin, path = search.profiles()[site.name][0]
    if origin != "built-in":
        return path, path.read_text(encoding="utf-8")
    return dict(search.folders())["user"] / f"{site.name}.yaml", f"extends: {site.name}\n"


def validated(path: Path, text: str, search: Search) -> Site:
    """Check a profile's text before it is written, and return its site.

    Raises:
        InvalidInput: the profile is invalid; the message has every problem.
    """
    site = Site.load(path.stem, search=replace(search, draft=(path, text)))
    check_profile(site)
    return site


def write_profile(path: Path, text: str) -> None:
    """Write a profile, with the line endings of the file that it replaces.

    Raises:
        CastoffError: the file cannot be written, or other users could change it.
    """
    try:
        if path.exists() and b"\r\n" in path.read_bytes():
            text = text.replace("\n", "\r\n")
        make_folders(path.parent, 0o755)
        check(path.parent)
        files.replace(path, text, 0o644)
    except OSError as error:
        raise CastoffError(f"{printable(str(path))}: cannot be written: {error.strerror}") from error


def _scheduler(search: Search, named: str | None) -> list[str]:
    """The scheduler to ask, the reason for choosing it, and the names of others on this host."""
    if named is not None:
        return [named, "--scheduler names it"]
    signs = {name: scheduler_of(name).found_on(search.environ) for name in HAVE_DIRECTIVES}
    names = [name for name, sign in signs.items() if sign]
    if not names:
        raise QueryFailed(
            "this host has no scheduler: none that castoff knows is on PATH, or answers; run this on a login "
            "node of the machine"
        )
    return [names[0], str(signs[names[0]]), *names[1:]]


def _queue(queue: str | None, gpu_type: str | None, info: MachineInfo, title: str) -> str | None:
    """The queue that a profile describes; None: the scheduler's default."""
    if queue is not None and queue not in info.queues:
        raise CastoffError(
            f"--queue: is {printable(queue)}, but {title} has no such queue"
            f"{did_you_mean(queue, info.queues)}; there are: {', '.join(info.queues)}"
        )
    if gpu_type is None or chosen_kind(info, queue or info.default_queue, gpu_type):
        return queue
    kind = chosen_kind(info, queue, gpu_type)
    if kind and kind.queues:
        return kind.queues[0]
    types = {kind.device_type: kind.queues for kind in info.nodes if kind.device_type}
    listed = ", ".join(
        f"{name} (in {', '.join(queues)})" if queues else name for name, queues in types.items()
    )
    where = f" in queue {queue}" if queue else ""
    hint = "" if gpu_type in types else did_you_mean(gpu_type, types)
    raise CastoffError(
        f"--gpu-type: is {printable(gpu_type)}, but no node{where} has such GPUs{hint}; "
        + (f"there are: {listed}" if listed else f"{title} names no types of GPUs")
    )


def _node_words(draft: Draft, info: MachineInfo) -> str:
    queue = draft.queue or info.default_queue
    kind = chosen_kind(info, queue, draft.gpu_type)
    if kind is None:
        return f"unknown: {draft.title} does not report what a node has"
    words = f"{kind.words('CPUs' if info.counts_threads else 'cores')}, the most frequent"
    words += f" of queue {queue}" if queue else ""
    others = len(info.nodes) - 1
    if others:
        words += f"; {others} other kind{'s' * (others > 1)}: castoff sites new OTHER-NAME with --queue QUEUE"
        words += " or --gpu-type TYPE"
    return words


def _login_shell() -> str:
    try:
        return pwd.getpwuid(os.geteuid()).pw_shell or "/bin/sh"
    except KeyError:
        return os.environ.get("SHELL", "/bin/bash")
