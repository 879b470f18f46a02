"""Where one table is, as each engine wants to hear it: deltalake, Spark, pyarrow in a task."""

import os
from dataclasses import dataclass
from pathlib import Path

import pyarrow.fs as pafs

from dw_platform.foundation import UserError
from dw_platform.lake.settings import S3Settings


class LakeNotWritableError(UserError):
    """A table's folder cannot be made or written."""

    def __init__(self, path: str, cause: str) -> None:
        self.path, self.cause = path, cause
        super().__init__(
            f"{path} cannot be written: {cause}. Set `lake.root` in platform.yaml to a folder this user may write, "
            "or change its permissions."
        )


@dataclass(frozen=True, slots=True)
class TableLocation:
    """A table's root; picklable, so that Spark tasks receive it. Credentials stay out of its repr."""

    uri: str
    s3: S3Settings

    @property
    def is_s3(self) -> bool:
        return self.uri.startswith("s3://")

    @property
    def spark_uri(self) -> str:
        """Return the address for Spark, whose S3 client is called s3a."""
        return f"s3a://{self.uri.removeprefix('s3://')}" if self.is_s3 else self.uri

    @property
    def local(self) -> Path:
        """Return the folder of a local table."""
        return Path(self.uri)

    def delta_options(self) -> dict[str, str]:
        """Return storage options for deltalake; a conditional PUT makes its commits atomic on S3."""
        if not self.is_s3:
            return {}
        options = {"AWS_REGION": self.s3.region, "aws_conditional_put": "etag"}
        if self.s3.endpoint:
            options["AWS_ENDPOINT_URL"] = self.s3.endpoint
            options["AWS_ALLOW_HTTP"] = str(self.s3.endpoint.startswith("http://")).lower()
            options["AWS_VIRTUAL_HOSTED_STYLE_REQUEST"] = str(not self.s3.path_style).lower()
        if self.s3.access_key and self.s3.secret_key:
            options["AWS_ACCESS_KEY_ID"] = self.s3.access_key
            options["AWS_SECRET_ACCESS_KEY"] = self.s3.secret_key
        return options

    def filesystem(self) -> tuple[pafs.FileSystem, str]:
        """Return pyarrow's file system and the table's root inside it."""
        if not self.is_s3:
            return pafs.LocalFileSystem(), self.uri
        scheme, _, host = (self.s3.endpoint or "").rpartition("://")
        system = pafs.S3FileSystem(
            region=self.s3.region,
            endpoint_override=host or None,
            scheme=scheme or None,
            access_key=self.s3.access_key,
            secret_key=self.s3.secret_key,
            force_virtual_addressing=not self.s3.path_style,
            # Buckets are the operator's to make; a typing mistake must not create one.
            allow_bucket_creation=False,
        )
        return system, self.uri.removeprefix("s3://")

    def log_identity(self, version: int) -> tuple[int, ...] | None:
        """Return what tells the log of a local table, and its commit of that version, from another of the same name.

        A restore over the table puts another log in its place, in which the same versions may come again. In a bucket
        a table is never replaced.
        """
        if self.is_s3:
            return None
        log = self.local / "_delta_log"
        found = [path.stat() for path in (log, log / f"{version:020d}.json") if path.exists()]
        return tuple(status.st_ino for status in found)

    def prepare(self) -> None:
        """Make a local table's folder, or say why that is not possible."""
        if self.is_s3:
            return
        try:
            self.local.mkdir(parents=True, exist_ok=True)
        except FileExistsError as error:
            raise LakeNotWritableError(self.uri, "there is a file of that name") from error
        except OSError as error:
            raise LakeNotWritableError(self.uri, error.strerror or str(error)) from error
        if not os.access(self.local, os.W_OK | os.X_OK):
            raise LakeNotWritableError(self.uri, "permission denied")
