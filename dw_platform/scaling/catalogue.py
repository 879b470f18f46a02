"""Which subsystems a platform has, and the limits that its configuration gives them.

Command line, API and sensors change limits of subsystems that run elsewhere; the catalogue is what they check
a change against. It is built from the configuration and passed in, so nothing registers itself by being imported.
"""

from collections.abc import Mapping

from dw_platform.scaling.errors import UnknownSubsystemError
from dw_platform.scaling.limits import Limits, apply_changes, limits_to_json


class LimitCatalogue:
    """The configured limits by subsystem name; changes in the control store come on top of them."""

    def __init__(self, configured: Mapping[str, Limits]) -> None:
        self._configured = dict(configured)
        for subsystem, limits in self._configured.items():
            _check_readable(subsystem, limits)

    @property
    def subsystems(self) -> tuple[str, ...]:
        """All names, sorted."""
        return tuple(sorted(self._configured))

    def configured(self, subsystem: str) -> Limits:
        """Return the limits before any change; raise UnknownSubsystemError for a name that is not there."""
        try:
            return self._configured[subsystem]
        except KeyError:
            raise UnknownSubsystemError(subsystem, self._configured) from None


def _check_readable(subsystem: str, limits: Limits) -> None:
    """Find a field that cannot be stored when the platform starts, not when an operator first changes it."""
    if apply_changes(limits, limits_to_json(limits)) != limits:
        raise TypeError(f"{subsystem}: {type(limits).__name__} changes when it is stored and read back")
