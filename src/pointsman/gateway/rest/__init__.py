"""The control plane over HTTP: REST for operators, its OpenAPI document, `/health`.

Owns HTTP alone: who may come in, what a body must look like, how an error reads. What is done is done by the
operations of `gateway`, the same that gRPC calls.
"""

from pointsman.gateway.rest.api import build_api
from pointsman.gateway.rest.document import document
from pointsman.gateway.rest.server import ControlServer

__all__ = ["ControlServer", "build_api", "document"]
