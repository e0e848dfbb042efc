from collections.abc import Callable

import pytest

from bristle.attacks import Knowledge, View


@pytest.mark.parametrize(
    ("knows", "hidden"),
    [
        (Knowledge.NOTHING, {"inbox", "inbox_mask", "victim", "update", "testable"}),
        (Knowledge.INBOX, {"victim", "update", "testable"}),
        (Knowledge.EVERYTHING, set()),
    ],
)
def test_attackers_see_what_they_know(make_view: Callable[..., View], knows: Knowledge, hidden: set[str]) -> None:
    view = make_view()
    seen = view.seen_by(knows)
    fields = {
        "inbox": (seen.inbox, view.inbox),
        "inbox_mask": (seen.inbox_mask, view.inbox_mask),
        "victim": (seen.victim, view.victim),
        "update": (seen.update, view.update),
        "testable": (seen.testable, view.testable),
    }
    for field, (shown, given) in fields.items():
        assert (shown is None) if field in hidden else (shown is given), field
    assert seen.own is view.own
    assert seen.sent is view.sent
    assert (seen.iteration, seen.total) == (view.iteration, view.total)


def test_knowledge_reads_as_words() -> None:
    assert [str(knows) for knows in Knowledge] == ["nothing", "inbox", "everything"]
