from bristle import attacks, rules
from bristle.paper.figures import MATCHED, MATCHES


def test_every_match_can_be_played() -> None:
    assert set(MATCHED) <= set(rules.names())
    assert {match.attack for match in MATCHES} <= set(attacks.names())
    assert len({match.name for match in MATCHES}) == len(MATCHES)


def test_the_table_stands_on_both_sides_of_the_line() -> None:
    for peers, classes in ((10, 4), (30, 4), (10, 2), (10, 6)):
        sizes = [m for m in MATCHES if (m.peers, m.classes_per_peer) == (peers, classes)]
        assert any(match.attackers < match.owners for match in sizes)
    assert any(match.attackers > match.owners for match in MATCHES)
