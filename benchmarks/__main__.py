"""Run every benchmark, or the named ones, and write their sections of docs/benchmarks.md."""

from __future__ import annotations

import sys
from pathlib import Path

from benchmarks import (
    adaptive,
    arrangements,
    cluster,
    console,
    epsilon,
    federated,
    genotypes,
    ica,
    intervals,
    lengths,
    missing,
    private_streams,
    regression,
    rival_clusters,
    rival_mixtures,
    rival_panels,
    rival_topics,
    scales,
    sites,
    spark,
    speed,
    streaming,
    tensors,
    units,
    usable,
    utility,
)
from benchmarks.report import Report

PARTS = {
    "speed": speed.run,
    "utility": utility.run,
    "rivals": rival_panels.run,
    "rival mixtures": rival_mixtures.run,
    "rival clusters": rival_clusters.run,
    "rival topics": rival_topics.run,
    "adaptive": adaptive.run,
    "lengths": lengths.run,
    "regression": regression.run,
    "epsilon": epsilon.run,
    "usable": usable.run,
    "intervals": intervals.run,
    "ica": ica.run,
    "scales": scales.run,
    "missing": missing.run,
    "units": units.run,
    "federated": federated.run,
    "tensors": tensors.run,
    "arrangements": arrangements.run,
    "streams": streaming.run,
    "private streams": private_streams.run,
    "cluster": cluster.run,
    "spark": spark.run,
    "sites": sites.run,
    "console": console.run,
    "genotypes": genotypes.run,
}


def main(names: list[str]) -> None:
    """Measure and report."""
    if unknown := [name for name in names if name not in PARTS]:
        sys.exit(f"There is no benchmark {', '.join(unknown)}. There are: {', '.join(PARTS)}.")
    report = Report()
    for name in names or list(PARTS):
        PARTS[name](report)
    report.write(Path(__file__).parents[1] / "docs" / "benchmarks.md", whole=not names)


if __name__ == "__main__":
    main(sys.argv[1:])
