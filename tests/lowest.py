"""`python -m tests.lowest`: the lowest versions that pyproject.toml allows, as constraints for pip."""

import re
import tomllib
from pathlib import Path

PYPROJECT = Path(__file__).parents[1] / "pyproject.toml"
BOUND = re.compile(r"(?P<name>[\w-]+)(\[[\w,]+\])?>=(?P<version>[\d.]+)")


def lowest(requirements: list[str]) -> list[str]:
    """Return a constraint to the lower bound of each requirement; one without a bound is a mistake.

    >>> lowest(["numpy>=2.0", "psycopg[binary]>=3.2", "duckdb>=2.0,<3"])
    ['numpy==2.0', 'psycopg==3.2', 'duckdb==2.0']
    """
    found = [BOUND.match(requirement) for requirement in requirements]
    assert all(found), f"no lower bound: {[r for r, match in zip(requirements, found, strict=True) if not match]}"
    return [f"{match['name']}=={match['version']}" for match in found if match]


def constraints(*extras: str) -> list[str]:
    """Return the constraints of what Noisegate needs, and of these extras."""
    project = tomllib.loads(PYPROJECT.read_text(encoding="utf-8"))["project"]
    groups = [project["dependencies"], *(project["optional-dependencies"][extra] for extra in extras)]
    return [line for group in groups for line in lowest(group)]


if __name__ == "__main__":
    print("\n".join(constraints()))
