"""Pure mathematics and exact randomness: arrays in, arrays out; no SQL, no files, no network, no budget."""

__product__ = "noisegate"
