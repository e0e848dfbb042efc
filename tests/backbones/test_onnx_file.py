from contextlib import suppress

import numpy as np
import onnx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnx import numpy_helper
from onnx.reference import ReferenceEvaluator

from bristle.backbones import onnx_file

# The reader of these tests is the onnx package: written independently of ours.


@given(
    values=st.lists(st.floats(width=32, allow_nan=False), min_size=6, max_size=6),
    shape=st.sampled_from([(6,), (2, 3), (1, 6, 1)]),
)
def test_a_tensor_is_read_back_as_it_was_written(values: list[float], shape: tuple[int, ...]) -> None:
    array = np.array(values, np.float32).reshape(shape)
    message = onnx.TensorProto.FromString(onnx_file.tensor("weights", array))
    assert message.name == "weights"
    np.testing.assert_array_equal(numpy_helper.to_array(message), array)


@given(number=st.integers(-(2**63), 2**63 - 1), share=st.floats(width=32, allow_nan=False, allow_infinity=False))
def test_a_node_is_read_back_as_it_was_written(number: int, share: float) -> None:
    message = onnx.NodeProto.FromString(
        onnx_file.node("Thing", ["a", "b"], ["c"], number=number, share=share, sizes=[1, number])
    )
    assert (message.op_type, list(message.input), list(message.output)) == ("Thing", ["a", "b"], ["c"])
    attributes = {a.name: onnx.helper.get_attribute_value(a) for a in message.attribute}
    assert attributes == {"number": number, "share": share, "sizes": [1, number]}


def test_an_input_is_read_back_as_it_was_written() -> None:
    message = onnx.ValueInfoProto.FromString(onnx_file.value("x", "uint8", ["batch", 28, 300]))
    kind = message.type.tensor_type
    assert (message.name, kind.elem_type) == ("x", onnx.TensorProto.UINT8)
    assert [d.dim_param or d.dim_value for d in kind.shape.dim] == ["batch", 28, 300]


def test_attributes_of_other_types_are_refused() -> None:
    with pytest.raises(TypeError, match="attribute word is an int"):
        onnx_file.node("Thing", [], ["c"], word="no")


def doubling() -> bytes:
    """Encode a model that doubles its input."""
    content = onnx_file.GraphPart(
        nodes=[onnx_file.node("Add", ["x", "x"], ["y"])],
        initializers=[],
        outputs=[onnx_file.value("y", "float32", ["n"])],
        metadata={"kept": "yes", "replaced": "old"},
    )
    return onnx_file.model(name="doubling", inputs=[onnx_file.value("x", "float32", ["n"])], content=content)


def test_an_extended_model_is_one_valid_graph_with_the_new_outputs_alone() -> None:
    extension = onnx_file.GraphPart(
        nodes=[onnx_file.node("Mul", ["y", "three"], ["z"])],
        initializers=[onnx_file.tensor("three", np.array(3, np.float32))],
        outputs=[onnx_file.value("z", "float32", ["n"])],
        metadata={"replaced": "new", "added": "too"},
    )
    model = onnx.load_model_from_string(onnx_file.extend(doubling(), extension))
    onnx.checker.check_model(model, full_check=True)
    assert [output.name for output in model.graph.output] == ["z"]
    assert {e.key: e.value for e in model.metadata_props} == {"kept": "yes", "replaced": "new", "added": "too"}
    (result,) = ReferenceEvaluator(model).run(None, {"x": np.array([1, 2], np.float32)})
    np.testing.assert_array_equal(result, [6, 12])


@given(data=st.binary(max_size=200))
def test_arbitrary_bytes_are_read_or_refused_with_a_value_error(data: bytes) -> None:
    with suppress(ValueError):  # and with no other error, and without end
        onnx_file.has_external_weights(data)


@given(cut=st.integers(1, 16))  # the last field takes 17 bytes: two entries of a text each
def test_a_model_cut_short_is_refused(cut: int) -> None:
    with pytest.raises(ValueError, match="is no complete ONNX model"):
        onnx_file.has_external_weights(doubling()[:-cut])
