"""Make docs/demo.svg from a few questions of the demo: python docs/picture.py."""

import re
import sys
from pathlib import Path

from rich.console import Console
from rich.terminal_theme import MONOKAI

sys.path.insert(0, str(Path(__file__).parents[1]))

import noisegate
from noisegate import demo

QUESTIONS = (0, 1, 2, 5, -1)


def main() -> None:
    """Ask the questions and draw what a terminal shows; no part of the picture is fetched from elsewhere."""
    console = Console(record=True, width=92, highlight=False, force_terminal=True)
    with noisegate.connect(demo.copy_table(), analyst="ann") as connection:
        for number in QUESTIONS:
            demo.ask(console, connection, demo.QUESTIONS[number])
        demo.refuse(console, connection, demo.REFUSED)
    picture = console.export_svg(title="make demo", theme=MONOKAI, unique_id="demo")
    picture = re.sub(r"\s*@font-face \{.*?\}", "", picture, flags=re.DOTALL)
    Path(__file__).with_name("demo.svg").write_text(picture, encoding="utf-8")


if __name__ == "__main__":
    main()
