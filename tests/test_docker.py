"""The image and the compose file, as far as they can be tried without an engine: every command in them is run."""

from __future__ import annotations

import json
import os
import re
import shlex
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg
import pytest

from planner.policy.file import load
from planner.policy.ledger import Remote
from tests.proxy.postgres import Postgres, running

ROOT = Path(__file__).parents[1]
DOCKER = ROOT / "docker"
DOCKERFILE = (DOCKER / "Dockerfile").read_text(encoding="utf-8")


def instructions() -> list[tuple[str, str]]:
    """Return the instructions of the Dockerfile with their arguments."""
    text = re.sub(r"\\\n\s*", "", re.sub(r"^#.*\n", "", DOCKERFILE, flags=re.MULTILINE))
    return [(line.split()[0], line.partition(" ")[2].strip()) for line in text.splitlines() if line.strip()]


def last(name: str) -> str:
    return [arguments for found, arguments in instructions() if found == name][-1]


def compose() -> dict[str, Any]:
    yaml = pytest.importorskip("yaml", reason="PyYAML is not installed")
    found: dict[str, Any] = yaml.safe_load((DOCKER / "compose.yaml").read_text(encoding="utf-8"))
    return found


def test_the_image_is_built_in_stages_runs_as_nobody_special_and_says_how_it_is() -> None:
    names = [name for name, _ in instructions()]
    assert names.count("FROM") == 2
    assert last("USER") == "10001:10001"
    assert names.index("HEALTHCHECK") > names.index("USER")
    assert all(re.search(r":[0-9]", image) for name, image in instructions() if name == "FROM")
    assert "COPY --from=build /opt/noisegate /opt/noisegate" in DOCKERFILE


def test_what_is_copied_into_the_image_is_there_and_is_all_that_the_wheel_needs() -> None:
    copied = [arguments.split() for name, arguments in instructions() if name == "COPY" and "--from" not in arguments]
    names = {name.strip("./") for *sources, _ in copied for name in sources}
    assert all((ROOT / name).exists() for name in names)
    allowed = {line[1:] for line in (DOCKER / "Dockerfile.dockerignore").read_text().splitlines() if line[0] == "!"}
    assert names == allowed == {"pyproject.toml", "README.md", "LICENSE", "mechanisms", "planner", "proxy", "noisegate"}


def test_the_compose_file_has_two_gates_on_one_ledger_and_publishes_them_here_only() -> None:
    found = compose()
    services = found["services"]
    assert set(services) == {"database", "gate-1", "gate-2", "client"}
    gates = [services["gate-1"], services["gate-2"]]
    for gate in gates:
        assert (
            ROOT / "docker" / gate["build"]["context"] / gate["build"]["dockerfile"]
        ).resolve() == DOCKER / "Dockerfile"
        assert gate["read_only"] is True
        assert gate["cap_drop"] == ["ALL"]
        assert gate["depends_on"] == {"database": {"condition": "service_healthy"}}
    published = [port for service in services.values() for port in service.get("ports", [])]
    assert published == ["127.0.0.1:5433:5433", "127.0.0.1:5434:5433"]
    mounts = [mount for service in services.values() for mount in service.get("volumes", [])]
    for mount in mounts:
        origin = mount.split(":")[0]
        assert (DOCKER / origin).is_file() if origin.startswith("./") else origin in found["volumes"]
    kept = [mount.split(":")[0] for gate in gates for mount in gate["volumes"] if mount.endswith("/var/lib/noisegate")]
    assert kept == ["gate-1", "gate-2"]  # each has a marker of its own


@pytest.fixture(scope="module")
def server() -> Iterator[Postgres]:
    with running(durable=True) as found:
        psql = [str(found.binaries / "psql"), "-h", "127.0.0.1", "-p", str(found.port), "-U", "noisegate"]
        command = [*psql, "-d", "template1", "-q", "-f", str(DOCKER / "sample.sql")]
        subprocess.run(command, env={**os.environ, "GATE_PASSWORD": "it's"}, check=True, capture_output=True)
        yield found


