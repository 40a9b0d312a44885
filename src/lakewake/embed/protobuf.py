"""Writes ONNX models as files, in Protocol Buffers' wire format. Pure.

Only what our graphs need. The package `onnx` writes the same bytes, but takes 30 MB, and is not
needed to run a model. The numbers are those of the fields in `onnx.proto`.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping, Sequence

import numpy as np

#: ONNX's numbers for the types of tensors.
TYPES: dict[str, int] = {"float32": 1, "uint8": 2, "int8": 3, "int32": 6, "int64": 7}
#: ONNX's numbers for the types of attributes.
_FLOAT, _INT = 1, 2

Value = int | float | str | bytes
#: A field's number and its value.
Field = tuple[int, Value]


def message(fields: Iterable[Field]) -> bytes:
    """The fields as one message, in their order."""
    return b"".join(_field(number, value) for number, value in fields)


def node(
    operator: str,
    inputs: Sequence[str],
    outputs: Sequence[str],
    domain: str,
    attributes: Mapping[str, int | float],
) -> bytes:
    """A node of a graph."""
    fields: list[Field] = [(1, name) for name in inputs]
    fields += [(2, name) for name in outputs]
    fields += [(4, operator)]
    fields += [(5, _attribute(name, value)) for name, value in sorted(attributes.items())]
    return message([*fields, (7, domain)] if domain else fields)


def tensor(name: str, value: np.ndarray) -> bytes:
    """A constant."""
    content = np.ascontiguousarray(value, value.dtype.newbyteorder("<"))
    fields: list[Field] = [(1, size) for size in value.shape]
    return message([*fields, (2, TYPES[value.dtype.name]), (8, name), (9, content.tobytes())])


def declared(name: str, dtype: str, sizes: Sequence[int | str]) -> bytes:
    """An input or output. A size with a name is any size."""
    shape = message((1, message([(2 if isinstance(s, str) else 1, s)])) for s in sizes)
    kind = message([(1, message([(1, TYPES[dtype]), (2, shape)]))])
    return message([(1, name), (2, kind)])


def _attribute(name: str, value: int | float) -> bytes:
    real = isinstance(value, float)
    return message([(1, name), (2 if real else 3, value), (20, _FLOAT if real else _INT)])


def _field(number: int, value: Value) -> bytes:
    if isinstance(value, float):
        return _number(number << 3 | 5) + struct.pack("<f", value)
    if isinstance(value, int):
        return _number(number << 3) + _number(value)
    content = value.encode() if isinstance(value, str) else value
    return _number(number << 3 | 2) + _number(len(content)) + content


def _number(value: int) -> bytes:
    """A number of 0 or more, in groups of seven bits."""
    found = bytearray()
    while value > 127:
        found.append(value & 127 | 128)
        value >>= 7
    return bytes(found) + bytes([value])
