"""How full a device's own queue is, which other processes fill as well."""

from dw_platform.fileio.disks import DeviceKind
from dw_platform.fileio.utilisation import UtilisationReading


def device_pressure(reading: UtilisationReading | None, kind: DeviceKind, depth: int) -> float:
    """Return it from 0 to 1; 0 if it is not known.

    A disk that turns serves one request at a time, so its busy time is the truth. Flash serves many at once and looks
    busy with a single reader; what counts is how many requests it has on average, compared with the queue depth.
    """
    if reading is None:
        return 0.0
    if kind is DeviceKind.HDD:
        return reading.smoothed  # busy for a single sample is no reason yet
    return min(reading.queue_length / depth, 1.0)
