"""A real Kafka for tests: one KRaft node on 127.0.0.1, from jars that are fetched once per machine.

It can be killed and started again on the same data and ports, which is what a broker's crash looks like to its clients.
"""

import contextlib
import os
import secrets
import shutil
import socket
import subprocess
import time
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from ipaddress import IPv4Address
from pathlib import Path
from types import TracebackType
from typing import Self

import pyspark
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from dw_platform.lake.jars import Coordinate, resolve_jars
from dw_platform.lake.java import find_java

KAFKA = "4.3.1"
KAFKA_JARS = (Coordinate("org.apache.kafka", "kafka_2.13", KAFKA, transitive=True),)
USERNAME, PASSWORD = "clerk", "open $esame: 1+1=2"
# One node holds every internal topic, once. A short session: after a kill the next start waits for its end.
_PROPERTIES = """process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:{controller}
listeners=PLAINTEXT://127.0.0.1:{plain},SIGNED://127.0.0.1:{signed},SECRET://127.0.0.1:{secret},\
CONTROLLER://127.0.0.1:{controller}
advertised.listeners=PLAINTEXT://127.0.0.1:{plain},SIGNED://127.0.0.1:{signed},SECRET://127.0.0.1:{secret}
controller.listener.names=CONTROLLER
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,SIGNED:SASL_PLAINTEXT,SECRET:SASL_SSL,CONTROLLER:PLAINTEXT
sasl.enabled.mechanisms=PLAIN,SCRAM-SHA-256,SCRAM-SHA-512
listener.name.signed.plain.sasl.jaas.config={plain_login}
listener.name.signed.scram-sha-256.sasl.jaas.config={scram_login}
listener.name.signed.scram-sha-512.sasl.jaas.config={scram_login}
listener.name.secret.sasl.enabled.mechanisms=PLAIN
listener.name.secret.plain.sasl.jaas.config={plain_login}
listener.name.secret.ssl.keystore.type=PEM
listener.name.secret.ssl.keystore.location={keystore}
log.dirs={data}
offsets.topic.num.partitions=1
offsets.topic.replication.factor=1
transaction.state.log.num.partitions=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
share.coordinator.state.topic.num.partitions=1
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
group.initial.rebalance.delay.ms=0
broker.session.timeout.ms=1000
broker.heartbeat.interval.ms=200
log.initial.task.delay.ms=100
log.retention.check.interval.ms=200
log.cleaner.backoff.ms=200
"""


