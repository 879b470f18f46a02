import pickle

import pytest

from dw_platform.foundation import InvalidValueError, MissingExtraError, PermanentError, PlatformError, TransientError


def test_an_invalid_value_names_the_field_the_value_and_what_is_allowed() -> None:
    error = InvalidValueError("partitions", 0, "at least 1")
    assert (error.field, error.value, error.allowed) == ("partitions", 0, "at least 1")
    assert str(error) == "partitions cannot be 0: at least 1."


def test_a_missing_extra_says_how_to_install_it() -> None:
    assert "pip install 'dw-platform[kafka]'" in str(MissingExtraError("Kafka", "kafka"))


def test_an_error_is_either_worth_waiting_for_or_not() -> None:
    assert issubclass(InvalidValueError, PermanentError)
    assert not issubclass(InvalidValueError, TransientError)
    assert not issubclass(TransientError, PermanentError)


@pytest.mark.parametrize(
    "error",
    [InvalidValueError("partitions", 0, "at least 1"), MissingExtraError("Kafka", "kafka"), TransientError("later")],
    ids=lambda error: type(error).__name__,
)
def test_an_error_keeps_its_facts_on_the_way_to_another_process(error: PlatformError) -> None:
    copy = pickle.loads(pickle.dumps(error))
    assert type(copy) is type(error)
    assert str(copy) == str(error)
    assert vars(copy) == vars(error)
