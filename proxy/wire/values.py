"""Values of PostgreSQL's types as bytes, in the text and the binary format, both ways.

An encoder takes the Python value that proxy/catalog/types.py names for the type; a decoder returns it, and raises
ValueError when the bytes are not a value of the type. NULL never reaches either.
"""

from __future__ import annotations

import functools
from enum import IntEnum

from proxy.wire import arrays, binary, oids, text
from proxy.wire.text import Decoder, Encoder


class Format(IntEnum):
    """How a value is written."""

    TEXT = 0
    BINARY = 1


VECTORS = {oids.INT2VECTOR: oids.INT2, oids.OIDVECTOR: oids.OID}
"""Arrays of the catalog's own, written with blanks between the numbers and counted from 0."""


@functools.lru_cache(maxsize=1_000)
def encoder(oid: int, form: Format) -> Encoder:
    """Return the function that writes a value of a type; types that are not known are written as text."""
    if form == Format.TEXT:
        if oid in oids.ELEMENTS:
            return arrays.text_encoder(encoder(oids.ELEMENTS[oid], form))
        return _vector_text if oid in VECTORS else text.ENCODERS.get(oid, text.any_text)
    if oid in VECTORS:
        return arrays.binary_encoder(encoder(VECTORS[oid], form), VECTORS[oid], first=0)
    if oid in oids.ELEMENTS:
        return arrays.binary_encoder(encoder(oids.ELEMENTS[oid], form), oids.ELEMENTS[oid])
    return binary.ENCODERS.get(oid, text.any_text)


def _vector_text(value: object) -> bytes:
    return b" ".join(map(text.any_text, value)) if isinstance(value, list | tuple) else text.any_text(value)


def decoder(oid: int, form: Format) -> Decoder:
    """Return the function that reads a value of a type; types that are not known are read as text."""
    element = oids.ELEMENTS.get(oid)
    if form == Format.TEXT:
        found = text.DECODERS.get(oid, text.read_text)
        return found if element is None else arrays.text_decoder(decoder(element, form))
    found = binary.DECODERS.get(oid, text.read_text)
    return found if element is None else arrays.binary_decoder(decoder(element, form), element)
