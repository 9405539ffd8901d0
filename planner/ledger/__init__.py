"""The durable record of releases and charges; knows no SQL of analysts."""
