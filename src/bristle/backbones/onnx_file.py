"""Reading and writing the few ONNX messages that Bristle needs, without the ``onnx`` package.

An ONNX file is a protocol-buffer message: a sequence of fields, each a key (``number << 3 | wire type``,
a variable-length integer) and a payload. Bristle only ever builds small graphs and appends nodes to a
given one, so a page of wire format replaces a dependency that every peer would have to install.
Field numbers are those of the ONNX intermediate representation, https://onnx.ai/onnx/repo-docs/IR.html.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

ELEMENT_TYPES = {"float32": 1, "uint8": 2, "int64": 7, "float16": 10}
"""NumPy dtype name to ``TensorProto.DataType``, for the types that Bristle writes."""

_IR_VERSION, _OPSET = 8, 17  # read by every ONNX runtime since 2022, and all that these graphs need

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5  # protocol-buffer wire types
_MODEL_IR, _MODEL_PRODUCER, _MODEL_GRAPH, _MODEL_OPSET, _MODEL_METADATA = 1, 2, 7, 8, 14
_GRAPH_NODE, _GRAPH_NAME, _GRAPH_INITIALIZER, _GRAPH_INPUT, _GRAPH_OUTPUT = 1, 2, 5, 11, 12
_TENSOR_LOCATION, _TENSOR_EXTERNAL = 14, 1
_ATTRIBUTE_INT, _ATTRIBUTE_FLOAT, _ATTRIBUTE_INTS = 2, 1, 7


@dataclass(frozen=True)
class GraphPart:
    """An addition to a graph: messages made by `node` and `tensor`, and the outputs it then has."""

    nodes: Sequence[bytes]
    initializers: Sequence[bytes]
    outputs: Sequence[bytes]
    metadata: Mapping[str, str] = field(default_factory=dict)


def node(operator: str, inputs: Sequence[str], outputs: Sequence[str], **attributes: object) -> bytes:
    """Encode one ``NodeProto``; attributes are integers, floats or sequences of integers."""
    message = b"".join(_text(1, name) for name in inputs) + b"".join(_text(2, name) for name in outputs)
    message += _text(3, f"{operator}:{outputs[0]}") + _text(4, operator)
    return message + b"".join(_bytes(5, _attribute(key, value)) for key, value in sorted(attributes.items()))


def tensor(name: str, values: npt.NDArray[np.generic]) -> bytes:
    """Encode one ``TensorProto`` with its numbers inside."""
    little = np.ascontiguousarray(values, dtype=values.dtype.newbyteorder("<"))
    dims = b"".join(_integer(1, size) for size in values.shape)
    return dims + _integer(2, ELEMENT_TYPES[values.dtype.name]) + _text(8, name) + _bytes(9, little.tobytes())


def value(name: str, dtype: str, shape: Sequence[int | str]) -> bytes:
    """Encode one ``ValueInfoProto``: an input or output; a string in `shape` names a free size."""
    dims = b"".join(_bytes(1, _text(2, s) if isinstance(s, str) else _integer(1, s)) for s in shape)
    return _text(1, name) + _bytes(2, _bytes(1, _integer(1, ELEMENT_TYPES[dtype]) + _bytes(2, dims)))


def model(*, name: str, inputs: Sequence[bytes], content: GraphPart) -> bytes:
    """Encode a whole ``ModelProto``."""
    graph = b"".join(_bytes(_GRAPH_NODE, n) for n in content.nodes) + _text(_GRAPH_NAME, name)
    graph += b"".join(_bytes(_GRAPH_INITIALIZER, t) for t in content.initializers)
    graph += b"".join(_bytes(_GRAPH_INPUT, v) for v in inputs)
    graph += b"".join(_bytes(_GRAPH_OUTPUT, v) for v in content.outputs)
    head = _integer(_MODEL_IR, _IR_VERSION) + _text(_MODEL_PRODUCER, "bristle") + _bytes(_MODEL_GRAPH, graph)
    return head + _bytes(_MODEL_OPSET, _text(1, "") + _integer(2, _OPSET)) + _metadata(content.metadata)


def extend(data: bytes, extension: GraphPart) -> bytes:
    """Append nodes, weights and metadata to the model `data`, and replace its outputs."""
    graph = b""
    rest = b""
    for number, raw, payload in _fields(data):
        if number == _MODEL_GRAPH:
            graph += payload  # several pieces of one message mean their concatenation
        elif number != _MODEL_METADATA or _entry_key(payload) not in extension.metadata:
            rest += raw
    kept = b"".join(raw for number, raw, _ in _fields(graph) if number != _GRAPH_OUTPUT)
    kept += b"".join(_bytes(_GRAPH_NODE, n) for n in extension.nodes)
    kept += b"".join(_bytes(_GRAPH_INITIALIZER, t) for t in extension.initializers)
    kept += b"".join(_bytes(_GRAPH_OUTPUT, v) for v in extension.outputs)
    return rest + _bytes(_MODEL_GRAPH, kept) + _metadata(extension.metadata)


def has_external_weights(data: bytes) -> bool:
    """Return whether a weight of the model lies in another file, which a digest of `data` does not cover."""
    return any(
        number == _TENSOR_LOCATION and _first_varint(raw) == _TENSOR_EXTERNAL
        for graph_number, _, graph in _fields(data)
        if graph_number == _MODEL_GRAPH
        for tensor_number, _, weights in _fields(graph)
        if tensor_number == _GRAPH_INITIALIZER
        for number, raw, _ in _fields(weights)
    )


def _fields(data: bytes) -> Iterator[tuple[int, bytes, bytes]]:
    """Yield (field number, the whole field, its payload if it is length-delimited) of a message."""
    position = 0
    while position < len(data):
        start = position
        key, position = _read_varint(data, position)
        content = position
        wire = key & 7
        if wire == _VARINT:
            _, position = _read_varint(data, position)
        elif wire == _BYTES:
            size, content = _read_varint(data, position)
            position = content + size
        elif wire in (_FIXED32, _FIXED64):
            position += 4 if wire == _FIXED32 else 8
        else:
            raise ValueError(f"is no ONNX model: wire type {wire} at byte {start}")
        if position > len(data):
            raise ValueError(f"is no complete ONNX model: a field at byte {start} runs past the end")
        yield key >> 3, data[start:position], data[content:position] if wire == _BYTES else b""


def _read_varint(data: bytes, position: int) -> tuple[int, int]:
    result = 0
    for shift in range(0, 70, 7):
        if position >= len(data):
            raise ValueError("is no complete ONNX model: it ends inside a number")
        byte = data[position]
        position += 1
        result |= (byte & 0x7F) << shift
        if byte < 0x80:
            return result, position
    raise ValueError(f"is no ONNX model: a number of more than 64 bits at byte {position}")


def _first_varint(raw: bytes) -> int:
    _, position = _read_varint(raw, 0)
    return _read_varint(raw, position)[0]


def _entry_key(entry: bytes) -> str:
    return next((payload.decode() for number, _, payload in _fields(entry) if number == 1), "")


def _metadata(entries: Mapping[str, str]) -> bytes:
    return b"".join(_bytes(_MODEL_METADATA, _text(1, k) + _text(2, v)) for k, v in sorted(entries.items()))


def _attribute(name: str, content: object) -> bytes:
    match content:
        case int():
            return _text(1, name) + _integer(3, content) + _integer(20, _ATTRIBUTE_INT)
        case float():
            return (
                _text(1, name)
                + _varint(2 << 3 | _FIXED32)
                + struct.pack("<f", content)
                + _integer(20, _ATTRIBUTE_FLOAT)
            )
        case list() | tuple():
            return _text(1, name) + b"".join(_integer(8, i) for i in content) + _integer(20, _ATTRIBUTE_INTS)
        case _:
            raise TypeError(f"attribute {name} is an int, a float or a sequence of ints, not {content!r}")


def _varint(number: int) -> bytes:
    number &= (1 << 64) - 1  # negative integers travel as their two's complement
    out = bytearray()
    while number >= 0x80:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*out, number])


def _integer(number: int, content: int) -> bytes:
    return _varint(number << 3 | _VARINT) + _varint(content)


def _bytes(number: int, content: bytes) -> bytes:
    return _varint(number << 3 | _BYTES) + _varint(len(content)) + content


def _text(number: int, content: str) -> bytes:
    return _bytes(number, content.encode())
