"""Benchmarks: each measures the platform beside its peers in the same run and returns figures as ratios.

python -m benchmarks               lists them
python -m benchmarks lake          runs one; `dw bench lake` does the same
"""

from benchmarks.harness import available, render, run

__all__ = ["available", "render", "run"]
