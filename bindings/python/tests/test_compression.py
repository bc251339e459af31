"""Shows how messages are compressed between this package and grpcio's own clients and servers, by what passes on the
wire: asked for by call, by channel and by server, and not for a single message; and that who cannot read it is told."""

import asyncio
import os
import socket
import threading
from concurrent import futures

import grpc
import pytest
from servicer import WHERE

import trunkline
import trunkline.aio

PORT = os.environ["TRUNKLINE_TEST_PORT"]
WAIT_S = 60
LARGE = b"x" * 500_000
SERVICE = "squeeze.v1.Squeeze"
GZIP = grpc.Compression.Gzip


class Wire:
    """Carries connections to an address, and counts what comes back."""

    def __init__(self, to):
        self._to = to.rpartition(":")
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._listener.getsockname()[1]}"
        self.bytes = 0
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self):
        while True:
            try:
                near = self._listener.accept()[0]
            except OSError:
                return
            far = socket.create_connection((self._to[0], int(self._to[2])))
            for a, b, counts in ((near, far, False), (far, near, True)):
                threading.Thread(target=self._carry, args=(a, b, counts), daemon=True).start()

    def _carry(self, source, sink, counts):
        try:
            while data := source.recv(1 << 16):
                self.bytes += len(data) if counts else 0
                sink.sendall(data)
        except OSError:
            pass
        for end in (source, sink):
            end.close()

    def close(self):
        self._listener.close()


def say(request, context):
    """What the request asks for, of the context."""
    if b"gzip" in request:
        context.set_compression(GZIP)
    if b"plain" in request:
        context.disable_next_message_compression()
    return LARGE


def handlers(unary, stream):
    methods = {
        "Say": grpc.unary_unary_rpc_method_handler(unary),
        "SayTwice": grpc.unary_stream_rpc_method_handler(stream),
    }
    return (grpc.method_handlers_generic_handler(SERVICE, methods),)


def of_threads(compression):
    def twice(request, context):
        yield say(request, context)
        context.disable_next_message_compression()
        yield LARGE

    server = trunkline.server(
        futures.ThreadPoolExecutor(max_workers=4), handlers(say, twice), compression=compression, **WHERE
    )
    server.start()
    server.ready()
    return lambda: server.stop(5).wait(WAIT_S)


def of_asyncio(compression):
    async def once(request, context):
        return say(request, context)

    async def twice(request, context):
        await context.write(say(request, context))
        context.disable_next_message_compression()
        await context.write(LARGE)

    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    within = lambda part: asyncio.run_coroutine_threadsafe(part, loop).result(WAIT_S)

    async def begin():
        server = trunkline.aio.server(None, handlers(once, twice), compression=compression, **WHERE)
        await server.start()
        await server.ready()
        return server

    server = within(begin())

    def stop():
        within(server.stop(5))
        loop.call_soon_threadsafe(loop.stop)
        thread.join(WAIT_S)
        loop.close()

    return stop


@pytest.mark.parametrize("serve", [of_threads, of_asyncio])
def test_answers_are_compressed_as_their_server_says(serve):
    for compression, request, wanted in (
        (None, b"", 1),
        (None, b"gzip", 0),
        (None, b"gzip plain", 1),
        (GZIP, b"", 0),
        (GZIP, b"plain", 1),
    ):
        stop, wire = serve(compression), Wire(PORT)
        try:
            with grpc.insecure_channel(wire.address) as channel:
                answer = channel.unary_unary(f"/{SERVICE}/Say")(request, timeout=WAIT_S)
            assert answer == LARGE
            assert wire.bytes // len(LARGE) == wanted, f"{compression} {request}: {wire.bytes} bytes"
        finally:
            stop()
            wire.close()


@pytest.mark.parametrize("serve", [of_threads, of_asyncio])
def test_one_answer_of_a_stream_is_not(serve):
    stop, wire = serve(GZIP), Wire(PORT)
    try:
        with grpc.insecure_channel(wire.address) as channel:
            answers = list(channel.unary_stream(f"/{SERVICE}/SayTwice")(b"", timeout=WAIT_S))
        assert answers == [LARGE, LARGE]
        assert wire.bytes // len(LARGE) == 1, f"{wire.bytes} bytes of two answers"
    finally:
        stop()
        wire.close()


class Refusing:
    """A server of grpcio's that reads nothing compressed, and says so."""

    def __enter__(self):
        identity = (("grpc.compression_enabled_algorithms_bitset", 1),)
        self._server = grpc.server(futures.ThreadPoolExecutor(max_workers=4), options=identity)
        methods = {"Say": grpc.unary_unary_rpc_method_handler(lambda request, context: request)}
        self._server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE, methods),))
        port = self._server.add_insecure_port("127.0.0.1:0")
        self._server.start()
        return f"tcp://127.0.0.1:{port}"

    def __exit__(self, *_):
        self._server.stop(0).wait(WAIT_S)


def code_of(call):
    try:
        assert call() == LARGE
        return grpc.StatusCode.OK
    except grpc.RpcError as error:
        return error.code()


def test_requests_are_compressed_as_channel_and_call_say():
    ok, refused = grpc.StatusCode.OK, grpc.StatusCode.UNIMPLEMENTED
    cases = ((None, None, ok), (None, GZIP, refused), (GZIP, None, refused), (GZIP, grpc.Compression.NoCompression, ok))
    with Refusing() as target:
        for of_channel, of_call, wanted in cases:
            with trunkline.insecure_channel(target, compression=of_channel, **WHERE) as channel:
                call = channel.unary_unary(f"/{SERVICE}/Say")
                assert code_of(lambda: call(LARGE, timeout=WAIT_S, compression=of_call)) == wanted, (of_channel, of_call)

        async def ask(of_channel, of_call):
            async with trunkline.aio.insecure_channel(target, compression=of_channel, **WHERE) as channel:
                return await channel.unary_unary(f"/{SERVICE}/Say")(LARGE, timeout=WAIT_S, compression=of_call)

        for of_channel, of_call, wanted in cases:
            assert code_of(lambda: asyncio.run(ask(of_channel, of_call))) == wanted, (of_channel, of_call)


def test_a_compression_nobody_knows_is_refused():
    with trunkline.insecure_channel(**WHERE) as channel, pytest.raises(ValueError):
        channel.unary_unary(f"/{SERVICE}/Say")(b"", compression=77)
