"""The name under which a process holds something, from which others on its machine can tell whether it still runs.

    host1/4711/1763481600      machine, process id, second in which the process began

Ids of processes are used again, so the beginning belongs to the name. About processes of other machines nothing is
known; what they hold ends by its own time.
"""

import os
import socket

import psutil


def process_owner() -> str:
    """Return the name of this process."""
    return f"{socket.gethostname()}/{os.getpid()}/{int(psutil.Process().create_time())}"


def is_dead(owner: str) -> bool:
    """Return whether `owner` is a process of this machine that has ended; False where nobody can know."""
    host, _, rest = owner.rpartition("/")[0].rpartition("/")
    began = owner.rpartition("/")[2]
    if host != socket.gethostname() or not rest.isdecimal() or not began.isdecimal():
        return False
    try:
        process = psutil.Process(int(rest))
        return int(process.create_time()) != int(began) or process.status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True
