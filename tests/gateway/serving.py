"""The application behind a real server on loopback, in a thread of this process."""

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import uvicorn

from dw_platform.gateway.protocol import guarded


@contextmanager
def in_thread(app: Any, *, head_timeout_s: float = 10.0) -> Iterator[int]:
    """Serve `app` and yield the port."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        config = uvicorn.Config(app, http=guarded(head_timeout_s), ws="none", log_config=None, lifespan="on")
        server = uvicorn.Server(config)
        thread = threading.Thread(target=server.run, args=([listener],))
        thread.start()
        try:
            yield listener.getsockname()[1]  # whoever comes before it is up waits in line
        finally:
            server.should_exit = True
            thread.join()
