"""Evaluates expectations with Great Expectations on a Spark DataFrame; the only importer of that library.

All checks of a table go through one validation, because it computes shared numbers once. Examples of wrong rows
are not asked for: each would cost a Spark job, and row values do not belong in reports. Nothing stays behind:
the context lives in memory, the DataFrame is not cached, and whatever the library logs is already in a verdict.
"""

import contextlib
import logging
import math
import re
import threading
import warnings
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from numbers import Number
from typing import Any

from dw_platform.foundation import UserError
from dw_platform.quality.catalogue import CATALOGUE
from dw_platform.quality.expectations import ROW_COUNT, Expectation, row_count_check
from dw_platform.quality.parameters import ParameterType, as_moment
from dw_platform.quality.verdict import Verdict, sentence

# Zero examples: with the default of 20, six checks took 17 Spark jobs instead of 7 (Great Expectations 1.24).
_RESULT_FORMAT = {"result_format": "BASIC", "partial_unexpected_count": 0}
_LOGGERS = ("great_expectations", "DataFrameQueryContextLogger", "SQLQueryContextLogger")
# The library keeps its current context, and Python its warning filters, in global variables.
_ONE_AT_A_TIME = threading.Lock()


class DuplicateCheckError(UserError):
    """Two checks of a table have one name, so their results could not be told apart."""

    def __init__(self, table: str, names: Sequence[str]) -> None:
        self.table, self.names = table, tuple(names)
        super().__init__(
            f"{table}: more than one check is called {', '.join(names)}. Give each its own `name`; "
            f"{ROW_COUNT} is the platform's own."
        )


def run_expectations(
    dataframe: Any, table: str, expectations: Sequence[Expectation], *, allow_empty: bool = False
) -> list[Verdict]:
    """Return one verdict for each expectation, in their order, after the one about the number of rows.

    A check that cannot be evaluated (a missing column, a regular expression Java refuses) is a failed verdict
    with the reason in `exception`; the others are not affected. With `allow_empty` a table without rows passes
    every check of values; without it such a table fails the row count.
    """
    checks = (row_count_check(allow_empty=allow_empty), *expectations)
    repeated = [name for name, count in Counter(check.name for check in checks).items() if count > 1]
    if repeated:
        raise DuplicateCheckError(table, repeated)
    types = dict(dataframe.dtypes)
    with _ONE_AT_A_TIME, _quiet():
        results = _validate(dataframe, table, checks, types)
    rows = results[ROW_COUNT].result.get("observed_value")
    vacuous = allow_empty and rows == 0
    return [_verdict(check, table, results[check.name], types, vacuous=vacuous) for check in checks]


def _validate(dataframe: Any, table: str, checks: Sequence[Expectation], types: Mapping[str, str]) -> dict[str, Any]:
    import great_expectations as gx  # noqa: PLC0415  its import takes seconds, and most processes never check
    import great_expectations.expectations as gxe  # noqa: PLC0415

    context: Any = gx.get_context(mode="ephemeral")
    context.enable_analytics(False)
    context.variables.progress_bars = {"globally": False}
    source = context.data_sources.add_spark("lake", persist=False)
    batch = source.add_dataframe_asset(table).add_batch_definition_whole_dataframe("all")
    suite = gx.ExpectationSuite(name=table, expectations=[_foreign(gxe, check, types) for check in checks])
    outcome = batch.get_batch(batch_parameters={"dataframe": dataframe}).validate(suite, result_format=_RESULT_FORMAT)
    # By name: results come back in another order than they were asked for.
    return {result.expectation_config.meta["check"]: result for result in outcome.results}


def _foreign(library: Any, check: Expectation, types: Mapping[str, str]) -> Any:
    """Return the library's own object for `check`."""
    kind = CATALOGUE[check.kind]
    columns: list[Any] = [list(check.columns)] if kind.arguments in {("column_list",), ("column_set",)} else []
    arguments = dict(zip(kind.arguments, columns or check.columns, strict=True))
    for name, value in check.parameters.items():
        parameter = kind.parameter(name)
        bound = parameter is not None and parameter.type is ParameterType.BOUND
        arguments[name] = _bound(value, check, types) if bound else value
    expectation_class = getattr(library, "Expect" + "".join(word.capitalize() for word in check.kind.split("_")))
    return expectation_class(**arguments, meta={"check": check.name}, severity=check.severity.value)


