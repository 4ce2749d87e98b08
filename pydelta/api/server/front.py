"""Check who speaks to Spark Connect's server, rewrite what the engine has to see, pass on the rest.

::

    client --TLS, token--> Front (this process) --a token of its own--> Spark Connect, on the loopback
    function of foreachBatch --that token--> Front, too: its process looks for Spark's port on "localhost"

Calls go through as bytes, in both directions as a stream, with their metadata, deadlines, cancellation and errors, so
that every method of the service passes, known or not. Only requests that carry a plan are read (``requests``).
"""

from __future__ import annotations

import secrets
import socket
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import grpc

from pydelta.api.console.addresses import LOOPBACK, in_url
from pydelta.api.server.guard import Guard
from pydelta.api.server.replies import error_metadata, execution_reply
from pydelta.api.server.requests import Commands, analysis, execution, with_user
from pydelta.api.server.texts import Texts
from pydelta.engines.spark.java_objects import kinds
from pydelta.errors import DeltaEnvironmentError

if TYPE_CHECKING:
    from pydelta.api.server.spark.sessions import Sessions

__all__ = ["Front"]

_CALLS: Final = 256  # at a time; each holds a thread, also those that wait for a statement to end
_SERVICE: Final = "/spark.connect.SparkConnectService/"
_EXECUTIONS: Final = frozenset({_SERVICE + "ExecutePlan", _SERVICE + "ReattachExecute"})
_LIMIT: Final = 128 << 20  # bytes of a message, as Spark Connect has it
_AUTHORIZATION: Final = "authorization"
_ASIDE: Final = "127.0.0.2"
"""Where Spark's own server listens, so that the address by which Spark calls it, "localhost", is left to the front."""
_NEVER: Final = 365 * 86400.0  # seconds; gRPC tells centuries for a call without a deadline
_LAST_WORDS: Final = 2.0  # seconds for answers that are on their way
_OPTIONS: Final = [
    ("grpc.max_receive_message_length", _LIMIT),
    ("grpc.max_send_message_length", _LIMIT),
    ("grpc.so_reuseport", 0),  # a port that is taken is said to be
]

_Check: TypeAlias = Callable[[str, Any], Callable[[bytes], bytes]]
"""Asked about a call (method, context): ends it, or returns what is done to its requests."""


