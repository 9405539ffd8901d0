"""The walls between the packages stand, and the tools that guard the rest are content."""

import ast
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGES = ("noisegate", "proxy", "planner", "mechanisms")
MODULES = sorted(path for package in PACKAGES for path in (ROOT / package).rglob("*.py"))
LINT_IMPORTS = (
    sys.executable,
    "-c",
    "from importlinter.cli import lint_imports_command as run; run()",
    "--no-cache",
)

RANDOMNESS = (
    "cryptography.hazmat.primitives.ciphers",
    "mpmath.rand",
    "numpy.random",
    "os.getrandom",
    "os.urandom",
    "random",
    "secrets",
)
MAY_DRAW = {
    "mechanisms/noise/sampling.py": set(RANDOMNESS),
    "planner/policy/passwords.py": {"os.urandom"},  # salts, not noise
    "proxy/login/auth.py": {"os.urandom"},  # nonces and cancel keys
}


def name_of(module: Path) -> str:
    return module.relative_to(ROOT).as_posix()


def run(*command: str, cwd: Path = ROOT) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=False)


def imported_names(tree: ast.AST) -> dict[str, str]:
    """Return what each imported name stands for: `import numpy as np` gives {"np": "numpy"}."""
    names = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:  # `import a.b` binds `a`, but reaches `a.b`
                names[alias.asname or alias.name] = alias.name
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names |= {alias.asname or alias.name: f"{node.module}.{alias.name}" for alias in node.names}
    return names


def dotted_names(tree: ast.AST) -> Iterator[str]:
    """Yield every imported or attribute name, spelt from its top-level package."""
    names = imported_names(tree)
    yield from names.values()
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute):
            first, _, rest = ast.unparse(node).partition(".")
            yield f"{names.get(first, first)}.{rest}"


def randomness_in(source: str) -> set[str]:
    """Return the sources of random numbers that a module can reach."""
    names = [f"{name}." for name in dotted_names(ast.parse(source))]
    return {origin for origin in RANDOMNESS if any(name.startswith(f"{origin}.") for name in names)}


def private_imports_in(source: str, package: str) -> list[str]:
    """Return the names with a leading underscore that a module takes from another of our packages."""
    return [
        name
        for name in imported_names(ast.parse(source)).values()
        if name.split(".")[0] in set(PACKAGES) - {package}
        and any(part.startswith("_") and not part.endswith("__") for part in name.split("."))
    ]


@pytest.mark.parametrize("path", MODULES, ids=name_of)
def test_only_the_sampler_draws_random_numbers(path: Path) -> None:
    allowed = MAY_DRAW.get(name_of(path), set())
    assert randomness_in(path.read_text(encoding="utf-8")) <= allowed


@pytest.mark.parametrize(
    ("source", "origin"),
    [
        ("import random", "random"),
        ("from random import gauss", "random"),
        ("import secrets as s", "secrets"),
        ("import numpy as np\nnp.random.default_rng()", "numpy.random"),
        ("from numpy.random import default_rng", "numpy.random"),
        ("from numpy import random as r", "numpy.random"),
        ("import numpy.random", "numpy.random"),
        ("import os\ndef key():\n    return os.urandom(32)", "os.urandom"),
        ("from os import urandom", "os.urandom"),
        (
            "from cryptography.hazmat.primitives.ciphers import Cipher",
            "cryptography.hazmat.primitives.ciphers",
        ),
        ("from cryptography.hazmat.primitives import ciphers", "cryptography.hazmat.primitives.ciphers"),
    ],
)
def test_a_planted_source_of_randomness_is_seen(source: str, origin: str) -> None:
    assert randomness_in(source) == {origin}


def test_names_that_only_look_like_randomness_are_left_alone() -> None:
    assert randomness_in("import os, numpy as np\nfrom planner import randomised\nos.path.join\nnp.rand") == set()


@pytest.mark.parametrize("path", MODULES, ids=name_of)
def test_private_names_stay_in_their_package(path: Path) -> None:
    package = path.relative_to(ROOT).parts[0]
    assert private_imports_in(path.read_text(encoding="utf-8"), package) == []


def test_a_planted_private_import_is_seen() -> None:
    source = (
        "from planner.ledger.ledger import _connect\nfrom planner import __product__\nfrom proxy.cli.main import _parse"
    )
    assert private_imports_in(source, "proxy") == ["planner.ledger.ledger._connect"]


READINGS = {"linear", "helmert", "distinct", "units", "quantiles", "decisions"}
"""What a Meter tells of protected rows, with noise."""

MAY_OPEN = {
    "planner/sources/measure.py",
    "planner/curator/check.py",  # opens sources, and closes them
    "planner/curator/proposal.py",  # asks for the names and types of columns
}


