import pickle
import subprocess
import sys
from datetime import date, datetime
from typing import Any

import pytest

from dw_platform.quality import CATALOGUE, Complaint, Expectation, InvalidExpectationError, Severity, complaints_about
from dw_platform.quality.parameters import Parameter, ParameterType, as_moment


def test_a_check_is_critical_and_named_after_its_column_unless_told_otherwise() -> None:
    check = Expectation.of("column_values_to_not_be_null", "order_id")
    assert check.severity is Severity.CRITICAL
    assert check.name == "order_id_values_to_not_be_null"


@pytest.mark.parametrize(
    ("kind", "columns", "name"),
    [
        ("table_row_count_to_equal", (), "table_row_count_to_equal"),
        ("compound_columns_to_be_unique", ("a", "b"), "a_b_compound_columns_to_be_unique"),
        ("column_to_exist", ("Größe (cm)",), "gr_e_cm_to_exist"),
        ("column_to_exist", ("1st",), "column_1st_to_exist"),
        ("column_to_exist", ("量",), "column_to_exist"),
        ("table_columns_to_match_set", ("a", "b"), "table_columns_to_match_set"),
    ],
)
def test_names_made_from_columns_are_usable_in_the_orchestrator(kind: str, columns: tuple[str, ...], name: str) -> None:
    parameters = {"value": 1} if kind.endswith("equal") else {}
    assert Expectation(kind=kind, columns=columns, parameters=parameters).name == name


def test_a_name_made_from_many_long_columns_is_cut_to_what_is_allowed() -> None:
    check = Expectation.of("compound_columns_to_be_unique", "a" * 90, "b" * 90)
    assert len(check.name) == 100
    assert Expectation.of("column_to_exist", "a", name=check.name).name == check.name


@pytest.mark.parametrize(
    ("kind", "columns", "parameters", "expected"),
    [
        ("column_values_to_not_be_nul", ("a",), {}, ("expect", "did you mean column_values_to_not_be_null?")),
        ("expect_column_to_exist", ("a",), {}, ("expect", "did you mean column_to_exist?")),
        ("column_values_to_not_be_null", (), {}, ("column", "is missing")),
        ("column_values_to_not_be_null", ("a", "b"), {}, ("column", "does not fit this check")),
        ("column_values_to_not_be_null", ("",), {}, ("column", "does not fit this check")),
        ("column_pair_values_to_be_equal", ("a",), {}, ("columns", "does not fit this check")),
        ("compound_columns_to_be_unique", ("a", "a"), {}, ("columns", "names a column twice")),
        ("table_row_count_to_equal", ("a",), {"value": 1}, ("column", "does not belong")),
        ("column_values_to_be_in_set", ("a",), {}, ("value_set", "is missing")),
        ("column_values_to_be_in_set", ("a",), {"value_set": []}, ("value_set", "wrong kind")),
        ("column_values_to_be_in_set", ("a",), {"value_set": "DE"}, ("value_set", "wrong kind")),
        ("column_values_to_be_in_set", ("a",), {"value_set": [True]}, ("value_set", "wrong kind")),
        ("column_values_to_be_between", ("a",), {}, ("min_value", "is missing")),
        ("column_values_to_be_between", ("a",), {"strict_min": True}, ("min_value", "is missing")),
        ("column_values_to_be_between", ("a",), {"min": 1}, ("min", "did you mean min_value?")),
        ("column_values_to_be_between", ("a",), {"min_value": "soon"}, ("min_value", "wrong kind")),
        ("column_values_to_be_between", ("a",), {"min_value": float("nan")}, ("min_value", "wrong kind")),
        ("column_values_to_be_between", ("a",), {"min_value": 10**400}, ("min_value", "wrong kind")),
        ("column_values_to_be_between", ("a",), {"min_value": 2, "max_value": 1}, ("max_value", "is below min_value")),
        (
            "column_values_to_be_between",
            ("a",),
            {"min_value": "2026-01-02", "max_value": "2026-01-01T23:00:00"},
            ("max_value", "is below min_value"),
        ),
        (
            "column_values_to_be_between",
            ("a",),
            {"min_value": 1, "max_value": "2026-01-01"},
            ("max_value", "cannot be compared"),
        ),
        ("column_values_to_be_unique", ("a",), {"mostly": 0}, ("mostly", "wrong kind")),
        ("column_values_to_be_unique", ("a",), {"mostly": 1.1}, ("mostly", "wrong kind")),
        ("column_max_to_be_between", ("a",), {"min_value": 1, "mostly": 0.9}, ("mostly", "is not a parameter")),
        ("column_values_to_be_of_type", ("a",), {"type_": "Decimal"}, ("type_", "wrong kind")),
        ("column_to_exist", ("a",), {"value": 1}, ("value", "is not a parameter")),
    ],
)
def test_a_wrong_check_is_refused_under_the_key_to_change(
    kind: str, columns: tuple[str, ...], parameters: dict[str, Any], expected: tuple[str, str]
) -> None:
    with pytest.raises(InvalidExpectationError) as caught:
        Expectation(kind=kind, columns=columns, parameters=parameters)
    complaint = caught.value.complaints[0]
    assert complaint.key == expected[0]
    assert expected[1] in complaint.message
    assert complaint.allowed


