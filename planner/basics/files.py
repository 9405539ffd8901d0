"""Files that appear whole or not at all."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path


def publish(draft: Path, path: Path) -> None:
    """Give a finished file its name, durably, unless another process was faster."""
    with suppress(FileExistsError):
        os.link(draft, path)
    sync_folder(path.parent)


def sync_folder(path: Path) -> None:
    """Wait until the disk knows which files the folder has."""
    folder = os.open(path, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
