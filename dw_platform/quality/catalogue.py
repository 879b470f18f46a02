"""The checks a platform can ask for: Great Expectations' own, without their prefix `expect_`.

Left out on purpose: what Spark cannot evaluate without calling Python for every row (date formats, JSON), what
needs another table, and statistical tests whose parameters nobody writes by hand.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from types import MappingProxyType

from dw_platform.quality.parameters import Parameter, ParameterType


class Columns(Enum):
    """Which columns a kind of check names: the key a user writes, and how many belong under it."""

    NONE = ("", 0, 0)
    ONE = ("column", 1, 1)
    PAIR = ("columns", 2, 2)
    SEVERAL = ("columns", 2, None)
    ANY = ("columns", 1, None)

    def __init__(self, key: str, least: int, most: int | None) -> None:
        self.key, self.least, self.most = key, least, most

    @property
    def allowed(self) -> str:
        """What an error says when the columns do not fit."""
        if self.key == "column":
            return "the name of one column"
        if self.most == 2:
            return "a list of two columns"
        return f"a list of at least {'two columns' if self.least == 2 else 'one column'}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """One entry of the catalogue."""

    name: str
    summary: str
    columns: Columns = Columns.NONE
    arguments: tuple[str, ...] = ()
    """How Great Expectations calls the columns: one name each, or a single one for the whole list."""

    parameters: tuple[Parameter, ...] = ()
    needs_one_of: tuple[str, ...] = ()
    judges_values: bool = True
    """False for what is decided by the schema or the number of rows, and so holds or fails on an empty table too."""

    def parameter(self, name: str) -> Parameter | None:
        """Return the parameter called `name`."""
        return next((entry for entry in self.parameters if entry.name == name), None)


MOSTLY = Parameter(
    name="mostly",
    type=ParameterType.FRACTION,
    summary="share of the judged values that must fit; 1 when not set",
)
_SPARK_TYPES = (
    *("BooleanType", "ByteType", "ShortType", "IntegerType", "LongType", "FloatType", "DoubleType", "DecimalType"),
    *("StringType", "BinaryType", "DateType", "TimestampType", "TimestampNTZType", "ArrayType", "MapType"),
    "StructType",
)
_MISSING_IN_PAIR = ("both_values_are_missing", "either_value_is_missing", "neither")
_MISSING_IN_ROW = ("all_values_are_missing", "any_value_is_missing", "never")


def _required(name: str, kind: ParameterType, summary: str, choices: tuple[str, ...] = ()) -> Parameter:
    return Parameter(name=name, type=kind, summary=summary, required=True, choices=choices)


def _range(kind: ParameterType) -> tuple[Parameter, ...]:
    flag = ParameterType.FLAG
    return (
        Parameter(name="min_value", type=kind, summary="smallest allowed value"),
        Parameter(name="max_value", type=kind, summary="largest allowed value"),
        Parameter(name="strict_min", type=flag, summary="whether min_value itself is too small; false when not set"),
        Parameter(name="strict_max", type=flag, summary="whether max_value itself is too large; false when not set"),
    )


_ENDS = ("min_value", "max_value")
_SET = _required("value_set", ParameterType.VALUES, "the values")
_REGEX = _required("regex", ParameterType.TEXT, "a Java regular expression, found anywhere in the text")
_REGEXES = _required("regex_list", ParameterType.TEXTS, "Java regular expressions")
_MATCH_ON = Parameter(
    name="match_on",
    type=ParameterType.CHOICE,
    choices=("any", "all"),
    summary="how many of the expressions must be found; any when not set",
)


def _ignored(choices: tuple[str, ...]) -> Parameter:
    summary = f"which rows with NULLs are not judged; {choices[0]} when not set"
    return Parameter(name="ignore_row_if", type=ParameterType.CHOICE, choices=choices, summary=summary)


def _values(name: str, summary: str, *parameters: Parameter, ends: tuple[str, ...] = ()) -> Kind:
    """Make a kind that judges every value of one column and so takes `mostly`."""
    return Kind(
        name=name,
        summary=summary,
        columns=Columns.ONE,
        arguments=("column",),
        parameters=(*parameters, MOSTLY),
        needs_one_of=ends,
    )


def _aggregate(name: str, summary: str, *parameters: Parameter, ends: tuple[str, ...] = ()) -> Kind:
    """Make a kind that judges one number, or one set, computed from a column."""
    return Kind(
        name=name,
        summary=summary,
        columns=Columns.ONE,
        arguments=("column",),
        parameters=parameters,
        needs_one_of=ends,
    )


def _schema(name: str, summary: str, *parameters: Parameter) -> Kind:
    """Make a kind that looks at a column's type alone."""
    return Kind(
        name=name,
        summary=summary,
        columns=Columns.ONE,
        arguments=("column",),
        parameters=parameters,
        judges_values=False,
    )


def _pair(name: str, summary: str, *parameters: Parameter) -> Kind:
    return Kind(
        name=name,
        summary=summary,
        columns=Columns.PAIR,
        arguments=("column_A", "column_B"),
        parameters=(*parameters, _ignored(_MISSING_IN_PAIR), MOSTLY),
    )


def _row(name: str, summary: str, *parameters: Parameter) -> Kind:
    return Kind(
        name=name,
        summary=summary,
        columns=Columns.SEVERAL,
        arguments=("column_list",),
        parameters=(*parameters, _ignored(_MISSING_IN_ROW), MOSTLY),
    )


def _table(
    name: str,
    summary: str,
    *parameters: Parameter,
    columns: Columns = Columns.NONE,
    argument: str = "",
    ends: tuple[str, ...] = (),
) -> Kind:
    return Kind(
        name=name,
        summary=summary,
        columns=columns,
        arguments=(argument,) if argument else (),
        parameters=parameters,
        needs_one_of=ends,
        judges_values=False,
    )


