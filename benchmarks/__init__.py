"""Benchmarks: each measures the platform beside its peers in the same run and returns figures as ratios.

dw bench               lists them
dw bench lake          runs one; `dw bench --help` shows how to make it larger or smaller
"""

from benchmarks.harness import available, render, run

__all__ = ["available", "render", "run"]
