"""Where the reading and writing of backups happens: in Spark tasks, or in threads of this process."""

import contextlib
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from dw_platform.backup import Journal, SourceFile
from dw_platform.fileio import IoPriority, real_disks
from dw_platform.fileio.streams import StreamPolicy, stopped_by
from dw_platform.lake.jobs import UnderWay, job_under_way
from dw_platform.pipelines.backup_report import BackupProgress, OnProgress
from dw_platform.pipelines.limits import effective_backup_limits, effective_io_limits
from dw_platform.pipelines.platform import Platform
from dw_platform.scaling.concurrency import ConcurrencyPolicy, Follow

# Opening a session takes about ten seconds, in which threads of one process copy some gigabytes.
WORTH_SPARK_BYTES = 8 * 1024**3
_LOOK_EVERY_S = 0.5


def task_count(platform: Platform, total_bytes: int) -> int:
    """Return in how many Spark tasks so much is read; 1 stands for threads of this process."""
    if platform.spark.started or total_bytes >= WORTH_SPARK_BYTES:
        return platform.spark.parallelism
    return 1


def run_tasks(
    platform: Platform, work: Callable[[int], Any], tasks: int, *, in_spark: bool, on_wait: Callable[[], None]
) -> list[Any]:
    """Run `work` for each task's number and return what each returned; `on_wait` is called now and then meanwhile."""
    if not tasks:
        return []
    with _under_way(platform, work, tasks, in_spark=in_spark) as under_way:
        while (ended := under_way.wait(_LOOK_EVERY_S)) is None:
            on_wait()
    if ended.error is not None:
        raise ended.error
    on_wait()
    return list(ended.result)


@contextlib.contextmanager
def _under_way(platform: Platform, work: Callable[[int], Any], tasks: int, *, in_spark: bool) -> Iterator[UnderWay]:
    if in_spark:
        with job_under_way(platform.spark.get(), tasks, work, "backup") as running:
            yield running
        return
    stop = threading.Event()

    def run() -> list[Any]:
        with stopped_by(stop):
            return [work(task) for task in range(tasks)]

    here = UnderWay(run, "backup")
    try:
        yield here
    finally:
        # Nobody waits for the result any more, after Ctrl-C for instance.
        if here.wait(0) is None:
            stop.set()
        here.join()


def stream_policy(platform: Platform, priority: IoPriority = IoPriority.LOW) -> StreamPolicy:
    """Return how many streams copy at once, and at which priority, by the limits that are in force now."""
    limits = effective_backup_limits(platform)
    ceiling = limits.streams or ConcurrencyPolicy.for_disks(real_disks()).ceiling
    concurrency = ConcurrencyPolicy(
        ceiling=ceiling,
        follow=Follow(platform.config.backups.follow),
        grow_below=limits.grow_below,
        shrink_above=limits.shrink_above,
    )
    return StreamPolicy(
        caller="backup",
        priority=priority,
        concurrency=concurrency,
        io=effective_io_limits(platform),
    )


@dataclass(slots=True)
class NotedProgress:
    """How much of a copy is noted as stored; each note is read once."""

    what: str
    files: Sequence[SourceFile]
    journal: Journal
    on_progress: OnProgress
    _seen: set[str] = field(default_factory=set)
    _done: dict[str, int] = field(default_factory=dict)

    def tell(self) -> None:
        """Say how far it is."""
        wanted = {file.path for file in self.files}
        for path, entries in self.journal.notes(besides=self._seen):
            self._seen.add(path)
            self._done |= {each.source.path: each.source.size for each in entries if each.source.path in wanted}
        self.on_progress(
            BackupProgress(
                what=self.what,
                done_bytes=sum(self._done.values()),
                total_bytes=sum(file.size for file in self.files),
                files=len(self._done),
                of_files=len(self.files),
            )
        )
