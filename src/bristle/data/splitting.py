"""Setting test samples apart."""

import numpy as np
import numpy.typing as npt


def stratified_split(
    labels: npt.NDArray[np.int64], *, test_share: float, seed: int
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Choose round(test_share * m) of the m samples of every class for testing.

    A class of two or more samples gives at least one sample to either side; a class of one stays in training.

    Parameters
    ----------
    labels
        Class numbers, `[samples]`.
    test_share
        From 0 (no test samples) to below 1.
    seed
        The same seed gives the same split.

    Returns
    -------
    train, test
        Indices, ascending.
    """
    if not 0 <= test_share < 1:
        raise ValueError(f"test_share={test_share} is not a share: give a number from 0 to below 1, e.g. 0.2")
    shuffled = np.random.default_rng(seed).permutation(len(labels))
    order = shuffled[np.argsort(labels[shuffled], kind="stable")]
    sizes = np.bincount(labels)
    chosen = np.rint(sizes * test_share).astype(np.int64)
    if test_share > 0:
        chosen = np.maximum(chosen, 1)
    chosen = np.clip(chosen, 0, np.maximum(sizes - 1, 0))
    rank = np.arange(len(labels)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    is_test = rank < np.repeat(chosen, sizes)
    return np.sort(order[~is_test]), np.sort(order[is_test])
