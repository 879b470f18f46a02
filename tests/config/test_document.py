import time
from pathlib import Path
from typing import Any

import pytest

from dw_platform.config import ConfigError
from dw_platform.config.document import MAX_BYTES, parse_document, read_document
from dw_platform.config.nodes import Document

SOURCE = Path("platform.yaml")


def parse(text: str) -> Document:
    return parse_document(text, SOURCE)


def refused(text: str) -> ConfigError:
    with pytest.raises(ConfigError) as caught:
        parse(text)
    return caught.value


@pytest.mark.parametrize(
    ("written", "value"),
    [
        ("NO", "NO"),
        ("on", "on"),
        ("yes", "yes"),
        ("true", True),
        ("False", False),
        ("200_000", 200_000),
        ("0x10", 16),
        ("-0o17", -15),
        ("007", 7),
        ("1e3", 1000.0),
        (".5", 0.5),
        ("-1.5", -1.5),
        (".nan", ".nan"),
        ("12:30:45", "12:30:45"),
        ("2026-01-31", "2026-01-31"),
        ("'5'", "5"),
        ("!!str 5", "5"),
        ("64KiB", "64KiB"),
        ("9" * 5000, "9" * 5000),
        ("[a, 1, null]", ["a", 1, None]),
        ("{b: {c: 1}}", {"b": {"c": 1}}),
        ("|\n  two\n  lines", "two\nlines\n"),
    ],
)
def test_words_mean_what_yaml_1_2_and_editors_say(written: str, value: Any) -> None:
    document = parse(f"a: {written}\n")
    assert document.values == {"a": value}
    assert type(document.values["a"]) is type(value)
    assert document.problems == []


@pytest.mark.parametrize("nothing", ["", "~", "null", "# commented out\n"])
def test_a_key_without_a_value_counts_as_not_written(nothing: str) -> None:
    assert parse(f"a: 1\nb: {nothing}\n").values == {"a": 1}


def test_every_value_knows_its_line() -> None:
    document = parse("a: 1\nb:\n  - c: 2\n\n  - d:\n      e: 3\n")
    assert document.line(("a",)) == 1
    assert document.line(("b",)) == 2
    assert document.line(("b", 0, "c")) == 3
    assert document.line(("b", 1, "d", "e")) == 6
    assert document.line(("b", 1, "missing", "deeper")) == 5
    assert document.line(("nowhere",)) is None


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "is empty; `dw init` writes one"),
        (b"# only a comment\n", "is empty"),
        (b"---\n", "is empty"),
        (b"- a\n- b\n", "is not a platform file"),
        (b"just text", "is not a platform file"),
        (b"a: 1\n\tb: 2\n", "a tab where spaces are expected"),
        (b"a: [1, 2\n", "is not valid YAML"),
        (b"a: b: c\n", "is not valid YAML: mapping values are not allowed here (line 1)"),
        (b"a: {b: ${C}}\n", "put ${NAME} in quotes there"),
        (b"a: 1\n---\nb: 2\n", "more than one YAML document"),
        (b"a: \xff\xfe\n", "is not UTF-8 text; save it with that encoding (line 1)"),
        (b"a: 1\nb: \x07\n", "control character"),
        (b"a: @x\n", "cannot start any token"),
        (b"a: 1\n" * 300_000, "is larger than 1024 KiB"),
    ],
)
def test_a_file_that_is_no_platform_file_gets_one_clear_sentence(tmp_path: Path, content: bytes, words: str) -> None:
    path = tmp_path / "platform.yaml"
    path.write_bytes(content)
    with pytest.raises(ConfigError) as caught:
        read_document(path)
    [problem] = caught.value.problems
    assert words in str(problem)
    assert str(caught.value).startswith(f"{path}: ")


def test_a_missing_file_is_answered_with_how_to_make_one(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="does not exist; `dw init` writes one, `--config` names another"):
        read_document(tmp_path / "platform.yaml")


