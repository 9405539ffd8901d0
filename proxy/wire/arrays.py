"""Arrays of PostgreSQL's types, in both formats, both ways; each function is made for its elements."""

from __future__ import annotations

import math
import re
import struct
from collections.abc import Sequence

from proxy.wire.text import Decoder, Encoder, read_text

MOST_DIMENSIONS = 6
BLANKS = " \t\n\r\v\f"
_ARRAY, _SPAN, _LENGTH = struct.Struct("!iii"), struct.Struct("!ii"), struct.Struct("!i")


def text_encoder(encode: Encoder) -> Encoder:
    """Return the function that writes a list, nested or not, in braces."""

    def write(value: object) -> bytes:
        if value is None:
            return b"NULL"
        if isinstance(value, list | tuple):
            return b"{" + b",".join(map(write, value)) + b"}"
        return _quoted(encode(value))

    return write


def _quoted(item: bytes) -> bytes:
    if item and item.upper() != b"NULL" and not re.search(rb'[{}",\\\s]', item):
        return item
    return b'"' + item.replace(b"\\", b"\\\\").replace(b'"', b'\\"') + b'"'


def binary_encoder(encode: Encoder, element: int, *, first: int = 1) -> Encoder:
    """Return the function that writes a list with its dimensions, whose indices start at `first`."""

    def write(value: object) -> bytes:
        assert isinstance(value, list | tuple)
        sizes, items = _flat(value)
        cells = [b"\xff\xff\xff\xff" if item is None else _prefixed(encode(item)) for item in items]
        head = _ARRAY.pack(len(sizes), int(None in items), element)
        return head + b"".join(_SPAN.pack(size, first) for size in sizes) + b"".join(cells)

    return write


def _flat(value: Sequence[object]) -> tuple[list[int], list[object]]:
    """Return the sizes of a nested list along its dimensions, and its items in order."""
    sizes: list[int] = []
    items: list[object] = list(value)
    while items:
        sizes.append(len(items) // (math.prod(sizes) or 1))
        if not all(isinstance(item, list | tuple) for item in items):
            return sizes, items
        if len({len(item) for item in items}) > 1:  # type: ignore[arg-type]  # all are lists
            raise ValueError("the rows of an array must have one length")
        items = [cell for item in items for cell in item]  # type: ignore[attr-defined]  # the same
    return [], []


def _prefixed(data: bytes) -> bytes:
    return _LENGTH.pack(len(data)) + data


def binary_decoder(decode: Decoder, element: int) -> Decoder:
    """Return the function that reads an array whose elements have this type."""

    def read(data: bytes) -> object:
        if len(data) < _ARRAY.size:
            raise ValueError("an array has at least 12 bytes")
        dimensions, _, stated = _ARRAY.unpack_from(data)
        if not 0 <= dimensions <= MOST_DIMENSIONS or len(data) < _ARRAY.size + _SPAN.size * dimensions:
            raise ValueError(f"an array has at most {MOST_DIMENSIONS} dimensions")
        if stated != element:
            raise ValueError("the elements have another type than the array")
        place = _ARRAY.size + _SPAN.size * dimensions
        sizes = [_SPAN.unpack_from(data, _ARRAY.size + _SPAN.size * i)[0] for i in range(dimensions)]
        items = _cells(data[place:], decode)
        if any(size < 1 for size in sizes) or len(items) != (math.prod(sizes) if sizes else 0):
            raise ValueError("an array has as many elements as its dimensions say")
        return _nested(items, sizes)

    return read


def _cells(data: bytes, decode: Decoder) -> list[object]:
    items: list[object] = []
    place = 0
    while place < len(data):
        if len(data) < place + 4:
            raise ValueError("an array ends inside an element")
        (size,) = _LENGTH.unpack_from(data, place)
        place += 4
        if size > len(data) - place or size < -1:
            raise ValueError("an array ends inside an element")
        items.append(decode(data[place : place + size]) if size >= 0 else None)
        place += max(size, 0)
    return items


def _nested(items: list[object], sizes: Sequence[int]) -> list[object]:
    for size in reversed(sizes[1:]):
        items = [items[i : i + size] for i in range(0, len(items), size)]
    return items


_ARRAY_TOKEN = re.compile(r'\s*(?:([{},])|"((?:\\.|[^"\\])*)"|((?:\\.|[^{},"\\])+))', re.DOTALL | re.ASCII)


def text_decoder(decode: Decoder) -> Decoder:
    """Return the function that reads an array in braces."""

    def read(data: bytes) -> object:
        text = re.sub(r"^\s*(\[-?\d+:-?\d+\])+=", "", read_text(data), flags=re.ASCII).strip(BLANKS)
        stack: list[list[object]] = [[]]
        place, wants_item = 0, True
        while place < len(text):
            token = _ARRAY_TOKEN.match(text, place)
            if token is None or len(stack) > MOST_DIMENSIONS + 1 or (len(stack) == 1 and stack[0]):
                raise ValueError("it is not an array")
            place = token.end()
            if token[1] == "{" and wants_item:
                stack.append([])
            elif token[1] == "}" and len(stack) > 1 and (not wants_item or not stack[-1]):
                done = stack.pop()
                stack[-1].append(done)
                wants_item = False
            elif token[1] == "," and not wants_item and len(stack) > 1:
                wants_item = True
            elif token[1] is None and wants_item and len(stack) > 1:
                stack[-1].append(_item(token, decode))
                wants_item = False
            else:
                raise ValueError("it is not an array")
        if len(stack) != 1 or len(stack[0]) != 1:
            raise ValueError("it is not an array")
        return stack[0][0]

    return read


def _item(token: re.Match[str], decode: Decoder) -> object:
    raw = token[2] if token[2] is not None else token[3].strip(BLANKS)
    if token[2] is None and raw.upper() == "NULL":
        return None
    return decode(re.sub(r"\\(.)", r"\1", raw, flags=re.DOTALL).encode())