_KINDS = (
    _values("column_values_to_not_be_null", "no value is NULL"),
    _values("column_values_to_be_null", "every value is NULL"),
    _values("column_values_to_be_unique", "no value occurs twice"),
    _values("column_values_to_be_between", "every value lies in the range", *_range(ParameterType.BOUND), ends=_ENDS),
    _values("column_values_to_be_in_set", "every value is one of the set", _SET),
    _values("column_values_to_not_be_in_set", "no value is one of the set", _SET),
    _values("column_values_to_match_regex", "every text matches", _REGEX),
    _values("column_values_to_not_match_regex", "no text matches", _REGEX),
    _values("column_values_to_match_regex_list", "every text matches any, or all, of them", _REGEXES, _MATCH_ON),
    _values("column_values_to_not_match_regex_list", "no text matches any of them", _REGEXES),
    _values(
        "column_value_lengths_to_be_between",
        "the length of every text lies in the range",
        *_range(ParameterType.COUNT),
        ends=_ENDS,
    ),
    _values(
        "column_value_lengths_to_equal",
        "every text has this length",
        _required("value", ParameterType.COUNT, "the length"),
    ),
    _aggregate("column_distinct_values_to_be_in_set", "only values of the set occur", _SET),
    _aggregate("column_distinct_values_to_contain_set", "every value of the set occurs", _SET),
    _aggregate("column_distinct_values_to_equal_set", "the values of the set occur and no others", _SET),
    _aggregate(
        "column_most_common_value_to_be_in_set",
        "the most frequent value is one of the set",
        _SET,
        Parameter(
            name="ties_okay",
            type=ParameterType.FLAG,
            summary="whether one of several equally frequent values is enough; false when not set",
        ),
    ),
    _aggregate(
        "column_unique_value_count_to_be_between",
        "the number of different values lies in the range",
        *_range(ParameterType.COUNT),
        ends=_ENDS,
    ),
    _aggregate(
        "column_proportion_of_unique_values_to_be_between",
        "different values / all values lies in the range",
        *_range(ParameterType.NUMBER),
        ends=_ENDS,
    ),
    _aggregate(
        "column_proportion_of_non_null_values_to_be_between",
        "the share of values that are not NULL lies in the range",
        *_range(ParameterType.NUMBER),
        ends=_ENDS,
    ),
    _aggregate("column_min_to_be_between", "the minimum is in the range", *_range(ParameterType.BOUND), ends=_ENDS),
    _aggregate("column_max_to_be_between", "the maximum is in the range", *_range(ParameterType.BOUND), ends=_ENDS),
    _aggregate("column_sum_to_be_between", "the sum is in the range", *_range(ParameterType.NUMBER), ends=_ENDS),
    _aggregate("column_mean_to_be_between", "the mean is in the range", *_range(ParameterType.NUMBER), ends=_ENDS),
    _aggregate("column_median_to_be_between", "the median is in the range", *_range(ParameterType.NUMBER), ends=_ENDS),
    _aggregate(
        "column_stdev_to_be_between",
        "the standard deviation is in the range",
        *_range(ParameterType.NUMBER),
        ends=_ENDS,
    ),
    _schema("column_to_exist", "the column is there"),
    _schema(
        "column_values_to_be_of_type",
        "the column has this Spark type",
        _required("type_", ParameterType.CHOICE, "a Spark type", _SPARK_TYPES),
    ),
    _schema(
        "column_values_to_be_in_type_list",
        "the column has one of these Spark types",
        _required("type_list", ParameterType.CHOICES, "Spark types", _SPARK_TYPES),
    ),
    _pair(
        "column_pair_values_a_to_be_greater_than_b",
        "in every row the first column is greater than the second",
        Parameter(name="or_equal", type=ParameterType.FLAG, summary="whether equal is enough; false when not set"),
    ),
    _pair("column_pair_values_to_be_equal", "in every row both columns are equal"),
    _pair(
        "column_pair_values_to_be_in_set",
        "in every row both columns together are one of the pairs",
        _required("value_pairs_set", ParameterType.PAIRS, "the pairs"),
    ),
    _row("compound_columns_to_be_unique", "no combination of these columns occurs twice"),
    _row("select_column_values_to_be_unique_within_record", "in every row these columns differ from each other"),
    _row(
        "multicolumn_sum_to_equal",
        "in every row these columns add up to the total",
        _required("sum_total", ParameterType.NUMBER, "the total"),
    ),
    _table(
        "table_row_count_to_be_between", "the number of rows is in the range", *_range(ParameterType.COUNT), ends=_ENDS
    ),
    _table(
        "table_row_count_to_equal", "there are this many rows", _required("value", ParameterType.COUNT, "the number")
    ),
    _table(
        "table_column_count_to_be_between",
        "the number of columns is in the range",
        *_range(ParameterType.COUNT)[:2],
        ends=_ENDS,
    ),
    _table(
        "table_column_count_to_equal",
        "there are this many columns",
        _required("value", ParameterType.COUNT, "the number"),
    ),
    _table(
        "table_columns_to_match_set",
        "the table has these columns, in any order",
        Parameter(
            name="exact_match", type=ParameterType.FLAG, summary="whether other columns are refused; true when not set"
        ),
        columns=Columns.ANY,
        argument="column_set",
    ),
    _table(
        "table_columns_to_match_ordered_list",
        "the table has exactly these columns, in this order",
        columns=Columns.ANY,
        argument="column_list",
    ),
)

CATALOGUE: Mapping[str, Kind] = MappingProxyType({kind.name: kind for kind in _KINDS})
