r"""Documents that show every change: one line of JSON, and behind it, if there is one, a compressed body.

    {"check": "<64 hex>", "document": {"type": "manifest", ..., "body": {"bytes": 812, "sha256": "<64 hex>"}}}\n
    <body: a zstd stream, or one inside the encryption of objects>

The check covers the document in its shortest spelling with sorted names, and the document names the body's hash, so
the first line can be trusted without the rest. In an encrypted repository the check is an HMAC, which nobody without
the key can make; otherwise it is SHA-256, which finds damage and careless edits.
"""

import hashlib
import hmac
import json
from collections.abc import Iterable, Mapping
from typing import Any

from dw_platform.backup.codec import UndecodableError, decoded, encoder, suffix_for
from dw_platform.backup.keys import RepositoryKeys

Facts = Mapping[str, Any]


class DocumentDamagedError(Exception):
    """The bytes are not a document of that kind; whoever knows the file says so in its own words."""


def seal(kind: str, facts: Facts, keys: RepositoryKeys | None, body: Iterable[bytes] | None = None) -> bytes:
    """Return the document as bytes; facts are text, whole numbers, truth values, lists and objects of them."""
    document = {"type": kind, **facts}
    stored = b""
    if body is not None:
        stored = _encoded(body, keys)
        document["body"] = {"bytes": len(stored), "sha256": hashlib.sha256(stored).hexdigest()}
    canonical = _canonical(document)
    return _line({"check": _check(canonical, keys), "document": document}) + b"\n" + stored


def facts_of(kind: str, data: bytes, keys: RepositoryKeys | None) -> dict[str, Any]:
    """Return the facts of a document from its first line alone; raise DocumentDamagedError if it was changed."""
    line, newline, _ = data.partition(b"\n")
    if not newline:
        raise DocumentDamagedError("its first line is cut off")
    try:
        outer = json.loads(line)
        check, document = outer["check"], outer["document"]
        found = document["type"]
    except (ValueError, KeyError, TypeError) as error:
        raise DocumentDamagedError("its first line is not that of a document") from error
    if not isinstance(check, str) or not hmac.compare_digest(
        check.encode(), _check(_canonical(document), keys).encode()
    ):
        raise DocumentDamagedError("its first line does not match its check, so it was changed")
    if outer.keys() != {"check", "document"} or _line(outer) != line:
        raise DocumentDamagedError("its first line is not spelled as it was written")
    if found != kind:
        raise DocumentDamagedError(f"it is a {found}, not a {kind}")
    return dict(document)


def unseal(kind: str, data: bytes, keys: RepositoryKeys | None) -> tuple[dict[str, Any], bytes]:
    """Return the facts and the content of the body; raise DocumentDamagedError if anything is not as written."""
    facts = facts_of(kind, data, keys)
    stored = data.partition(b"\n")[2]
    expected = facts.get("body")
    if expected is None:
        if stored:
            raise DocumentDamagedError("something follows it")
        return facts, b""
    if len(stored) != expected["bytes"] or hashlib.sha256(stored).hexdigest() != expected["sha256"]:
        raise DocumentDamagedError(f"its body has {len(stored)} bytes that are not the {expected['bytes']} written")
    try:
        return facts, b"".join(decoded([stored], suffix_for(compress=True, keys=keys), keys))
    except UndecodableError as error:
        raise DocumentDamagedError(str(error)) from error


def _encoded(body: Iterable[bytes], keys: RepositoryKeys | None) -> bytes:
    parts = _Parts()
    writer = encoder(parts, suffix_for(compress=True, keys=keys), keys)
    for piece in body:
        writer.write(piece)
    writer.close()
    return bytes(parts)


class _Parts(bytearray):
    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.extend(data)


def _check(canonical: bytes, keys: RepositoryKeys | None) -> str:
    return keys.check_of(canonical) if keys else hashlib.sha256(canonical).hexdigest()


def _line(outer: Any) -> bytes:
    return json.dumps(outer, ensure_ascii=False).encode()


def _canonical(document: Any) -> bytes:
    return json.dumps(document, sort_keys=True, separators=(",", ":")).encode()
