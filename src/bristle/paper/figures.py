"""The paper's figures, each in a few lines, and a few of our own."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

from bristle.attacks import ATTACKS
from bristle.paper.declaration import Figure, Setting, WorldPanel

MATCHED = ("bristle", "evidence")
"""Rules of the table."""

KNOWING = ("foreign-trojan", "excused-trojan", "late-trojan", "row-copy", "outnumber", "claim-liar", "inflate")
"""Attacks on what a victim cannot test."""

OVERSHOOTING = ("alie", "trimmed-mean", "trimmed-mean-along")
"""Attacks on averages, for comparison."""


@dataclass(frozen=True, kw_only=True)
class Match:
    """A world of the table: 2 samples per class and peer, a full mesh."""

    attack: str
    peers: int = 10
    attackers: int
    classes_per_peer: int = 4

    @property
    def owners(self) -> float:
        """How many honest peers own a class, on average over the ten."""
        return self.peers * self.classes_per_peer / 10

    @property
    def name(self) -> str:
        """What rows call it."""
        return f"{self.attack} {self.peers}+{self.attackers}, {self.classes_per_peer} classes"


SIZES = ((10, 1, 4), (10, 2, 4), (10, 3, 4), (10, 5, 4), (30, 9, 4), (10, 1, 2), (10, 5, 6), (10, 5, 10))
"""Peers, attackers and classes per peer: attackers below, at and beyond the number of honest owners of a class."""

MATCHES = tuple(
    Match(attack=attack, peers=peers, attackers=attackers, classes_per_peer=classes)
    for attack in (*KNOWING, *OVERSHOOTING)
    for peers, attackers, classes in (SIZES if attack in KNOWING else ((10, 5, 4), (30, 9, 4)))
)
"""The whole table."""


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


def _attacked(setting: Setting, attack: str, *, name: str, title: str) -> WorldPanel:
    """Return the panel of an attack, with the author's run if there is one."""
    plain = attack.removesuffix("-along")
    kind = "iid" if setting.classes_per_peer == 10 else "noniid"
    attackers, caveat = setting.attackers, REVERSED if attack in ("krum", "trimmed-mean") else ""
    if (kind, plain, setting.samples_per_class) == ("noniid", "krum", 2):
        attackers, caveat = 4, f"{caveat} His run had 4 attackers.".strip()
    run = f"Figure{NUMBERS[kind][plain]}-{setting.peers}+{attackers}-{setting.samples_per_class}spc"
    folder = AUTHORS[plain] + ("" if kind == "iid" else "_noniid")
    everyone = attack in FANG and setting in (FIVE, TEN)
    return WorldPanel(
        name=name,
        title=title,
        setting=replace(setting, attack=attack),
        author=(folder, run),
        caveat=caveat,
        full_rules="all" if everyone else "scores" if setting == TEN else "paper",
    )


def flipped(name: str, title: str, author: tuple[str, str], caveat: str = "", **setting: int) -> WorldPanel:
    """Return the panel of a world with label flippers."""
    world = Setting(**{"attackers": 5, **setting}, attack="label-flip")
    few = world.classes_per_peer == 2
    full_rules: Literal["scores", "paper"] = "scores" if few else "paper"
    return WorldPanel(name=name, title=title, setting=world, author=author, caveat=caveat, full_rules=full_rules)


TRANSFER = WorldPanel(
    name="transfer",
    title="Transfer learning",
    setting=Setting(classes_per_peer=10),
    author=("exp_transfer_learning", "Figure1.1-transfer-2spc"),
)
REGULAR = WorldPanel(
    name="regular",
    title="Regular learning",
    setting=Setting(classes_per_peer=10),
    author=("exp_regular_learning", "Figure1.1-regular-2spc"),
    regular=True,
)


def iid(world: Setting, chosen: dict[str, str]) -> tuple[WorldPanel, ...]:
    """Return a panel for each number of attackers, which its name says."""
    count = f"{world.peers}+{world.attackers}"
    return tuple(
        _attacked(world, attack, name=f"{attack} {count}", title=f"{title}, {count}")
        for attack, title in chosen.items()
    )


