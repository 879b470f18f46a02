"""The kinds of values a platform file holds.

Every kind is strict: a number is not a text, a switch is not a number. Only a text that came out of an environment
variable is read as what the field wants, because a variable cannot be anything else.
"""

import math
import re
from datetime import timedelta
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import quote

from dw_platform.config import cron
from dw_platform.config.environment import FromEnvironment
from dw_platform.config.secrets import SecretText, SecretUrl
from dw_platform.config.written import Written, refusal, text_of, whole, words
from dw_platform.foundation import InvalidValueError, format_duration, parse_bytes, parse_duration

_BINARY = [(f"{letter}iB", 1024**power) for power, letter in enumerate("KMGT", 1)]
_DECIMAL = [(f"{letter}B", 1000**power) for power, letter in enumerate("KMGT", 1)]
_UNITS = sorted(_BINARY + _DECIMAL, key=lambda unit: -unit[1])


def exact_size(size: int) -> str:
    """Return `size` the way `parse_bytes` reads it back to the same number, in the largest unit that divides it."""
    for unit, factor in _UNITS:
        if size % factor == 0:
            return f"{size // factor}{unit}"
    return f"{size}B"


def _switch(value: Any, _: Path) -> bool:
    if isinstance(value, FromEnvironment) and value.lower() in {"true", "false"}:
        return value.lower() == "true"
    if not isinstance(value, bool):
        raise refusal("true or false")
    return value


def _share(value: Any, *, zero: bool) -> float:
    percent = re.fullmatch(r"([0-9]{1,3}(?:\.[0-9]{1,6})?) ?%", value, re.ASCII) if isinstance(value, str) else None
    if percent:
        value = float(percent[1]) / 100
    elif isinstance(value, FromEnvironment) and re.fullmatch(r"[0-9]?\.?[0-9]{1,6}", value, re.ASCII):
        value = float(value)
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if not is_number or not math.isfinite(value) or not 0 <= value <= 1 or (value == 0 and not zero):
        raise refusal(f"a share {'from 0 to' if zero else 'above 0 and up to'} 1, such as 85% or 0.85")
    return float(value)


def share(*, zero: bool = False) -> Written:
    """Describe shares of a whole; `zero`: whether none of it is one, too."""
    number = {"type": "number", "minimum" if zero else "exclusiveMinimum": 0, "maximum": 1}
    percent = {"type": "string", "pattern": r"^[0-9]{1,3}(\.[0-9]+)? ?%$"}
    return Written(lambda value, _: _share(value, zero=zero), {"anyOf": [number, percent], "examples": ["85%", 0.85]})


def size(low: int = 1, high: int = 2**63 - 1) -> Written:
    """Describe sizes from `low` to `high` bytes, both included."""
    allowed = "a size with its unit, such as 64KiB, 8MiB or 100GB"
    allowed += f", at least {exact_size(low)}" if low > 1 else ""
    allowed += f", at most {exact_size(high)}" if high < 2**63 - 1 else ""

    def read(value: Any, _: Path) -> int:
        try:
            found = parse_bytes(value) if isinstance(value, str) and value[-1:] in {"b", "B"} else 0
        except InvalidValueError:
            found = 0
        if not low <= found <= high:
            raise refusal(allowed)
        return found

    pattern = r"^[0-9]+(\.[0-9]+)? ?([KMGT]i?)?B$"
    return Written(read, {"type": "string", "pattern": pattern, "examples": ["64KiB", "100GB"]}, exact_size)


def duration(low: timedelta = timedelta(microseconds=1), high: timedelta = timedelta.max) -> Written:
    """Describe durations from `low` to `high`, both included."""
    allowed = "a duration with its unit (ms, s, m, h, d), such as 15s, 1h30m or 90d"
    if low > timedelta(microseconds=1):
        allowed += f", at least {format_duration(low)}"
    if high < timedelta.max:
        allowed += f", at most {format_duration(high)}"

    def read(value: Any, _: Path) -> timedelta:
        try:
            found = parse_duration(value) if isinstance(value, str) else timedelta(0)
        except InvalidValueError:
            found = timedelta(0)
        if not low <= found <= high:
            raise refusal(allowed)
        return found

    pattern = r"^([0-9]+(\.[0-9]+)? ?(ms|s|m|h|d) ?)+$"
    return Written(read, {"type": "string", "pattern": pattern, "examples": ["15s", "1h30m", "90d"]}, format_duration)


