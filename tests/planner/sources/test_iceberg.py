"""Iceberg tables, by a Spark that is configured by its own file: iceberg_cases.py, in a process with that Spark."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
PACKAGES = ROOT / ".venv" / "iceberg"
JARS = PACKAGES / "snowpark_connect_deps_iceberg" / "jars"

DEFAULTS = """spark.jars {jar}
spark.sql.catalog.lake org.apache.iceberg.spark.SparkCatalog
spark.sql.extensions org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions
spark.sql.catalog.lake.type hadoop
spark.sql.catalog.lake.warehouse {folder}/warehouse
spark.sql.shuffle.partitions 1
spark.sql.codegen.wholeStage false
spark.sql.codegen.factoryMode NO_CODEGEN
"""


@pytest.mark.skipif(not JARS.is_dir(), reason="the Spark with Iceberg is not installed")
@pytest.mark.skipif(shutil.which("java") is None, reason="Java is not installed")
def test_iceberg_tables_are_read_like_all_others(tmp_path: Path) -> None:
    [jar] = JARS.glob("iceberg-spark-runtime-3.5_2.12-*.jar")
    (tmp_path / "spark-defaults.conf").write_text(DEFAULTS.format(jar=jar, folder=tmp_path))
    settings = {"PYTHONPATH": str(PACKAGES), "SPARK_CONF_DIR": str(tmp_path), "SPARK_LOCAL_IP": "127.0.0.1"}
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "tests/planner/iceberg_cases.py"]
    command += ["-W", "default"]  # Spark 3.5 leaves sockets to be collected
    ran = subprocess.run(command, cwd=ROOT, env=os.environ | settings, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stdout
