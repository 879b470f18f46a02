"""Passwords stay where they are, whatever goes wrong and however loudly."""

import logging
from pathlib import Path

import pytest

from dw_platform.cli import tables
from dw_platform.cli.secrecy import hide_secrets_of, masked
from dw_platform.config import parse_config
from tests.cli.conftest import Dw, MakeFile

SECRETS = ("sekret-store", "sekret-base", "sekret-s3", "sekret-broker", "sekret-option")
FULL = """
store: {url: "postgresql://user:sekret-store@127.0.0.1:1/x"}
lake: {root: "s3://bucket/lake", s3: {endpoint: "http://127.0.0.1:1", access_key: key, secret_key: sekret-s3}}
databases: [{name: base, url: "mysql://user:sekret-base@127.0.0.1:1/x"}]
broker:
  kind: kafka
  address: "127.0.0.1:1"
  username: u
  password: sekret-broker
  options: {sasl.password: sekret-option}
"""
COMMANDS = [
    ["config", "check"],
    ["config", "check", "--json"],
    ["doctor"],
    ["doctor", "--json"],
    ["status"],
    ["status", "--json"],
    ["tables", "list"],
    ["tables", "build", "shop.orders"],
    ["quality", "shop.orders"],
    ["demo"],
    ["up"],
]


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_no_command_tells_a_secret_even_with_debug(dw: Dw, make_file: MakeFile, command: list[str]) -> None:
    make_file(FULL)
    _, out, err = dw("--debug", *command)
    for secret in SECRETS:
        assert secret not in out + err


def test_secrets_in_foreign_errors_logs_and_tracebacks_are_masked(
    dw: Dw, make_file: MakeFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    def quote(_: object) -> None:
        logging.getLogger("driver").warning("connecting with %s", SECRETS[0])
        raise ValueError(f"bad address mysql://user:{SECRETS[1]}@127.0.0.1:1/x, key {SECRETS[2]}")

    make_file(FULL)
    monkeypatch.setattr(tables, "tables_overview", quote)
    monkeypatch.setattr("dw_platform.pipelines.Platform.store", None)
    code, _, err = dw("--debug", "tables", "list")
    assert code == 1
    assert "connecting with ***" in err
    assert "ValueError: bad address mysql://user:***@127.0.0.1:1/x, key ***" in err
    assert not any(secret in err for secret in SECRETS)


def test_a_percent_encoded_password_is_masked_both_ways(tmp_path: Path) -> None:
    text = "name: x\nstore: {url: 'postgresql://user:p%40ss-word@h/x'}\n"
    hide_secrets_of(parse_config(text, source=tmp_path / "platform.yaml", environ={}))
    assert masked("tried p%40ss-word and p@ss-word") == "tried *** and ***"


def test_words_that_are_no_secret_are_left_alone(tmp_path: Path) -> None:
    text = "name: x\nstore: {url: 'postgresql://h/x'}\nlake: {root: /data}\n"
    hide_secrets_of(parse_config(text, source=tmp_path / "platform.yaml", environ={}))
    told = "postgresql://h/x did not answer, /data neither"
    assert masked(told) == told
