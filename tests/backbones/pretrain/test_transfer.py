import numpy as np
import pytest
import torch

from bristle.backbones import bundled
from bristle.backbones.pretrain.transfer import L2, LEARNING_RATE, measure_transfer, train_heads
from bristle.data import mnist


def test_heads_are_trained_as_torchs_adam_trains_them() -> None:
    x = torch.randn((2, 30, 8), generator=torch.Generator().manual_seed(0))
    y = torch.arange(30).expand(2, 30) % 3
    heads = train_heads(x, y, classes=3, steps=40)
    for run in range(2):
        head = torch.zeros((3, 8), requires_grad=True)
        adam = torch.optim.Adam([head], lr=LEARNING_RATE, weight_decay=L2)
        for _ in range(40):
            adam.zero_grad()
            torch.autograd.backward(torch.nn.functional.cross_entropy(x[run] @ head.T, y[run]))
            adam.step()
        np.testing.assert_allclose(heads[run], head.detach(), atol=1e-5)


def test_mini_batches_go_through_all_samples_before_any_comes_again() -> None:
    # One sample per class, each with its own feature: a row moves in the first pass only if its sample was seen.
    x = torch.eye(6)[None]
    y = torch.arange(6)[None]
    head = train_heads(x, y, classes=6, batch=2, steps=3)[0]
    assert bool((head.diagonal() > 0).all())
    partly = train_heads(x, y, classes=6, batch=2, steps=2)[0]
    assert int((partly.diagonal() > 0).sum()) == 4


@pytest.mark.slow
def test_the_bundled_backbone_carries_over_to_digits_as_its_card_says() -> None:
    transfer = measure_transfer(bundled(), mnist(), seeds=5, epochs=3, cache=False)
    assert transfer.whole >= 0.990
    assert transfer.pooled >= 0.95
    assert transfer.mini_batches >= 0.95
    assert transfer.alone >= 0.80
