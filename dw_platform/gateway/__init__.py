"""The HTTP front door: producers publish and read over HTTP, and feel pressure as headers, delays and 429.

`create_app` makes the application, `serve` runs it; both are imported from their modules, because a program that only
wants `gateway_address` should not wait for a web framework.
"""

from dw_platform.gateway.address import gateway_address
from dw_platform.gateway.keys import ApiKey, create_key, list_keys, revoke_key

__all__ = ["ApiKey", "create_key", "gateway_address", "list_keys", "revoke_key"]
