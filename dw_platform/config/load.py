"""From `platform.yaml` to a `PlatformConfig`, or to every reason why not."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from dw_platform.config.document import parse_document, read_document
from dw_platform.config.environment import fill_in
from dw_platform.config.nodes import Document
from dw_platform.config.platform import PlatformConfig
from dw_platform.config.problems import ConfigError, Place, Problem
from dw_platform.config.rules import broken_rules
from dw_platform.config.translate import problems_of


def load_config(path: Path, *, environ: Mapping[str, str]) -> PlatformConfig:
    """Return the platform that `path` describes; raise ConfigError with all of its problems.

    Relative paths in the file are relative to the file. Nothing is created, opened or connected.
    """
    return _checked(read_document(path), path, environ)


def parse_config(text: str, *, source: Path, environ: Mapping[str, str]) -> PlatformConfig:
    """Return the platform that `text` describes, as if it stood in the file `source`."""
    return _checked(parse_document(text, source), source, environ)


def _checked(document: Document, source: Path, environ: Mapping[str, str]) -> PlatformConfig:
    values, unset = fill_in(document, environ)
    config, wrong = _typed(document, values, source.absolute().parent)
    broken = [replace(problem, line=document.line(problem.place)) for problem in broken_rules(values)]
    explained = document.unreadable | {problem.place for problem in unset}
    problems = [*document.problems, *unset, *_others(wrong, explained)]
    problems += _others(broken, explained | {problem.place for problem in wrong})
    problems.sort(key=lambda problem: (problem.line or 0, problem.path))
    if config is None or problems:
        raise ConfigError(source, problems)
    config._source = source.absolute()  # noqa: SLF001  private so that it is no key of the file
    return config


def _typed(document: Document, values: dict[str, Any], folder: Path) -> tuple[PlatformConfig | None, list[Problem]]:
    # The error leaves here as problems only: as a cause or context it would carry values into tracebacks.
    try:
        return PlatformConfig.model_validate(values, context={"folder": folder}), []
    except ValidationError as error:
        return None, problems_of(error, document, values)


def _others(problems: list[Problem], explained: set[Place]) -> list[Problem]:
    """Return the problems at places about which nothing was said yet, one for each: the first explains the rest."""
    first = {problem.place: problem for problem in reversed(problems)}
    return [problem for place, problem in first.items() if place not in explained]