def _overlap() -> Written:
    """Describe how far something begins before it left off: a duration for times, a whole number for numbers."""
    times, numbers = duration(), whole(0)

    def read(value: Any, folder: Path) -> timedelta | int:
        if isinstance(value, str) and not value.isdigit():
            return timedelta(0) if value == "0s" else timedelta(seconds=times.read(value, folder).total_seconds())
        return int(numbers.read(value, folder))

    schema = {"anyOf": [times.schema, numbers.schema], "examples": ["10m", 10_000]}
    return Written(read, schema, lambda value: format_duration(value) if isinstance(value, timedelta) else value)


def _schedule(value: Any, _: Path) -> str:
    problem = cron.cron_problem(value) if isinstance(value, str) else "is not a schedule"
    if problem:
        raise refusal(cron.ALLOWED, problem)
    return str(value).strip()


def _folder(value: Any, folder: Path) -> Path:
    return _path(value, folder, "a folder")


def _file(value: Any, folder: Path) -> Path:
    return _path(value, folder, "a file")


def _path(value: Any, folder: Path, allowed: str) -> Path:
    text = text_of(str(value) if isinstance(value, Path) else value, allowed)
    if not text.strip() or "\0" in text:
        raise refusal(allowed)
    try:
        path = Path(text).expanduser()
    except RuntimeError:
        raise refusal(f"{allowed}; nobody is known by the name after ~") from None
    return folder.absolute().joinpath(path)


def _location(value: Any, folder: Path) -> str:
    text = text_of(value, "a folder or s3://BUCKET/PREFIX")
    if "://" not in text:
        return str(_folder(text, folder))
    if not re.fullmatch(r"s3://[a-z0-9][a-z0-9.-]{1,61}[a-z0-9](/[^\s?#@]*)?", text, re.ASCII):
        raise refusal("a folder, s3://BUCKET or s3://BUCKET/PREFIX")
    return text.rstrip("/")


def _secret(value: Any, _: Path) -> SecretText:
    return SecretText(text_of(value, "text"))


def _address(pattern: str, allowed: str) -> Written:
    """Describe addresses, shown without their passwords, that start with `pattern`."""
    compiled = re.compile(pattern, re.ASCII)

    def read(value: Any, _: Path) -> SecretUrl:
        if not isinstance(value, str) or not compiled.match(value):
            raise refusal(allowed)
        return SecretUrl(str(value))

    return Written(read, {"type": "string"}, str)


def store_address(value: Any, folder: Path) -> SecretUrl:
    """Return the address of a control store, with a relative file resolved against `folder`."""
    text = value if isinstance(value, str) else ""
    kind, _, rest = text.partition("://")
    if kind == "sqlite" and len(rest) > 1 and rest.startswith("/"):
        return SecretUrl(f"sqlite:///{_folder(rest[1:], folder)}")
    if kind == "file" and rest:
        return SecretUrl(f"file://{quote(str(_folder(rest, folder)))}")
    if (kind == "memory" and not rest) or (kind.partition("+")[0] == "postgresql" and rest):
        return SecretUrl(str(text))
    raise refusal("memory://, file://FOLDER, sqlite:///FILE or postgresql://USER:PASSWORD@HOST:PORT/DATABASE")


_DATABASE = re.compile(r"[a-z][a-z0-9]*(\+[a-z0-9]+)?://.", re.ASCII)