def test_the_sample_is_loaded_and_the_gates_may_only_read_it(server: Postgres) -> None:
    with psycopg.connect(f"host=127.0.0.1 port={server.port} dbname=town user=gate", autocommit=True) as connection:
        assert connection.execute("SELECT count(*), count(income) < count(*) FROM people").fetchone() == (20_000, True)
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            connection.execute("DELETE FROM people")


def test_the_database_is_healthy_when_its_check_says_so(server: Postgres) -> None:
    kind, program, *arguments = compose()["services"]["database"]["healthcheck"]["test"]
    assert (kind, program) == ("CMD", "pg_isready")
    command = [str(server.binaries / "psql").replace("psql", program), *arguments, "--port", str(server.port)]
    if not Path(command[0]).exists():
        pytest.skip("the wheel has no pg_isready")
    subprocess.run(command, check=True, capture_output=True)


@contextmanager
def gate(server: Postgres, folder: Path) -> Iterator[int]:
    """Run the image's command with the policy of the compose file; yield the port, once the health check is content."""
    folder.mkdir()
    text = (DOCKER / "noisegate.toml").read_text(encoding="utf-8")
    for old, new in {
        "gate@database/": f"gate@127.0.0.1:{server.port}/",
        "/var/lib/noisegate": str(folder),
        "0.0.0.0": "127.0.0.1",
    }.items():
        assert old in text
        text = text.replace(old, new)
    policy = folder / "noisegate.toml"
    policy.write_text(text, encoding="utf-8")
    port, watched = free_port(), free_port()
    entry, arguments = json.loads(last("ENTRYPOINT")), json.loads(last("CMD"))
    assert entry == ["noisegate"]
    places = {"/etc/noisegate/noisegate.toml": str(policy), "9433": str(watched)}
    command = [sys.executable, "-m", "noisegate", *(places.get(each, each) for each in arguments), "--port", str(port)]
    with (folder / "log").open("w") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log, cwd=ROOT, env={**os.environ, "PGPASSWORD": "x"})
    try:
        check = json.loads(last("HEALTHCHECK").partition("CMD ")[2])
        assert check[0] == "python"
        healthy = [sys.executable, *(each.replace("9433", str(watched)) for each in check[1:])]
        while "connect: psql" not in (folder / "log").read_text():
            assert process.poll() is None, (folder / "log").read_text()
            time.sleep(0.1)
        subprocess.run(healthy, capture_output=True, check=True)
        yield port
    finally:
        process.terminate()
        process.wait()


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def test_two_gates_answer_the_client_alike_and_are_paid_once(server: Postgres, tmp_path: Path) -> None:
    lines = compose()["services"]["client"]["command"][0].strip().splitlines()
    assert len(lines) == 2
    told = []
    with gate(server, tmp_path / "gate-1") as one, gate(server, tmp_path / "gate-2") as two:
        for line, port in zip(lines, (one, two), strict=True):
            program, *arguments = shlex.split(line)
            host = arguments.index("--host") + 1
            arguments[host] = "127.0.0.1"
            arguments[arguments.index("/questions.sql")] = str(DOCKER / "questions.sql")
            command = [str(server.binaries / program), *arguments, "--port", str(port)]
            environment = {**os.environ, "PGPASSWORD": "demo", "PGDATABASE": "noisegate"}
            done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
            assert "ERROR" not in done.stderr
            told.append(done.stdout)
    assert "harbour" in told[0]
    assert told[0].partition("FROM noisegate.budget")[2] == told[1].partition("FROM noisegate.budget")[2]
    assert told[0].count("\n") == told[1].count("\n")


def test_the_policy_of_the_gates_says_what_the_compose_file_needs() -> None:
    policy = load(DOCKER / "noisegate.toml")
    assert isinstance(policy.ledger, Remote)
    assert policy.ledger.marker == Path("/var/lib/noisegate/ledger.born")
    assert all(analyst.password for analyst in policy.analysts.values())
