"""`dw keys`, as an operator uses it."""

import json
from pathlib import Path

import pytest

from dw_platform.cli.app import run
from dw_platform.gateway.keys import list_keys, matches
from dw_platform.pipelines import Platform
from tests.gateway.processes import write_platform


def dw(capfd: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    capfd.readouterr()
    code = run(list(arguments))
    out, err = capfd.readouterr()
    return code, out, err


def test_a_key_is_shown_once_and_listed_without_its_secret(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    config = ("--config", str(write_platform(tmp_path)))
    options = ("--topic", "orders.*", "--topic", "clicks", "--right", "read", "--quota", "500", "--expires", "90d")
    code, out, _ = dw(capfd, "keys", "create", "shop", *options, *config)
    key, _, told = out.partition("\n")
    assert (code, key.startswith("dw.shop.")) == (0, True)
    assert "may read orders.*, clicks, until" in told
    with Platform.open(tmp_path / "platform.yaml", environ={}) as platform:
        (record,) = list_keys(platform.store)
    assert matches(key, record)
    code, out, _ = dw(capfd, "keys", "list", *config)
    assert (code, "shop" in out, key.rpartition(".")[2] in out) == (0, True, False)
    (listed,) = json.loads(dw(capfd, "keys", "list", "--json", *config)[1])
    assert (listed["rights"], listed["quota"], listed["expired"]) == (["read"], 500.0, False)


def test_mistakes_are_told_and_change_nothing(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    config = ("--config", str(write_platform(tmp_path)))
    assert dw(capfd, "keys", "create", "shop", "--right", "admin", *config)[0] == 2
    assert dw(capfd, "keys", "create", "a.b", *config)[0] == 2
    assert "no keys yet" in dw(capfd, "keys", "list", *config)[1]
    created = json.loads(dw(capfd, "keys", "create", "shop", "--json", *config)[1])
    assert (created["rights"], created["topics"], created["expires_at"]) == (["publish"], ["*"], None)
    assert dw(capfd, "keys", "create", "shop", *config)[0] == 2
    assert dw(capfd, "keys", "revoke", "shop", *config)[:2] == (0, "shop is revoked.\n")
    code, _, err = dw(capfd, "keys", "revoke", "shop", *config)
    assert (code, "no key named" in err) == (2, True)
