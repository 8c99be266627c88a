"""The text of -W: what qsub reads, how texts are merged, and what castoff keeps for itself."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from castoff.launcher.config.job import JobSpec
from castoff.launcher.config.site import Site
from castoff.launcher.errors import InvalidInput
from castoff.launcher.planning import planner
from castoff.launcher.schedulers.pbs import attributes

NAMES = st.from_regex("[a-z][a-z_]{0,8}", fullmatch=True)
VALUES = st.text(st.characters(min_codepoint=32, max_codepoint=126, exclude_characters="'"), min_size=1)
GIVEN = st.dictionaries(NAMES, VALUES.map(lambda text: text.strip(" ,")).filter(bool), min_size=1, max_size=4)


@given(GIVEN)
def test_what_is_written_is_what_is_read(given: dict[str, str]) -> None:
    assert attributes.parse_attributes(attributes.attributes_text(given)) == given


@given(GIVEN, GIVEN)
def test_later_texts_win_attribute_by_attribute(site: dict[str, str], job: dict[str, str]) -> None:
    text = attributes.merged(attributes.attributes_text(site), None, attributes.attributes_text(job))
    assert text is not None
    assert attributes.parse_attributes(text) == {**site, **job}


# As qsub of OpenPBS 23.06.06 and cd7ab5e has them.
@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("umask=027,group_list=lab", {"umask": "027", "group_list": "lab"}),
        (" umask = 027 , group_list = lab ", {"umask": "027", "group_list": "lab"}),
        ("stagein=/a@h:/b,/c@h:/d,umask=22", {"stagein": "/a@h:/b,/c@h:/d", "umask": "22"}),
        ('stagein="/a=1@h:/b",umask=22', {"stagein": "/a=1@h:/b", "umask": "22"}),
        ("depend=afterok:1:2,afterany:3,run_count=2", {"depend": "afterok:1:2,afterany:3", "run_count": "2"}),
        ("umask=022,umask=077", {"umask": "077"}),
    ],
)
def test_what_qsub_takes(text: str, found: dict[str, str]) -> None:
    assert attributes.parse_attributes(text) == found


@pytest.mark.parametrize(
    "text", ["", "umask", "umask=027,", "stagein=/a=1@h:/b", "=1", ",a=1", "a='b", "umask="]
)
def test_what_qsub_refuses_or_takes_for_something_else(text: str) -> None:
    with pytest.raises(ValueError, match=r"takes attributes, as in group_list=lab,umask=027"):
        attributes.parse_attributes(text)


def test_capitals_are_the_same_attribute() -> None:
    assert attributes.merged("Group_List=a", "group_list=b") == "Group_List=b"


def plan(*, profile: dict[str, Any] | None = None, **fields: Any) -> dict[str, str | bool]:
    site = Site.load("pbs").changed(**(profile or {}))
    return dict(planner.plan(JobSpec.of({"command": ["x"], **fields}), site).directives)


def test_the_sites_the_jobs_and_castoffs_own_stand_together() -> None:
    profile = {
        "directives": {"W": "group_list=lab,umask=022"},
        "defaults": {"directives": {"W": "run_count=3"}},
    }
    found = plan(profile=profile, directives={"pbs": {"W": "umask=027"}}, after={"afterok": ["7.head"]})
    assert found["W"] == "depend=afterok:7.head,group_list=lab,umask=027,run_count=3"
    assert plan(profile=profile)["W"] == "group_list=lab,umask=022,run_count=3"
    assert (
        plan(profile=profile, directives={"W": None}, after={"after": ["7.head"]})["W"]
        == "depend=after:7.head"
    )
    assert "W" not in plan(profile=profile, directives={"W": None})
    assert "W" not in plan()


def test_a_run_that_it_waits_for_is_found_at_submission() -> None:
    """qsub's own -W then has depend, and the script's all others: qsub takes both."""
    assert plan(directives={"W": "umask=027"}, after={"afterok": ["preprocess"]})["W"] == "umask=027"


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"W": "block=true"}, "sets block: qsub would wait for the job's end"),
        ({"W": "umask=027,Sandbox=PRIVATE"}, "sets Sandbox: PBS would delete the job's log"),
        ({"W": "interactive=true"}, "sets interactive: castoff submits a script"),
        ({"W": "Job_Name=x"}, "sets Job_Name: set name instead"),
        ({"W": "max_run_subjobs=2"}, "sets max_run_subjobs: set array.max_concurrent instead"),
        ({"W": "depend=afterok:7.head"}, "follows from other fields; set after instead"),
        ({"W": "group_list"}, "is 'group_list', but takes attributes, as in group_list=lab,umask=027"),
        ({"W": True}, "takes attributes"),
        ({"group_list": "lab"}, "is an attribute, not a resource; write W: group_list=lab"),
        ({"W": {"group_list": "lab"}}, 'write text, as in W: "group_list=lab"'),
    ],
)
def test_what_castoff_keeps_for_itself(given: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidInput) as error:
        plan(directives=given)
    (problem,) = error.value.problems
    assert message in problem.message and problem.path == f"directives.{next(iter(given))}"


def test_a_profile_is_held_to_the_same() -> None:
    with pytest.raises(InvalidInput, match=r"site pbs: directives\.W: sets block"):
        plan(profile={"directives": {"W": "block=true"}})


def test_a_dependency_that_after_cannot_say_stands_alone() -> None:
    assert plan(directives={"W": "depend=on:2"})["W"] == "depend=on:2"
    for fields in ({"after": {"afterok": ["7.head"]}}, {"requeue": {"max": 2}}):
        with pytest.raises(InvalidInput, match=rf"sets depend, and so does castoff for {next(iter(fields))}"):
            plan(directives={"W": "depend=on:2"}, **fields)
