"""Why a request is refused; `answers.py` turns these, and those of the layers below, into responses.

The code in an answer is the class's name: RequestTooLargeError says `request_too_large`. Facts are attributes, and
callers see them, so they never hold a value of a record or a secret.
"""

from collections.abc import Sequence

from dw_platform.foundation import TransientError, UserError, format_bytes
from dw_platform.gateway.rejections import summary


class RequestTooLargeError(UserError):
    """The body has more bytes than a request may have; nothing was published."""

    def __init__(self, limit_bytes: int) -> None:
        self.limit_bytes = limit_bytes
        super().__init__(f"The request has more than {format_bytes(limit_bytes)}. Send smaller batches.")


class UnsupportedContentTypeError(UserError):
    """The body is in a form that is not understood here."""

    def __init__(self, given: str, allowed: Sequence[str]) -> None:
        self.given, self.allowed = given[:100], list(allowed)
        super().__init__(f"Records cannot be read from {self.given or 'no content type'}. Send {', '.join(allowed)}.")


class MalformedBodyError(UserError):
    """The body as a whole is not what its content type says; nothing was published."""

    def __init__(self, reason: str) -> None:
        self.reason = reason
        super().__init__(f"The body cannot be read: {reason}.")


class NothingAcceptedError(UserError):
    """Not one record of the request was good, so nothing was published."""

    def __init__(self, rejected: Sequence[tuple[int, str]], *, too_large: bool) -> None:
        self.too_large = too_large
        self.__dict__.update(summary(rejected))
        which = f"None of the {len(rejected):,} records was" if len(rejected) > 1 else "The record was not"
        super().__init__(f"{which} taken; `rejected` says why.")


class InvalidParameterError(UserError):
    """A header, query or path parameter that makes no sense; nothing was done."""

    def __init__(self, name: str, allowed: str) -> None:
        self.name, self.allowed = name, allowed
        super().__init__(f"{name} has to be {allowed}.")


class KeyRequiredError(UserError):
    """This gateway answers only those who show a key."""

    def __init__(self) -> None:
        super().__init__("An API key is needed: send `Authorization: Bearer KEY` or `X-Api-Key: KEY`.")


class KeyRefusedError(UserError):
    """A key was shown and does not count; which of the reasons it is, a stranger is not told."""

    def __init__(self) -> None:
        super().__init__("The API key is unknown, revoked or expired. `dw keys list` shows those that count.")


class RightMissingError(UserError):
    """The key does not allow this."""

    def __init__(self, right: str, topic: str) -> None:
        self.right, self.topic = right, topic
        super().__init__(f"This key does not have the right to {right} {topic}. Ask for one that does.")


class CrossSiteError(UserError):
    """A page of another site made the browser ask for something that changes state."""

    def __init__(self) -> None:
        super().__init__("Taking messages is not for pages of other sites. Call this from a program.")


class QuotaExceededError(TransientError):
    """The caller publishes more records a second than its key allows; nothing was published."""

    def __init__(self, records_per_s: float, retry_after_s: float) -> None:
        self.records_per_s, self.retry_after_s = records_per_s, retry_after_s
        super().__init__(f"This key may publish {records_per_s:g} records/s. Go on in {retry_after_s:.3g} s.")


class OverloadedError(TransientError):
    """As many requests or bytes are under way as this gateway takes; nothing was published."""

    def __init__(self, what: str, limit: int) -> None:
        self.what, self.limit, self.retry_after_s = what, limit, 1.0
        super().__init__(f"{limit:,} {what} are under way, which is as many as there may be. Try again in a second.")


class BodyTooSlowError(TransientError):
    """The client took too long to send its request; nothing was published."""

    def __init__(self, limit_s: float) -> None:
        self.limit_s = limit_s
        super().__init__(f"The body did not arrive within {limit_s:g} s, so nothing was published. Send it again.")


class RequestTimedOutError(TransientError):
    """The request was understood but not finished in time; whether it was published is not known."""

    def __init__(self, limit_s: float) -> None:
        self.limit_s = limit_s
        super().__init__(
            f"The request was not finished within {limit_s:g} s. Its records may or may not be published: send it "
            "again with the same X-Producer-Id and X-Sequence, which writes nothing twice."
        )
