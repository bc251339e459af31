"""Shows grpcio's own channels, of threads and of asyncio, that call servers of this package by the daemon's port: all
four patterns, deadlines, cancellation, metadata, statuses and their details."""

import asyncio
import os
import threading
from concurrent import futures

import exam_pb2 as pb
import exam_pb2_grpc as pb_grpc
import grpc
import pytest
from grpc_status import rpc_status
from servicer import WHERE, AioExam, Exam

import trunkline
import trunkline.aio

PORT = os.environ["TRUNKLINE_TEST_PORT"]
# For who waits for something to begin or end.
WAIT_S = 60


def of_threads():
    servicer = Exam()
    server = trunkline.server(futures.ThreadPoolExecutor(max_workers=8), name="port", **WHERE)
    pb_grpc.add_ExamServicer_to_server(servicer, server)
    server.start()
    server.ready()
    yield servicer
    assert server.stop(5).wait(WAIT_S)


def of_asyncio():
    servicer = AioExam()
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    within = lambda part: asyncio.run_coroutine_threadsafe(part, loop).result(WAIT_S)

    async def begin():
        server = trunkline.aio.server(name="port", **WHERE)
        pb_grpc.add_ExamServicer_to_server(servicer, server)
        await server.start()
        await server.ready()
        return server

    server = within(begin())
    yield servicer
    within(server.stop(5))
    loop.call_soon_threadsafe(loop.stop)
    thread.join(WAIT_S)
    loop.close()


@pytest.fixture(scope="module", params=[of_threads, of_asyncio])
def exam(request):
    yield from request.param()


@pytest.fixture(scope="module")
def stub(exam):
    with grpc.insecure_channel(PORT) as channel:
        yield pb_grpc.ExamStub(channel)


def texts(*all_of_them):
    return (pb.Text(text=text) for text in all_of_them)


def said(answers):
    return [answer.text for answer in answers]


def failure(call):
    with pytest.raises(grpc.RpcError) as caught:
        call()
    return caught.value


def test_the_four_patterns(stub):
    large = "x" * (3 << 20)
    assert stub.Echo(pb.Text(text=large)).text == large
    assert said(stub.Words(pb.Text(text="one two three"))) == ["one", "two", "three"]
    assert stub.Join(texts("a", "b", "c")).text == "a b c"
    many = [str(number) for number in range(500)]
    assert said(stub.Chat(texts(*many))) == many
    # The server ends first.
    assert said(stub.Chat(texts("one", "enough", "two"))) == ["one"]


def test_many_at_once(stub):
    calls = [stub.Echo.future(pb.Text(text=str(number))) for number in range(200)]
    assert [call.result(WAIT_S).text for call in calls] == [str(number) for number in range(200)]


def test_statuses(stub):
    aborted = failure(lambda: stub.Echo(pb.Text(text="abort")))
    assert (aborted.code(), aborted.details()) == (grpc.StatusCode.ABORTED, "as ordered")
    raised = failure(lambda: stub.Echo(pb.Text(text="raise")))
    assert raised.code() == grpc.StatusCode.UNKNOWN and raised.details().endswith("on order")
    answers = stub.Words(pb.Text(text="one fail two"))
    assert next(answers).text == "one"
    lost = failure(lambda: next(answers))
    assert (lost.code(), lost.details()) == (grpc.StatusCode.DATA_LOSS, "a word is lost")


def test_details_and_text_of_a_status(exam, stub):
    if isinstance(exam, AioExam):
        # Its servicer does not give them.
        return
    coded = failure(lambda: stub.Echo(pb.Text(text="code")))
    assert (coded.code(), coded.details()) == (grpc.StatusCode.OUT_OF_RANGE, "größer")
    rich = rpc_status.from_call(failure(lambda: stub.Echo(pb.Text(text="rich"))))
    assert (rich.message, len(rich.details)) == ("nobody", 1)


def test_metadata_both_ways(stub):
    metadata = (("who", "grpcio"), ("blob-bin", b"\x00\x01"))
    answer, call = stub.Echo.with_call(pb.Text(text="metadata"), metadata=metadata)
    begun, ended = dict(call.initial_metadata()), dict(call.trailing_metadata())
    assert (answer.text, begun["begun"], begun["blob-bin"]) == ("metadata", "grpcio", b"\x00\x01")
    assert (ended["ended"], ended["end-bin"]) == ("yes", b"\x00\xff")


def test_deadlines_travel(exam, stub):
    # grpcio says a timeout in three digits, rounded up.
    assert 0 < float(stub.Echo(pb.Text(text="time"), timeout=WAIT_S).text) <= WAIT_S * 1.01
    assert stub.Echo(pb.Text(text="time")).text == "none"
    exam.over.clear()
    while not exam.over.wait(0.1):  # the handler is told, if the call came to it in time
        late = failure(lambda: stub.Echo(pb.Text(text="hang"), timeout=0.2))
        assert late.code() == grpc.StatusCode.DEADLINE_EXCEEDED


def test_cancellation_travels(exam, stub):
    exam.over.clear()
    exam.entered.clear()
    call = stub.Echo.future(pb.Text(text="hang"))
    assert exam.entered.wait(WAIT_S)
    assert call.cancel()
    assert exam.over.wait(WAIT_S), "the handler is told"
    assert call.code() == grpc.StatusCode.CANCELLED


def test_what_is_not_there(stub):
    with grpc.insecure_channel(PORT) as channel:
        # Neither has a handler of that name.
        missing = channel.unary_unary("/pyexam.v1.Exam/Missing")
        assert failure(lambda: missing(b"")).code() == grpc.StatusCode.UNIMPLEMENTED
        nobody = channel.unary_unary("/pyexam.v1.Nobody/Echo")
        assert failure(lambda: nobody(b"")).code() in (
            grpc.StatusCode.UNAVAILABLE,
            grpc.StatusCode.UNIMPLEMENTED,
        )


def test_a_channel_of_asyncio(exam):
    async def within():
        async with grpc.aio.insecure_channel(PORT) as channel:
            stub = pb_grpc.ExamStub(channel)
            calls = [stub.Echo(pb.Text(text=str(number))) for number in range(100)]
            assert [(await call).text for call in calls] == [str(number) for number in range(100)]
            assert [word.text async for word in stub.Words(pb.Text(text="one two"))] == ["one", "two"]
            assert (await stub.Join(texts("a", "b"))).text == "a b"
            assert [text.text async for text in stub.Chat(texts("one", "two"))] == ["one", "two"]
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await stub.Echo(pb.Text(text="abort"))
            assert (caught.value.code(), caught.value.details()) == (grpc.StatusCode.ABORTED, "as ordered")

    asyncio.run(asyncio.wait_for(within(), WAIT_S))
