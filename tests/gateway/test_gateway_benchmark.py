import pytest

from benchmarks import run


@pytest.mark.server
def test_the_benchmark_runs_and_compares_with_its_ceiling() -> None:
    result = run("gateway", quick=True)
    names = [measure["name"] for measure in result["measures"]]
    assert "gateway, Arrow by 10,000" in names
    assert "gateway, 64 single posts at once, p95" in names
    assert all(measure["median"] > 0 for measure in result["measures"])
    assert len(result["checks"]) == 2
