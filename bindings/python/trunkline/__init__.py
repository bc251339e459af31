"""Trunkline under code that grpcio's plugin has generated.

Two lines of a program change: the channel, and the server.

    channel = trunkline.insecure_channel("dns:///search.internal:7878")   # for grpc.insecure_channel(...)
    server = trunkline.server(futures.ThreadPoolExecutor(max_workers=8))  # for grpc.server(...)

Stubs, servicers, messages, interceptors and errors stay grpcio's. `trunkline.aio` has the same for `grpc.aio`.
"""

from ._channel import Channel, intercept_channel
from ._library import Library, LibraryError
from ._server import Server

__all__ = ["Channel", "LibraryError", "Server", "insecure_channel", "intercept_channel", "server"]


def insecure_channel(target="", options=None, compression=None, *, socket=None, embedded=None, name=None):
    """A channel to a target, through the host's daemon; to whoever serves on this host if it is empty.

    `options` are those of grpcio's transport, which this does not use: limits, keepalive, balancing and retries are the
    daemon's configuration. `compression` is that of requests to a gRPC server; nothing is on one host. `socket`, `embedded` and `name` say which daemon, and who
    calls.
    """
    return Channel(Library(target, socket, embedded, name, compression))


def server(
    thread_pool,
    handlers=None,
    interceptors=None,
    options=None,
    maximum_concurrent_rpcs=None,
    compression=None,
    *,
    socket=None,
    embedded=None,
    name=None,
    workers=1,
):
    """A server whose handlers run in `thread_pool`. `workers` threads of the library receive its calls."""
    return Server(
        thread_pool,
        handlers,
        interceptors,
        maximum_concurrent_rpcs,
        compression,
        socket=socket,
        embedded=embedded,
        name=name,
        workers=workers,
    )
