"""The partitioned log on disk: durable, readable as Arrow by any process, recovered after any crash.

`Log` keeps topics; `PartitionLog` is the one writer of a partition and `PartitionReader` one of its readers.
`StoreDisk` keeps small logs in the control store instead of files.
"""

from dw_platform.log.contract import (
    SCHEMA,
    AppendResult,
    LogBatch,
    PartitionReading,
    PartitionStats,
    PartitionWriter,
    RecoveryReport,
    TornTail,
)
from dw_platform.log.description import TopicDescription
from dw_platform.log.disk import Disk
from dw_platform.log.errors import (
    CorruptSegmentError,
    CorruptTopicError,
    InvalidNameError,
    InvalidRecordsError,
    MaintenanceFailedError,
    OffsetOutOfRangeError,
    PartitionClosedError,
    PartitionLockedError,
    PartitionStoppedError,
    RecordsExpiredError,
    RecordsLostError,
    RecordTooLargeError,
    TopicExistsError,
    UnknownPartitionError,
    UnknownTopicError,
)
from dw_platform.log.file_disk import FileDisk
from dw_platform.log.names import check_name
from dw_platform.log.offsets import SubscriberOffsets
from dw_platform.log.partition import PartitionLog
from dw_platform.log.policy import FsyncMode, FsyncPolicy, LogPolicy, Retention
from dw_platform.log.reader import PartitionReader
from dw_platform.log.records import Records
from dw_platform.log.retention import RetentionPlan
from dw_platform.log.store_disk import StoreDisk
from dw_platform.log.topics import Log, PartitionFiles, TopicFinding
from dw_platform.log.verify import Finding, Severity, verify

__all__ = [
    "SCHEMA",
    "AppendResult",
    "CorruptSegmentError",
    "CorruptTopicError",
    "Disk",
    "FileDisk",
    "Finding",
    "FsyncMode",
    "FsyncPolicy",
    "InvalidNameError",
    "InvalidRecordsError",
    "Log",
    "LogBatch",
    "LogPolicy",
    "MaintenanceFailedError",
    "OffsetOutOfRangeError",
    "PartitionClosedError",
    "PartitionFiles",
    "PartitionLockedError",
    "PartitionLog",
    "PartitionReader",
    "PartitionReading",
    "PartitionStats",
    "PartitionStoppedError",
    "PartitionWriter",
    "RecordTooLargeError",
    "Records",
    "RecordsExpiredError",
    "RecordsLostError",
    "RecoveryReport",
    "Retention",
    "RetentionPlan",
    "Severity",
    "StoreDisk",
    "SubscriberOffsets",
    "TopicDescription",
    "TopicExistsError",
    "TopicFinding",
    "TornTail",
    "UnknownPartitionError",
    "UnknownTopicError",
    "check_name",
    "verify",
]
