import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dw_platform.fabric.membership import NodeKind, check_name
from dw_platform.fabric.messages import MAX_BYTES, Message, MessageKind, decode, encode
from dw_platform.foundation import InvalidValueError

KEY = b"k" * 32
NAMES = st.text(st.characters(categories=["L", "N", "P"], exclude_characters='"\\'), min_size=1, max_size=50)
MESSAGES = st.builds(
    Message,
    kind=st.sampled_from(MessageKind),
    sender=NAMES,
    receiver=NAMES,
    incarnation=st.integers(0, 1 << 40),
    number=st.integers(0, 1 << 53),
    version=st.integers(0, 1 << 40),
    about=NAMES,
    address=st.none() | st.tuples(st.just("127.0.0.1"), st.integers(1, 65_535)),
    accepted=st.booleans(),
)


@settings(deadline=None)
@given(MESSAGES)
def test_a_message_arrives_as_it_was_sent_in_a_datagram_of_bounded_size(message: Message) -> None:
    datagram = encode(message, KEY)
    assert decode(datagram, KEY) == message
    assert len(datagram) <= MAX_BYTES


@settings(deadline=None)
@given(MESSAGES, st.integers(0, 10_000), st.integers(1, 255))
def test_a_datagram_with_one_changed_byte_is_dropped(message: Message, place: int, change: int) -> None:
    datagram = bytearray(encode(message, KEY))
    datagram[place % len(datagram)] ^= change
    assert decode(bytes(datagram), KEY) is None


@settings(deadline=None)
@given(MESSAGES)
def test_a_datagram_with_another_key_is_dropped(message: Message) -> None:
    assert decode(encode(message, b"x" * 32), KEY) is None


@settings(deadline=None)
@given(st.binary(max_size=2 * MAX_BYTES))
def test_noise_is_dropped(noise: bytes) -> None:
    assert decode(noise, KEY) is None


@pytest.mark.parametrize("name", ["", " ", "a\nb", "x" * 201, "ä" * 101])
def test_names_that_fit_no_datagram_or_line_are_refused(name: str) -> None:
    with pytest.raises(InvalidValueError):
        check_name(name)


def test_a_name_may_say_what_the_process_is() -> None:
    check_name(f"{NodeKind.GATEWAY}@host1/4711")
