"""Stand before Spark Connect's own server: check who asks, rewrite what the engine has to see, pass on the rest.

::

    client --TLS, token--> Front (this process) --a token of its own--> Spark Connect, on the loopback

Calls go through as bytes, in both directions as a stream, with their metadata, deadlines, cancellation and errors, so
that every method of the service passes, known or not. Only requests that carry a plan are read (``requests``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from hmac import compare_digest
from typing import Any, Final

import grpc

from pydelta.connect.replies import error_metadata, execution_reply
from pydelta.connect.requests import Commands, analysis, execution
from pydelta.errors import DeltaEnvironmentError
from pydelta.spark.java_objects import kinds

__all__ = ["Front", "Guard"]

_CALLS: Final = 256  # at a time; each holds a thread, also those that wait for a statement to end
_SERVICE: Final = "/spark.connect.SparkConnectService/"
_EXECUTIONS: Final = frozenset({_SERVICE + "ExecutePlan", _SERVICE + "ReattachExecute"})
_LIMIT: Final = 128 << 20  # bytes of a message, as Spark Connect has it
_AUTHORIZATION: Final = "authorization"
_OPTIONS: Final = [
    ("grpc.max_receive_message_length", _LIMIT),
    ("grpc.max_send_message_length", _LIMIT),
    ("grpc.so_reuseport", 0),  # a port that is taken is said to be
]


@dataclass(frozen=True, kw_only=True)
class Guard:
    """Who may ask, and how.

    Args:
        token: What clients have to show (``sc://…;token=…``); None lets everybody in who reaches the port.
        certificate: A PEM file; with ``key``, calls are encrypted.
        key: A PEM file.
    """

    token: str | None = None
    certificate: bytes | None = None
    key: bytes | None = None


class Front:
    """The server that clients of Spark Connect speak to.

    Args:
        upstream: ``host:port`` of Spark Connect's own server.
        upstream_token: What that server asks for.
        commands: Where the commands of clients wait until Spark Connect runs them.
        guard: Who may ask.
    """

    def __init__(self, *, upstream: str, upstream_token: str, commands: Commands, guard: Guard) -> None:
        self._channel = grpc.insecure_channel(upstream, options=_OPTIONS)
        self._passing = _Passing(self._channel, upstream_token, commands, guard.token)
        self._guard = guard
        self._threads = ThreadPoolExecutor(_CALLS, thread_name_prefix="connect")
        self._server = grpc.server(self._threads, handlers=(self._passing,), options=_OPTIONS)

    def start(self, host: str, port: int) -> int:
        """Listen; port 0 takes a free one.

        Returns:
            The port.

        Raises:
            DeltaEnvironmentError: The port is taken, or not this machine's.
        """
        address = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        guard = self._guard
        try:
            if guard.certificate and guard.key:
                credentials = grpc.ssl_server_credentials([(guard.key, guard.certificate)])
                bound = self._server.add_secure_port(address, credentials)
            else:
                bound = self._server.add_insecure_port(address)
        except RuntimeError as error:
            raise DeltaEnvironmentError(
                f"Spark Connect cannot listen on {address}.",
                hint="Another process may have the port: name another one with --connect.",
            ) from error
        self._server.start()
        return int(bound)

    def stop(self, seconds: float) -> None:
        """Take no new calls, give those that run some time, then end them."""
        self._server.stop(seconds).wait()
        self._channel.close()
        self._threads.shutdown(wait=False, cancel_futures=True)


class _Passing(grpc.GenericRpcHandler):
    """Every method of every service, as a stream of bytes to a stream of bytes."""

    def __init__(self, channel: Any, upstream_token: str, commands: Commands, token: str | None) -> None:
        self._channel = channel
        self._bearer = f"Bearer {upstream_token}"
        self._commands = commands
        self._expected = f"Bearer {token}" if token is not None else None
        self._rewrites: Mapping[str, Callable[[bytes], bytes]] = {
            _SERVICE + "ExecutePlan": self._execution,
            _SERVICE + "AnalyzePlan": analysis,
        }

    def service(self, handler_call_details: Any) -> Any:
        """Return the handler of a call."""
        method = handler_call_details.method

        def handle(requests: Iterator[bytes], context: Any) -> Iterator[bytes]:
            return self._pass(method, requests, context)

        return grpc.stream_stream_rpc_method_handler(handle)

    def _execution(self, data: bytes) -> bytes:
        return execution(data, self._commands)[0]

    def _pass(self, method: str, requests: Iterator[bytes], context: Any) -> Iterator[bytes]:
        metadata = [(name, value) for name, value in context.invocation_metadata() if name != _AUTHORIZATION]
        if self._expected is not None and not self._is_known(context):
            context.abort(
                grpc.StatusCode.UNAUTHENTICATED,
                "This server asks for a token: connect with sc://host:port/;token=…, as its operator gave it to you.",
            )
        rewrite = self._rewrites.get(method)
        sent = map(rewrite, requests) if rewrite is not None else requests
        call = self._channel.stream_stream(method)(
            sent, metadata=[*metadata, (_AUTHORIZATION, self._bearer)], timeout=context.time_remaining()
        )
        if not context.add_callback(call.cancel):
            call.cancel()
        try:
            yield from map(execution_reply, call) if method in _EXECUTIONS else call
        except grpc.RpcError as error:
            context.set_trailing_metadata(error_metadata(error.trailing_metadata() or (), kinds.of))
            context.set_code(error.code())
            context.set_details(error.details() or "")
            return
        context.set_trailing_metadata(call.trailing_metadata() or ())

    def _is_known(self, context: Any) -> bool:
        shown = dict(context.invocation_metadata()).get(_AUTHORIZATION, "")
        return compare_digest(str(shown).encode(), str(self._expected).encode())
