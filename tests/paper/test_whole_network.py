from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from importlib import import_module

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from bristle import rules
from bristle._core import keyed_uniforms
from bristle.data import mnist
from bristle.learning.optimiser import HeadState
from bristle.paper import regular
from bristle.paper.measured import WHOLE
from bristle.paper.regular import ConvolutionalNetwork, regular_step

PEERS, SAMPLES = 3, 12


def digits() -> tuple[Tensor, Tensor]:
    """A few images of three digits for each peer."""
    data = mnist()
    chosen = np.concatenate([np.flatnonzero(data.y_train == c)[: PEERS * SAMPLES // 3] for c in range(3)])
    index = chosen.reshape(-1, PEERS).T
    return torch.tensor(data.x_train[index]), torch.tensor(data.y_train[index])


def torch_network(vector: Tensor, network: ConvolutionalNetwork) -> nn.Sequential:
    """The same network, in torch's own words."""
    first, second, last = network.shapes
    layers = nn.Sequential(
        nn.Conv2d(first[1], first[0], 5, bias=False),
        nn.LeakyReLU(0.01),
        nn.MaxPool2d(2),
        nn.Conv2d(second[1], second[0], 5, bias=False),
        nn.LeakyReLU(0.01),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(last[1], last[0], bias=False),
    )
    nn.utils.vector_to_parameters(vector.clone(), layers.parameters())
    return layers


def normalised(images: Tensor) -> Tensor:
    return (images[:, None].float() / 255 - 0.1307) / 0.3081


def loss_of(network: ConvolutionalNetwork, models: Tensor, images: Tensor, labels: Tensor) -> Tensor:
    outputs = network.outputs(models, images)
    return nn.functional.cross_entropy(outputs.flatten(0, 1), labels.flatten())


def test_the_papers_network_has_its_size() -> None:
    network = ConvolutionalNetwork()
    assert (1, network.parameters) == WHOLE
    assert network.parameters * 4 == 83_000
    assert ConvolutionalNetwork(classes=26).parameters - network.parameters == 16 * 800
    models = network.initial([0, 1, 0])
    assert models.shape == (3, 1, 20_750)
    assert torch.equal(models[0], models[2])
    assert not torch.equal(models[0], models[1])
    first, second, last = torch.split(models[0, 0], [250, 12_500, 8_000])
    for part, inputs in ((first, 25), (second, 250), (last, 800)):
        assert part.abs().max() <= inputs**-0.5
        assert part.std() == pytest.approx((3 * inputs) ** -0.5, rel=0.15)


def test_colour_images_of_other_sizes_go_through() -> None:
    network = ConvolutionalNetwork(classes=5, image=(20, 32, 3))
    models, images = network.initial([0, 1]), torch.rand(2, 4, 20, 32, 3)
    outputs = network.outputs(models, images)
    assert outputs.shape == (2, 4, 5)
    expected = torch_network(models[1, 0], network)((images[1].movedim(-1, 1) - 0.1307) / 0.3081)
    torch.testing.assert_close(outputs[1], expected)


def test_steps_equal_those_of_each_peer_alone_in_plain_torch() -> None:
    network, (images, labels) = ConvolutionalNetwork(), digits()
    labels[2, 3:] = -1  # one peer has fewer samples than a mini-batch
    state = HeadState.start(network.initial(range(PEERS)))
    alone = [torch_network(model[0], network) for model in state.head]
    optimisers = [torch.optim.Adam(model.parameters(), lr=1e-3, weight_decay=5e-3) for model in alone]
    for iteration in range(1, 6):
        draws = keyed_uniforms(0, np.arange(PEERS), iteration, SAMPLES)
        state = regular_step(network, state, images, labels, draws)
        for peer, (model, optimiser) in enumerate(zip(alone, optimisers, strict=True)):
            real = np.flatnonzero(labels[peer].numpy() >= 0)
            batch = real[np.argsort(draws[peer, real])[:5]]
            optimiser.zero_grad()
            outputs = model(normalised(images[peer, batch]))
            torch.autograd.backward(nn.functional.cross_entropy(outputs, labels[peer, batch]))
            optimiser.step()
    expected = torch.stack([nn.utils.parameters_to_vector(model.parameters()) for model in alone])
    torch.testing.assert_close(state.head[:, 0], expected.detach(), rtol=0, atol=1e-5)
    assert state.steps.tolist() == [5] * PEERS


def test_one_call_for_all_peers_equals_a_call_for_each(monkeypatch: pytest.MonkeyPatch) -> None:
    network, (images, labels) = ConvolutionalNetwork(), digits()
    labels[0] = -1  # nothing to train on
    state = HeadState.start(network.initial(range(PEERS)))
    draws = np.random.default_rng(0).random((PEERS, SAMPLES))
    together = regular_step(network, state, images, labels, draws)
    monkeypatch.setattr(regular, "block_bytes", lambda array: 1)
    apart = regular_step(network, state, images, labels, draws)
    torch.testing.assert_close(apart.head, together.head, rtol=0, atol=1e-6)
    assert torch.equal(together.head[0], state.head[0])
    assert together.steps.tolist() == [0, 1, 1]
    table, index = images.flatten(0, 1), torch.arange(PEERS * SAMPLES).reshape(PEERS, SAMPLES)
    by_index = regular_step(network, state, table, labels, draws, index=index)
    torch.testing.assert_close(by_index.head, together.head, rtol=0, atol=1e-6)


@pytest.mark.parametrize("rule", [rules.create("fedavg"), rules.create("median"), rules.create("krum", f=0)], ids=repr)
def test_rules_aggregate_whole_networks_and_the_loss_falls(rule: rules.Rule) -> None:
    network, (images, labels) = ConvolutionalNetwork(), digits()
    state = HeadState.start(network.initial([0] * PEERS))
    before = loss_of(network, state.head, images, labels)
    others = torch.tensor([[j for j in range(PEERS) if j != i] for i in range(PEERS)])
    for iteration in range(1, 9):
        decision = rule(state.head, state.head[others])
        assert decision.head.shape == (PEERS, 1, network.parameters)
        state = HeadState(decision.head, state.first, state.second, state.steps)
        state = regular_step(network, state, images, labels, keyed_uniforms(0, np.arange(PEERS), iteration, SAMPLES))
    assert loss_of(network, state.head, images, labels) < 0.7 * before


def test_accuracy_in_blocks_is_accuracy(monkeypatch: pytest.MonkeyPatch) -> None:
    network, (images, labels) = ConvolutionalNetwork(), digits()
    models, test, classes = network.initial([0, 1]), images.flatten(0, 1), labels.flatten()
    expected = (network.outputs(models, test).argmax(-1) == classes).float().mean(-1)
    for room in (1, 1 << 20, 1 << 30):
        monkeypatch.setattr(regular, "block_bytes", lambda array, room=room: room)
        torch.testing.assert_close(network.accuracy_on(models, test, classes), expected)


def test_mistakes_are_named() -> None:
    network, (images, labels) = ConvolutionalNetwork(), digits()
    state, draws = HeadState.start(network.initial(range(PEERS))), np.zeros((PEERS, SAMPLES))
    small = HeadState.start(torch.zeros(PEERS, 10, 800))
    wrong: list[tuple[str, Callable[[], object]]] = [
        (r"needs \[peers, 1, 20750\]", lambda: regular_step(network, small, images, labels, draws)),
        (r"torch.tensor\(images\)", lambda: regular_step(network, state, images.numpy(), labels, draws)),
        (r"do not end in \[28, 28\]", lambda: regular_step(network, state, images[..., 1:], labels, draws)),
        ("labels go up to 10", lambda: regular_step(network, state, images, labels + 8, draws)),
        ("at least 16 pixels a side", lambda: ConvolutionalNetwork(image=(15, 28))),
        (r"image=\(784,\)", lambda: ConvolutionalNetwork(image=(784,))),
        ("classes=1", lambda: ConvolutionalNetwork(classes=1)),
        ("deviation=0", lambda: ConvolutionalNetwork(deviation=0)),
    ]
    for message, call in wrong:
        with pytest.raises(ValueError, match=message):
            call()


def test_reproducing_does_not_import_torch_before_it_is_used() -> None:
    question = "import sys, bristle.paper.reproduce; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", question], check=False).returncode == 0


def test_without_torch_there_is_one_clear_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    monkeypatch.delitem(sys.modules, "bristle.paper.regular")
    with pytest.raises(ImportError, match=r"regular learning needs torch: install the extra 'torch' of bristle"):
        import_module("bristle.paper.regular")
