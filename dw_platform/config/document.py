"""A YAML file as plain values and the line of each of them, or one sentence on why it is none."""

import re
from pathlib import Path

import yaml

from dw_platform.config.nodes import Builder, Document, TooMuchError, compose
from dw_platform.config.problems import ConfigError, Problem

MAX_BYTES = 1024 * 1024
_TOKEN = re.compile(r".|<[a-z ]+>")


def read_document(path: Path) -> Document:
    """Return the document in `path`, or raise ConfigError when there is none to speak of."""
    return parse_document(_read_text(path), path)


def parse_document(text: str, source: Path) -> Document:
    """Return the document that `text` is; `source` is where errors say it came from."""
    problem: Problem
    try:
        root = compose(text)
        if root is None or (isinstance(root, yaml.ScalarNode) and root.value in {"", "~", "null"}):
            raise ConfigError(source, [_whole("is empty; `dw init` writes one to start from")])
        if not isinstance(root, yaml.MappingNode):
            raise ConfigError(source, [_whole("is not a platform file: expected keys such as `name:` and `lake:`")])
        return Builder().document(root)
    except yaml.YAMLError as error:
        problem = _syntax_problem(error)
    except TooMuchError as error:
        problem = _whole(str(error), error.line)
    # Raised outside the handlers: the parser's own error quotes the text around it, which may be a password.
    raise ConfigError(source, [problem])


def _whole(message: str, line: int | None = None) -> Problem:
    return Problem(place=(), message=message, line=line)


def _read_text(path: Path) -> str:
    try:
        with path.open("rb") as file:
            content = file.read(MAX_BYTES + 1)
    except FileNotFoundError:
        problem = _whole("does not exist; `dw init` writes one, `--config` names another")
    except IsADirectoryError:
        problem = _whole("is a folder; name the file in it, usually platform.yaml")
    except OSError as error:
        problem = _whole(f"cannot be read: {error.strerror}")
    except ValueError:  # a NUL in the name
        problem = _whole("is not a usable file name")
    else:
        if len(content) > MAX_BYTES:
            raise ConfigError(path, [_whole(f"is larger than {MAX_BYTES // 1024} KiB, too large for a platform file")])
        try:
            return content.decode("utf-8-sig")
        except UnicodeDecodeError as error:
            line = content[: error.start].count(b"\n") + 1
            problem = _whole("is not UTF-8 text; save it with that encoding", line)
    raise ConfigError(path, [problem])


def _syntax_problem(error: yaml.YAMLError) -> Problem:
    if isinstance(error, yaml.reader.ReaderError):
        return _whole("contains a control character, which YAML does not allow")
    mark = getattr(error, "problem_mark", None)
    line = mark.line + 1 if mark else None
    said = str(getattr(error, "problem", None) or "")
    # Quoted parts of the parser's sentences can come from the file; only known ones are repeated.
    if "undefined alias" in said:
        return _whole("is not valid YAML: a value starts with *, which names an anchor; put it in quotes", line)
    if "'\\t'" in said:
        return _whole("is not valid YAML: a tab where spaces are expected; indent with spaces", line)
    if "another document" in said or "single document" in str(error):
        return _whole("holds more than one YAML document; remove the line `---`", line)
    if "but got '{'" in said:
        return _whole("is not valid YAML: a { inside braces or brackets; put ${NAME} in quotes there", line)
    reason = re.sub(r"'([^']*)'", lambda quoted: quoted[0] if _TOKEN.fullmatch(quoted[1]) else "...", said)
    return _whole(f"is not valid YAML: {reason or 'the text cannot be read'}", line)
