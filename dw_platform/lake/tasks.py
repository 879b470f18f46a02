"""What a Spark task does with the numbers that it is given: the work of each, its result as JSON, a refusal as a value.

Workers of Spark import this module, so it stays light: no deltalake, no Spark.
"""

import json
from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa

from dw_platform.foundation import PermanentError
from dw_platform.lake.task_errors import carried, packed

OUTCOME = "task long, result string, error string"
"""What a task yields, in Spark's words."""

_COLUMNS = pa.schema([("task", pa.int64()), ("result", pa.string()), ("error", pa.string())])


def spark_task(work: Callable[[int], Any]) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Return the function of a task; what `work` returns must be something that JSON can hold.

    A permanent error travels as a value, for Spark would retry a raised one.
    """

    def run(numbers: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for number in (value for batch in numbers for value in batch.column(0).to_pylist()):
            result = error = None
            with carried():
                try:
                    result = json.dumps(work(number))
                except PermanentError as refused:
                    error = packed(refused)
            yield pa.RecordBatch.from_pylist([{"task": number, "result": result, "error": error}], _COLUMNS)

    return run