def _bound(value: Any, check: Expectation, types: Mapping[str, str]) -> Any:
    """Return a bound in the form that means UTC where it is compared.

    Values are compared by Spark, which understands a zone. A minimum or maximum is compared in Python, where
    Spark hands over timestamps in the machine's own zone and without saying so.
    """
    moment = as_moment(value)
    if moment is None:
        return value
    if check.kind == "column_values_to_be_between":
        return moment.replace(tzinfo=UTC)
    return moment.replace(tzinfo=UTC).astimezone().replace(tzinfo=None) if _is_instant(check, types) else moment


def _is_instant(check: Expectation, types: Mapping[str, str]) -> bool:
    return len(check.columns) == 1 and types.get(check.columns[0]) == "timestamp"


def _verdict(check: Expectation, table: str, result: Any, types: Mapping[str, str], *, vacuous: bool) -> Verdict:
    exception = _exception(result.exception_info or {})
    vacuous = vacuous and exception is None and CATALOGUE[check.kind].judges_values
    observed = result.result.get("observed_value")
    if isinstance(observed, datetime) and _is_instant(check, types):
        observed = observed.astimezone(UTC)
    observed = _observed(observed)
    return Verdict(
        check=check.name,
        table=table,
        passed=bool(result.success) or vacuous,
        severity=check.severity,
        observed=observed,
        unexpected_count=result.result.get("unexpected_count"),
        unexpected_percent=result.result.get("unexpected_percent"),
        detail="no rows to judge" if vacuous else exception or sentence(result.result, observed),
        exception=exception,
    )


def _observed(value: Any) -> str | float | None:
    """Return what was observed as a plain value that JSON can carry."""
    if value is None or isinstance(value, int | str):
        return value
    if isinstance(value, datetime):
        return value.isoformat(sep=" ")
    if isinstance(value, list):
        return ", ".join(map(str, value))
    if isinstance(value, Number):
        number = float(str(value))  # by way of text, for Decimal and numpy alike
        return number if math.isfinite(number) else None
    return str(value)


def _exception(info: Mapping[str, Any]) -> str | None:
    """Return the first reason in `info`, which is either one exception or one for each metric."""
    if info.get("raised_exception") is False:
        return None
    entries = [info, *(entry for entry in info.values() if isinstance(entry, Mapping))]
    messages = [str(entry["exception_message"]) for entry in entries if entry.get("exception_message")]
    return _readable(messages[0]) if messages else None


def _readable(message: str) -> str:
    """Return the one line of `message` that says what is wrong, without Java's stack and without row values."""
    lines = [line for line in message.splitlines() if line.strip()]
    line = lines[-1] if message.startswith("Traceback") else lines[0]
    java = re.search(r"Lost task[^:]*: ([\w.]+(?:Exception|Error): .*)|Caused by: (.*)", message)
    if java:
        line = java[1] or java[2]
    line = re.sub(r"^(Error|[\w.]+(?:Exception|Error)): ", "", line)
    return re.sub(r"value '[^']*'", "value '…'", line)[:300]


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Keep the library from warning and logging: what it would say is in the verdicts."""
    levels = {name: logging.getLogger(name).level for name in _LOGGERS}
    with warnings.catch_warnings():
        # It still imports two modules that Python 3.11 deprecates.
        warnings.filterwarnings("ignore", "module 'sre_.*' is deprecated", DeprecationWarning)
        # numpy, about the median of a table without rows; the verdict says the same.
        warnings.filterwarnings("ignore", "(Mean of empty slice|invalid value encountered)", RuntimeWarning)
        try:
            for name in levels:
                logging.getLogger(name).setLevel(logging.CRITICAL + 1)
            yield
        finally:
            for name, level in levels.items():
                logging.getLogger(name).setLevel(level)
