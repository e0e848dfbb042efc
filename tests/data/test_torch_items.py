from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch.utils.data import IterableDataset, Subset, TensorDataset

from bristle.data import Dataset


class Items(torch.utils.data.Dataset[Any]):
    """A dataset of these items, as torchvision's are."""

    def __init__(self, items: list[Any], classes: list[str] | None = None) -> None:
        self.items = items
        if classes:
            self.classes = classes

    def __len__(self) -> int:
        return len(self.items)

    def __getitem__(self, place: int) -> Any:
        return self.items[place]


def tensors(count: int = 20) -> TensorDataset:
    x = torch.arange(count * 12, dtype=torch.float32).reshape(count, 3, 2, 2)
    return TensorDataset(x, torch.arange(count) % 2)


def test_tensors_come_as_they_are() -> None:
    train, test = tensors(), Subset(tensors(), [3, 4, 5])
    data = Dataset.from_torch(train, test, classes=["a", "b"], user=np.arange(20) % 4)
    np.testing.assert_array_equal(data.x_train, train.tensors[0].numpy())
    np.testing.assert_array_equal(data.y_train, train.tensors[1].numpy())
    np.testing.assert_array_equal(data.x_test, train.tensors[0].numpy()[3:6])
    assert data.classes == ("a", "b")
    assert data.user is not None
    assert data.user.tolist() == [0, 1, 2, 3] * 5


def test_without_a_test_set_a_share_of_every_class_becomes_one_with_its_users() -> None:
    data = Dataset.from_torch(tensors(), test_share=0.3, user=np.arange(20) % 4)
    assert (len(data.x_train), len(data.x_test)) == (14, 6)
    assert data.test_user is not None
    place = (data.x_test[:, 0, 0, 0] / 12).astype(int)
    np.testing.assert_array_equal(data.test_user, place % 4)


@pytest.mark.parametrize("kind", ["image", "array", "bfloat16", "gradient"])
def test_items_of_any_kind_and_names_of_classes(kind: str) -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (8, 4, 5, 3), dtype=np.uint8)
    make: Any = {
        "image": Image.fromarray,
        "array": np.asarray,
        "bfloat16": lambda x: torch.tensor(x).bfloat16(),
        "gradient": lambda x: torch.tensor(x).float().requires_grad_(),
    }[kind]
    items = [(make(x), torch.tensor(place % 2) if place % 3 else place % 2) for place, x in enumerate(pixels)]
    data = Dataset.from_torch(Items(items, ["cat", "dog"]), Items(items[:2]))
    np.testing.assert_array_equal(data.x_train, pixels)
    assert data.classes == ("cat", "dog")
    assert data.y_train.tolist() == [0, 1] * 4


class Stream(IterableDataset[Any]):
    """A dataset without length."""

    def __iter__(self) -> Any:
        return iter(())


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (Stream(), "train is Stream, without length or items: give a map-style dataset"),
        (Items([]), "train is empty"),
        (
            Items([(np.zeros(2), 0, "ann")]),
            "train gives 3 values for item 0: give pairs of a sample and a class number",
        ),
        (Items([np.zeros(2)]), "train gives ndarray for item 0"),
        (Items([(np.zeros(2), torch.zeros(3))]), r"train has the label tensor\(.*\) at item 0: give one class number"),
        (Items([(np.zeros(2), "cat")]), "train has the label 'cat' at item 0"),
        (Items([(np.zeros(2), 0.5)]), r"train has the label 0\.5 at item 0"),
        (Items([(np.zeros(2), 0), (np.zeros(3), 1)]), r"has the shape \[3\] at item 1, \[2\] before: transform all"),
        (Items([(np.zeros(2), 0), (np.zeros(2), -1)]), "negative label -1"),
        (Items([("text", 0), ("more", 1)]), "holds texts"),
    ],
)
def test_what_cannot_be_a_dataset_is_said_in_one_line(given: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message) as error:
        Dataset.from_torch(given)
    assert "\n" not in str(error.value)


def test_an_empty_test_set_and_users_of_another_length_are_refused() -> None:
    with pytest.raises(ValueError, match="test is empty: leave it out"):
        Dataset.from_torch(tensors(), Items([]))
    with pytest.raises(ValueError, match=r"torch dataset: user has shape \(3,\) for 20 training samples"):
        Dataset.from_torch(tensors(), user=[1, 2, 3])
