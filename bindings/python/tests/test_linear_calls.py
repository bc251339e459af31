"""Shows generated stubs and services over linear messages: threads and asyncio, all patterns, without copies."""

import asyncio
import gc
import os
from concurrent import futures

import grpc
import numpy
import pytest
from servicer import WHERE
from vectors import v1_linear as v1

import trunkline
import trunkline.aio
from trunkline._library import lib


class Exam(v1.ExamServicer):
    def Turn(self, request, context):
        if request.WhichOneof("chosen") != "text":
            context.abort(grpc.StatusCode.INVALID_ARGUMENT, "no text")
        context.set_trailing_metadata((("seen", str(len(context.invocation_metadata()))),))
        return v1.Lists(strings=[request.text] * request.before, doubles=numpy.arange(request.before) / 2)

    def Split(self, request, context):
        for number in request.int32s:
            yield v1.Scalars(int32_value=number)

    def Join(self, request_iterator, context):
        return v1.Lists(strings=[each.string_value for each in request_iterator])

    def Echo(self, request_iterator, context):
        yield from request_iterator


class AioExam(v1.ExamServicer):
    async def Turn(self, request, context):
        if request.WhichOneof("chosen") != "text":
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, "no text")
        return v1.Lists(strings=[request.text] * request.before, doubles=numpy.arange(request.before) / 2)

    async def Split(self, request, context):
        for number in request.int32s:
            yield v1.Scalars(int32_value=number)

    async def Join(self, request_iterator, context):
        return v1.Lists(strings=[each.string_value async for each in request_iterator])

    async def Echo(self, request_iterator, context):
        async for request in request_iterator:
            yield request


def test_what_is_read_keeps_its_memory():
    v1._tl_package.handle()
    gc.collect()
    before = lib.tl_handles_open()
    pool = futures.ThreadPoolExecutor(max_workers=2)
    server = trunkline.server(pool, **WHERE)
    v1.add_ExamServicer_to_server(Exam(), server)
    server.start()
    server.ready()
    with trunkline.insecure_channel(**WHERE) as channel:
        stub = v1.ExamStub(channel)
        reply = stub.Turn(v1.Choice(before=1000, text=""))
        array = numpy.asarray(reply.doubles)
        assert not array.flags.writeable
        del reply
        for _ in range(50):
            stub.Turn(v1.Choice(before=1000, text="other"))
    assert server.stop(5).wait(60)
    pool.shutdown()
    gc.collect()
    assert lib.tl_handles_open() == before + 1, "the message that the array lies in"
    assert array.tolist() == [number / 2 for number in range(1000)]
    del array
    gc.collect()
    assert lib.tl_handles_open() == before


@pytest.fixture(scope="module")
def channel():
    server = trunkline.server(futures.ThreadPoolExecutor(max_workers=8), name="linear", **WHERE)
    v1.add_ExamServicer_to_server(Exam(), server)
    server.start()
    server.ready()
    with trunkline.insecure_channel(**WHERE) as channel:
        yield channel
    assert server.stop(5).wait(60)


def test_a_unary_call(channel):
    stub = v1.ExamStub(channel)
    for size in (0, 1, 5000, 3_000_000, 1):
        count = 2 if size > 100_000 else 20
        reply, call = stub.Turn.with_call(v1.Choice(before=count, text="y" * size), metadata=(("a", "b"),))
        assert reply.strings == ["y" * size] * count
        assert call.code() == grpc.StatusCode.OK and ("seen", "1") in call.trailing_metadata()
    with pytest.raises(grpc.RpcError) as caught:
        stub.Turn(v1.Choice())
    assert (caught.value.code(), caught.value.details()) == (grpc.StatusCode.INVALID_ARGUMENT, "no text")
    with pytest.raises(TypeError, match="no vectors.v1.Choice"):
        stub.Turn(v1.Lists())
    assert stub.Turn.future(v1.Choice(before=1, text="f")).result(60).strings == ["f"]


def test_streams(channel):
    stub = v1.ExamStub(channel)
    parts = stub.Split(v1.Lists(int32s=range(50)))
    assert [part.int32_value for part in parts] == list(range(50))
    joined = stub.Join(v1.Scalars(string_value=text) for text in ("a", "", "c"))
    assert joined.strings == ["a", "", "c"]
    trees = [v1.Tree(label=str(number), more=[{"label": "more"}]) for number in range(20)]
    back = list(stub.Echo(iter(trees)))
    assert back == trees and back[3].more[0].label == "more"


def test_the_same_service_by_protobuf(channel):
    """The daemon converts."""
    turn = channel.unary_unary("/vectors.v1.Exam/Turn")
    reply = v1.Lists.FromString(turn(v1.Choice(before=2, text="wire").SerializeToString()))
    assert reply.strings == ["wire", "wire"]


