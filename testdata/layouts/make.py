#!/usr/bin/env python3
"""Makes the files of this folder with the libraries that write these formats.

    pip install numpy==2.4.6 ml_dtypes==0.6.0 gguf==0.19.0 onnx==1.23.2
    python3 testdata/layouts/make.py

Each file is at most a few kilobytes: tests change every bit of it.
"""

import json
from pathlib import Path

import gguf
import ml_dtypes
import numpy as np
import onnx
from numpy.lib import format as npy
from onnx import TensorProto, helper, numpy_helper

HERE = Path(__file__).resolve().parent


def values(*shape: int) -> np.ndarray:
    """Numbers that look like weights."""
    n = int(np.prod(shape))
    return (np.sin(np.arange(n, dtype=np.float64) * 12.9898) * 0.05).astype(np.float32).reshape(shape)


def make_npy() -> None:
    """Arrays of several dtypes and orders; the last three have none that is recognised."""
    bf16 = values(4, 8).astype(ml_dtypes.bfloat16)
    arrays = {
        "f32": values(3, 4),
        "fortran-f64": np.asfortranarray(values(3, 4).astype(np.float64)),
        "scalar-i64": np.array(7, dtype=np.int64),
        "empty-f16": np.zeros((0, 3), dtype=np.float16),
        "bool": values(17) > 0,
        "bf16": bf16,
        "complex64": (values(5) + 1j * values(5)).astype(np.complex64),
        "big-endian": values(6).astype(">f4"),
        "structured": np.zeros(3, dtype=[("a", "<f4"), ("b", "<i2")]),
        "complex128": (values(4) + 1j * values(4)).astype(np.complex128),
    }
    for name, array in arrays.items():
        np.save(HERE / f"{name}.npy", array)
    for version in ((2, 0), (3, 0)):
        with (HERE / f"version{version[0]}.npy").open("wb") as file:
            npy.write_array(file, values(2, 5), version=version)


def make_gguf() -> None:
    """Values of every type, tensors of plain and quantised types."""
    path = HERE / "types.gguf"
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_custom_alignment(64)
    writer.add_uint8("u8", 1)
    writer.add_int8("i8", -1)
    writer.add_uint16("u16", 2)
    writer.add_int16("i16", -2)
    writer.add_uint32("u32", 3)
    writer.add_int32("i32", -3)
    writer.add_uint64("u64", 4)
    writer.add_int64("i64", -4)
    writer.add_float32("f32", 0.5)
    writer.add_float64("f64", 0.25)
    writer.add_bool("bool", True)
    writer.add_array("tokenizer.ggml.tokens", ["<s>", "", "a"])
    writer.add_array("tokenizer.ggml.scores", [0.0, 0.5, 1.5])
    writer.add_tensor("plain.f32", values(2, 3))
    writer.add_tensor("plain.f16", values(5).astype(np.float16))
    kind = gguf.GGMLQuantizationType
    for name in ("BF16", "Q8_0", "Q4_0", "Q5_1"):
        data = gguf.quants.quantize(values(2, 64), kind[name])
        writer.add_tensor(f"quantised.{name.lower()}", data, raw_dtype=kind[name])
    # The package has no quantiser for this type, and any bytes are blocks of it.
    blocks = np.arange(144, dtype=np.uint8).reshape(1, 144)
    writer.add_tensor("quantised.q4_k", blocks, raw_dtype=kind.Q4_K)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()

    path = HERE / "version2.gguf"
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_tensor("w", values(3, 4))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    # Version 3 added big-endian files; little-endian ones differ in the number alone.
    data = bytearray(path.read_bytes())
    data[4] = 2
    path.write_bytes(data)


def make_onnx() -> None:
    """A graph with initialisers of every kind, a constant, and branches with graphs inside."""
    typed = helper.make_tensor("float_data", TensorProto.FLOAT, [4], values(4))
    data = values(2, 4).astype(ml_dtypes.bfloat16).tobytes()
    bf16 = helper.make_tensor("bf16", TensorProto.BFLOAT16, [2, 4], data, raw=True)
    int4 = helper.make_tensor("int4", TensorProto.INT4, [6], bytes([1, 2, 3]), raw=True)
    external = TensorProto(name="external", data_type=TensorProto.FLOAT, dims=[2], data_location=TensorProto.EXTERNAL)
    external.external_data.add(key="location", value="weights.bin")
    sparse = helper.make_sparse_tensor(
        numpy_helper.from_array(values(2), "sparse.values"),
        numpy_helper.from_array(np.array([1, 5], dtype=np.int64), "sparse.indices"),
        [8],
    )

    def branch(name: str) -> onnx.GraphProto:
        constant = helper.make_node("Constant", [], [f"{name}_out"], value=numpy_helper.from_array(values(3)))
        output = helper.make_tensor_value_info(f"{name}_out", TensorProto.FLOAT, [3])
        return helper.make_graph([constant], name, [], [output], [numpy_helper.from_array(values(2), f"{name}_unused")])

    nodes = [
        helper.make_node("MatMul", ["x", "weight"], ["y"]),
        helper.make_node("Constant", [], ["condition"], value=numpy_helper.from_array(np.array(True))),
        helper.make_node("If", ["condition"], ["z"], then_branch=branch("then"), else_branch=branch("else")),
    ]
    graph = helper.make_graph(
        nodes,
        "graph",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 4])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 3])],
        [
            numpy_helper.from_array(values(4, 3), "weight"),
            numpy_helper.from_array(values(4).astype(np.float16), "half"),
            numpy_helper.from_array(np.arange(5, dtype=np.int64), "shape"),
            bf16,
            int4,
            typed,
            external,
        ],
        sparse_initializer=[sparse],
    )
    model = helper.make_model(graph, producer_name="lmc-testdata", ir_version=10)
    (HERE / "model.onnx").write_bytes(model.SerializeToString(deterministic=True))


