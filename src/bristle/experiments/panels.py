"""The pictures that figures are made of: worlds under an attack, and the author's run of each where he kept one."""

from __future__ import annotations

from typing import Literal

from bristle import attacks
from bristle.experiments.declaration import Panel, Setting
from bristle.experiments.red_team import KNOWING, MATCHES

FANG = {
    "label-flip": "Label flip",
    "additive-noise": "Additive noise",
    "krum": "Krum attack",
    "trimmed-mean": "Trimmed-mean attack",
}
ALONG = {"krum-along": "Krum attack, along", "trimmed-mean-along": "Trimmed-mean attack, along"}
REVERSED = "The author's attack overshoots along the benign update; Fang's goes against it."

AUTHORS = {
    "label-flip": "exp_all_label_flip_attack",
    "additive-noise": "exp_additive_noise_attack",
    "krum": "exp_krum_attack",
    "trimmed-mean": "exp_trimmed_mean_attack",
}
NUMBERS = {
    "iid": {"label-flip": "2.1", "additive-noise": "3.3", "krum": "3.4", "trimmed-mean": "3.5"},
    "noniid": {"label-flip": "4.3", "additive-noise": "4.1", "krum": "4.4", "trimmed-mean": "4.5"},
}

SEVEN, FIVE = (Setting(peers=7, attackers=3, classes_per_peer=10), Setting(peers=5, attackers=5, classes_per_peer=10))
TEN, MORE = Setting(attackers=5), Setting(attackers=5, samples_per_class=10)


def _attacked(setting: Setting, attack: str, *, name: str, title: str) -> Panel:
    """Return the panel of an attack, with the author's run of it if he kept one."""
    plain = attack.removesuffix("-along")
    kind = "iid" if setting.classes_per_peer == 10 else "noniid"
    attackers, caveat = setting.attackers, REVERSED if attack in ("krum", "trimmed-mean") else ""
    if (kind, plain, setting.samples_per_class) == ("noniid", "krum", 2):
        attackers, caveat = 4, f"{caveat} His run had 4 attackers.".strip()
    run = f"Figure{NUMBERS[kind][plain]}-{setting.peers}+{attackers}-{setting.samples_per_class}spc"
    folder = AUTHORS[plain] + ("" if kind == "iid" else "_noniid")
    world = Setting(
        peers=setting.peers,
        attackers=setting.attackers,
        attack=attack,
        classes_per_peer=setting.classes_per_peer,
        samples_per_class=setting.samples_per_class,
    )
    everyone = attack in FANG and setting in (FIVE, TEN)
    return Panel(
        name=name,
        title=title,
        setting=world,
        author=(folder, run),
        caveat=caveat,
        full_rules="all" if everyone else "scores" if setting == TEN else "paper",
    )


def flipped(name: str, title: str, author: tuple[str, str], caveat: str = "", **setting: int) -> Panel:
    """Return the panel of a world with label flippers."""
    world = Setting(**{"attackers": 5, **setting}, attack="label-flip")
    few = world.classes_per_peer == 2
    full_rules: Literal["scores", "paper"] = "scores" if few else "paper"
    return Panel(name=name, title=title, setting=world, author=author, caveat=caveat, full_rules=full_rules)


TRANSFER = Panel(
    name="transfer",
    title="Transfer learning",
    setting=Setting(classes_per_peer=10),
    author=("exp_transfer_learning", "Figure1.1-transfer-2spc"),
)
REGULAR = Panel(
    name="regular",
    title="Regular learning",
    setting=Setting(classes_per_peer=10),
    author=("exp_regular_learning", "Figure1.1-regular-2spc"),
    regular=True,
)


def iid(world: Setting, chosen: dict[str, str]) -> tuple[Panel, ...]:
    """Return a panel for each attack, whose name says how many there are."""
    count = f"{world.peers}+{world.attackers}"
    return tuple(
        _attacked(world, attack, name=f"{attack} {count}", title=f"{title}, {count}")
        for attack, title in chosen.items()
    )


def non_iid(world: Setting, chosen: dict[str, str]) -> tuple[Panel, ...]:
    """Return a panel for each attack."""
    return tuple(_attacked(world, attack, name=attack, title=title) for attack, title in chosen.items())


def red_team() -> tuple[Panel, ...]:
    """Every other attack in the paper's non-i.i.d. world."""
    covered = {"none", "sybil", *FANG, *ALONG, *KNOWING}
    panels = [
        Panel(name=f"{name} 10+5", title=f"{name}, 10+5", setting=Setting(attackers=5, attack=name))
        for name in attacks.names()
        if name not in covered
    ]
    return tuple(panels)


def knowing() -> tuple[Panel, ...]:
    """Attackers who know how foreign rows are admitted."""
    return tuple(
        Panel(
            name=match.name,
            title=match.name,
            setting=Setting(
                peers=match.peers,
                attackers=match.attackers,
                attack=match.attack,
                classes_per_peer=match.classes_per_peer,
            ),
        )
        for match in MATCHES
    )
