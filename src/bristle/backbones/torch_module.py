"""A torch module as a backbone, identified by its weights. torch is imported only by those who have such a module."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from bristle.backbones.base import Array, Features, Shape, checked, fitted

if TYPE_CHECKING:
    import torch


class TorchBackbone:
    """A torch module as a backbone: a network of your own, of timm or of transformers, without its last layer.

    The module runs in evaluation mode, without gradients, on the device and in the precision of its weights. Whatever
    it returns becomes 32-bit features. Two backbones are the same, and their peers one group, only if all parameters,
    buffers and the arguments below are the same.

    Parameters
    ----------
    module : torch.nn.Module
        Takes samples `[n, *input_shape]`, returns features `[n, ...]`. Change nothing in it afterwards.
    input_shape
        Sizes of one sample as the module expects it, e.g. `(3, 224, 224)`; None for any size. Images are transposed
        if their channel axis is at the other end, and bytes divided by 255.
    mean, std : sequence of float, optional
        The module gets `(x - mean) / std`, by channel or, for samples of one axis, by feature.
    transform : callable, optional
        In place of `mean` and `std`: any function from a tensor `[n, *input_shape]` to what the module takes.
    transform_name : str, optional
        Identifies `transform`, whose code cannot be hashed: change it whenever the function changes.
    output : str or int, optional
        Which tensor holds the features, where the module returns several: a key or a position.
    features : int, optional
        Number of features; by default found by running the module on zeros, which needs all sizes.
    name : str, optional
        The module's class if left out. Part of the identity: the code of a module cannot be hashed.
    """

    def __init__(
        self,
        module: torch.nn.Module,
        *,
        input_shape: Sequence[int | None],
        mean: Sequence[float] | None = None,
        std: Sequence[float] | None = None,
        transform: Callable[[torch.Tensor], torch.Tensor] | None = None,
        transform_name: str | None = None,
        output: str | int | None = None,
        features: int | None = None,
        name: str | None = None,
    ) -> None:
        import torch  # noqa: PLC0415 - the core does without

        if not isinstance(module, torch.nn.Module):
            raise ValueError(f"{type(module).__name__} is no torch module: use CallableBackbone for other functions")
        if (transform is None) != (transform_name is None):
            raise ValueError("a transform and its transform_name go together: the name identifies it to other peers")
        if transform is not None and (mean is not None or std is not None):
            raise ValueError("give mean and std, or a transform, not both: the transform can do it all")
        self.module = module.eval()
        self.name = name or type(module).__name__
        self.input_shape: Shape = tuple(input_shape)
        self.output = output
        self.transform = transform
        self._mean, self._std = (_by_channel(self.input_shape, what, "mean and std") for what in (mean, std))
        if self._std is not None and not (self._std > 0).all():
            raise ValueError(f"std={list(std or ())}: give positive numbers")
        _check_weights(torch, self.module, self.name)
        first = next((t for _, t in _weights(self.module) if t.is_floating_point()), torch.zeros(0))
        self._dtype = first.dtype
        weights = hashlib.sha256()
        for key, tensor in sorted(_weights(self.module), key=lambda each: each[0]):
            weights.update(json.dumps([key, str(tensor.dtype), list(tensor.shape)]).encode())
            weights.update(tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().data)
        self._stamp = self._versions()
        self.features = self._count_features() if features is None else features
        settings = [self.features, self.input_shape, mean and list(mean), std and list(std), transform_name, output]
        identity = json.dumps(["torch", self.name, weights.hexdigest(), *settings])
        self.digest = hashlib.sha256(identity.encode()).hexdigest()

    def __repr__(self) -> str:
        return f"TorchBackbone({self.name}, features={self.features}, digest={self.digest[:16]!r})"

    def __call__(self, x: Array, /) -> Features:
        """Return the features `[n, features]` of the samples `x` `[n, ...]`."""
        if self._versions() != self._stamp:
            raise ValueError(f"the weights of {self.name} have changed since this backbone was made: make it again")
        if not len(x):
            return np.zeros((0, self.features), np.float32)
        return checked(self._run(fitted(x, self.input_shape, "float32", f"backbone {self.name}")), len(x), self)

    def _run(self, samples: Array) -> Features:
        import torch  # noqa: PLC0415

        values = np.asarray(samples, np.float32)
        values = values if self._mean is None else values - self._mean
        values = values if self._std is None else values / self._std
        tensor = torch.from_numpy(np.require(values, np.float32, ["C", "W"]))
        device = next((weight.device for _, weight in _weights(self.module)), tensor.device)
        self.module.eval()
        try:
            with torch.no_grad():
                given = tensor.to(device)
                given = given if self.transform is None else self.transform(given)
                result = self.module(given.to(device, self._dtype))
        except Exception as error:  # Whatever a stranger's module may raise.
            reason = (str(error).strip() or type(error).__name__).splitlines()[0][:300]
            raise ValueError(
                f"backbone {self.name} cannot take samples of shape {list(samples.shape[1:])}: {reason}; "
                "give the input_shape that the module wants"
            ) from error
        found = _chosen(result, self.output, self.name)
        features: Features = found.detach().to("cpu", torch.float32).numpy()
        return features

    def _count_features(self) -> int:
        known = [size for size in self.input_shape if size is not None]
        if len(known) < len(self.input_shape):
            raise ValueError(
                f"backbone {self.name} takes samples of any size: say how many features it makes (features=...)"
            )
        result = self._run(np.zeros((2, *known), np.float32))
        if result.ndim < 2 or len(result) != 2:
            raise ValueError(
                f"backbone {self.name} makes {list(result.shape)} of 2 samples: it should return [n, features]"
            )
        return int(np.prod(result.shape[1:]))

    def _versions(self) -> list[tuple[int, Any]]:
        """Return what changes with every write to a weight, but not when the module moves to another device."""
        return [(0 if one.is_inference() else one._version, one.dtype) for _, one in _weights(self.module)]


def _weights(module: torch.nn.Module) -> Iterator[tuple[str, torch.Tensor]]:
    yield from module.named_parameters(remove_duplicate=False)
    yield from module.named_buffers(remove_duplicate=False)


def _check_weights(torch: Any, module: torch.nn.Module, name: str) -> None:
    for key, tensor in _weights(module):
        if torch.nn.parameter.is_lazy(tensor) or tensor.is_meta:
            raise ValueError(f"{key} of {name} has no values yet: load the weights, or run the module once, before")
        if tensor.is_floating_point() and tensor.element_size() == 1:
            kind = str(tensor.dtype).removeprefix("torch.")
            raise ValueError(
                f"{key} of {name} holds {kind}, which torch cannot compute with: use module.to(torch.bfloat16)"
            )


def _by_channel(shape: Shape, values: Sequence[float] | None, what: str) -> Features | None:
    """Return values that broadcast over [n, *shape]: along the first or the last axis, or everywhere."""
    if values is None:
        return None
    array = np.asarray(values, np.float32)
    if array.ndim != 1 or not np.isfinite(array).all():
        raise ValueError(f"{what} are lists of numbers, one per channel, not {values!r}")
    axis = next((axis for axis in (0, len(shape) - 1) if shape and shape[axis] == len(array)), None)
    if axis is None and len(array) != 1:
        raise ValueError(f"{what} have {len(array)} numbers for samples of shape {list(shape)}: give one per channel")
    return array.reshape([-1 if at == (axis or 0) else 1 for at in range(len(shape))])


def _chosen(result: Any, output: str | int | None, name: str) -> torch.Tensor:
    """Return the tensor that holds the features, of what a module returned."""
    import torch  # noqa: PLC0415

    if isinstance(result, torch.Tensor):
        if output is not None:
            raise ValueError(f"backbone {name} returns one tensor: leave out output={output!r}")
        chosen: torch.Tensor = result
    else:
        several = result if isinstance(result, Mapping) else dict(enumerate(result if _is_list(result) else ()))
        tensors: dict[Any, torch.Tensor] = {
            key: value for key, value in several.items() if isinstance(value, torch.Tensor)
        }
        if not tensors:
            raise ValueError(f"backbone {name} returns {type(result).__name__}: it should return [n, features]")
        known = ", ".join(map(repr, tensors))
        if output is None and len(tensors) > 1:
            raise ValueError(
                f"backbone {name} returns {len(tensors)} tensors ({known}): say which one holds the features, "
                f"e.g. output={next(iter(tensors))!r}"
            )
        key = next(iter(tensors)) if output is None else output
        if key not in tensors:
            raise ValueError(f"backbone {name} returns no tensor {output!r}: choose one of {known}")
        chosen = tensors[key]
    if not chosen.is_floating_point():
        raise ValueError(f"backbone {name} returns {chosen.dtype}: features are floating-point numbers")
    return chosen


def _is_list(result: Any) -> bool:
    return isinstance(result, tuple | list)