def test_asyncio(channel):
    async def part():
        # Beside that of threads, which answers alike: they take turns.
        server = trunkline.aio.server(**WHERE)
        v1.add_ExamServicer_to_server(AioExam(), server)
        await server.start()
        await server.ready()
        stub = v1.ExamStub(trunkline.aio.insecure_channel(**WHERE))
        replies = await asyncio.gather(*(stub.Turn(v1.Choice(before=3, text=str(n))) for n in range(40)))
        assert [reply.strings for reply in replies] == [[str(n)] * 3 for n in range(40)]
        assert numpy.asarray(replies[0].doubles).tolist() == [0, 0.5, 1]
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await stub.Turn(v1.Choice())
        assert caught.value.code() == grpc.StatusCode.INVALID_ARGUMENT
        assert [each.int32_value async for each in stub.Split(v1.Lists(int32s=[1, 2]))] == [1, 2]
        assert (await stub.Join(iter([v1.Scalars(string_value="z")]))).strings == ["z"]
        echo = stub.Echo()
        for label in ("one", "two"):
            await echo.write(v1.Tree(label=label))
            assert (await echo.read()).label == label
        await echo.done_writing()
        assert await echo.read() is grpc.aio.EOF
        await server.stop(5)

    asyncio.run(part())


class Shouts(grpc.UnaryUnaryClientInterceptor, grpc.UnaryStreamClientInterceptor):
    def intercept_unary_unary(self, continuation, client_call_details, request):
        return continuation(client_call_details, v1.Choice(before=request.before, text=request.text.upper()))

    def intercept_unary_stream(self, continuation, client_call_details, request):
        return (v1.Scalars(int32_value=-one.int32_value) for one in continuation(client_call_details, request))


class AioShouts(grpc.aio.UnaryUnaryClientInterceptor):
    async def intercept_unary_unary(self, continuation, client_call_details, request):
        call = await continuation(client_call_details, v1.Choice(before=request.before, text=request.text.upper()))
        return v1.Lists(strings=["seen", *(await call).strings])


class AioNegates(grpc.aio.UnaryStreamClientInterceptor):
    async def intercept_unary_stream(self, continuation, client_call_details, request):
        call = await continuation(client_call_details, request)
        return (v1.Scalars(int32_value=-one.int32_value) async for one in call)


def test_interceptors(channel):
    stub = v1.ExamStub(trunkline.intercept_channel(trunkline.intercept_channel(channel, Shouts()), Shouts()))
    assert stub.Turn(v1.Choice(before=2, text="low")).strings == ["LOW"] * 2
    assert [one.int32_value for one in stub.Split(v1.Lists(int32s=[1, -2]))] == [1, -2]
    assert trunkline.intercept_channel(channel) is channel
    with pytest.raises(TypeError):
        trunkline.intercept_channel(channel, object())

    async def part():
        async with trunkline.aio.insecure_channel(interceptors=[AioShouts(), AioNegates()], **WHERE) as own:
            stub = v1.ExamStub(own)
            assert (await stub.Turn(v1.Choice(before=1, text="low"))).strings == ["seen", "LOW"]
            assert [one.int32_value async for one in stub.Split(v1.Lists(int32s=[1, -2]))] == [-1, 2]

    asyncio.run(part())


def test_what_is_not_written_is_unimplemented():
    class Context:
        def set_code(self, code):
            self.code = code

        def set_details(self, details):
            self.details = details

    context = Context()
    with pytest.raises(NotImplementedError):
        v1.ExamServicer().Turn(v1.Choice(), context)
    assert context.code == grpc.StatusCode.UNIMPLEMENTED


def test_other_channels_and_servers_are_refused():
    with grpc.insecure_channel("localhost:1") as other, pytest.raises(TypeError, match="no channel of trunkline"):
        v1.ExamStub(other)
    with pytest.raises(TypeError, match="no server of trunkline"):
        v1.add_ExamServicer_to_server(Exam(), grpc.server(futures.ThreadPoolExecutor(max_workers=1)))


def test_a_request_can_be_written_to_while_its_call_waits():
    sent = v1.Choice(before=1, text="short")

    class Meddling(Exam):
        def Turn(self, request, context):
            sent.text = "long" * 100_000
            return super().Turn(request, context)

    pool = futures.ThreadPoolExecutor(max_workers=1)
    server = trunkline.server(pool, **WHERE)
    v1.add_ExamServicer_to_server(Meddling(), server)
    server.start()
    server.ready()
    with trunkline.insecure_channel(**WHERE) as channel:
        stub = v1.ExamStub(channel)
        # Until it is this server's turn: one of another test may serve, too.
        while len(sent.text) < 100_000:
            assert list(stub.Turn(sent).strings) == ["short"]
    assert server.stop(5).wait(60)
    pool.shutdown()


def test_a_forked_child_reads_what_its_parent_received(channel):
    stub = v1.ExamStub(channel)
    replies = [stub.Turn(v1.Choice(before=count, text="kept")) for count in (1, 3, 1000, 200_000)]
    arrays = [numpy.asarray(reply.doubles) for reply in replies]

    def is_whole(reply, array):
        count = len(array)
        return reply.strings[count - 1] == "kept" and array.tolist() == [number / 2 for number in range(count)]

    child = os.fork()
    if child == 0:
        # Its own child, too.
        child = os.fork()
        wholes = [is_whole(*each) for each in zip(replies, arrays)]
        if child and os.waitpid(child, 0)[1]:
            os._exit(2)
        os._exit(0 if all(wholes) else 1)
    assert os.waitpid(child, 0)[1] == 0
    assert all(is_whole(*each) for each in zip(replies, arrays))
    assert stub.Turn(v1.Choice(before=1, text="on")).strings[0] == "on"