def outside_reads_in(source: str) -> list[str]:
    """Return where a module reads rows without being the one that may, or takes a reading without storing it."""
    tree = ast.parse(source)
    found = [name for name in dotted_names(tree) if name.rpartition(".")[2] in ("open_source", "tally", "reading")]
    inside = {
        id(node)
        for function in ast.walk(tree)
        if isinstance(function, ast.FunctionDef) and function.name == "draw"
        for node in ast.walk(function)
    }
    taken = [node for node in ast.walk(tree) if isinstance(node, ast.Attribute) and ast.unparse(node.value) == "meter"]
    wrong = [n for n in taken if n.attr.startswith("_") or (n.attr in READINGS and id(n) not in inside)]
    return found + [ast.unparse(node) for node in wrong]


def calls_of_draw_in(source: str) -> int:
    """Return how often a module draws a release."""
    calls = [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Call)]
    return sum(ast.unparse(call.func) == "task.draw" or ast.unparse(call).endswith(".draw(meter)") for call in calls)


PLANNING = [path for path in MODULES if name_of(path).startswith(("planner/", "proxy/", "noisegate/"))]


@pytest.mark.parametrize("path", [path for path in PLANNING if "planner/sources/" not in name_of(path)], ids=name_of)
def test_only_the_meter_reads_rows_and_only_releases_take_readings(path: Path) -> None:
    found = outside_reads_in(path.read_text(encoding="utf-8"))
    if name_of(path) in MAY_OPEN:
        found = [name for name in found if not name.endswith("open_source")]
    assert name_of(path) == "planner/sources/measure.py" or found == []


def test_a_release_is_drawn_in_one_place_which_commits_it() -> None:
    drawing = {name_of(path): n for path in PLANNING if (n := calls_of_draw_in(path.read_text(encoding="utf-8")))}
    assert drawing == {"planner/session.py": 1}
    tree = ast.parse((ROOT / "planner" / "session.py").read_text(encoding="utf-8"))
    (release,) = (n for n in ast.walk(tree) if isinstance(n, ast.FunctionDef) and n.name == "release")
    text = ast.unparse(release)
    assert text.index("task.draw(meter)") < text.index("ledger.commit(") < text.rindex("return")


@pytest.mark.parametrize(
    "source",
    [
        "from planner.sources import open_source",
        "def peek(self, meter):\n    return meter.linear(q, m)",
        "def draw(self, meter):\n    return meter._vector(w, ())",
        "def look(self):\n    return self.source.tally(axes, ())",
    ],
)
def test_a_planted_reading_is_seen(source: str) -> None:
    assert outside_reads_in(source) != []


WAITING = {"asyncio", "select", "selectors", "socket", "socketserver", "ssl"}


def foreign_imports_in(source: str) -> set[str]:
    """Return what the protocol may not import: anything but the standard library and itself, and all that waits."""
    names = {name for name in imported_names(ast.parse(source)).values() if not name.startswith("proxy.wire")}
    return {name for name in names if name.split(".")[0] not in sys.stdlib_module_names - WAITING}


@pytest.mark.parametrize("path", sorted((ROOT / "proxy" / "wire").rglob("*.py")), ids=name_of)
def test_the_protocol_knows_the_standard_library_only_and_never_waits(path: Path) -> None:
    assert foreign_imports_in(path.read_text(encoding="utf-8")) == set()


@pytest.mark.parametrize(
    "source",
    ["import asyncio", "from socket import socket", "import ssl as s", "import numpy", "from proxy import errors"],
)
def test_a_planted_import_into_the_protocol_is_seen(source: str) -> None:
    assert foreign_imports_in(source) != set()


@pytest.mark.parametrize("package", PACKAGES)
def test_every_package_says_whose_it_is(package: str) -> None:
    tree = ast.parse((ROOT / package / "__init__.py").read_text(encoding="utf-8"))
    assert "__product__ = 'noisegate'" in [ast.unparse(node) for node in tree.body]


def copy_packages(target: Path) -> None:
    shutil.copy(ROOT / "pyproject.toml", target)
    for package in PACKAGES:
        shutil.copytree(ROOT / package, target / package, ignore=shutil.ignore_patterns("__pycache__"))


def import_noisegate(folder: Path) -> subprocess.CompletedProcess[str]:
    return run(sys.executable, "-c", "import noisegate; print(noisegate.__file__)", cwd=folder)


def test_noisegate_imports_beside_its_own_packages(tmp_path: Path) -> None:
    copy_packages(tmp_path)
    assert Path(import_noisegate(tmp_path).stdout.strip()).is_relative_to(tmp_path)


@pytest.mark.parametrize("package", PACKAGES[1:])
def test_a_foreign_package_is_named_when_noisegate_is_imported(tmp_path: Path, package: str) -> None:
    copy_packages(tmp_path)
    shutil.rmtree(tmp_path / package)
    (tmp_path / package).mkdir()
    (tmp_path / package / "__init__.py").write_text("", encoding="utf-8")
    info = tmp_path / "other-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: other\nVersion: 1.0\n", encoding="utf-8")
    (info / "RECORD").write_text(f"{package}/__init__.py,,\n", encoding="utf-8")
    error = import_noisegate(tmp_path).stderr
    assert f"ImportError: the package '{package}' is not the one that noisegate ships" in error
    assert "it comes from the distribution other;" in error
    assert "pip uninstall other;" in error


