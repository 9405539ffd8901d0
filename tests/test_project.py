"""The files that describe the project agree with each other and with what there is."""

import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.lowest import constraints

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
MAKEFILE = (ROOT / "Makefile").read_text(encoding="utf-8")
TARGETS = set(re.findall(r"^([a-z]+):", MAKEFILE, flags=re.MULTILINE))


def read(name: str) -> Any:
    return yaml.safe_load((ROOT / name).read_text(encoding="utf-8"))


def test_the_citation_is_of_this_version() -> None:
    citation = read("CITATION.cff")
    assert citation["version"] == PROJECT["version"]
    assert f"## {citation['version']} - {citation['date-released']}\n" in (ROOT / "CHANGELOG.md").read_text("utf-8")


def test_the_citation_names_four_papers_with_their_places() -> None:
    papers = read("CITATION.cff")["references"]
    assert len({paper["doi"] for paper in papers}) == 4
    assert all(paper["authors"] and paper["title"] and paper["year"] for paper in papers)


def test_hosted_machines_run_targets_of_the_makefile_and_nothing_else() -> None:
    jobs = read(".github/workflows/test.yml")["jobs"].values()
    commands = [step["run"] for job in jobs for step in job["steps"] if "run" in step]
    assert {"make quick", "make lowest", "make wheel", "make test"} <= set(commands)
    assert {command.removeprefix("make ") for command in commands} <= TARGETS


def test_hosted_machines_run_the_versions_of_python_that_are_promised() -> None:
    versions = read(".github/workflows/test.yml")["jobs"]["quick"]["strategy"]["matrix"]["python"]
    assert f">={versions[0]}" == PROJECT["requires-python"]
    named = [text.rpartition(" ")[2] for text in PROJECT["classifiers"] if re.search(r":: 3\.\d+$", text)]
    assert named == versions


def test_hooks_are_local_and_call_tools_that_make_installs() -> None:
    for repository in read(".pre-commit-config.yaml")["repos"]:
        assert repository["repo"] == "local"
        assert all(hook["entry"].startswith(".venv/bin/") for hook in repository["hooks"])


def test_the_forms_for_issues_ask_for_something() -> None:
    for form in (ROOT / ".github" / "ISSUE_TEMPLATE").glob("*.yml"):
        found = yaml.safe_load(form.read_text(encoding="utf-8"))
        assert found["name"]
        assert any(part.get("validations", {}).get("required") for part in found["body"])


@pytest.mark.parametrize("name", ["CONTRIBUTING.md", "README.md", "SECURITY.md"])
def test_make_has_every_target_that_is_named(name: str) -> None:
    assert set(re.findall(r"`make ([a-z]+)`", (ROOT / name).read_text(encoding="utf-8"))) <= TARGETS


def test_every_dependency_has_a_lower_bound() -> None:
    extras = PROJECT["optional-dependencies"]
    count = len(PROJECT["dependencies"]) + sum(len(extra) for extra in extras.values())
    assert len(constraints(*extras)) == count
