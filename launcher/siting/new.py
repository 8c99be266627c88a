"""A profile of this machine from what its scheduler reports: where it goes, and whether it is valid."""

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
from castoff.launcher.runs.records import write_file
from castoff.launcher.schedulers.choice import check_profile
from castoff.launcher.schedulers.machine_info import MachineInfo, QueryFailed, ask_scheduler
from castoff.launcher.schedulers.registry import HAVE_DIRECTIVES, scheduler_of, title_of
from castoff.launcher.siting.check import Comparison, is_node
from castoff.launcher.siting.draft import Draft, chosen_kind, profile_text
from castoff.launcher.siting.probe import NodeFacts, merged
from castoff.launcher.siting.update import Updated, updated
from castoff.launcher.trust.decision import check
from castoff.launcher.trust.folders import make_folders
from castoff.launcher.typed.suggestion import did_you_mean

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


class Proposal(NamedTuple):
    """A profile that could be written."""

    path: Path
    text: str
    site: Site
    """What it says once it is resolved."""
    node: str
    """The nodes that it is for, in words, and whether there are others."""
    title: str
    """Of the scheduler, as people call it."""


def destination(name: str, search: Search, *, project: bool) -> Path:
    """Where a new profile of that name goes: to the user's, or to the project's.

    Raises:
        CastoffError: there is no project, or no file can have that name.
    """
    if not _NAME.fullmatch(name):
        raise CastoffError(
            f"{printable(name)}: is no name for a site: it takes letters, digits, - _ and ., as in "
            "cluster-a100"
        )
    if project and search.project is None:
        raise CastoffError("--project: there is no project here; to make this folder one: mkdir .castoff")
    return dict(search.folders())["project" if project else "user"] / f"{name}.yaml"


