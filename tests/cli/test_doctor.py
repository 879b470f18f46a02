"""What `dw doctor` finds, and that it changes nothing and tells no secret."""

import importlib.util
import json
import socket
import sqlite3
from datetime import UTC, datetime
from pathlib import Path

import pytest

from dw_platform.gateway.address import announce
from dw_platform.pipelines import Platform
from tests.cli.conftest import Dw, MakeFile


def _findings(out: str) -> dict[str, dict[str, str]]:
    return {entry["part"]: entry for entry in json.loads(out)}


def test_a_healthy_machine_has_nothing_that_failed(dw: Dw, make_file: MakeFile) -> None:
    make_file()
    code, out, err = dw("doctor", "--json")
    found = _findings(out)
    assert (code, err) == (0, "")
    assert {part: entry["health"] for part, entry in found.items() if part in {"python", "home", "lake", "store"}} == {
        "python": "ok",
        "home": "ok",
        "lake": "ok",
        "store": "ok",
    }


def test_without_java_it_says_how_to_get_one(
    dw: Dw, make_file: MakeFile, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    make_file()
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    code, out, err = dw("doctor", "--json")
    assert code == 1
    assert "pip install 'dw-platform[java]'" in _findings(out)["java"]["finding"]
    assert err == "error: Not working: java. The findings above say what to do.\n"


def test_a_store_that_is_down_does_not_make_the_lake_look_broken(dw: Dw, make_file: MakeFile) -> None:
    make_file("store: {url: 'postgresql://user:sekret-word@127.0.0.1:1/x'}")
    code, out, _ = dw("doctor", "--json")
    found = _findings(out)
    assert code == 1
    assert (found["store"]["health"], found["lake"]["health"]) == ("failed", "ok")
    assert "sekret-word" not in out


def test_an_existing_table_called_probe_is_left_alone(dw: Dw, make_file: MakeFile, tmp_path: Path) -> None:
    make_file()
    kept = tmp_path / "home" / "lake" / "probe" / "rows"
    kept.mkdir(parents=True)
    assert dw("doctor").code == 0
    assert kept.is_dir()


def test_databases_are_asked_as_their_clients_would(dw: Dw, make_file: MakeFile, tmp_path: Path) -> None:
    sqlite3.connect(tmp_path / "shop.db").close()
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]
        make_file(
            f"""
databases:
  - {{name: there, url: "sqlite:///{tmp_path}/shop.db"}}
  - {{name: silent, url: "mysql://user:sekret-word@127.0.0.1:{port}/x"}}
  - {{name: away, url: "postgresql://user:sekret-word@127.0.0.1:1/x"}}
  - {{name: odd, url: "postgresql://user:sek/ret-word@127.0.0.1:1/x"}}
  - {{name: file, url: "sqlite:////nowhere/at/all.db"}}
"""
        )
        code, out, err = dw("doctor", "--json")
    found = _findings(out)
    assert code == 1
    assert found["database there"]["health"] == "ok"
    assert "shop.db answers in" in found["database there"]["finding"]
    assert "does not answer" in found["database silent"]["finding"]
    assert "Connection refused; check the server" in found["database away"]["finding"]
    assert found["database odd"]["health"] == "failed"
    assert "there is no file /nowhere/at/all.db" in found["database file"]["finding"]
    assert not (tmp_path / "home" / "lake" / "ops").exists(), "a look is not counted"
    assert "ret-word" not in out + err