def _database_address(value: Any, folder: Path) -> SecretUrl:
    """Return SQLAlchemy's address of a database, with a relative file of SQLite resolved against `folder`."""
    if not isinstance(value, str) or not _DATABASE.match(value):
        raise refusal("an SQLAlchemy address such as postgresql://USER:PASSWORD@HOST/NAME")
    kind, _, rest = value.partition(":///")
    if kind.partition("+")[0] == "sqlite" and rest and not rest.startswith("/"):
        return SecretUrl(f"{kind}:///{_folder(rest, folder)}")
    return SecretUrl(str(value))


_IDENTIFIER = r"[a-z_][a-z0-9_]{0,127}"
_TYPES = "string, boolean, int, bigint, float, double, date, timestamp, binary"

Text = Annotated[str, Written(lambda value, _: text_of(value, "text"), {"type": "string"})]
Name = Annotated[str, words(r"[a-z][a-z0-9_-]{0,62}", "lower-case letters, digits, _ and -, starting with a letter")]
# As the log's own names (dw_platform.log.names), which every broker takes; written out, as the log needs pyarrow.
TopicName = Annotated[
    str,
    words(r"[A-Za-z0-9][A-Za-z0-9._-]{0,199}", "up to 200 letters, digits, '.', '_' and '-', first a letter or digit"),
]
Group = Annotated[str, words(r"[A-Za-z0-9_]{1,100}", "letters, digits and _")]
Owner = Annotated[
    str, words(r"team:[A-Za-z0-9_-]{1,60}|[^@\s:]{1,64}@[^@\s:]{1,200}", "an e-mail address, or team:NAME")
]
TableName = Annotated[
    str,
    words(
        rf"{_IDENTIFIER}\.{_IDENTIFIER}", "schema.table in lower-case letters, digits and _", examples=["shop.orders"]
    ),
]
TablePattern = Annotated[
    str, words(r"\*|[a-z0-9_*]{1,128}\.[a-z0-9_*]{1,128}", "a table such as shop.orders, or a pattern such as shop.*")
]
Column = Annotated[str, words(r"\S(?:.{0,253}\S)?", "the name of a column")]
ColumnType = Annotated[
    str,
    words(rf"{_TYPES.replace(', ', '|')}|decimal\([1-9][0-9]?, ?[0-9]{{1,2}}\)", f"{_TYPES} or decimal(12,2)"),
]
Host = Annotated[str, words(r"[A-Za-z0-9._:\[\]-]{1,253}", "a host name, or an address such as 127.0.0.1")]
Port = Annotated[int, whole(1, 65535)]
Positive = Annotated[int, whole(1)]
Switch = Annotated[bool, Written(_switch, {"type": "boolean"})]
Share = Annotated[float, share()]
ShareOrZero = Annotated[float, share(zero=True)]
Size = Annotated[int, size()]
Duration = Annotated[timedelta, duration()]
Overlap = Annotated[timedelta | int, _overlap()]
Cron = Annotated[
    str,
    Written(
        _schedule,
        {
            "type": "string",
            "pattern": r"^(@(hourly|daily|weekly|monthly|yearly)|[^ @]+( +[^ ]+){4})$",
            "examples": ["0 * * * *", "@daily"],
        },
    ),
]
Folder = Annotated[Path, Written(_folder, {"type": "string"}, str)]
File = Annotated[Path, Written(_file, {"type": "string"}, str)]
Location = Annotated[str, Written(_location, {"type": "string"})]
Password = Annotated[SecretText, Written(_secret, {"type": "string"}, str)]
StoreUrl = Annotated[SecretUrl, Written(store_address, {"type": "string"}, str)]
DatabaseUrl = Annotated[SecretUrl, Written(_database_address, {"type": "string"}, str)]
ConnectUrl = Annotated[SecretUrl, _address(r"sc://.", "a Spark Connect address such as sc://HOST:15002")]
HttpUrl = Annotated[SecretUrl, _address(r"https?://[^\s/]", "an address such as http://127.0.0.1:9000")]
BrokerAddress = Annotated[SecretUrl, _address(r"\S+$", "HOST:PORT, several of them with commas, or the broker's URL")]
