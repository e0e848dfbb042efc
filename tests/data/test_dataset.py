from typing import Any

import numpy as np
import pytest

from bristle.data import Dataset


def make(**changes: Any) -> Dataset:
    arrays: dict[str, Any] = {
        "x_train": np.zeros((4, 3, 3), dtype=np.uint8),
        "y_train": np.array([0, 1, 2, 1]),
        "x_test": np.zeros((2, 3, 3), dtype=np.uint8),
        "y_test": np.array([2, 0]),
        "name": "mine",
    }
    return Dataset(**(arrays | changes))


def test_classes_are_named_by_their_numbers_unless_said() -> None:
    assert make().classes == ("0", "1", "2")
    assert make(classes=("cat", "dog", "owl", "yak")).classes == ("cat", "dog", "owl", "yak")
    assert make(y_test=np.array([0, 5])).classes == ("0", "1", "2", "3", "4", "5")


@pytest.mark.parametrize("dtype", ["uint8", "int32", "uint64", "float32", "float64"])
def test_whole_labels_of_any_type_become_int64(dtype: str) -> None:
    data = make(y_train=np.array([0, 1, 2, 1], dtype=dtype))
    assert data.y_train.dtype == np.int64
    assert data.y_train.tolist() == [0, 1, 2, 1]


def test_lists_are_taken_too() -> None:
    data = make(x_train=[[0.5], [1.5]], y_train=[0, 1], x_test=[[2.5]], y_test=[1], user=["ann", "bob"])
    assert data.x_train.shape == (2, 1)
    assert data.user is not None
    assert data.user.tolist() == ["ann", "bob"]


def test_test_set_may_be_empty() -> None:
    data = make(x_test=np.zeros((0, 3, 3), dtype=np.uint8), y_test=np.array([], dtype=int))
    assert len(data.x_test) == 0


one_hot = np.eye(3)[[0, 1, 2, 1]]
nan = np.zeros((4, 3, 3))
nan[2, 1, 1] = np.nan
infinite = np.zeros((2, 3, 3), dtype=np.float32)
infinite[1] = np.inf


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"y_train": np.array([0, 1, 0.5, 1])}, r"mine: y_train holds 0\.5 at 2, not an integer: number the"),
        ({"y_train": np.array([0, 1, np.nan, 1])}, r"mine: y_train holds nan at 2, not an integer: number"),
        ({"y_train": np.array([0, 1, np.inf, 1])}, r"mine: y_train holds inf at 2, not an integer: number"),
        ({"y_train": np.array(["a", "b", "c", "b"])}, r"mine: y_train holds texts, not integers: number the"),
        ({"y_train": np.array([True, False] * 2)}, r"mine: y_train holds booleans, not integers: number"),
        ({"y_train": np.array([0, 1, None, 1])}, r"mine: y_train holds Python objects, not integers: number"),
        ({"y_test": np.array([0, -1])}, r"mine: y_test holds the negative label -1: number the classes 0, 1"),
        ({"y_test": np.array([0, 1e9])}, r"mine: y_test holds the label 1000000000, at most 65535"),
        ({"y_train": one_hot}, r"mine: y_train has shape \(4, 3\): .*argmax"),
        ({"y_train": np.array([0, 1])}, r"mine: x_train and y_train have different lengths, 4 samples and 2"),
        ({"y_test": np.array([0, 1, 2])}, r"mine: x_test and y_test have different lengths, 2 samples and 3"),
        ({"y_train": np.array([1, 1, 1, 1])}, r"mine: y_train has only class 1: .* at least two classes"),
        ({"x_train": np.zeros((0, 3, 3)), "y_train": []}, r"mine: y_train has no samples: "),
        ({"x_train": nan}, r"mine: x_train holds NaN or infinity in sample 2: remove or repair"),
        ({"x_test": infinite}, r"mine: x_test holds NaN or infinity in sample 1: remove or repair"),
        ({"x_train": np.zeros((4, 3, 3), dtype=complex)}, r"mine: x_train holds values of type complex128"),
        ({"x_train": np.full((4, 3), "a")}, r"mine: x_train holds texts, not numbers: convert"),
        ({"x_train": np.zeros((4, 3), dtype=object)}, r"mine: x_train holds Python objects, not numbers"),
        ({"x_train": np.zeros(4)}, r"mine: x_train has shape \(4,\): .*reshape\(-1, 1\)"),
        (
            {"x_test": np.zeros((2, 4, 4))},
            r"mine: training samples have shape \(3, 3\), test samples \(4, 4\)",
        ),
        ({"classes": ("a", "b")}, r"mine: label 2 has no name, only 2 classes are named: name 3 classes"),
        ({"classes": ("a", "b", "a")}, r"mine: two classes have the same name"),
        ({"user": np.array([1, 2])}, r"mine: user has shape \(2,\) for 4 training samples: give one user"),
        ({"user": np.array([1.0, 2, 3, 4])}, r"mine: user holds values of type float64: name users by"),
    ],
)
def test_bad_arrays_get_one_line(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message) as caught:
        make(**changes)
    assert "\n" not in str(caught.value)


def test_nan_is_found_in_a_late_block() -> None:
    big = np.zeros((5_000, 1_000), dtype=np.float32)
    big[4_999, 999] = np.nan
    with pytest.raises(ValueError, match="in sample 4999"):
        make(x_train=big, y_train=np.arange(5_000) % 2, x_test=big[:1], y_test=[0])


def test_from_arrays_splits_samples_labels_and_users_alike() -> None:
    number = np.arange(100)
    data = Dataset.from_arrays(number[:, None], number % 4, test_share=0.25, seed=3, user=number, classes="abcd")
    assert data.classes == ("a", "b", "c", "d")
    assert len(data.x_test) == 24  # round(25 / 4) = 6 of every class
    assert np.bincount(data.y_test).tolist() == [6] * 4
    np.testing.assert_array_equal(data.x_train[:, 0] % 4, data.y_train)
    np.testing.assert_array_equal(data.x_test[:, 0] % 4, data.y_test)
    assert data.user is not None
    np.testing.assert_array_equal(data.user, data.x_train[:, 0])
    again = Dataset.from_arrays(number[:, None], number % 4, test_share=0.25, seed=3)
    np.testing.assert_array_equal(again.x_test, data.x_test)
    other = Dataset.from_arrays(number[:, None], number % 4, test_share=0.25, seed=4)
    assert (other.x_test != data.x_test).any()


def test_from_arrays_checks_before_it_splits() -> None:
    with pytest.raises(ValueError, match="arrays: x and y have different lengths, 3 samples and 2 labels"):
        Dataset.from_arrays(np.zeros((3, 1)), [0, 1])
    with pytest.raises(ValueError, match="arrays: y holds the negative label -2"):
        Dataset.from_arrays(np.zeros((2, 1)), [0, -2])
    with pytest.raises(ValueError, match=r"arrays: user has shape \(1,\) for 2"):
        Dataset.from_arrays(np.zeros((2, 1)), [0, 1], user=[0])
    with pytest.raises(ValueError, match="arrays: y_train has no samples"):
        Dataset.from_arrays(np.zeros((0, 1)), [])
