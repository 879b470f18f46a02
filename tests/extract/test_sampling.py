from collections.abc import Sequence
from dataclasses import replace

import pytest
from sqlalchemy import Engine

from dw_platform.extract import sampling
from dw_platform.extract.conditions import Condition
from dw_platform.extract.key_column import Position
from dw_platform.extract.reader import PageReader, TableQuery
from dw_platform.extract.sampling import estimated_rows, free_connections, split_positions
from tests.extract.conftest import Sandbox
from tests.extract.reading import described, query_of

# Half of the keys are below 1,000 and the rest far apart: strides of equal length would put half into one range.
SKEWED = [*range(1000), *(10**6 + 977 * at for at in range(1000))]


def fill(box: Sandbox) -> None:
    box.run("CREATE TABLE t (id int PRIMARY KEY, g int)")
    box.insert("t", [(key, key % 2) for key in SKEWED])
    if box.kind == "postgresql":
        box.run("ANALYZE t")


def sizes(box: Sandbox, query: TableQuery, cuts: Sequence[Position], upto: Position) -> list[int]:
    """Return how many rows each range has, read as the extraction reads them."""
    found = []
    with PageReader(box.source, query) as reader:
        for after, bound in zip([None, *cuts], [*cuts, upto], strict=True):
            found.append(reader.page(after, 10**6, upto=bound).rows.num_rows)
    return found


def bound_of(box: Sandbox, query: TableQuery) -> Position:
    with PageReader(box.source, query) as reader:
        bound = reader.last_position()
    assert bound is not None
    return bound


@pytest.mark.parametrize("parts", [1, 2, 8])
def test_ranges_are_even_however_the_keys_are_spread(box: Sandbox, parts: int) -> None:
    fill(box)
    query = query_of(box)
    bound = bound_of(box, query)
    assert (
        sizes(box, query, split_positions(box.source, query, parts=parts, upto=bound), bound) == [2000 // parts] * parts
    )


def test_rows_beyond_the_bound_and_outside_the_filter_do_not_count(box: Sandbox) -> None:
    fill(box)
    query = query_of(box, where=[Condition("g", "=", 1)])
    with PageReader(box.source, query) as reader:
        bound = reader.position_ahead(None, 400)
    assert bound is not None
    assert sizes(box, query, split_positions(box.source, query, parts=4, upto=bound), bound) == [100] * 4


def test_a_composite_key_is_cut_in_the_middle_of_a_group(box: Sandbox) -> None:
    box.run("CREATE TABLE t (a int, b int, PRIMARY KEY (a, b))")
    box.insert("t", [(at // 900, at) for at in range(1000)])
    query = query_of(box)
    bound = bound_of(box, query)
    assert sizes(box, query, split_positions(box.source, query, parts=5, upto=bound), bound) == [200] * 5


def test_fewer_rows_than_parts_give_fewer_ranges(box: Sandbox) -> None:
    box.run("CREATE TABLE t (id int PRIMARY KEY)")
    box.insert("t", [(1,), (2,), (3,)])
    query = query_of(box)
    bound = bound_of(box, query)
    cuts = split_positions(box.source, query, parts=10, upto=bound)
    assert sizes(box, query, cuts, bound) == [1, 1, 1]


@pytest.mark.server
def test_a_sample_of_a_large_table_gives_about_even_ranges(
    postgres_box: Sandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sampling, "_WALKED_ROWS", 1000)
    monkeypatch.setattr(sampling, "_SAMPLE_ROWS", 10_000)
    postgres_box.run(
        "CREATE TABLE t (a int, b text, PRIMARY KEY (a, b))",
        "INSERT INTO t SELECT i % 3, md5(i::text) FROM generate_series(1, 40000) i",
        "ANALYZE t",
    )
    query = query_of(postgres_box)
    bound = bound_of(postgres_box, query)
    found = sizes(postgres_box, query, split_positions(postgres_box.source, query, parts=4, upto=bound), bound)
    assert sum(found) == 40_000
    # md5 is spread over all blocks, so 10,000 rows cut within a few percent; 20 % leaves no room for bad luck.
    assert all(8_000 < rows < 12_000 for rows in found)


def test_the_number_of_rows_is_known_about(box: Sandbox, engine: Engine) -> None:
    fill(box)
    if box.kind == "mysql":
        box.run("ANALYZE TABLE t")
    with engine.connect() as connection:
        found = estimated_rows(connection, box.source, described(box, "t"))
    assert found is not None
    assert 1000 < found < 3000


@pytest.mark.server
def test_a_table_that_was_never_analysed_is_counted(postgres_box: Sandbox) -> None:
    from dw_platform.extract.source import open_engine

    postgres_box.run("CREATE TABLE t (id int PRIMARY KEY)", "INSERT INTO t SELECT generate_series(1, 500)")
    postgres_box.run("CREATE TABLE p (id int PRIMARY KEY) PARTITION BY RANGE (id)")
    postgres_box.run("CREATE TABLE p1 PARTITION OF p FOR VALUES FROM (0) TO (10)", "INSERT INTO p VALUES (1)")
    postgres_box.run("CREATE VIEW v AS SELECT * FROM t")
    engine = open_engine(postgres_box.source)
    with engine.connect() as connection:
        found = [
            estimated_rows(connection, postgres_box.source, replace(described(postgres_box, name), estimated_rows=None))
            for name in ("t", "p", "v")
        ]
    engine.dispose()
    assert found[0] == 500
    assert found[1] in {0, 1}
    assert found[2] is None


def test_free_connections_are_what_the_database_says(box: Sandbox) -> None:
    left = free_connections(box.source)
    assert left is None if box.kind == "sqlite" else (left is not None and 0 < left < 1000)