def test_a_folder_is_answered_with_the_file_that_was_meant(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"is a folder; name the file in it, usually platform\.yaml"):
        read_document(tmp_path)


def test_a_name_no_file_can_have_is_an_error_like_any_other() -> None:
    with pytest.raises(ConfigError, match="is not a usable file name"):
        read_document(Path("a\0b"))


def test_a_path_through_a_file_is_an_error_like_any_other(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(ConfigError, match="cannot be read: Not a directory"):
        read_document(tmp_path / "file" / "platform.yaml")


def test_a_byte_order_mark_is_not_part_of_the_first_key(tmp_path: Path) -> None:
    path = tmp_path / "platform.yaml"
    path.write_bytes(b"\xef\xbb\xbfname: x\n")
    assert read_document(path).values == {"name": "x"}


def test_a_key_written_twice_is_reported_where_it_is_repeated_and_the_first_counts() -> None:
    document = parse("a: 1\nb:\n  c: 1\n  c: 2\na: 3\n")
    assert document.values == {"a": 1, "b": {"c": 1}}
    assert [str(problem) for problem in document.problems] == [
        "b.c: is written twice, first on line 3; keep one of them (line 4)",
        "a: is written twice, first on line 1; keep one of them (line 5)",
    ]


@pytest.mark.parametrize("key", ["1", "true", "null", "[a]", "{a: b}", "1.5"])
def test_keys_are_texts(key: str) -> None:
    [problem] = parse(f"a: 1\n? {key}\n: 2\n").problems
    assert str(problem) == "has a key that is not text; put it in quotes (line 2)"


@pytest.mark.parametrize("value", ["!!python/object:os.system x", "!custom x", "!!set {a}", "!!int x", "!!binary eA=="])
def test_tags_are_refused_and_never_acted_on(value: str) -> None:
    document = parse(f"a: {value}\n")
    [problem] = document.problems
    assert problem.path == "a"
    assert problem.allowed == "plain values without a tag (!)"
    assert document.unreadable == {("a",)}


def test_anchors_and_aliases_work() -> None:
    document = parse("a: &x {b: 1}\nc: *x\n")
    assert document.values == {"a": {"b": 1}, "c": {"b": 1}}


def test_a_billion_laughs_is_refused_quickly() -> None:
    lines = ['a0: &a0 ["lol", "lol", "lol", "lol", "lol", "lol", "lol", "lol", "lol", "lol"]']
    lines += [f"a{level}: &a{level} [{', '.join([f'*a{level - 1}'] * 10)}]" for level in range(1, 10)]
    started = time.monotonic()
    error = refused("\n".join(lines))
    assert "holds more than 50,000 values once its aliases are expanded" in str(error)
    assert time.monotonic() - started < 20


def test_an_alias_to_itself_is_refused() -> None:
    assert "nested more than 30 levels deep" in str(refused("a: &x [*x]\n"))
    assert "nested more than 30 levels deep" in str(refused("a: &x {b: *x}\n"))


@pytest.mark.parametrize("opening", ["[", "{a: ", "- "])
def test_depth_is_bounded_before_the_stack_is(opening: str) -> None:
    assert "nested more than 30 levels deep" in str(refused("a:\n  " + opening * 20_000))


def test_a_syntax_error_does_not_repeat_what_may_be_a_password() -> None:
    for text in ("password: *hunter2\n", "password: !hunter2 x\nb: [", "a: 'hunter2\n", "a: hunter2: hunter2\n"):
        error = refused(text)
        assert "hunter2" not in str(error)
        assert error.__cause__ is None
        assert error.__context__ is None


def test_the_size_limit_counts_bytes(tmp_path: Path) -> None:
    path = tmp_path / "platform.yaml"
    path.write_bytes(b"a: 1\n#" + b"x" * (MAX_BYTES - 6))
    assert read_document(path).values == {"a": 1}