def test_a_remote_spark_is_dialled_and_needs_no_java(
    dw: Dw, make_file: MakeFile, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    make_file("spark: {remote: 'sc://127.0.0.1:1'}")
    found = _findings(dw("doctor", "--json").out)
    assert found["spark"]["health"] == "failed"
    assert "java" not in found


def test_a_missing_client_library_is_named_by_its_extra(
    dw: Dw, make_file: MakeFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_file("broker: {kind: kafka, address: '127.0.0.1:1'}")
    assert "kafka at 127.0.0.1:1 does not answer" in _findings(dw("doctor", "--json").out)["broker"]["finding"]
    find = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "confluent_kafka" else find(name))
    assert "dw-platform[kafka]" in _findings(dw("doctor", "--json").out)["broker"]["finding"]


def test_a_broker_that_nothing_here_can_talk_to_is_named(dw: Dw, make_file: MakeFile) -> None:
    make_file("broker: {kind: pulsar, address: '127.0.0.1:6650'}")
    code, out, _ = dw("doctor", "--json")
    assert code == 1
    assert _findings(out)["broker"]["finding"] == (
        "pulsar is not supported by this version, which knows embedded and kafka"
    )
    error = dw("topics", "list").err
    assert "This version cannot use a pulsar broker. Set `broker.kind` in platform.yaml to embedded or kafka." in error


STREAM = "streams: [{name: clicks, table: web.clicks, partitions: 2, retention: {for: 2h}}]"


def test_topics_of_streams_are_looked_at_and_the_file_wins_no_argument_silently(dw: Dw, make_file: MakeFile) -> None:
    make_file(STREAM)
    found = _findings(dw("doctor", "--json").out)
    assert (found["broker"]["finding"], found["log"]["health"]) == ("embedded", "ok")
    assert found["topic clicks"]["finding"] == "not there yet; the first record makes it"
    assert dw("topics", "create", "clicks").code == 0
    assert _findings(dw("doctor", "--json").out)["topic clicks"]["finding"] == "2 partitions"
    make_file(STREAM.replace("2h", "3h"))
    told = _findings(dw("doctor", "--json").out)["topic clicks"]
    assert (told["health"], "keeps the settings with which it was made" in told["finding"]) == ("warning", True)
    make_file(STREAM.replace("partitions: 2", "partitions: 4"))
    told = _findings(dw("doctor", "--json").out)["topic clicks"]
    assert told["finding"] == "has 2 partitions, the file says 4: `dw topics grow clicks --partitions 4`"


def test_a_broker_of_one_stream_is_named_after_it_and_its_topic_is_left_out_while_it_is_down(
    dw: Dw, make_file: MakeFile
) -> None:
    make_file("streams: [{name: far, table: a.b, broker: {kind: kafka, address: '127.0.0.1:1'}}]")
    code, out, _ = dw("doctor", "--json")
    found = _findings(out)
    assert (code, found["broker of far"]["health"], found["broker"]["health"]) == (1, "failed", "ok")
    assert "topic far" not in found


def test_a_log_folder_that_cannot_be_made_is_said(dw: Dw, make_file: MakeFile, tmp_path: Path) -> None:
    make_file(STREAM)
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "log").write_text("in the way")
    code, out, _ = dw("doctor", "--json")
    assert (code, _findings(out)["log"]["health"]) == (1, "failed")


def test_the_gateway_is_looked_at_when_it_is_wanted(dw: Dw, make_file: MakeFile) -> None:
    make_file()
    assert "gateway" not in _findings(dw("doctor", "--json").out)
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]
        file = make_file(f"gateway: {{enabled: true, port: {port}}}")
        told = _findings(dw("doctor", "--json").out)["gateway"]
        assert (told["health"], "in use by something else" in told["finding"]) == ("warning", True)
        with Platform.open(file, environ={}) as platform:
            announce(platform.store, f"http://127.0.0.1:{port}", at=datetime.now(UTC))
        told = _findings(dw("doctor", "--json").out)["gateway"]
        assert told["finding"] == f"runs at http://127.0.0.1:{port}"
    assert _findings(dw("doctor", "--json").out)["gateway"]["health"] == "ok"
    make_file(f"gateway: {{enabled: true, host: 0.0.0.0, port: {port}, require_keys: true}}")
    assert "unencrypted" in _findings(dw("doctor", "--json").out)["gateway"]["finding"]
    make_file(f"gateway: {{enabled: true, port: {port}, tls: {{certificate: a.pem, key: b.pem}}}}")
    assert _findings(dw("doctor", "--json").out)["gateway"]["health"] == "failed"


def test_a_busy_port_is_a_warning_because_dw_up_may_be_running(dw: Dw, make_file: MakeFile) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        make_file(f"dagster: {{port: {listening.getsockname()[1]}}}")
        code, out, _ = dw("doctor", "--json")
    assert (code, _findings(out)["dagster ui"]["health"]) == (0, "warning")


def test_every_finding_fits_into_the_table(dw: Dw, make_file: MakeFile) -> None:
    make_file()
    out = dw("doctor").out
    assert [line.split()[0] for line in out.splitlines()][:2] == ["part", "python"]
    assert not any(line.endswith(" ") for line in out.splitlines())
