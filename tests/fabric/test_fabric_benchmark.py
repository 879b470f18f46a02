from benchmarks import run


def test_a_quick_run_measures_every_topology_and_keeps_every_bound() -> None:
    result = run("fabric", quick=True)
    assert len(result["measures"]) == 6 * 9
    assert all(result["checks"].values()), result["checks"]
    star, mesh, federated = (
        next(row["median"] for row in result["measures"] if row["name"].startswith(kind) and "writes" in row["name"])
        for kind in ("star of 300", "mesh", "federated")
    )
    assert federated < mesh < star
