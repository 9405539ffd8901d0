"""Synthetic copies of the bundled Adult table, made by generators that nobody here wrote.

    python benchmarks/papers/adult_synthetic.py FOLDER [--venv DIR]

Writes adult_synth.parquet (MST, a marginal-based generator: McKenna et al., arXiv 2108.04978, as in the package dpmm)
and adult_privbayes.parquet (PrivBayes, as in the package DataSynthesizer) into the folder. The copies that are used are
kept, the first in noisegate/data, the second in data/ beside this file: nothing else in this repository needs the
generators.
They are installed, with the versions below, into an environment of their own: DIR, by default a temporary one
(Python 3.11, about 600 MB).

Both generators see the same table: names, and numbers cut into bins at public places (CUTS). A number is drawn
uniformly from its bin afterwards. NULL is a name of its own. Everything is seeded; MST takes its Gaussian noise from
OpenDP, which cannot be seeded, so the same noise is drawn with numpy instead: Adult is public, and the copies can be
made again byte for byte. These are inputs of an experiment, not private releases.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import subprocess
import tempfile
import tomllib
import venv
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pandas as pd

REQUIREMENTS = (
    "DataSynthesizer==0.1.13",
    "dpmm==0.1.9",
    "duckdb==2.0.0",
    "numpy==1.26.4",
    "pandas==2.1.0",
    "scikit-learn==1.5.0",
    "scipy==1.17.1",
)
EPSILON = 1.0
DELTA = 1e-9
SEED = 0
PARENTS = 1
"""Most parents of a node in the Bayesian network; with two, noise drowns its tables at this size."""
STEPS = 1000
"""Of the fit of MST's graphical model to its noisy marginals."""

DATA = Path(__file__).resolve().parents[2] / "noisegate" / "data"
UNKNOWN = "?"

CUTS = {
    "age": [*range(17, 80), 85, 91],
    "fnlwgt": [10_000, *range(50_000, 400_001, 25_000), 500_000, 750_000, 1_500_000],
    "education_num": list(range(1, 18)),
    "capital_gain": [
        0,
        1,
        1_000,
        2_000,
        3_000,
        4_000,
        5_000,
        7_000,
        7_500,
        10_000,
        15_000,
        16_000,
        30_000,
        99_999,
        100_000,
    ],
    "capital_loss": [0, 1, 1_000, 1_500, 1_600, 1_700, 1_800, 1_900, 2_000, 2_250, 2_500, 5_001],
    "hours": [1, 10, 15, 20, 21, 25, 30, 35, 36, 38, 39, 40, 41, 45, 46, 50, 51, 55, 56, 60, 61, 70, 80, 99, 100],
}
"""Bins [a, b) of the numbers, from the policy's bounds and common knowledge (40 hours a week, top codes)."""


def cut(table: pd.DataFrame) -> pd.DataFrame:
    """Return the table with bins instead of numbers, both as names."""
    import pandas as pd

    names = table.copy()
    for column, edges in CUTS.items():
        names[column] = pd.cut(table[column], edges, right=False, labels=False).map(lambda k: f"b{k:02}")
    return names.fillna(UNKNOWN)


def filled(names: pd.DataFrame, seed: int) -> pd.DataFrame:
    """Return the table with a number drawn from each bin, sorted: the order tells nothing, and it packs better."""
    import numpy as np

    rng = np.random.default_rng(seed)
    table = names.astype(object).replace(UNKNOWN, None)
    for column, edges in CUTS.items():
        bins = names[column].str[1:].astype(int).to_numpy()
        table[column] = rng.integers(np.array(edges)[bins], np.array(edges)[bins + 1])
    return table.sort_values(list(table.columns)).reset_index(drop=True)


def domain() -> dict[str, list[str]]:
    """Return the names that each column may hold: the policy's values, and the bins."""
    columns = tomllib.loads((DATA / "adult.toml").read_text())["tables"]["adult"]["columns"]
    bins = {column: [f"b{k:02}" for k in range(len(edges) - 1)] for column, edges in CUTS.items()}
    return {
        name: bins.get(name) or [*column["values"], *([UNKNOWN] if column.get("nullable") else [])]
        for name, column in columns.items()
    }


