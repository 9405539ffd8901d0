"""`python -m tests.installed dist`: the wheel in that folder works in an environment of its own, far from the clone."""

import os
import subprocess
import sys
import tempfile
import venv
from pathlib import Path


def main(folder: str) -> None:
    """Install the only wheel of a folder, run its demo, and see that nothing was written beside the packages."""
    [wheel] = Path(folder).resolve().glob("*.whl")
    with tempfile.TemporaryDirectory() as place:
        home = Path(place).resolve()
        venv.create(home / "env", with_pip=True)
        run(home, "pip", "install", "--quiet", "--disable-pip-version-check", str(wheel))
        before = files(home / "env")
        answers = run(home, "noisegate", "demo")
        assert "free: already known" in answers, answers
        assert run(home, "noisegate", "--version") == f"noisegate {version(wheel)}\n"
        assert files(home / "env") == before, "the demo wrote into the environment"
    print(f"{wheel.name}: installed, and its demo ran")


def run(home: Path, program: str, *arguments: str) -> str:
    """Return what a program of the new environment prints, run where nothing of the clone can be imported."""
    names = ("PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV")
    environment = {name: value for name, value in os.environ.items() if name not in names}
    command = [str(home / "env" / "bin" / program), *arguments]
    return subprocess.run(
        command, cwd=home, env=environment | {"TMPDIR": str(home)}, stdout=subprocess.PIPE, encoding="utf-8", check=True
    ).stdout


def files(folder: Path) -> set[Path]:
    return {path for path in folder.rglob("*") if path.suffix != ".pyc" and path.name != "__pycache__"}


def version(wheel: Path) -> str:
    return wheel.name.split("-")[1]


if __name__ == "__main__":
    main(sys.argv[1])
