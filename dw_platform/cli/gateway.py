"""`dw gateway`: the HTTP front door in the foreground, with the bus and the limits that it hosts."""

import contextlib
import logging
import socket
from collections.abc import Callable
from functools import partial
from typing import Annotated

import typer

from dw_platform.bus import ScalableMessageBus
from dw_platform.cli.opening import open_platform
from dw_platform.cli.output import ConfigOption, progress, say
from dw_platform.cli.single import only_one
from dw_platform.foundation import PlatformError
from dw_platform.gateway.address import announce, withdraw
from dw_platform.gateway.settings import GatewaySettings
from dw_platform.pipelines import Platform
from dw_platform.store import Entry, PersistentStore
from dw_platform.streaming import StreamingScalingManager

log = logging.getLogger(__name__)


def gateway(
    config: ConfigOption = None,
    host: Annotated[str | None, typer.Option(help="Address; `gateway.host` of the file by default.")] = None,
    port: Annotated[
        int | None,
        typer.Option(min=0, max=65535, help="Port; `gateway.port` of the file by default, 0 takes any free one."),
    ] = None,
) -> None:
    """Serve publishing and reading over HTTP until Ctrl-C; requests that were accepted are finished."""
    with open_platform(config) as platform:
        settings = GatewaySettings.of(platform.config, host=host, port=port)
        settings.check()
        with only_one("gateway", platform.home):
            _run(platform, settings)


def _run(platform: Platform, settings: GatewaySettings) -> None:
    from dw_platform.gateway.app import create_app
    from dw_platform.gateway.bus_topics import BusPublisher
    from dw_platform.gateway.keyring import KeyRing
    from dw_platform.gateway.maintenance import Maintenance
    from dw_platform.gateway.server import listen, serve, url_of_listener
    from dw_platform.pipelines.bus import bus_topics, open_bus
    from dw_platform.pipelines.streams import open_streams
    from dw_platform.scaling import ScalingRegistry

    store, clock = platform.store, platform.clock
    # Left in the opposite order: the door first, what it publishes to last.
    with contextlib.ExitStack() as opened:
        listener = opened.enter_context(listen(settings))
        streams = opened.enter_context(open_streams(platform))
        bus = open_bus(platform)
        opened.callback(bus.close_sync)
        registry = ScalingRegistry(store, node=_node(), clock=clock)
        opened.callback(registry.close)
        registry.register(streams)
        registry.register(bus)
        registry.start()
        opened.enter_context(Maintenance(partial(_maintenance, streams, bus), clock=clock))
        keys = opened.enter_context(KeyRing(store, required=settings.require_keys, clock=clock))
        app = create_app(
            streams,
            settings=settings,
            keys=keys,
            clock=clock,
            bus=BusPublisher(bus, bus_topics(platform.config)),
            subsystems=(streams, bus),
            store=store,
        )
        url = url_of_listener(listener, settings)
        serve(app, listener, settings, on_started=partial(_started, platform, url, opened))
        progress("stopping the gateway")


def _started(platform: Platform, url: str, opened: contextlib.ExitStack) -> None:
    """Tell others where it is, until it ends."""
    announced = announce(platform.store, url, at=platform.clock.now())
    opened.callback(_withdraw, platform.store, announced)
    say(f"Gateway: {url}   (Ctrl-C stops it)")


def _withdraw(store: PersistentStore, announced: Entry) -> None:
    try:
        withdraw(store, announced)
    except PlatformError as error:
        # It ends anyway; whoever reads the address sees that its process is gone.
        log.warning("address left behind: %s", error)


def _maintenance(streams: StreamingScalingManager, bus: ScalableMessageBus) -> dict[str, Callable[[], None]]:
    return {**{topic: partial(streams.maintain, topic) for topic in streams.topics()}, "bus": bus.maintain}


def _node() -> str:
    return f"gateway@{socket.gethostname()}"
