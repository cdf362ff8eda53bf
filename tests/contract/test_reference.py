"""The page that tells users what holds is made from the tests, and no line of the checklist is forgotten."""

from contract import checklist, reference
from contract.checklist import Reason


def test_every_line_is_tested_or_excused_and_not_both() -> None:
    known = {line.id for line in checklist.lines()}
    tested, excused = {proof.line for proof in checklist.proofs()}, set(checklist.exceptions())
    assert known - tested - excused == set()
    assert tested & excused == set()
    assert (tested | excused) - known == set()


def test_every_test_of_another_suite_that_is_named_exists() -> None:
    for line, excuse in checklist.exceptions().items():
        assert bool(excuse.tests) == (excuse.reason is Reason.ELSEWHERE), line
        for name in excuse.tests:
            path, _, function = name.partition("::")
            assert f" {function}(" in (checklist.ROOT / path).read_text(), f"{line}: {name} is gone"


def test_the_page_is_up_to_date() -> None:
    assert reference.PAGE.read_text() == reference.render(), f"run: {reference.COMMAND}"