def mst(names: pd.DataFrame, seed: int) -> pd.DataFrame:
    """Return a copy by maximum-spanning-tree marginals, (EPSILON, DELTA)-DP."""
    import numpy as np
    from dpmm.models.base.mechanisms import mechanism
    from dpmm.pipelines import MSTPipeline

    rng = np.random.default_rng(seed)
    mechanism.gaussian_noise = lambda sigma, size: rng.normal(0, sigma, size)  # OpenDP's cannot be seeded
    values = {name: {"categories": found} for name, found in domain().items()}
    pipeline = MSTPipeline(epsilon=EPSILON, delta=DELTA, proc_epsilon=None, n_jobs=1, gen_kwargs={"n_iters": STEPS})
    pipeline.fit(names.astype("category"), values, random_state=seed)
    return pipeline.generate(n_records=len(names), random_state=seed).astype(str)


def privbayes(names: pd.DataFrame, seed: int) -> pd.DataFrame:
    """Return a copy by a noisy Bayesian network, EPSILON-DP as the package counts.

    The package spends EPSILON once more on its columns one by one, which it uses where the network says nothing.
    """
    from DataSynthesizer.DataDescriber import DataDescriber
    from DataSynthesizer.DataGenerator import DataGenerator

    with tempfile.TemporaryDirectory() as folder:
        source, values, description = (f"{folder}/{name}" for name in ("adult.csv", "domain.json", "description.json"))
        names.to_csv(source, index=False)
        Path(values).write_text(json.dumps(domain()))
        describer = DataDescriber(category_threshold=1000)
        describer.describe_dataset_in_correlated_attribute_mode(
            source,
            k=PARENTS,
            epsilon=EPSILON,
            attribute_to_datatype=dict.fromkeys(names, "String"),
            attribute_to_is_categorical=dict.fromkeys(names, True),
            attribute_to_is_candidate_key=dict.fromkeys(names, False),
            categorical_attribute_domain_file=values,
            seed=seed,
        )
        describer.save_dataset_description_to_file(description)
        generator = DataGenerator()
        generator.generate_dataset_in_correlated_attribute_mode(len(names), description, seed=seed)
    synthetic: Any = generator.synthetic_dataset  # the package has no types
    return synthetic.astype(object).fillna(UNKNOWN).astype(str)


def make(folder: Path) -> None:
    """Write both copies into the folder; to be run where the generators are installed."""
    import duckdb

    names = cut(duckdb.execute(f"FROM '{DATA / 'adult.parquet'}'").df())
    types = {row[0]: row[1] for row in duckdb.execute(f"DESCRIBE FROM '{DATA / 'adult.parquet'}'").fetchall()}
    casts = ", ".join(f"{name}::{kind} AS {name}" for name, kind in types.items())
    folder.mkdir(parents=True, exist_ok=True)
    for name, generator in (("adult_synth", mst), ("adult_privbayes", privbayes)):
        copy = filled(generator(names, SEED), SEED)  # noqa: F841 - DuckDB reads it by its name
        path = folder / f"{name}.parquet"
        duckdb.execute(
            f"COPY (SELECT {casts} FROM copy) TO '{path}' (FORMAT parquet, COMPRESSION zstd, COMPRESSION_LEVEL 19)"
        )
        print(f"{path}: {path.stat().st_size:,} bytes, epsilon {EPSILON}, seed {SEED}")


def main() -> None:
    """Make the copies here if the generators are installed, or in an environment that is made for it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--venv", type=Path, help="where to install the generators")
    options = parser.parse_args()
    if importlib.util.find_spec("dpmm") and importlib.util.find_spec("DataSynthesizer"):
        make(options.folder)
        return
    with tempfile.TemporaryDirectory() as temporary:
        place = options.venv or Path(temporary)
        venv.create(place, with_pip=True)
        python = str(place / "bin" / "python")
        subprocess.run([python, "-m", "pip", "install", "--quiet", *REQUIREMENTS], check=True)
        subprocess.run([python, __file__, str(options.folder)], check=True)


if __name__ == "__main__":
    main()
