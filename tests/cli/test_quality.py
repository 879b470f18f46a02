"""`dw quality`: what it refuses, before Spark starts."""

from pathlib import Path

import pytest

from tests.cli.conftest import Dw, MakeFile


@pytest.mark.parametrize(
    ("table", "advice"),
    [
        ("shop.revenue", "Add it under `quality` in platform.yaml; tables with checks: shop.orders."),
        ("shop.nothing", "Add it under `quality` in platform.yaml; tables with checks: shop.orders."),
        ("shop.orders", "Build it with `dw tables build shop.orders`"),
    ],
    ids=["without checks", "unknown", "never built"],
)
def test_what_cannot_be_checked_is_a_users_mistake(
    dw: Dw, make_file: MakeFile, tmp_path: Path, table: str, advice: str
) -> None:
    make_file()
    code, out, err = dw("quality", table, "--json")
    assert (code, out) == (2, "")
    assert advice in err
    assert "starting Spark" not in err
    assert not (tmp_path / "home" / "lake" / "ops").exists()


@pytest.mark.spark
@pytest.mark.usefixtures("shared_spark")
def test_a_failed_critical_check_is_told_and_is_no_success(dw: Dw, with_tables: Path) -> None:
    file = with_tables
    file.write_text(
        file.read_text() + "      - {expect: column_values_to_be_between, column: order_id, max_value: 1}\n"
    )
    code, out, _ = dw("quality", "shop.orders", "-c", file)
    assert code == 1
    assert "order_id_values_to_be_between  no" in out
    assert out.splitlines()[-1] == "shop.orders version 1: 1 of 3 checks failed: order_id_values_to_be_between"
    assert "2 passed, failed: order_id_values_to_be_between" in dw("status", "-c", file).out