def refuse_existing(path: Path, search: Search) -> None:
    """See that there is no profile of a new one's name, which would hide it or be lost.

    Raises:
        CastoffError: there is one, here or built in.
    """
    name = path.stem
    known = search.profiles().get(name, [])
    if known or os.path.lexists(path):
        kind, there = known[0] if known else ("", path)
        where = "comes with castoff" if kind == "built-in" else f"is there already, {printable(str(there))}"
        raise CastoffError(
            f"site {name}: {where}; `castoff sites check {name}` says what has changed since, and writes it "
            f"with --update; or choose another name, or print it: castoff sites new {name} -o -"
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
    """The profile of this machine, which `path` would hold.

    `queue`: the one whose nodes it is for; None: the default one, or one with devices of `gpu_type`.
    `scheduler`: None: the first that is here.

    Raises:
        QueryFailed: there is no scheduler, or it does not answer.
        CastoffError: it has no such queue, or no such devices there.
    """
    name, why, *others = _scheduler(search, scheduler)
    report(f"site {path.stem}: asks {title_of(name)}: {why}")
    try:
        info = ask_scheduler(name, search.environ, about=f"site {path.stem}")
    except QueryFailed as failure:
        if others:
            raise QueryFailed(
                f"{failure}\nhere is also: {others[0]}; to ask that: --scheduler {others[0]}"
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
    return Proposal(path, text, sound(path, text, search), _node_words(draft, info), draft.title)


class Change(NamedTuple):
    """A profile that has been changed."""

    path: Path
    left: list[str]
    """What could not be written, and why."""
    changed: bool = True
    """Whether its text is another one now."""


def update_profile(site: Site, info: MachineInfo, found: Comparison, search: Search) -> Change:
    """Write what differs into the nearest profile of that name; where that came with castoff, into one that
    extends it.

    Raises:
        InvalidInput: with what the scheduler says, the profile would contradict itself; it is as it was.
        CastoffError: it cannot be read or written.
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
    new = updated(text, site, info, found, draft, lambda text: sound(path, text, search))
    return _changed(path, text, new, search, title_of(site.scheduler))


def probe_profile(
    site: Site, info: MachineInfo, facts: NodeFacts, remote_setup: Sequence[str], search: Search
) -> Change:
    """Write what a node said into the profile that `update_profile` would change.

    Raises:
        InvalidInput: with that, the profile would contradict itself; it is as it was.
        CastoffError: it cannot be read or written.
    """
    path, text = _own(site, search)
    own = [one.cores for one in info.nodes if site.node and is_node(site.node, one, info.counts_threads)]
    new = merged(text, site, facts, time.strftime("%Y-%m-%d"), remote_setup, own or None)
    return _changed(path, text, new, search, facts.host)


def _changed(path: Path, before: str, new: Updated, search: Search, who: str) -> Change:
    """Write a profile's new text, if it is sound."""
    if changed := new.text != before:
        try:
            sound(path, new.text, search)
        except InvalidInput as problem:
            raise CastoffError(
                f"{printable(str(path))}: is as it was: with what {printable(who)} says it would not be "
                "right, so "
                f"change it by hand\n{problem}"
            ) from None
        write_profile(path.resolve(), new.text)
    return Change(path, new.left, changed)


def _own(site: Site, search: Search) -> tuple[Path, str]:
    """The nearest profile of a site's name and its text; instead of one that came with castoff, one to "
    "be made."""
    kind, path = search.profiles()[site.name][0]
    if kind != "built-in":
        return path, path.read_text(encoding="utf-8")
    return dict(search.folders())["user"] / f"{site.name}.yaml", f"extends: {site.name}\n"


def sound(path: Path, text: str, search: Search) -> Site:
    """What a profile says that has not been written yet.

    Raises:
        InvalidInput: with every problem that it has.
    """
    site = Site.load(path.stem, search=replace(search, draft=(path, text)))
    check_profile(site)
    return site


def write_profile(path: Path, text: str) -> None:
    """Write a profile, whole.

    Raises:
        CastoffError: it cannot be written there, or somebody else could change it there.
    """
    try:
        make_folders(path.parent, 0o755)
        check(path.parent)
        write_file(path, text, 0o644)
    except OSError as error:
        raise CastoffError(f"{printable(str(path))}: cannot be written: {error.strerror}") from error


def _scheduler(search: Search, named: str | None) -> list[str]:
    """The scheduler to ask, why it, and the names of others that are here."""
    if named is not None:
        return [named, "--scheduler names it"]
    found = [(name, why) for name in HAVE_DIRECTIVES if (why := scheduler_of(name).found_on(search.environ))]
    if not found:
        raise QueryFailed(
            "no scheduler is here: no Flux instance answers, and neither sbatch nor PBS's qsub is on "
            "PATH; run "
            "this on a login node of the machine"
        )
    return [*found[0], *(name for name, _ in found[1:])]


def _queue(queue: str | None, gpu_type: str | None, info: MachineInfo, title: str) -> str | None:
    """The queue that a profile is for; None: the scheduler's default."""
    if queue is not None and queue not in info.queues:
        raise CastoffError(
            f"--queue: is {printable(queue)}, but {title} has no such queue"
            f"{did_you_mean(queue, info.queues)}; there are: {', '.join(info.queues)}"
        )
    if gpu_type is None or chosen_kind(info, queue or info.default_queue, gpu_type):
        return queue
    found = chosen_kind(info, queue, gpu_type)
    if found and found.queues:
        return found.queues[0]
    types = {one.device_type: one for one in info.nodes if one.device_type}
    there = ", ".join(
        f"{name} (in {', '.join(one.queues)})" if one.queues else name for name, one in types.items()
    )
    where = f" in queue {queue}" if queue else ""
    hint = "" if gpu_type in types else did_you_mean(gpu_type, types)
    raise CastoffError(
        f"--gpu-type: is {printable(gpu_type)}, and no nodes{where} have such{hint}; "
        + (f"there are: {there}" if there else f"{title} names no types of GPUs")
    )


def _node_words(draft: Draft, info: MachineInfo) -> str:
    queue = draft.queue or info.default_queue
    kind = chosen_kind(info, queue, draft.gpu_type)
    if kind is None:
        return f"{draft.title} does not say what a node has"
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
