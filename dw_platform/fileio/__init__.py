"""File I/O that yields to what matters: priorities, queue depth by device, quotas, and what the kernel offers."""

from dw_platform.fileio.capabilities import Finding, IoCapabilities, detect_capabilities
from dw_platform.fileio.device import QUEUE_DEPTHS, Device, find_device
from dw_platform.fileio.disks import DeviceKind, disk_names, real_disks
from dw_platform.fileio.diskstats import CounterReading, CounterSource, DiskCounters, DiskStats
from dw_platform.fileio.dispatch import DispatchQueue, PriorityWeights
from dw_platform.fileio.errors import DiskCountersError, FileIoClosedError, QuotaExceededError, SlotTimeoutError
from dw_platform.fileio.limits import IoLimits
from dw_platform.fileio.manager import FilesystemScalingManager
from dw_platform.fileio.polite import polite_thread
from dw_platform.fileio.priority import IoPriority
from dw_platform.fileio.quotas import Charge, QuotaLedger
from dw_platform.fileio.sampling import UtilisationSample, UtilisationSampler, UtilisationTick, sample_once
from dw_platform.fileio.utilisation import UtilisationReading, UtilisationState

__all__ = [
    "QUEUE_DEPTHS",
    "Charge",
    "CounterReading",
    "CounterSource",
    "Device",
    "DeviceKind",
    "DiskCounters",
    "DiskCountersError",
    "DiskStats",
    "DispatchQueue",
    "FileIoClosedError",
    "FilesystemScalingManager",
    "Finding",
    "IoCapabilities",
    "IoLimits",
    "IoPriority",
    "PriorityWeights",
    "QuotaExceededError",
    "QuotaLedger",
    "SlotTimeoutError",
    "UtilisationReading",
    "UtilisationSample",
    "UtilisationSampler",
    "UtilisationState",
    "UtilisationTick",
    "detect_capabilities",
    "disk_names",
    "find_device",
    "polite_thread",
    "real_disks",
    "sample_once",
]