@dataclass
class KafkaServer:
    """Runs between `start` and `stop` or `kill`; the data stays in `directory`."""

    directory: Path
    heap: str = "512m"
    # Tests are short: the second compiler would take a core and never pay off.
    java_options: tuple[str, ...] = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")
    ports: dict[str, int] = field(default_factory=lambda: _free_ports("plain", "signed", "secret", "controller"))
    _process: subprocess.Popen[bytes] | None = None

    @property
    def address(self) -> str:
        """Where anybody may connect."""
        return f"127.0.0.1:{self.ports['plain']}"

    @property
    def signed_address(self) -> str:
        """Where USERNAME signs in with PASSWORD, by PLAIN or SCRAM."""
        return f"127.0.0.1:{self.ports['signed']}"

    @property
    def secret_address(self) -> str:
        """Where USERNAME signs in with PASSWORD by PLAIN, over TLS with the certificate in `certificate`."""
        return f"127.0.0.1:{self.ports['secret']}"

    @property
    def certificate(self) -> Path:
        """The certificate that clients have to trust."""
        return self.directory / "server.pem"

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.kill()

    def start(self) -> None:
        """Return once it answers; raise RuntimeError with the end of its log if it does not."""
        self._format_once()
        with (self.directory / "kafka.log").open("ab") as log:
            command = [*_dying_with_us(), *self._java(), "kafka.Kafka", str(self._properties)]
            self._process = subprocess.Popen(command, stdout=log, stderr=log)
        deadline = time.monotonic() + 90
        while not self._answers():
            if self._process.poll() is not None or time.monotonic() > deadline:
                self.kill()
                raise RuntimeError(f"Kafka does not start: {(self.directory / 'kafka.log').read_text()[-2000:]}")
            time.sleep(0.05)

    def kill(self) -> None:
        """End it as a crash does; harmless if it does not run."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def stop(self) -> None:
        """End it as an operator does."""
        if self._process is not None:
            self._process.terminate()
            self._process.wait(60)
            self._process = None

    @property
    def _properties(self) -> Path:
        return self.directory / "server.properties"

    def _java(self) -> list[str]:
        java = find_java()
        # Spark brings the logging facade that Kafka expects; the resolver leaves it out for Spark's sake.
        shipped = Path(pyspark.__file__).parent / "jars"
        logging = [next(shipped.glob(f"{name}-*.jar")) for name in ("slf4j-api", "log4j-slf4j2-impl")]
        path = os.pathsep.join(map(str, [*resolve_jars(KAFKA_JARS, java), *logging]))
        return [str(java.home / "bin" / "java"), f"-Xmx{self.heap}", *self.java_options, "-cp", path]

    def _format_once(self) -> None:
        if self._properties.exists():
            return
        self.directory.mkdir(parents=True, exist_ok=True)
        draft = self._properties.with_suffix(".draft")
        draft.write_text(
            _PROPERTIES.format(
                **self.ports,
                data=self.directory / "data",
                keystore=self._keystore(),
                plain_login=_login("plain.PlainLoginModule", f' user_{USERNAME}="{PASSWORD}"'),
                scram_login=_login("scram.ScramLoginModule", ""),
            )
        )
        command = [*self._java(), "kafka.tools.StorageTool", "format", "-t", _cluster_id(), "-c", str(draft)]
        for mechanism in ("SCRAM-SHA-256", "SCRAM-SHA-512"):
            command += ["--add-scram", f"{mechanism}=[name={USERNAME},password={PASSWORD}]"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise RuntimeError(f"Kafka's folder cannot be formatted: {(done.stdout + done.stderr)[-2000:]}")
        draft.rename(self._properties)

    def _keystore(self) -> Path:
        """Make a certificate for 127.0.0.1 that vouches for itself, and return the file of it and its key."""
        key = ec.generate_private_key(ec.SECP256R1())
        name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "127.0.0.1")])
        today = datetime.now(UTC)
        certificate = (
            x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
            .not_valid_before(today - timedelta(days=1))
            .not_valid_after(today + timedelta(days=1))
            .add_extension(x509.SubjectAlternativeName([x509.IPAddress(IPv4Address("127.0.0.1"))]), critical=False)
            .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
            .sign(key, hashes.SHA256())
            .public_bytes(Encoding.PEM)
        )
        self.certificate.write_bytes(certificate)
        store = self.directory / "keystore.pem"
        store.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()) + certificate)
        return store

    def _answers(self) -> bool:
        from confluent_kafka import KafkaException
        from confluent_kafka.admin import AdminClient

        with contextlib.suppress(OSError, KafkaException):
            # Looked at first, because the client would wait for its own timeout.
            socket.create_connection(("127.0.0.1", self.ports["plain"]), timeout=1).close()
            return bool(AdminClient({"bootstrap.servers": self.address, "log_level": 0}).list_topics(timeout=2).brokers)
        return False


def _free_ports(*names: str) -> dict[str, int]:
    with contextlib.ExitStack() as stack:
        probes = [stack.enter_context(socket.socket()) for _ in names]
        for probe in probes:
            probe.bind(("127.0.0.1", 0))
        return {name: probe.getsockname()[1] for name, probe in zip(names, probes, strict=True)}


def _dying_with_us() -> list[str]:
    """Return what to put before a command so that it ends even if this process is killed, where there is a way."""
    program = shutil.which("setpriv")
    return [] if program is None else [program, "--pdeathsig", "KILL"]


def _login(module: str, users: str) -> str:
    return f"org.apache.kafka.common.security.{module} required{users};"


def _cluster_id() -> str:
    return secrets.token_urlsafe(16).replace("-", "x")[:22]
