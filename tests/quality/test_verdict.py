from dw_platform.quality import QualityReport, Severity, Verdict
from dw_platform.quality.verdict import sentence


def verdict(check: str, *, passed: bool, severity: Severity = Severity.CRITICAL) -> Verdict:
    return Verdict(check=check, table="shop.orders", passed=passed, severity=severity)


def report(*verdicts: Verdict) -> QualityReport:
    return QualityReport(table="shop.orders", version=7, verdicts=verdicts, duration_s=1.5)


def test_a_failed_warning_is_reported_but_does_not_block() -> None:
    warned = report(verdict("a", passed=True), verdict("b", passed=False, severity=Severity.WARNING))
    assert warned.passed
    assert warned.blocking_failures == ()
    assert warned.summary == "shop.orders version 7: 1 of 2 checks failed: b"


def test_a_failed_critical_check_blocks() -> None:
    critical = verdict("a", passed=False)
    blocked = report(critical, verdict("b", passed=False, severity=Severity.INFO))
    assert not blocked.passed
    assert blocked.blocking_failures == (critical,)
    assert len(blocked.failures) == 2


def test_a_report_without_failures_says_how_many_checks_passed() -> None:
    assert report(verdict("a", passed=True)).summary == "shop.orders version 7: 1 passed"


def test_the_sentence_counts_what_was_judged_and_leaves_out_nulls() -> None:
    result = {"element_count": 1100, "missing_count": 100, "unexpected_count": 25, "unexpected_percent": 2.5}
    assert sentence(result, None) == "25 of 1,000 do not fit (2.5 %)"
    assert sentence(result | {"unexpected_count": 0, "unexpected_percent": 0.0}, None) == "all 1,000 fit"


def test_the_sentence_names_missing_and_unexpected_columns() -> None:
    result = {"details": {"mismatched": {"missing": ["a", "b"], "unexpected": ["c"]}}}
    assert sentence(result, "a, b") == "missing columns: a, b; unexpected columns: c"


def test_the_sentence_counts_values_of_sets() -> None:
    assert sentence({"unexpected_count": 2, "missing_count": 1}, None) == (
        "2 values do not belong; 1 values of the set do not occur"
    )


def test_the_sentence_falls_back_to_what_was_observed() -> None:
    assert sentence({"observed_value": 5000}, 5000) == "observed 5,000"
    assert sentence({"observed_value": "DecimalType"}, "DecimalType") == "observed DecimalType"
    assert sentence({}, None) == ""
