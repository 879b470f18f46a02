"""A platform that is open: its configuration, control store, lake and Spark session, each opened when first used."""

import os
import threading
from collections.abc import Callable, Mapping
from functools import cached_property
from pathlib import Path
from types import TracebackType
from typing import Self

from dw_platform.config import PlatformConfig, load_config
from dw_platform.foundation import Clock, SystemClock, UserError
from dw_platform.lake.lake import Lake
from dw_platform.lake.opening import StorageUnreachableError
from dw_platform.lake.session import SparkProvider
from dw_platform.store import PersistentStore, open_store

DEFAULT_FILE = "platform.yaml"


class HomeNotWritableError(UserError):
    """The platform's own folder cannot be made."""

    def __init__(self, path: Path, cause: str) -> None:
        self.path, self.cause = path, cause
        super().__init__(
            f"The platform's home {path} cannot be written: {cause}. Set `home` in platform.yaml to a folder that "
            "this user may write."
        )


class Platform:
    """Everything that a use case needs; opening it touches nothing until something is asked for."""

    def __init__(
        self,
        config: PlatformConfig,
        *,
        clock: Clock | None = None,
        on_progress: Callable[[str], None] = lambda _: None,
    ) -> None:
        self.config = config
        self.clock: Clock = clock or SystemClock()
        self._on_progress = on_progress
        self._lock = threading.RLock()
        self._store: PersistentStore | None = None
        self._spark: SparkProvider | None = None
        self._lake: Lake | None = None

    @classmethod
    def open(
        cls,
        path: Path | str | None = None,
        *,
        environ: Mapping[str, str] | None = None,
        on_progress: Callable[[str], None] = lambda _: None,
    ) -> Self:
        """Read the file and return the platform it describes; without a path, `$DW_CONFIG` or `platform.yaml`."""
        known = os.environ if environ is None else environ
        source = Path(path or known.get("DW_CONFIG") or DEFAULT_FILE)
        return cls(load_config(source, environ=known), on_progress=on_progress)

    @cached_property
    def home(self) -> Path:
        """The folder of the platform's own state; made on first use."""
        home = self.config.home
        try:
            home.mkdir(parents=True, exist_ok=True)
        except FileExistsError as error:
            raise HomeNotWritableError(home, "there is a file of that name") from error
        except OSError as error:
            raise HomeNotWritableError(home, error.strerror or str(error)) from error
        if not os.access(home, os.W_OK | os.X_OK):
            raise HomeNotWritableError(home, "permission denied")
        return home

    @property
    def store(self) -> PersistentStore:
        """The control store."""
        with self._lock:
            if self._store is None:
                _ = self.home  # the default store is a file in it
                self._store = open_store(self.config.store_url)
            return self._store

    @property
    def spark(self) -> SparkProvider:
        """What opens the Spark session; holding it starts nothing."""
        with self._lock:
            if self._spark is None:
                settings = self.config.spark_settings, self.config.lake_settings
                self._spark = SparkProvider(*settings, on_progress=self._on_progress)
            return self._spark

    @property
    def lake(self) -> Lake:
        """The tables."""
        with self._lock:
            if self._lake is None:
                self._lake = Lake(self.config.lake_settings, store=self.store, spark=self.spark)
            return self._lake

    def table_names(self) -> list[str]:
        """Return the names of all tables that exist, sorted."""
        try:
            return self.lake.table_names()
        except OSError as error:
            raise StorageUnreachableError("lake", str(error).partition("\n")[0].rstrip(".")) from error

    def close(self) -> None:
        """Stop Spark if it runs and close the store; closing twice does nothing, and using it again opens it again."""
        with self._lock:
            spark, store = self._spark, self._store
            self._spark = self._store = self._lake = None
        try:
            if spark is not None:
                spark.stop()
        finally:
            if store is not None:
                store.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _t: TracebackType | None
    ) -> None:
        self.close()
