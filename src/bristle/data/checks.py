"""What samples, labels and users must look like, and what to say when they do not.

Every error is one line: where it is (`file: array`), what is wrong, what to do.
"""

import math

import numpy as np
import numpy.typing as npt

MOST_CLASSES = 1 << 16
_BLOCK = 1 << 22


def check_samples(samples: npt.ArrayLike, *, where: str) -> npt.NDArray[np.generic]:
    """Numbers, one row per sample, all of them finite."""
    array = np.asarray(samples)
    if array.dtype.kind not in "buif":
        raise ValueError(f"{where} holds {_kind(array)}, not numbers: convert it to uint8 or float32")
    if array.ndim < 2:
        raise ValueError(
            f"{where} has shape {array.shape}: give one row per sample, [samples, ...]; "
            "a single column needs x.reshape(-1, 1)"
        )
    if array.dtype.kind == "f":
        _check_finite(array, where=where)
    return array


def check_labels(labels: npt.ArrayLike, *, where: str) -> npt.NDArray[np.int64]:
    """Class numbers from 0, one per sample; floats are taken when they are whole."""
    array = np.asarray(labels)
    if array.ndim != 1:
        raise ValueError(
            f"{where} has shape {array.shape}: give one class number per sample, [samples]; "
            "one-hot rows need y.argmax(axis=1)"
        )
    if array.dtype.kind not in "uif":
        raise ValueError(f"{where} holds {_kind(array)}, not integers: {_NUMBERING}")
    if array.dtype.kind == "f":
        wrong = np.flatnonzero(~(np.isfinite(array) & (array == np.floor(array))))
        if len(wrong):
            raise ValueError(f"{where} holds {array[wrong[0]]} at {wrong[0]}, not an integer: {_NUMBERING}")
    if len(array):
        lowest, highest = array.min(), array.max()
        if lowest < 0:
            raise ValueError(f"{where} holds the negative label {lowest:.0f}: {_NUMBERING}")
        if highest >= MOST_CLASSES:
            raise ValueError(
                f"{where} holds the label {highest:.0f}, at most {MOST_CLASSES - 1} is possible: {_NUMBERING}"
            )
    return array.astype(np.int64, copy=False)


def check_users(users: npt.ArrayLike, *, samples: int, where: str) -> npt.NDArray[np.generic]:
    """Who each training sample belongs to: integers or texts."""
    array = np.asarray(users)
    if array.dtype.kind not in "uiUS":
        raise ValueError(f"{where} holds {_kind(array)}: name users by integers or texts")
    if array.shape != (samples,):
        raise ValueError(f"{where} has shape {array.shape} for {samples} training samples: give one user per sample")
    return array


def check_same_length(
    samples: npt.NDArray[np.generic], labels: npt.NDArray[np.int64], *, where: str, names: str
) -> None:
    """As many labels as samples."""
    if len(samples) != len(labels):
        raise ValueError(
            f"{where}: {names} have different lengths, {len(samples)} samples and {len(labels)} labels: "
            "give one label per sample"
        )


_NUMBERING = "number the classes 0, 1, 2, ... (np.unique(y, return_inverse=True)[1] does)"


def _kind(array: npt.NDArray[np.generic]) -> str:
    words = {"O": "Python objects", "U": "texts", "S": "texts", "b": "booleans", "V": "records"}
    return words.get(array.dtype.kind, f"values of type {array.dtype}")


def _check_finite(array: npt.NDArray[np.generic], *, where: str) -> None:
    """Look at blocks of samples: a mask of everything would take as much memory as 8-bit images."""
    rows = max(1, _BLOCK // max(1, math.prod(array.shape[1:])))
    for start in range(0, len(array), rows):
        finite = np.isfinite(array[start : start + rows])
        if not finite.all():
            sample = start + int(np.argwhere(~finite)[0][0])
            raise ValueError(f"{where} holds NaN or infinity in sample {sample}: remove or repair it")
