"""What tests of several packages share: the bundled table in a folder of its own, and the sorting into tiers."""

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.tiers import Watch, is_slow

DATA = Path(__file__).parents[1] / "noisegate" / "data"
WATCH = Watch()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what starts a process as slow."""
    for item in items:
        if is_slow(item):
            item.add_marker("slow")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    """Keep the tests that are not slow from starting anything."""
    WATCH.on = item.config.option.markexpr == "not slow"  # beside slow tests, what they began may still end
    try:
        return (yield)
    finally:
        WATCH.on = False


def copy_adult(folder: Path) -> Path:
    """Return the path of a policy with a whole budget, beside a copy of the table."""
    for name in ("adult.parquet", "adult_synth.parquet", "adult.toml"):
        shutil.copy(DATA / name, folder)
    return folder / "adult.toml"


@pytest.fixture
def adult_policy(tmp_path: Path) -> Path:
    """The policy of the bundled table, with analysts ann and bob and nothing spent."""
    return copy_adult(tmp_path)


@pytest.fixture(scope="module")
def shared_adult_policy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same for a whole module with a larger budget, for tests that do not mind what was spent before."""
    policy = copy_adult(tmp_path_factory.mktemp("adult"))
    text = policy.read_text(encoding="utf-8")
    policy.write_text(text.replace("epsilon = 2.0", "epsilon = 20.0"), encoding="utf-8")
    return policy


@pytest.fixture
def policy_with(adult_policy: Path) -> Callable[[str, str], Path]:
    """Return a function that replaces a piece of the policy."""

    def replace(old: str, new: str) -> Path:
        text = adult_policy.read_text(encoding="utf-8")
        assert old in text
        adult_policy.write_text(text.replace(old, new), encoding="utf-8")
        return adult_policy

    return replace
