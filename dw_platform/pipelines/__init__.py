"""One use case a file, for Dagster's assets and the command line alike: build, validate, maintain, overview."""

from dw_platform.pipelines.platform import Platform

__all__ = ["Platform"]
