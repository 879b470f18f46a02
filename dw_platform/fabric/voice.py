"""The socket of a node: carries what `Peers` wants to say and to hear, on a thread of its own.

The store may keep the rest of the node waiting for half a minute; this thread never touches it, so peers go on
hearing each other. A datagram that cannot be sent or read counts as lost, which `Peers` expects anyway.
"""

import logging
import select
import socket
import threading
from collections.abc import Callable
from typing import TypeVar

from dw_platform.fabric.membership import Address
from dw_platform.fabric.messages import MAX_BYTES, decode, encode
from dw_platform.fabric.peers import Peers, Send
from dw_platform.foundation import Clock

log = logging.getLogger(__name__)

T = TypeVar("T")

# So many datagrams are read before time is looked at again, so that a flood cannot stop the heartbeats.
_AT_ONCE = 256
_IDLE_S = 1.0


class Voice:
    """One node's conversation over UDP; `on_news` is called when the node should look at `Peers` again."""

    def __init__(self, peers: Peers, listen: Address, key: bytes, *, on_news: Callable[[], None], clock: Clock) -> None:
        """Listen at `listen`; where that is not possible `address` is None and nothing is said or heard."""
        self._peers, self._key, self._on_news, self._clock = peers, key, on_news, clock
        self._lock, self._closing = threading.Lock(), threading.Event()
        self._socket = socket.socket(socket.AF_INET6 if ":" in listen[0] else socket.AF_INET, socket.SOCK_DGRAM)
        self._waker, self._woken = socket.socketpair()
        self._thread = threading.Thread(target=self._run, name="fabric-voice", daemon=True)
        self.address = self._bind(listen)
        if self.address is not None:
            self._thread.start()

    def _bind(self, listen: Address) -> Address | None:
        try:
            self._socket.bind(listen)
        except OSError as error:
            log.warning(
                "this node cannot be reached by others, its heartbeats go to the store",
                extra={"listen": f"{listen[0]}:{listen[1]}", "reason": str(error)},
            )
            return None
        self._socket.setblocking(False)
        host, port, *_ = self._socket.getsockname()
        return str(host), int(port)

    def use(self, key: bytes) -> None:
        """Authenticate with `key` from now on."""
        self._key = key

    def ask(self, question: Callable[[Peers, float], T]) -> T:
        """Return what `question` makes of the peers and the time, while nobody else uses them."""
        with self._lock:
            return question(self._peers, self._clock.monotonic())

    def change(self, work: Callable[[Peers, float], None]) -> None:
        """Let `work` change the peers; what is due then is done at once."""
        self.ask(work)
        self._wake()

    def close(self) -> None:
        """Say nothing more; closing twice is harmless."""
        if self._closing.is_set():
            return
        self._closing.set()
        self._wake()
        if self._thread.is_alive():
            self._thread.join()
        for each in (self._socket, self._waker, self._woken):
            each.close()

    def _wake(self) -> None:
        # A byte a wake fills the buffer only if the thread is stuck, and then one more would not help.
        try:
            self._waker.send(b"\0", socket.MSG_DONTWAIT)
        except OSError:
            log.debug("voice not woken, it looks by itself within a second")

    def _run(self) -> None:
        while not self._closing.is_set():
            try:
                self._round()
            except Exception:
                # Without this thread the node would fall back to the store for good.
                log.exception("a datagram could not be handled, it goes on")
                self._closing.wait(_IDLE_S)

    def _round(self) -> None:
        with self._lock:
            pause_s, before = self._peers.next_at - self._clock.monotonic(), self._peers.news
        ready, _, _ = select.select([self._socket, self._woken], [], [], min(max(pause_s, 0.0), _IDLE_S))
        if self._woken in ready:
            self._woken.recv(MAX_BYTES)
        if self._socket in ready:
            self._read()
        with self._lock:
            now = self._clock.monotonic()
            sends = self._peers.tick(now) if now >= self._peers.next_at else []
            news = self._peers.news != before
        self._send(sends)
        if news:
            self._on_news()

    def _read(self) -> None:
        for _ in range(_AT_ONCE):
            try:
                datagram, source = self._socket.recvfrom(MAX_BYTES + 1)
            except OSError:
                return
            message = decode(datagram, self._key)
            if message is not None:
                with self._lock:
                    answers = self._peers.receive(message, (source[0], source[1]), self._clock.monotonic())
                self._send(answers)

    def _send(self, sends: list[Send]) -> None:
        for send in sends:
            try:
                self._socket.sendto(encode(send.message, self._key), send.address)
            except OSError as error:
                log.debug("datagram not sent", extra={"to": send.message.receiver, "reason": str(error)})