def make_external() -> None:
    """A model with its tensors in a file of their own, as PyTorch's exporter names it."""
    weight = numpy_helper.from_array(values(6, 5), "weight")
    half = numpy_helper.from_array(values(7).astype(np.float16), "half")
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "weight"], ["y"])],
        "graph",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 6])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 5])],
        [weight, half],
    )
    model = helper.make_model(graph, producer_name="lmc-testdata", ir_version=10)
    name = "external.onnx"
    (HERE / f"{name}.data").unlink(missing_ok=True)
    onnx.save_model(model, HERE / name, save_as_external_data=True, location=f"{name}.data", size_threshold=0)


def expect(name: str, arrays: dict[str, np.ndarray]) -> None:
    """Writes what a format's own library returns of a file, as numpy's names of dtypes, shapes and bytes."""
    of = {key: [array.dtype.name, list(array.shape), array.tobytes().hex()] for key, array in arrays.items()}
    (HERE / f"{name}.json").write_text(json.dumps(of, indent=0, sort_keys=True) + "\n")


def make_onnx_kinds() -> None:
    """Models with tensors of each type and in each field: those that have bytes, and those that have none."""
    floats = ["float16", "float32", "float64"]
    eights = ["float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz", "float8_e8m0fnu"]
    integers = [f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)]
    kinds = [np.dtype(kind) for kind in [*floats, *integers, "bool", "complex64"]]
    kinds += [np.dtype(getattr(ml_dtypes, kind)) for kind in ["bfloat16", *eights]]
    tensors = [numpy_helper.from_array(values(2, 3).astype(kind), f"of.{kind.name}") for kind in kinds]
    tensors += [
        numpy_helper.from_array(np.array(3, dtype=np.int64), "scalar"),
        numpy_helper.from_array(np.zeros((3, 0), dtype=np.float32), "empty"),
        helper.make_tensor("float_data", TensorProto.FLOAT, [4], values(4)),
        helper.make_tensor("complex_data", TensorProto.COMPLEX64, [2], [1 + 2j, 3 - 4j]),
        helper.make_tensor("double_data", TensorProto.DOUBLE, [3], [1.5, 2.5, -3.5]),
        helper.make_tensor("empty_data", TensorProto.INT64, [0, 2], []),
    ]
    graph = helper.make_graph([], "graph", [], [], tensors)
    model = helper.make_model(graph, ir_version=10)
    (HERE / "kinds.onnx").write_bytes(model.SerializeToString(deterministic=True))
    expect("kinds-onnx", {t.name: numpy_helper.to_array(t) for t in tensors})

    sparse = helper.make_sparse_tensor(
        numpy_helper.from_array(values(2), "sparse"),
        numpy_helper.from_array(np.array([1, 5], dtype=np.int64), "indices"),
        [8],
    )
    external = TensorProto(name="external", data_type=TensorProto.FLOAT, dims=[2], data_location=TensorProto.EXTERNAL)
    external.external_data.add(key="location", value="weights.bin")
    lost = [
        helper.make_tensor("fp16", TensorProto.FLOAT16, [2], [1.0, 2.0]),
        helper.make_tensor("int32", TensorProto.INT32, [2], [1, -2]),
        helper.make_tensor("int64", TensorProto.INT64, [2], [1, -2]),
        helper.make_tensor("uint64", TensorProto.UINT64, [2], [1, 2]),
        helper.make_tensor("int4", TensorProto.INT4, [2], [1, 2]),
        helper.make_tensor("strings", TensorProto.STRING, [1], [b"text"]),
        helper.make_tensor("complex128", TensorProto.COMPLEX128, [1], [1 + 2j]),
        helper.make_tensor("odd", TensorProto.INT4, [3], bytes([1, 2]), raw=True),
        external,
    ]
    graph = helper.make_graph([], "graph", [], [], [tensors[0], *lost], sparse_initializer=[sparse])
    model = helper.make_model(graph, ir_version=10)
    (HERE / "lost.onnx").write_bytes(model.SerializeToString(deterministic=True))


def make_gguf_kinds() -> None:
    """A file with tensors of every type that is no block."""
    path = HERE / "kinds.gguf"
    writer = gguf.GGUFWriter(path, "llama")
    kinds = ["float16", "float32", "float64", "int8", "int16", "int32", "int64"]
    for kind in kinds:
        writer.add_tensor(f"of.{kind}", values(2, 3).astype(kind))
    bf16 = gguf.quants.quantize(values(2, 4), gguf.GGMLQuantizationType.BF16)
    writer.add_tensor("of.bfloat16", bf16, raw_dtype=gguf.GGMLQuantizationType.BF16)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    found = {t.name: t.data for t in gguf.GGUFReader(path).tensors}
    # The package has bf16 as bytes.
    found["of.bfloat16"] = found["of.bfloat16"].view(ml_dtypes.bfloat16)
    expect("kinds-gguf", found)


if __name__ == "__main__":
    make_npy()
    make_gguf()
    make_onnx()
    make_external()
    make_onnx_kinds()
    make_gguf_kinds()
