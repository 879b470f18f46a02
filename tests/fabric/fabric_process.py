"""A node as a process of its own, with a manager beside it if asked for; says as JSON lines what it knows.

    python fabric_process.py STORE NAME HEARTBEAT_S [manager] [listen=ADDRESS]

It ends cleanly when its standard input ends.
"""

import json
import logging
import sys
import threading
from contextlib import ExitStack
from dataclasses import asdict
from datetime import timedelta

from dw_platform.fabric import FabricLimits, FabricNode, FabricScalingManager, NodeKind
from dw_platform.store import open_store


def main(url: str, name: str, heartbeat_s: str, *options: str) -> None:
    logging.basicConfig(level=logging.WARNING)
    given = dict(option.partition("=")[::2] for option in options)
    limits = FabricLimits(heartbeat=timedelta(seconds=float(heartbeat_s)), cell_size=3, dwell=timedelta(0))
    store, stop = open_store(url), threading.Event()
    node = FabricNode(
        store, kind=NodeKind.WORKER, name=name, limits=limits, listen=(given.get("listen", "127.0.0.1"), 0)
    )
    with ExitStack() as running:
        running.callback(store.close)
        running.enter_context(node)
        if "manager" in given:
            running.enter_context(FabricScalingManager(store, manager=name, limits=limits))
        threading.Thread(target=lambda: (sys.stdin.read(), stop.set()), daemon=True).start()
        said = ""
        while not stop.wait(0.05):
            says = json.dumps(asdict(node.status()))
            if says != said:
                sys.stdout.write(f"{(said := says)}\n")
                sys.stdout.flush()


if __name__ == "__main__":
    main(*sys.argv[1:])
