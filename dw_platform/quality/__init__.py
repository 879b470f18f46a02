"""Expectations about tables, the verdicts on them, and Great Expectations as what evaluates them."""

from dw_platform.quality.catalogue import CATALOGUE, Columns, Kind
from dw_platform.quality.expectations import (
    ROW_COUNT,
    Complaint,
    Expectation,
    InvalidExpectationError,
    Severity,
    complaints_about,
    default_name,
    row_count_check,
)
from dw_platform.quality.gx import DuplicateCheckError, run_expectations
from dw_platform.quality.parameters import Parameter, ParameterType
from dw_platform.quality.suggestions import did_you_mean
from dw_platform.quality.verdict import QualityReport, Verdict

__all__ = [
    "CATALOGUE",
    "ROW_COUNT",
    "Columns",
    "Complaint",
    "DuplicateCheckError",
    "Expectation",
    "InvalidExpectationError",
    "Kind",
    "Parameter",
    "ParameterType",
    "QualityReport",
    "Severity",
    "Verdict",
    "complaints_about",
    "default_name",
    "did_you_mean",
    "row_count_check",
    "run_expectations",
]