def non_iid(world: Setting, chosen: dict[str, str]) -> tuple[WorldPanel, ...]:
    """Return a panel for each attack."""
    return tuple(_attacked(world, attack, name=attack, title=title) for attack, title in chosen.items())


def red_team() -> tuple[WorldPanel, ...]:
    """Return panels of every other attack in the paper's non-i.i.d. world."""
    covered = {"none", "sybil", *FANG, *ALONG, *KNOWING}
    return tuple(
        WorldPanel(name=f"{name} 10+5", title=f"{name}, 10+5", setting=Setting(attackers=5, attack=name))
        for name in ATTACKS
        if name not in covered
    )


def knowing() -> tuple[WorldPanel, ...]:
    """Return panels of attackers that are honest in the classes that their victim can test."""
    return tuple(
        WorldPanel(
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


# FedAvg is tuned where it could matter: among label flippers it is lost whatever its learning rate.
UNTUNED = ("bristle", "evidence", "fedavg", "median", "krum", "bridge", "mozi", "local")
RED_TEAM_RULES = ("bristle", "evidence", "fedavg", "median", "krum", "mozi", "local")


def figures() -> tuple[Figure, ...]:
    """Return all figures, in the order of a report.

    `in_paper` is the number printed in the paper. The author's data files count differently: 1 is regular-vs-transfer
    and non-iid, 2 and 3 byzantine-iid, 4 byzantine-non-iid, 5 attackers, 6 intro, 7 degree.
    """
    return (
        Figure(
            name="intro",
            in_paper="2",
            title="The paper's first result: 10 peers, 7 label flippers",
            text="Non-i.i.d. classes and 40 % attackers at once.",
            panels=(
                flipped(
                    "10+7",
                    "10+7 label flip",
                    ("intro", "Figure6.1-10+7-2spc"),
                    caveat="The author's peers held 5 classes each.",
                    attackers=7,
                ),
            ),
        ),
        Figure(
            name="regular-vs-transfer",
            in_paper="8",
            title="Regular against transfer learning",
            text="10 honest peers with all classes. Regular learning trains whole networks from scratch, so it "
            "belongs to the full set, and is measured on 2,000 test images; rules that test rows of heads cannot take "
            "part in it.",
            panels=(TRANSFER,),
            full_panels=(REGULAR,),
        ),
        Figure(
            name="non-iid",
            in_paper="10",
            title="Non-i.i.d. classes without attackers",
            text="10 honest peers with all 10 classes, or with 4 each.",
            panels=(
                WorldPanel(
                    name="10 classes",
                    title="All classes",
                    setting=Setting(classes_per_peer=10),
                    author=("exp_transfer_learning", "Figure1.1-transfer-2spc"),
                ),
                WorldPanel(
                    name="4 classes",
                    title="4 of 10 classes",
                    setting=Setting(),
                    author=("exp_transfer(non-iid benign)", "connection-ratio-1.0-10n-2spc"),
                ),
            ),
        ),
        Figure(
            name="byzantine-iid",
            in_paper="9",
            title="Attackers, i.i.d. classes",
            text="5+5 fits the paper's caption; 7+3, which fits its text, is run with the full set.",
            panels=iid(FIVE, FANG),
            full_panels=(*iid(SEVEN, FANG), *iid(FIVE, ALONG), *iid(SEVEN, ALONG)),
            only=UNTUNED,
        ),
        Figure(
            name="byzantine-non-iid",
            in_paper="11",
            title="Attackers and non-i.i.d. classes",
            text="10 peers with 4 classes each, and 5 attackers.",
            panels=non_iid(TEN, FANG),
        ),
        Figure(
            name="along",
            title="Attacks along the benign update",
            text="The author's versions of Fang's attacks overshoot the benign update instead of opposing it. 10+5, 4 "
            "classes.",
            panels=non_iid(TEN, ALONG),
            only=("bristle", "evidence", "local"),
        ),
        Figure(
            name="attackers",
            in_paper="12",
            title="Number of attackers",
            text="Label flippers: 10, 33, 50 and 71 % of all peers; 4 classes a peer.",
            only=UNTUNED,
            panels=(
                flipped("9+1", "9+1", ("exp_numattackers_10", "Figure5.1-9+1-2spc"), peers=9, attackers=1),
                flipped("10+5", "10+5", ("exp_numattackers_30", "Figure4.3-10+5-2spc")),
                flipped("10+10", "10+10", ("exp_numattackers_50", "Figure5.3-10+10-2spc"), attackers=10),
                flipped("10+24", "10+24", ("exp_numattackers_70", "Figure5.4-10+24-2spc"), attackers=24),
            ),
        ),
        Figure(
            name="degree",
            in_paper="13",
            title="Degree of non-i.i.d.-ness",
            text="10 peers and 5 label flippers.",
            only=UNTUNED,
            panels=(
                flipped("2 classes", "2 of 10 classes", ("exp_noniid_20", "Figure7.1-10+5-2spc"), classes_per_peer=2),
                flipped("4 classes", "4 of 10 classes", ("exp_numattackers_30", "Figure4.3-10+5-2spc")),
                flipped("6 classes", "6 of 10 classes", ("exp_noniid_60", "Figure7.3-10+5-2spc"), classes_per_peer=6),
            ),
        ),
        Figure(
            name="connection-ratio",
            in_paper="14",
            title="Connection ratio",
            text="100 peers with 4 classes each; each hears 2 (5) random benign peers, drawn once, and all of 2 (5) "
            "label flippers. The rules that are missing here are run with the full set.",
            only=("bristle", "fedavg", "median", "local"),
            panels=(
                flipped(
                    "2 %",
                    "2 % connected",
                    ("conrat2", "connection-ratio-0.02(2)"),
                    caveat="The author's curve is that of one peer.",
                    peers=100,
                    attackers=2,
                    hears=2,
                ),
                flipped(
                    "5 %",
                    "5 % connected",
                    ("conrat5", "connection-ratio-0.05(5)"),
                    caveat="The author's curve is that of one peer.",
                    peers=100,
                    attackers=5,
                    hears=5,
                ),
            ),
        ),
        Figure(
            name="samples",
            title="10 samples a class and peer",
            text="As the figure of attackers and non-i.i.d. classes, with 10 training samples a class and peer. The "
            "rules that are missing here are run with the full set.",
            panels=non_iid(MORE, FANG),
            only=("bristle", "evidence", "fedavg", "median", "local"),
        ),
        Figure(
            name="sybil",
            title="100 names of one label flipper",
            text="Not in the paper: 10 peers with 4 classes each, and one attacker under 100 names. The rules "
            "that are missing here are run with the full set.",
            panels=(WorldPanel(name="10+100", title="10+100", setting=Setting(attackers=100, attack="sybil")),),
            only=("bristle", "evidence", "fedavg", "krum", "local"),
        ),
        Figure(
            name="red-team",
            title="Every other attack",
            text="Attacks that the paper did not try, in its non-i.i.d. world.",
            panels=red_team(),
            only=RED_TEAM_RULES,
            when="full",
        ),
        Figure(
            name="knowing",
            title="Attackers who know what their victim can test",
            text="Attacks on the classes that a victim cannot test. A class has 4 honest owners with 10 peers of 4 "
            "classes, 6 with 6 classes, 2 with 2, and 12 with 30 peers: attackers that outnumber "
            "them from the beginning cannot be distinguished from them. Run only when it is asked for by name.",
            panels=knowing(),
            only=MATCHED,
            when="named",
            tabled=True,
        ),
        Figure(
            name="speed",
            in_paper="15",
            title="Time per iteration",
            text="One peer takes in what it received and trains one mini-batch, on one core; heads are those of "
            "peers that trained alone, every third a label flipper's. Times are measured: they differ from run to run.",
            measures="speed",
        ),
        Figure(
            name="traffic",
            title="Traffic",
            text="Bytes that a peer sends in an iteration, by the size function of the wire: the head alone, or the "
            "whole network.",
            measures="traffic",
        ),
        Figure(
            name="distances",
            in_paper="4",
            title="Distances between heads",
            text="Euclidean distance from the heads of peers that learn alone to those they receive, by how many of "
            "4 classes the sender shares; attackers as level lines.",
            measures="distances",
        ),
        Figure(
            name="curves",
            in_paper="5 and 7",
            title="The prioritiser's shares and the integrator's weight",
            text="As functions of alpha and of the score.",
            measures="curves",
        ),
    )