def test_everything_wrong_with_a_check_is_said_at_once() -> None:
    complaints = complaints_about("column_values_to_be_in_set", (), {"mostly": 2, "values": []}, name="Not a name")
    assert [complaint.key for complaint in complaints] == ["name", "column", "mostly", "values", "value_set"]


def test_an_unknown_parameter_is_answered_with_the_known_ones() -> None:
    [complaint] = complaints_about("column_values_to_be_null", ("a",), {"nope": 1})
    assert complaint == Complaint("nope", "is not a parameter of column_values_to_be_null", "one of mostly")


def test_a_check_cannot_change_after_it_was_accepted() -> None:
    given = {"min_value": 1}
    check = Expectation(kind="column_min_to_be_between", columns=("a",), parameters=given)
    given["min_value"] = 5
    assert check.parameters == {"min_value": 1}
    with pytest.raises(TypeError):
        check.parameters["min_value"] = 5  # type: ignore[index]


def test_a_check_survives_pickling_because_it_travels_to_other_processes() -> None:
    check = Expectation.of("column_values_to_be_unique", "id", severity=Severity.INFO, mostly=0.5)
    assert pickle.loads(pickle.dumps(check)) == check


def test_moments_are_dates_and_times_without_a_zone() -> None:
    assert as_moment("2026-01-31") == as_moment(date(2026, 1, 31)) == datetime(2026, 1, 31)  # noqa: DTZ001
    assert as_moment("2026-01-31 08:00:00") == datetime(2026, 1, 31, 8)  # noqa: DTZ001
    assert as_moment("2026-01-31T08:00:00+01:00") is None
    assert as_moment("soon") is None
    assert as_moment(5) is None


@pytest.mark.parametrize(
    ("kind", "good", "bad"),
    [
        (ParameterType.COUNT, 0, -1),
        (ParameterType.COUNT, 3, True),
        (ParameterType.NUMBER, -1.5, "1"),
        (ParameterType.FRACTION, 1, 0),
        (ParameterType.FLAG, False, 0),
        (ParameterType.TEXT, "x", ""),
        (ParameterType.TEXTS, ["x"], [""]),
        (ParameterType.VALUES, ["", 1, 2.5], [None]),
        (ParameterType.PAIRS, [["a", 1]], [["a", 1, 2]]),
        (ParameterType.PAIRS, [["a", 1]], ["ab"]),
    ],
)
def test_every_type_of_parameter_takes_its_values_and_no_others(kind: ParameterType, good: Any, bad: Any) -> None:
    parameter = Parameter(name="p", type=kind, summary="")
    assert parameter.accepts(good)
    assert not parameter.accepts(bad)


def test_every_kind_names_each_parameter_once_and_says_what_it_is_for() -> None:
    for kind in CATALOGUE.values():
        names = [parameter.name for parameter in kind.parameters]
        assert len(set(names)) == len(names)
        assert kind.summary
        assert all(parameter.summary for parameter in kind.parameters)
        assert set(kind.needs_one_of) <= set(names)


def test_importing_the_package_imports_neither_great_expectations_nor_spark() -> None:
    script = "import sys, dw_platform.quality; print({'great_expectations', 'pyspark', 'pandas'} & set(sys.modules))"
    result = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "set()"
