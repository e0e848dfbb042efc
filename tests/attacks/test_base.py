from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import pytest

from bristle import attacks
from bristle._core import Array
from bristle.attacks import Attack, Knowledge, View

KNOWS = {
    "nothing": ["none", "label-flip", "additive-noise", "sign-flip", "stale", "sybil", "non-finite"],
    "inbox": ["inner-product", "alie", "min-max", "min-sum", "mimic", "free-ride"],
    "everything": [
        *("krum", "krum-along", "trimmed-mean", "trimmed-mean-along", "dissensus", "foreign-trojan"),
        *("excused-trojan", "late-trojan", "row-copy", "outnumber", "claim-liar", "inflate"),
        *("home-bias", "edge", "common-shift", "familiar-volume", "slow-drift", "near-copies", "backdoor"),
        *("adaptive", "optimal-alie", "optimal-inner-product"),
    ],
}


# What these send depends on which classes the victim can test, and not on what it receives.
WITHOUT_INBOX = ["foreign-trojan", "excused-trojan", "late-trojan", "row-copy", "outnumber", "claim-liar", "inflate"]


def test_every_attack_states_what_it_knows() -> None:
    found = {
        str(knows): [n for n in attacks.names(shares="heads") if attacks.create(n).knows == knows]
        for knows in Knowledge
    }
    assert {knows: sorted(names) for knows, names in found.items()} == {k: sorted(n) for k, n in KNOWS.items()}


@pytest.mark.parametrize("name", KNOWS["inbox"] + KNOWS["everything"])
def test_a_field_that_is_needed_but_none_is_named(make_view: Callable[..., View], name: str) -> None:
    attack = attacks.create(name)
    with pytest.raises(ValueError, match=f"{type(attack).__name__} needs view.(inbox|testable), which is None"):
        attack(View(own=make_view().own))


@pytest.mark.parametrize("name", ["krum", "krum-along", "trimmed-mean", "trimmed-mean-along", "dissensus"])
def test_full_knowledge_needs_the_victims_heads(make_view: Callable[..., View], name: str) -> None:
    view = make_view()
    with pytest.raises(ValueError, match=r"needs view\.victim"):
        attacks.create(name)(replace(view, victim=None))
    if name != "dissensus":
        with pytest.raises(ValueError, match=r"needs view\.update"):
            attacks.create(name)(replace(view, update=None))


@pytest.mark.parametrize("name", attacks.names(shares="heads"))
def test_no_victims_and_no_attackers_are_no_mishap(make_view: Callable[..., View], name: str) -> None:
    attack = attacks.create(name)
    assert attack(make_view(batch=(0, 2))).shape == (0, 2, 3, 5, 4)
    assert attack(make_view(batch=(2,), attackers=0)).shape == (2, 0, 5, 4)


@pytest.mark.parametrize("name", [n for n in KNOWS["inbox"] + KNOWS["everything"] if n not in WITHOUT_INBOX])
def test_a_victim_that_receives_nothing_gets_the_own_heads(make_view: Callable[..., View], name: str) -> None:
    view = make_view(batch=(2,))
    assert view.inbox_mask is not None
    mask = view.inbox_mask.copy()
    mask[0] = False
    sent = attacks.create(name)(replace(view, inbox_mask=mask))
    np.testing.assert_array_equal(sent[0], view.own[0])
    assert not np.allclose(sent[1], view.own[1])
    empty = make_view(batch=(2,), models=0)
    np.testing.assert_array_equal(attacks.create(name)(empty), empty.own)


@pytest.mark.parametrize("name", attacks.names(shares="heads"))
def test_heads_at_the_limits_stay_finite(make_view: Callable[..., View], name: str) -> None:
    """Honest heads may be about as large as rules accept, all zero, or tiny."""
    attack = attacks.create(name)
    view = make_view(batch=(2,), dtype=np.float32)
    for scale in (np.float32(1e13), np.float32(0), np.float32(1e-30)):
        scaled = replace(
            view,
            own=view.own * scale,
            inbox=np.asarray(view.inbox) * scale,
            victim=np.asarray(view.victim) * scale,
            update=np.asarray(view.update) * scale,
        )
        sent = attack(scaled)
        assert sent.dtype == np.float32
        assert np.isfinite(sent).all() or not attack.finite


def test_attacks_that_draw_take_a_generator_or_uniforms(make_view: Callable[..., View]) -> None:
    view = make_view(batch=(2,))
    attack = attacks.create("additive-noise")
    draws = np.random.default_rng(3).random(view.own.shape)
    np.testing.assert_array_equal(attack(view, rng=np.random.default_rng(3)), attack(view, rng=draws))
    with pytest.raises(ValueError, match="rng holds uniforms of shape"):
        attack(view, rng=draws[0])
    with pytest.raises(ValueError, match="rng must be"):
        attack(view, rng=3)


def test_craft_must_answer_in_the_right_form(make_view: Callable[..., View]) -> None:
    @dataclass(frozen=True)
    class Sideways(Attack):
        def craft(self, view: View, draws: Array | None) -> Array:
            return np.swapaxes(view.own, -1, -2)

    with pytest.raises(ValueError, match=r"Sideways\.craft returned float64"):
        Sideways()(make_view())