class Front:
    """The server that clients of Spark Connect speak to.

    Args:
        guard: Who may ask.
    """

    def __init__(self, guard: Guard) -> None:
        self._guard = guard
        self._token = secrets.token_urlsafe(32)
        self._commands = Commands()
        self.behind = _free_address()
        """Where Spark Connect's own server listens: an address of the loopback and a port."""
        self._threads = ThreadPoolExecutor(_CALLS, thread_name_prefix="connect")
        self._channel: Any = None  # not before the JVM is there: gRPC's threads do not survive a fork
        self._servers: list[Any] = []

    def settings(self) -> dict[str, str]:
        """Return what Spark has to be started with; it holds a secret."""
        return {"spark.connect.authenticate.token": self._token}

    def start(self, sessions: Sessions, host: str, port: int) -> int:
        """Listen, and let the sessions' parsers see what clients ask for; port 0 takes a free one.

        Args:
            sessions: Of Spark's server, which is running.
            host: An address of this machine.
            port: On it.

        Returns:
            The port.

        Raises:
            DeltaEnvironmentError: The port is taken, the address is not this machine's, the certificate is none.
        """
        sessions.texts = Texts(self._commands).planner_of
        aside, behind = self.behind
        self._channel = grpc.insecure_channel(f"{aside}:{behind}", options=_OPTIONS)
        if aside != LOOPBACK:
            self._listen(self._of_spark, LOOPBACK, behind, Guard())
        return self._listen(self._signed if self._guard.users else None, host, port, self._guard)

    def stop(self) -> None:
        """End what is still open."""
        for ending in [server.stop(_LAST_WORDS) for server in self._servers]:
            ending.wait()
        if self._channel is not None:
            self._channel.close()
        self._threads.shutdown(wait=False, cancel_futures=True)

    def _listen(self, check: _Check | None, host: str, port: int, guard: Guard) -> int:
        passing = _Passing(self._channel, self._token, self._commands, check)
        server = grpc.server(self._threads, handlers=(passing,), options=_OPTIONS)
        address = f"{in_url(host)}:{port}"
        try:
            if guard.certificate and guard.key:
                credentials = grpc.ssl_server_credentials([(guard.key, guard.certificate)])
                bound = server.add_secure_port(address, credentials)
            else:
                bound = server.add_insecure_port(address)
        except RuntimeError as error:
            raise DeltaEnvironmentError(
                f"Spark Connect cannot listen on {address}.",
                hint="Another process may have the port; or the certificate and the key are no pair of PEM files.",
            ) from error
        server.start()
        self._servers.append(server)
        return int(bound)

    def _signed(self, method: str, context: Any) -> Callable[[bytes], bytes]:
        """Return what puts the user whose token was shown into a request: sessions are kept by user."""
        user = self._guard.user_of(_shown(context))
        if user is None:
            context.abort(
                grpc.StatusCode.UNAUTHENTICATED,
                "This server asks for a token: connect with sc://host:port/;token=…, as its operator gave it to you.",
            )
        try:
            return with_user(method.removeprefix(_SERVICE), str(user))
        except KeyError:
            context.abort(grpc.StatusCode.UNIMPLEMENTED, f"This server has no method {method}.")
            raise

    def _of_spark(self, method: str, context: Any) -> Callable[[bytes], bytes]:
        """Let in who shows the token that Spark gives its own processes; they tell whose session they work in."""
        if not secrets.compare_digest(_shown(context).encode(), f"Bearer {self._token}".encode()):
            context.abort(grpc.StatusCode.UNAUTHENTICATED, "This address is for Spark's own processes.")
        return bytes


def _shown(context: Any) -> str:
    return str(dict(context.invocation_metadata()).get(_AUTHORIZATION, ""))


def _free_address() -> tuple[str, int]:
    """Find a port that is free on both addresses of the loopback; on one, where the machine has no other."""
    with socket.socket() as found:
        found.bind((LOOPBACK, 0))
        port = int(found.getsockname()[1])
        with socket.socket() as beside:
            try:
                beside.bind((_ASIDE, port))
            except OSError:
                return LOOPBACK, port
    return _ASIDE, port


class _Passing(grpc.GenericRpcHandler):
    """Every method of every service, as a stream of bytes to a stream of bytes."""

    def __init__(self, channel: Any, upstream_token: str, commands: Commands, check: _Check | None) -> None:
        self._channel = channel
        self._bearer = f"Bearer {upstream_token}"
        self._check = check
        self._rewrites: Mapping[str, Callable[[bytes], bytes]] = {
            _SERVICE + "ExecutePlan": lambda data: execution(data, commands),
            _SERVICE + "AnalyzePlan": analysis,
        }

    def service(self, handler_call_details: Any) -> Any:
        """Return the handler of a call."""
        method = handler_call_details.method

        def handle(requests: Iterator[bytes], context: Any) -> Iterator[bytes]:
            return self._pass(method, requests, context)

        return grpc.stream_stream_rpc_method_handler(handle)

    def _pass(self, method: str, requests: Iterator[bytes], context: Any) -> Iterator[bytes]:
        metadata = [(name, value) for name, value in context.invocation_metadata() if name != _AUTHORIZATION]
        if self._check is not None:
            requests = map(self._check(method, context), requests)
        rewrite = self._rewrites.get(method)
        sent = map(rewrite, requests) if rewrite is not None else requests
        left = context.time_remaining()
        call = self._channel.stream_stream(method)(
            sent,
            metadata=[*metadata, (_AUTHORIZATION, self._bearer)],
            timeout=None if left is None or left > _NEVER else left,
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
