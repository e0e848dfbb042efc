"""Against the real library: these tests run where `datasets` is installed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from bristle.data import Dataset

datasets = pytest.importorskip("datasets")
NAMES = ["cat", "dog", "fox"]


def pictures(
    count: int = 12, *, mode: str = "RGB", sizes: tuple[tuple[int, int], ...] = ((5, 4),)
) -> list[Image.Image]:
    rng = np.random.default_rng(0)
    pixels = (rng.integers(0, 256, (*sizes[place % len(sizes)][::-1], 3), dtype=np.uint8) for place in range(count))
    return [Image.fromarray(each).convert(mode) for each in pixels]


def labelled(images: list[Any] | None = None, labels: list[Any] | None = None, **columns: Any) -> Any:
    images = pictures() if images is None else images
    numbers = [place % 3 for place in range(len(images))] if labels is None else labels
    features = datasets.Features(
        {"image": datasets.Image(), "label": datasets.ClassLabel(names=NAMES)}
        | {name: datasets.Value("string") for name in columns}
    )
    return datasets.Dataset.from_dict({"image": images, "label": numbers, **columns}, features=features)


def test_images_and_names_of_classes_come_from_disk(tmp_path: Path) -> None:
    images = pictures()
    both = datasets.DatasetDict({"train": labelled(images), "test": labelled(images[:3])})
    both.save_to_disk(tmp_path / "animals")
    data = Dataset.from_huggingface(datasets.load_from_disk(tmp_path / "animals"), image="image")
    assert data.classes == ("cat", "dog", "fox")
    assert data.y_train.tolist() == [0, 1, 2] * 4
    np.testing.assert_array_equal(data.x_train, np.stack([np.asarray(each) for each in images]))
    np.testing.assert_array_equal(data.x_test, data.x_train[:3])
    assert data.x_train.shape == (12, 4, 5, 3)


def test_one_split_is_divided_with_its_users() -> None:
    users = [f"user {place % 2}" for place in range(12)]
    data = Dataset.from_huggingface(labelled(who=users), image="image", user="who", test_share=0.25, size=(8, 6))
    assert (data.x_train.shape, data.x_test.shape) == ((9, 8, 6, 3), (3, 8, 6, 3))
    assert data.user is not None
    assert data.test_user is not None
    assert sorted([*data.user, *data.test_user]) == sorted(users)
    only = Dataset.from_huggingface(datasets.DatasetDict({"all": labelled()}), image="image")
    assert len(only.x_train) + len(only.x_test) == 12


def test_channels_are_those_of_the_first_image_unless_said() -> None:
    grey = labelled(pictures(mode="L"))
    assert Dataset.from_huggingface(grey, image="image").x_train.shape[1:] == (4, 5)
    assert Dataset.from_huggingface(grey, image="image", channels="rgb").x_train.shape[1:] == (4, 5, 3)
    assert Dataset.from_huggingface(labelled(), image="image", channels="gray").x_train.shape[1:] == (4, 5)


@pytest.mark.parametrize("form", [None, "numpy", "torch"])
def test_columns_of_numbers_are_features_and_texts_may_be_labels(form: str | None) -> None:
    x = np.random.default_rng(0).normal(size=(12, 3))
    labels = ["wet", "dry", "wet"] * 4
    split = datasets.Dataset.from_dict({"embedding": x.tolist(), "weather": labels}).with_format(form)
    data = Dataset.from_huggingface({"train": split, "validation": split}, features="embedding", label="weather")
    assert data.classes == ("dry", "wet")
    assert data.y_train.tolist() == [1, 0, 1] * 4
    np.testing.assert_allclose(data.x_train, x, rtol=1e-6)
    np.testing.assert_array_equal(data.x_test, data.x_train)


def numbers(labels: list[Any], **columns: Any) -> Any:
    content = {"x": [[float(place), 1.0] for place in range(len(labels))], "label": labels}
    return datasets.Dataset.from_dict({**content, **columns})


@pytest.mark.parametrize(
    ("data", "options", "message"),
    [
        (numbers([0, 1]), {}, r"name the column with the samples: image=... for images, features=... for numbers"),
        (numbers([0, 1]), {"image": "x", "features": "x"}, "name the column"),
        (numbers([0, 1]), {"image": "img"}, "has no column 'img': it has x, label"),
        (numbers([0, 1]), {"features": "x", "label": "y"}, "has no column 'y'"),
        (numbers([0, 1]), {"features": "x", "user": "who"}, "has no column 'who'"),
        (numbers([0, 1]), {"image": "x"}, "'x' holds list in row 0, not an image: give features='x'"),
        (numbers([0, None, 1]), {"features": "x"}, r"row 1 has no label \(None\): leave such rows"),
        (numbers([0, 1], t=["a", "b"]), {"features": "t"}, "'t' does not hold numbers of one shape"),
        (numbers([0, 1], t=[[1], [1, 2]]), {"features": "t"}, "'t' does not hold numbers of one shape"),
        (numbers([]), {"features": "x"}, "Hugging Face dataset is empty: leave it out"),
        ([1, 2], {"features": "x"}, "list is not a dataset of Hugging Face"),
        ({"a": 1, "b": 2}, {"features": "x"}, "has the splits a, b, no 'train': give one of them alone"),
        (numbers([0, 1]).to_iterable_dataset(), {"features": "x"}, "is a stream"),
        (
            {"train": numbers([0, 1]), "test": numbers([-1, -1])},
            {"features": "x"},
            r"test: row 0 has no label \(-1\): .* a share of the training split becomes one",
        ),
        ({"train": numbers([0, 1]), "test": numbers([])}, {"features": "x"}, "test is empty: leave it out"),
        (
            {"train": numbers(["a", "b"]), "test": numbers(["c"])},
            {"features": "x"},
            "test has the class 'c', which is not in the training split",
        ),
        (labelled(pictures(sizes=((5, 4), (6, 4)))), {"image": "image"}, r"row 1 is 4 x 6 .*before it are 4 x 5: give"),
        (
            labelled(),
            {"image": "image", "max_bytes": 100},
            "12 images would take 720 bytes of memory, the limit is 100",
        ),
        (labelled([*pictures(2), None]), {"image": "image"}, "'image' holds NoneType in row 2"),
    ],
)
def test_what_cannot_be_a_dataset_is_said_in_one_line(data: Any, options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message) as error:
        Dataset.from_huggingface(data, **options)
    assert "\n" not in str(error.value)


def test_splits_with_other_classes_are_refused() -> None:
    other = labelled().cast_column("label", datasets.ClassLabel(names=["dog", "cat", "fox"]))
    with pytest.raises(ValueError, match="test has the classes dog, cat, fox, the training split cat, dog, fox: cast"):
        Dataset.from_huggingface({"train": labelled(), "test": other}, image="image")