def test_a_stray_folder_is_named_when_no_distribution_owns_it(tmp_path: Path) -> None:
    copy_packages(tmp_path)
    (tmp_path / "planner" / "__init__.py").write_text("", encoding="utf-8")
    assert f"it was found at {tmp_path / 'planner' / '__init__.py'}" in import_noisegate(tmp_path).stderr


@pytest.mark.lint
@pytest.mark.parametrize(
    ("tool", "arguments"),
    [("ruff", ("format", "--check")), ("ruff", ("check",)), ("mypy", ())],
    ids=["format", "lint", "types"],
)
def test_the_code_is_clean(tool: str, arguments: tuple[str, ...]) -> None:
    if find_spec(tool) is None:
        pytest.skip(f"{tool} is not installed: pip install -e '.[dev]'")
    result = run(sys.executable, "-m", tool, *arguments)
    assert result.returncode == 0, result.stdout + result.stderr


@pytest.mark.lint
def test_the_import_contracts_are_kept() -> None:
    pytest.importorskip("importlinter")
    result = run(*LINT_IMPORTS)
    assert result.returncode == 0, result.stdout


@pytest.mark.lint
@pytest.mark.parametrize(
    ("module", "planted"),
    [
        ("mechanisms", "planner"),
        ("planner", "proxy"),
        ("proxy", "noisegate"),
        ("mechanisms", "sqlglot"),
        ("planner", "socket"),
        ("proxy.wire", "asyncio"),
        ("proxy.wire", "proxy.errors"),
        ("proxy.conversation.session", "socket"),
        ("proxy.login", "ssl"),
        ("proxy.wire", "proxy.duck_types"),
        ("proxy.show", "proxy.dbapi.types"),
        ("proxy.conversation", "proxy.server.tls"),
        ("proxy.login", "proxy.conversation.ticket"),
        ("proxy.catalog.relations", "proxy.catalog.rewriting.trees"),
        ("proxy.catalog.rewriting", "proxy.catalog.prepare"),
        ("proxy.server.connection", "proxy.server.shared"),
        ("planner.policy", "planner.gate"),
        ("planner.calls.verify", "planner.calls.rounds.roster"),
        ("planner.plans", "psycopg"),
        ("planner.plans", "mechanisms.noise.sampling"),
        ("mechanisms.noise", "mechanisms.gaussian.linear"),
        ("mechanisms.deciders", "mechanisms.least.residual"),
    ],
)
def test_a_planted_import_breaks_a_contract(tmp_path: Path, module: str, planted: str) -> None:
    pytest.importorskip("importlinter")
    copy_packages(tmp_path)
    culprit = plant(tmp_path, module, f"import {planted}\n")
    result = run(*LINT_IMPORTS, cwd=tmp_path)
    assert result.returncode == 1, result.stdout + result.stderr
    assert f"{culprit} -> {planted}" in result.stdout


@pytest.mark.lint
@pytest.mark.parametrize(
    "line",
    [
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from planner.gate import Gate\n",
        "def lazily():\n    from planner.gate import Gate\n",
    ],
    ids=["in types", "lazily"],
)
def test_an_import_that_points_up_is_seen_wherever_it_hides(tmp_path: Path, line: str) -> None:
    pytest.importorskip("importlinter")
    copy_packages(tmp_path)
    culprit = plant(tmp_path, "planner.calls", line)
    result = run(*LINT_IMPORTS, cwd=tmp_path)
    assert result.returncode == 1, result.stdout + result.stderr
    assert f"{culprit} -> planner.gate" in result.stdout


def plant(root: Path, module: str, line: str) -> str:
    """Add a line to a module, or to a new one in a package; return the name of the module."""
    path = root.joinpath(*module.split("."))
    if path.is_dir():
        (path / "planted.py").write_text(line, encoding="utf-8")
        return f"{module}.planted"
    file = path.with_suffix(".py")
    file.write_text(f"{file.read_text(encoding='utf-8')}{line}", encoding="utf-8")
    return module


def test_every_folder_of_tests_is_a_package() -> None:
    folders = [ROOT / "tests", *(path for path in (ROOT / "tests").rglob("*") if path.is_dir())]
    bare = [path for path in folders if path.name != "__pycache__" and not (path / "__init__.py").exists()]
    assert bare == []


@pytest.fixture(scope="module")
def kept_files() -> list[Path]:
    """Every file that is in git or would be added to it."""
    if shutil.which("git") is None or run("git", "rev-parse", "--show-prefix").stdout != "\n":
        pytest.skip("not a git checkout")
    listing = run("git", "ls-files", "-z", "--cached", "--others", "--exclude-standard").stdout
    return [ROOT / name for name in listing.split("\0") if name and (ROOT / name).is_file()]


def test_no_kept_file_is_larger_than_a_megabyte(kept_files: list[Path]) -> None:
    assert [path for path in kept_files if path.stat().st_size > 1_000_000] == []


def test_no_kept_file_names_a_path_of_one_machine(kept_files: list[Path]) -> None:
    of_one_machine = re.compile(rb"/(?:home/\w|Users/\w|root/|work/(?:main|shared))")
    assert [path for path in kept_files if of_one_machine.search(path.read_bytes())] == []
