"""Which group is the user's alone."""

from __future__ import annotations

import grp
import pwd
from collections.abc import Iterator
from types import SimpleNamespace

import pytest

from castoff.launcher.trust.people import is_only_ours


@pytest.fixture
def me(monkeypatch: pytest.MonkeyPatch) -> Iterator[SimpleNamespace]:
    """A user and his group, as the machine's lists have them."""
    user = SimpleNamespace(pw_name="alice", pw_gid=500)
    group = SimpleNamespace(gr_name="alice", gr_mem=[])
    monkeypatch.setattr(pwd, "getpwuid", lambda uid: user)
    monkeypatch.setattr(grp, "getgrgid", lambda gid: group)
    return iter([SimpleNamespace(user=user, group=group)])


class TestGroups:
    """A folder that its group may write to is the user's alone where nobody else is in that group."""

    def test_the_user_s_own(self, me: Iterator[SimpleNamespace]) -> None:
        lists = next(me)
        assert is_only_ours(500)
        lists.group.gr_mem = ["alice"]
        assert is_only_ours(500)

    def test_others_in_it(self, me: Iterator[SimpleNamespace]) -> None:
        next(me).group.gr_mem = ["alice", "bob"]
        assert not is_only_ours(500)

    def test_a_group_that_others_may_have_as_their_first(self, me: Iterator[SimpleNamespace]) -> None:
        next(me).group.gr_name = "users"
        assert not is_only_ours(500)

    def test_another_than_the_user_s_first(self, me: Iterator[SimpleNamespace]) -> None:
        next(me)
        assert not is_only_ours(501)

    def test_one_that_nobody_knows(self) -> None:
        assert not is_only_ours(3_999_999)
