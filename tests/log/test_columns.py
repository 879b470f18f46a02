"""The bodies of frames: two ways to write them, one format."""

from hypothesis import given, settings
from hypothesis import strategies as st

from dw_platform.log import Records
from dw_platform.log.columns import Columns, Plain


@settings(deadline=None)  # the first use of Arrow imports much
@given(st.lists(st.binary(max_size=20), min_size=1, max_size=40))
def test_a_small_batch_of_values_is_written_as_arrow_would_have_it(values: list[bytes]) -> None:
    records = Records(values)
    plain = Plain.of(records)
    assert plain is not None
    assert len(plain) == len(values)
    (flags, body), (arrow_flags, arrow_body) = plain.encode(), Columns.of(records).encode()
    assert (flags, b"".join(body)) == (arrow_flags, b"".join(bytes(buffer) for buffer in arrow_body))


def test_nulls_keys_headers_and_times_are_left_to_arrow() -> None:
    more = [
        Records([b"a", None]),
        Records([b"a"], keys=[b"k"]),
        Records([b"a"], headers=[{"name": b"value"}]),
        Records([b"a"], timestamps_ms=[1]),
    ]
    assert [Plain.of(records) for records in more] == [None] * 4
