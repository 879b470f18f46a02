"""The OpenAPI document is true: a fuzzer that reads it gets documented answers, and never a fault of ours."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import requests
import schemathesis
from hypothesis import HealthCheck, given, settings
from schemathesis import GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
    unsupported_method,
)

from dw_platform.bus import BusLimits, ScalableMessageBus, TopicOptions
from dw_platform.foundation import SystemClock
from dw_platform.gateway.app import create_app
from dw_platform.gateway.bus_topics import BusPublisher
from dw_platform.gateway.keyring import KeyRing
from dw_platform.gateway.openapi import document
from dw_platform.gateway.settings import GatewaySettings
from tests.gateway.doubles import LogPublisher
from tests.gateway.serving import in_thread

pytestmark = pytest.mark.server

CHECKS = (
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
    unsupported_method,
)


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[schemathesis.BaseSchema]:
    publisher = LogPublisher(Path(tmp_path_factory.mktemp("log")))
    topics = {"ticks": TopicOptions()}
    bus = BusPublisher(ScalableMessageBus(limits=BusLimits(), topics=topics), topics)
    app = create_app(publisher, settings=GatewaySettings(), keys=KeyRing.open_to_all(), clock=SystemClock(), bus=bus)
    with in_thread(app) as port:
        schema = schemathesis.openapi.from_url(f"http://127.0.0.1:{port}/openapi.json")
        for operation in (operation for path in schema.raw_schema["paths"].values() for operation in path.values()):
            for parameter in operation.get("parameters", ()):
                if parameter["name"] == "topic":
                    # Most names exist; with names at random nothing but the 404 would be tried.
                    parameter["schema"] = {"enum": ["orders", "ticks", "nowhere", "a b"]}
        yield schema
    publisher.close()


VALID, INVALID = GenerationMode.POSITIVE, GenerationMode.NEGATIVE
OPERATIONS = [(method.upper(), path, VALID) for path, methods in document()["paths"].items() for method in methods]
# The others take nothing that could be invalid.
OPERATIONS += [(method, path, INVALID) for method, path, _ in OPERATIONS if "{" in path]


@pytest.mark.parametrize(("method", "path", "mode"), OPERATIONS, ids=[f"{m} {p} {g.value}" for m, p, g in OPERATIONS])
def test_every_answer_is_a_documented_one(
    served: schemathesis.BaseSchema, method: str, path: str, mode: GenerationMode
) -> None:
    operation = served[path][method]

    @settings(max_examples=25, derandomize=True, deadline=None, suppress_health_check=list(HealthCheck), database=None)
    @given(case=operation.as_strategy(generation_mode=mode))
    def fuzz(case: schemathesis.Case) -> None:
        case.call_and_validate(checks=CHECKS, session=session)

    with requests.Session() as session:
        fuzz()
