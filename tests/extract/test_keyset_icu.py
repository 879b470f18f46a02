"""Pages under ICU's collations, also one for which different texts are equal; the wheel's PostgreSQL is without ICU."""

import os
import pwd
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dw_platform.extract.keyset import OrderColumn
from tests.extract.conftest import sandbox
from tests.extract.laid_out import COLUMNS, TEXTS, Bench, bench, expected, numbers, pages

pytestmark = pytest.mark.server

ICU = {
    "und": ('text COLLATE "und-x-icu"', TEXTS),
    "german": ('varchar(40) COLLATE "de-x-icu"', TEXTS),
    "equal": ("text COLLATE caseless", ["a", "A", "á", "b", "B", "", "ss", "SS", "it's", "back\\slash"]),
    "numeric_": ("text COLLATE natural_order", ["a2", "a10", "a1", "A1", "a02"]),
}
COLLATIONS = [
    "CREATE COLLATION caseless (provider = icu, locale = 'und-u-ks-level2', deterministic = false)",
    "CREATE COLLATION natural_order (provider = icu, locale = 'en-u-kn-true')",
]


def programs() -> Path | None:
    found = shutil.which("initdb")
    folders = [Path(found).parent] if found else sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)
    return next((folder for folder in folders if (folder / "pg_ctl").exists()), None)


@pytest.fixture(scope="module")
def system_postgres() -> Iterator[str]:
    """The system's own server, as the user that it is installed with where this is root."""
    folder = programs()
    if folder is None:
        pytest.skip("PostgreSQL with ICU: the system has no package of the server")
    home = Path(tempfile.mkdtemp(prefix="dw-icu-"))
    user: dict[str, Any] = {}
    if os.geteuid() == 0:
        try:
            owner = pwd.getpwnam("postgres")
        except KeyError:
            pytest.skip("PostgreSQL with ICU: it does not run as root, and there is no user postgres")
        os.chown(home, owner.pw_uid, owner.pw_gid)
        user = {"user": owner.pw_uid, "group": owner.pw_gid, "extra_groups": []}
    data, log = str(home / "data"), str(home / "log")

    def run(program: str, *arguments: str) -> None:
        command = [str(folder / program), "-D", data, *arguments]
        subprocess.run(command, check=True, cwd=home, stdout=subprocess.DEVNULL, timeout=120, **user)

    run("initdb", "-U", "postgres", "--auth=trust", "--encoding=UTF8", "--locale=C.UTF-8", "--no-sync")
    run(
        "pg_ctl",
        "-w",
        "-l",
        log,
        "-o",
        f"-c listen_addresses='' -c unix_socket_directories={home} -c fsync=off",
        "start",
    )
    try:
        yield f"postgresql+psycopg://postgres:@/postgres?host={home}"
    finally:
        run("pg_ctl", "-w", "-m", "immediate", "stop")
        shutil.rmtree(home)


@pytest.fixture(scope="module")
def workbench(system_postgres: str) -> Iterator[Bench]:
    box = sandbox("pg", system_postgres)
    with box.admin.connect() as connection:
        if not connection.exec_driver_sql("SELECT count(*) FROM pg_collation WHERE collprovider = 'i'").scalar_one():
            pytest.skip("PostgreSQL with ICU: the system's server is built without it")
    box.run(*COLLATIONS)
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(COLUMNS, "postgresql", ICU)
        patch.setattr("tests.extract.laid_out.PREPARED", {"postgresql": []})
        with bench(box) as opened:
            yield opened
    box.admin.dispose()


@given(data=st.data())
@settings(max_examples=120, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_pages_laid_end_to_end_are_the_table(workbench: Bench, data: st.DataObject) -> None:
    names = data.draw(st.lists(st.sampled_from(sorted(ICU)), min_size=1, max_size=2, unique=True))
    order = [
        OrderColumn(name, data.draw(st.booleans()), nullable=True, nulls_first=data.draw(st.sampled_from([None, True])))
        for name in names
    ]
    order.append(OrderColumn("id", data.draw(st.booleans())))
    cells = [st.none() | st.sampled_from(ICU[name][1]) for name in names]
    rows = [list(row) for row in data.draw(st.lists(st.tuples(*cells), max_size=14))]
    sizes = data.draw(st.lists(st.integers(1, 5), min_size=1, max_size=3))
    with workbench.filled(names, rows):
        wanted = expected(workbench, order)
        assert numbers(pages(workbench, order, sizes)) == wanted
        for at, (_, position) in enumerate(pages(workbench, order, [20])[0]):
            assert numbers(pages(workbench, order, sizes, upto=position)) == wanted[: at + 1]


def test_texts_that_the_collation_calls_equal_are_kept_apart_by_the_key(workbench: Bench) -> None:
    with workbench.filled(["equal"], [["a"], ["A"], ["a"], ["A"], ["b"], ["B"]]):
        order = [OrderColumn("equal", nullable=True), OrderColumn("id")]
        assert numbers(pages(workbench, order, [1])) == [1, 2, 3, 4, 5, 6]
