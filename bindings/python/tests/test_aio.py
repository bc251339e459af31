"""Shows channel and server of asyncio under unmodified stubs."""

import asyncio
import gc
import sys
import threading
import time
from concurrent import futures

import exam_pb2 as pb
import exam_pb2_grpc as pb_grpc
import grpc
import pytest
from servicer import WHERE, AioExam, Exam

import trunkline
import trunkline.aio
from trunkline._library import lib


class Stage:
    """A server and a stub in the same loop."""

    async def __aenter__(self):
        self.channel = trunkline.aio.insecure_channel(**WHERE)
        self.stub = pb_grpc.ExamStub(self.channel)
        self.exam = AioExam(self.stub)
        self.server = trunkline.aio.server(name="aio-exam", **WHERE)
        pb_grpc.add_ExamServicer_to_server(self.exam, self.server)
        await self.server.start()
        await self.server.ready()
        return self

    async def __aexit__(self, *_):
        await self.channel.close()
        await self.server.stop(5)
        assert not await self.server.wait_for_termination(1)


def run(part):
    async def within():
        async with Stage() as stage:
            await asyncio.wait_for(part(stage), 60)

    asyncio.run(within())


def test_unary_calls():
    async def part(stage):
        assert (await stage.stub.Echo(pb.Text(text="hello"))).text == "hello"
        calls = [stage.stub.Echo(pb.Text(text=str(number))) for number in range(100)]
        assert [(await call).text for call in calls] == [str(number) for number in range(100)]

    run(part)


def test_a_callback_that_fails_keeps_nobody_from_an_answer():
    async def part(stage):
        def fail(_):
            raise RuntimeError("as the test wants it")

        calls = [stage.stub.Echo(pb.Text(text=str(number))) for number in range(20)]
        for call in calls:
            call.add_done_callback(fail)
        assert [(await call).text for call in calls] == [str(number) for number in range(20)]

    run(part)


def test_who_awaits_a_call_and_is_cancelled_cancels_it():
    async def part(stage):
        call = stage.stub.Echo(pb.Text(text="hello"))

        async def wait():
            return await call

        waiting = asyncio.get_running_loop().create_task(wait())
        await asyncio.sleep(0)
        assert waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        assert call.cancelled() and await call.code() == grpc.StatusCode.CANCELLED
        assert (await stage.stub.Echo(pb.Text(text="again"))).text == "again"

    run(part)


def test_statuses_and_metadata():
    async def part(stage):
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await stage.stub.Echo(pb.Text(text="abort"))
        assert (caught.value.code(), caught.value.details()) == (grpc.StatusCode.ABORTED, "as ordered")
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await stage.stub.Echo(pb.Text(text="raise"))
        assert caught.value.code() == grpc.StatusCode.UNKNOWN
        metadata = (("who", "python"), ("blob-bin", b"\x00\x01"))
        call = stage.stub.Echo(pb.Text(text="metadata"), metadata=metadata)
        assert (await call.initial_metadata())["begun"] == "python"
        assert (await call).text == "metadata" and await call.code() == grpc.StatusCode.OK
        assert (await call.trailing_metadata())["end-bin"] == b"\x00\xff"

    run(part)


def test_deadlines_and_cancellation():
    async def part(stage):
        # The handler learns it, if the call came to it in time.
        while not await asyncio.to_thread(stage.exam.over.wait, 0.1):
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await stage.stub.Echo(pb.Text(text="hang"), timeout=0.05)
            assert caught.value.code() == grpc.StatusCode.DEADLINE_EXCEEDED
        stage.exam.over.clear()
        stage.exam.entered.clear()
        call = stage.stub.Echo(pb.Text(text="hang"))
        await asyncio.to_thread(stage.exam.entered.wait, 60)
        assert call.cancel() and call.done() and call.cancelled()
        with pytest.raises(asyncio.CancelledError):
            await call
        assert await asyncio.to_thread(stage.exam.over.wait, 60), "the handler is cancelled"

    run(part)


def test_calls_of_a_handler_inherit_its_deadline():
    async def part(stage):
        assert (await stage.stub.Echo(pb.Text(text="relay"))).text == "none"
        assert 1 < float((await stage.stub.Echo(pb.Text(text="relay"), timeout=50)).text) <= 50

    run(part)


def test_streams():
    async def part(stage):
        assert [word.text async for word in stage.stub.Words(pb.Text(text="a b c"))] == ["a", "b", "c"]

        async def requests():
            for number in range(20):
                yield pb.Text(text=str(number))

        wanted = [str(number) for number in range(20)]
        assert (await stage.stub.Join(requests())).text == " ".join(wanted)
        assert [text.text async for text in stage.stub.Chat(requests())] == wanted
        call = stage.stub.Chat()
        for text in ("one", "two"):
            await call.write(pb.Text(text=text))
            assert (await call.read()).text == text
        await call.done_writing()
        assert await call.read() is grpc.aio.EOF and await call.code() == grpc.StatusCode.OK
        call = stage.stub.Words(pb.Text(text="a fail"))
        assert (await call.read()).text == "a"
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await call.read()
        assert caught.value.code() == grpc.StatusCode.DATA_LOSS

    run(part)


def test_the_end_of_a_stream_is_waited_for_though_nobody_reads():
    async def part(stage):
        call = stage.stub.Chat()
        await call.done_writing()
        assert await call.code() == grpc.StatusCode.OK and await call.read() is grpc.aio.EOF
        # Who waits for headers or the end takes no response from who reads.
        call = stage.stub.Words(pb.Text(text="a b c"))
        code = asyncio.create_task(call.code())
        await call.initial_metadata()
        assert [(await call.read()).text for _ in range(2)] == ["a", "b"] and not code.done()
        assert [word.text async for word in call] == ["c"] and await code == grpc.StatusCode.OK

    run(part)


def test_several_loops_after_each_other():
    async def part(stage):
        assert (await stage.stub.Echo(pb.Text(text="again"))).text == "again"

    open_handles = []
    for _ in range(4):
        run(part)
        gc.collect()
        open_handles.append(lib.tl_handles_open())
    assert len(set(open_handles[1:])) == 1, f"a loop that has ended keeps nothing: {open_handles}"


def test_a_server_that_ends_before_it_has_read_all_loses_no_response():
    async def part(stage):
        wanted = [str(number) for number in range(50)]

        async def requests():
            for text in (*wanted, "enough", *["late"] * 100):
                yield pb.Text(text=text)
                await asyncio.sleep(0)

        call = stage.stub.Chat(requests())
        # Whoever sends finds the call ended before anything is read.
        await asyncio.sleep(0.2)
        assert [text.text async for text in call] == wanted and await call.code() == grpc.StatusCode.OK
        # The same of who writes, and is told so.
        call = stage.stub.Chat()
        for text in (*wanted, "enough"):
            await call.write(pb.Text(text=text))
        with pytest.raises(asyncio.InvalidStateError):
            while True:
                await call.write(pb.Text(text="late"))
        assert not call.done(), "there are responses to be read"
        assert [text.text async for text in call] == wanted and call.done()
        with pytest.raises(asyncio.InvalidStateError):
            await call.write(pb.Text(text="later"))

    run(part)


def test_a_stream_that_nobody_reads_ends_when_its_time_has_passed():
    async def part(stage):
        # A host that is busy with something else may need longer than the first of these to open the call.
        for timeout_s in (0.2, 2, 20):
            told = asyncio.Event()
            call = stage.stub.Chat(timeout=timeout_s)
            call.add_done_callback(lambda _, told=told: told.set())
            try:
                await call.write(pb.Text(text="one"))
                break
            except grpc.aio.AioRpcError as late:
                assert late.code() == grpc.StatusCode.DEADLINE_EXCEEDED
        await told.wait()
        assert call.done() and await call.code() == grpc.StatusCode.DEADLINE_EXCEEDED
        with pytest.raises(asyncio.InvalidStateError):
            await call.write(pb.Text(text="two"))
        # What came in time is there, and the end after it.
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            while True:
                assert (await call.read()).text == "one"
        assert caught.value.code() == grpc.StatusCode.DEADLINE_EXCEEDED

    run(part)


def test_a_write_that_is_cancelled_cancels_its_call():
    async def part(stage):
        call = stage.stub.Chat()
        await call.write(pb.Text(text="stall"))
        with pytest.raises(asyncio.TimeoutError):
            while True:
                await asyncio.wait_for(call.write(pb.Text(text="x" * (1 << 20))), 0.2)
        assert call.cancelled()
        with pytest.raises(asyncio.InvalidStateError):
            await call.write(pb.Text(text="more"))
        with pytest.raises(asyncio.CancelledError):
            await call.read()

    run(part)


def test_a_failed_call_of_a_handler_is_its_exception():
    async def part(stage):
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await stage.stub.Echo(pb.Text(text="relay abort"))
        assert caught.value.code() == grpc.StatusCode.UNKNOWN and "AioRpcError" in caught.value.details()

    run(part)


def test_a_callback_of_a_handler_that_fails_stops_no_server():
    async def part(stage):
        entered, told = asyncio.Event(), []

        def fail(_):
            told.append(True)
            raise RuntimeError("as the test wants it")

        async def watched(request, context):
            context.add_done_callback(fail)
            entered.set()
            await asyncio.sleep(100)

        server = trunkline.aio.server(**WHERE)
        methods = {"Watched": grpc.unary_unary_rpc_method_handler(watched)}
        server.add_generic_rpc_handlers([grpc.method_handlers_generic_handler("pyexam.v1.AioWatched", methods)])
        await server.start()
        await server.ready()
        call = stage.channel.unary_unary("/pyexam.v1.AioWatched/Watched")
        for number in range(2):
            cancelled = call(b"")
            await entered.wait()
            entered.clear()
            cancelled.cancel()
            while len(told) == number:
                await asyncio.sleep(0.01)
        open_handles = lib.tl_handles_open()
        cancelled = call(b"")
        await entered.wait()
        cancelled.cancel()
        while len(told) == 2 or lib.tl_handles_open() > open_handles:
            await asyncio.sleep(0.01)
        await server.stop(1)

    run(part)


def test_closing_a_channel_ends_its_calls():
    async def part(stage):
        channel = trunkline.aio.insecure_channel(**WHERE)
        stub = pb_grpc.ExamStub(channel)
        stream, unary = stub.Chat(), stub.Echo(pb.Text(text="hang"))
        await stream.write(pb.Text(text="one"))
        assert (await stream.read()).text == "one"
        await asyncio.to_thread(stage.exam.entered.wait, 60)
        await channel.close(0.1)
        assert unary.cancelled() and stream.cancelled()
        assert await asyncio.to_thread(stage.exam.over.wait, 60), "the handler is cancelled"
        with pytest.raises(grpc.aio.UsageError):
            stub.Echo(pb.Text(text="after"))
        # Who closes with a grace waits for calls that end.
        channel = trunkline.aio.insecure_channel(**WHERE)
        call = pb_grpc.ExamStub(channel).Echo(pb.Text(text="last"))
        await channel.close(60)
        assert (await call).text == "last"

    run(part)


def test_a_loop_that_ends_cancels_what_nobody_awaited():
    exam = Exam()
    server = trunkline.server(futures.ThreadPoolExecutor(max_workers=2), **WHERE)
    pb_grpc.add_ExamServicer_to_server(exam, server)
    server.start()
    server.ready()
    channel = trunkline.aio.insecure_channel(**WHERE)
    stub = pb_grpc.ExamStub(channel)

    async def leave(text):
        stub.Echo(pb.Text(text=text))
        if text == "hang":
            await asyncio.to_thread(exam.entered.wait, 60)

    open_handles = []
    try:
        for _ in range(8):
            for event in (exam.entered, exam.over):
                event.clear()
            asyncio.run(leave("hang"))
            # The next loop lets go of what the one before has left.
            asyncio.run(leave("x"))
            assert exam.over.wait(60), "the handler learns it"
            gc.collect()
            open_handles.append(lib.tl_handles_open())
        # What the last of them and the server let go of takes its time; a handle a loop would be six.
        until = time.monotonic() + 30
        while lib.tl_handles_open() > open_handles[1] + 2:
            assert time.monotonic() < until, f"a loop that has ended keeps nothing: {open_handles}"
            time.sleep(0.01)
    finally:
        # Another would answer the calls of the tests that follow.
        stopped = server.stop(5)
    assert stopped.wait(60)


def test_a_stream_that_always_has_something_lets_other_tasks_run():
    async def part(stage):
        longest = read = words = 0

        async def tick():
            nonlocal longest, read
            while True:
                longest, read = max(longest, read), 0
                await asyncio.sleep(0)

        call = stage.stub.Words(pb.Text(text=" ".join(["w"] * 2000)))
        # Its handler has sent what may be under way.
        await asyncio.sleep(0.2)
        ticker = asyncio.get_running_loop().create_task(tick())
        async for _ in call:
            words, read = words + 1, read + 1
        await asyncio.sleep(0)
        ticker.cancel()
        assert words == 2000 and longest <= 128

    run(part)


def test_writes_let_other_tasks_run():
    async def part(stage):
        longest = written = 0

        async def tick():
            nonlocal longest, written
            while True:
                longest, written = max(longest, written), 0
                await asyncio.sleep(0)

        ticker = asyncio.get_running_loop().create_task(tick())
        call = stage.stub.Join()
        for _ in range(1000):
            await call.write(pb.Text(text="w"))
            written += 1
        await asyncio.sleep(0)
        ticker.cancel()
        await call.done_writing()
        assert len((await call).text.split(" ")) == 1000
        assert longest <= 128

    run(part)


def test_who_waits_for_the_opening_and_is_cancelled_ends_no_opening():
    async def part(stage):
        call = stage.stub.Chat()
        # Nothing was told yet: both wait for the call to be open.
        waiting = asyncio.get_running_loop().create_task(call.wait_for_connection())
        await asyncio.sleep(0)
        assert waiting.cancel()
        await asyncio.wait({waiting})
        await call.write(pb.Text(text="on"))
        assert (await call.read()).text == "on"
        await call.done_writing()
        assert await call.read() is grpc.aio.EOF
        assert await call.code() == grpc.StatusCode.OK

        call = stage.stub.Chat()
        waiting = asyncio.get_running_loop().create_task(call.read())
        await asyncio.sleep(0)
        assert waiting.cancel()
        await asyncio.wait({waiting})
        # As with grpcio: a read that is cancelled cancels its call.
        assert await call.code() == grpc.StatusCode.CANCELLED

    run(part)


def test_a_server_is_stopped_twice():
    async def within():
        async with Stage() as stage:
            await asyncio.gather(stage.server.stop(30), stage.server.stop(0))
            await stage.server.stop(None)

    asyncio.run(within())


def test_calls_that_end_before_their_handler_began_leave_nothing():
    async def part(stage):
        server = stage.server
        taken = server._take

        def take_and_cancel(number):
            taken(number)
            task, context = server._calls[number]
            contexts.append(context)
            task.cancel()

        contexts = []
        server._queue.on_call = take_and_cancel
        with pytest.raises(grpc.aio.AioRpcError):
            await stage.stub.Echo(pb.Text(text="never begun"))
        server._queue.on_call = taken
        assert contexts and all(context.is_released for context in contexts) and not server._calls

    run(part)


def test_trailers_that_cannot_be_sent_leave_no_call_unanswered():
    async def part(stage):
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await stage.stub.Echo(pb.Text(text="bad trailers"))
        assert caught.value.code() == grpc.StatusCode.INTERNAL
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await stage.stub.Echo(pb.Text(text="bad abort"))
        assert (caught.value.code(), caught.value.details()) == (grpc.StatusCode.NOT_FOUND, "7")

    run(part)


@pytest.mark.skipif(sys.version_info < (3, 11), reason="no task knows whether it was cancelled itself")
def test_what_a_handler_waited_for_and_was_cancelled_is_an_error_of_the_handler():
    async def part(stage):
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await stage.stub.Echo(pb.Text(text="cancelled inside"))
        assert caught.value.code() == grpc.StatusCode.UNKNOWN

    run(part)


def test_initial_metadata_are_sent_once():
    async def part(stage):
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await stage.stub.Echo(pb.Text(text="headers twice"))
        assert caught.value.code() == grpc.StatusCode.UNKNOWN and "already sent" in caught.value.details()

    run(part)


class NotMigrated(pb_grpc.ExamServicer):
    """Handlers that are no coroutines."""

    def __init__(self):
        self.over = threading.Event()
        self.blocks = threading.Event()

    def Echo(self, request, context):
        if request.text == "secret":
            context.abort(grpc.StatusCode.PERMISSION_DENIED, "not you")
        if request.text == "block":
            assert self.blocks.wait(60)
        if request.text == "hang":
            context.add_callback(self.over.set)
            assert self.over.wait(60)
        context.send_initial_metadata((("begun", "yes"),))
        return pb.Text(text="served " + request.text)

    def Words(self, request, context):
        for word in request.text.split(" "):
            if word == "fail":
                context.abort(grpc.StatusCode.DATA_LOSS, "a word is lost")
            yield pb.Text(text=word)

    def Join(self, request_iterator, context):
        return pb.Text(text=" ".join(request.text for request in request_iterator))

    async def Chat(self, request_iterator, context):
        async for request in request_iterator:
            yield request


async def failure(call):
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await call
    return caught.value


@pytest.mark.parametrize("pool", [None, futures.ThreadPoolExecutor(4)])
def test_handlers_that_are_no_coroutines_run_in_threads(pool):
    async def part():
        servicer = NotMigrated()
        server = trunkline.aio.server(pool, name="aio-exam", **WHERE)
        pb_grpc.add_ExamServicer_to_server(servicer, server)
        await server.start()
        await server.ready()
        channel = trunkline.aio.insecure_channel(**WHERE)
        stub = pb_grpc.ExamStub(channel)
        refused = await failure(stub.Echo(pb.Text(text="secret")))
        assert (refused.code(), refused.details()) == (grpc.StatusCode.PERMISSION_DENIED, "not you")
        call = stub.Echo(pb.Text(text="x"))
        assert (await call).text == "served x" and ("begun", "yes") in tuple(await call.initial_metadata())
        words = stub.Words(pb.Text(text="a fail b"))
        assert (await words.read()).text == "a"
        assert (await failure(words.read())).code() == grpc.StatusCode.DATA_LOSS
        texts = [pb.Text(text="a"), pb.Text(text="b")]
        assert (await stub.Join(iter(texts))).text == "a b"
        assert [text.text async for text in stub.Chat(iter(texts))] == ["a", "b"]
        # One that blocks holds up no other, and one whose caller has gone is told.
        blocked = stub.Echo(pb.Text(text="block"))
        while not await asyncio.to_thread(servicer.over.wait, 0.1):  # if the call came to it in time
            late = await failure(stub.Echo(pb.Text(text="hang"), timeout=1))
            assert late.code() == grpc.StatusCode.DEADLINE_EXCEEDED
        servicer.blocks.set()
        assert (await blocked).text == "served block"
        await channel.close()
        await server.stop(5)

    asyncio.run(part())


def test_what_cannot_be_written_or_read_is_internal():
    def broken(_):
        raise ValueError("on order")

    async def part(stage):
        path = "/pyexam.v1.Exam/"
        text = pb.Text(text="x y").SerializeToString()
        for call in (
            lambda: stage.channel.unary_unary(path + "Echo", request_serializer=broken)(b"x"),
            lambda: stage.channel.stream_unary(path + "Join", request_serializer=broken)(iter([b"x"])),
        ):
            # Who uses it is told, not who makes it.
            made = call()
            with pytest.raises(grpc.aio.AioRpcError, match="Exception serializing request!") as caught:
                await made
            assert caught.value.code() == grpc.StatusCode.INTERNAL and made.done()
            assert await made.code() == grpc.StatusCode.INTERNAL
        wrong = {"metadata": (("bad key", "x"),)}
        for made in (
            stage.stub.Echo(pb.Text(text="x"), **wrong),
            stage.stub.Words(pb.Text(text="x"), **wrong),
            stage.stub.Join(iter([pb.Text(text="x")]), **wrong),
            stage.stub.Chat(**wrong),
        ):
            with pytest.raises(grpc.aio.AioRpcError, match="Invalid metadata") as caught:
                await (made if hasattr(made, "__await__") else made.read())
            assert caught.value.code() == grpc.StatusCode.INTERNAL
            assert await made.initial_metadata() == grpc.aio.Metadata() and not made.cancel()
        words = stage.channel.unary_stream(path + "Words", response_deserializer=broken)(text)
        for call in (
            stage.channel.unary_unary(path + "Echo", response_deserializer=broken)(text),
            stage.channel.stream_unary(path + "Join", response_deserializer=broken)(iter([text])),
            words.read(),
        ):
            with pytest.raises(grpc.aio.AioRpcError, match="Exception deserializing response!") as caught:
                await call
            assert caught.value.code() == grpc.StatusCode.INTERNAL
        assert await words.code() == grpc.StatusCode.INTERNAL
        # The stream takes others meanwhile.
        call = stage.stub.Chat()
        with pytest.raises(grpc.aio.AioRpcError, match="Exception serializing request!"):
            await call.write("no message")
        await call.write(pb.Text(text="one"))
        assert (await call.read()).text == "one"

    run(part)


def test_nothing_is_written_after_done_writing():
    async def part(stage):
        call = stage.stub.Chat()
        await call.write(pb.Text(text="one"))
        await call.done_writing()
        await call.done_writing()
        with pytest.raises(asyncio.InvalidStateError):
            await call.write(pb.Text(text="two"))
        assert (await call.read()).text == "one" and await call.read() is trunkline.aio.EOF

    run(part)


def test_a_call_that_waits_for_ready_waits_for_its_service():
    async def part(stage):
        echo = stage.channel.unary_unary("/pyexam.v1.AioLater/Echo")
        late = echo(b"x", timeout=0.05, wait_for_ready=True)
        assert await late.code() == grpc.StatusCode.DEADLINE_EXCEEDED
        cancelled = echo(b"x", wait_for_ready=True)
        await asyncio.sleep(0)
        assert cancelled.cancel()
        waiting = [echo(str(number).encode(), wait_for_ready=True) for number in range(20)]
        await asyncio.sleep(0.05)
        assert not any(call.done() for call in waiting)
        server = trunkline.aio.server(**WHERE)

        async def same(request, context):
            return request

        methods = {"Echo": grpc.unary_unary_rpc_method_handler(same)}
        server.add_generic_rpc_handlers([grpc.method_handlers_generic_handler("pyexam.v1.AioLater", methods)])
        await server.start()
        assert await asyncio.gather(*waiting) == [str(number).encode() for number in range(20)]
        await server.stop(None)

    run(part)


class Keeps(grpc.aio.UnaryStreamClientInterceptor):
    def __init__(self):
        self.kept = []

    async def intercept_unary_stream(self, continuation, client_call_details, request):
        self.kept.append(await continuation(client_call_details, request))
        return self.kept[-1]


def test_a_stream_that_is_dropped_is_cancelled_though_an_interceptor_keeps_the_call():
    async def part(_):
        keeps = Keeps()
        stub = pb_grpc.ExamStub(trunkline.aio.insecure_channel(interceptors=[keeps], **WHERE))
        call = stub.Words(pb.Text(text="a b"))
        assert (await call.read()).text == "a" and not keeps.kept[0].done()
        del call
        assert await keeps.kept[0].code() == grpc.StatusCode.CANCELLED
        # Who iterates keeps it.
        assert [word.text async for word in stub.Words(pb.Text(text="a b"))] == ["a", "b"]

    run(part)


def test_what_is_written_through_an_interceptor_lets_other_tasks_run_and_ends_with_its_call():
    class Passes(grpc.aio.StreamStreamClientInterceptor):
        async def intercept_stream_stream(self, continuation, client_call_details, request_iterator):
            return await continuation(client_call_details, request_iterator)

    async def part(_):
        stub = pb_grpc.ExamStub(trunkline.aio.insecure_channel(interceptors=[Passes()], **WHERE))
        call = stub.Chat()
        wanted = [str(number) for number in range(50)]
        for word in (*wanted, "enough"):
            await call.write(pb.Text(text=word))
        with pytest.raises(asyncio.InvalidStateError):
            while True:
                await call.write(pb.Text(text="late"))
        assert not call.done(), "there are responses to be read"
        assert [text.text async for text in call] == wanted and await call.code() == grpc.StatusCode.OK
        assert await call.debug_error_string() == "executed"

    run(part)


def test_a_server_is_ready_and_stops_though_the_loops_executor_is_busy():
    async def part(stage):
        free, busy = threading.Event(), threading.Event()
        pool = futures.ThreadPoolExecutor(max_workers=1)
        loop = asyncio.get_running_loop()
        loop.set_default_executor(pool)
        held = loop.run_in_executor(None, lambda: busy.set() or free.wait(100))
        while not busy.is_set():
            await asyncio.sleep(0.01)
        try:
            server = trunkline.aio.server(**WHERE)
            methods = {"Echo": grpc.unary_unary_rpc_method_handler(lambda request, context: request)}
            server.add_generic_rpc_handlers([grpc.method_handlers_generic_handler("pyexam.v1.AioBusy", methods)])
            await server.start()
            await asyncio.wait_for(server.ready(), 30)
            # Who stops waiting ends nothing.
            stopping = asyncio.create_task(server.stop(5))
            await asyncio.sleep(0)
            stopping.cancel()
            await asyncio.wait_for(server.stop(5), 30)
        finally:
            free.set()
            await held

    run(part)


def test_a_channel_that_is_dropped_leaves_nothing():
    async def part(stage):
        async def call():
            echo = pb_grpc.ExamStub(trunkline.aio.insecure_channel(**WHERE)).Echo
            assert (await echo(pb.Text(text="x"))).text == "x"

        async def settled():
            gc.collect()
            await asyncio.sleep(0.01)
            return lib.tl_handles_open()

        await call()
        before = await settled()
        for _ in range(50):
            await call()
        while await settled() >= before + 25:
            pass

    run(part)


class Cancels(pb_grpc.ExamServicer):
    """Says that calls are cancelled, in the words of clients that do it."""

    async def Echo(self, request, context):
        await context.abort(grpc.StatusCode.CANCELLED, "Locally cancelled by application!")

    async def Words(self, request, context):
        yield request
        await self.Echo(request, context)

    async def Join(self, request_iterator, context):
        await self.Echo(None, context)

    async def Chat(self, request_iterator, context):
        await self.Echo(None, context)
        yield None


def test_what_a_server_cancels_is_an_error_in_whatever_words():
    async def part():
        server = trunkline.aio.server(name="aio-cancels", **WHERE)
        pb_grpc.add_ExamServicer_to_server(Cancels(), server)
        await server.start()
        await server.ready()
        async with trunkline.aio.insecure_channel(**WHERE) as channel:
            stub, request = pb_grpc.ExamStub(channel), pb.Text(text="x")

            for call in (
                stub.Echo(request),
                _all_of(stub.Words(request)),
                stub.Join(iter([request])),
                stub.Chat(iter([request])).read(),
            ):
                assert (await failure(call)).code() == grpc.StatusCode.CANCELLED
            for begin in (stub.Echo, stub.Words):
                call = begin(request)
                assert call.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await (call if begin is stub.Echo else call.read())
        await server.stop(5)

    asyncio.run(part())


@pytest.mark.skipif(sys.version_info < (3, 11), reason="a task does not say who has cancelled it")
def test_an_iterator_of_requests_that_is_cancelled_inside_ends_its_call():
    async def part(stage):
        def of_a_cancelled_future():
            waited = asyncio.get_running_loop().create_future()
            waited.cancel()
            return waited

        async def requests():
            yield pb.Text(text="a")
            await of_a_cancelled_future()

        for call in (stage.stub.Join(requests()), stage.stub.Join(requests(), timeout=600)):
            assert (await failure(call)).code() == grpc.StatusCode.UNKNOWN
        chat = stage.stub.Chat(requests())
        told = await failure(_all_of(chat))
        assert told.code() == grpc.StatusCode.UNKNOWN and "CancelledError" in told.details()

    run(part)


async def _all_of(call):
    return [response async for response in call]


def test_an_iterator_of_requests_whose_task_is_cancelled_cancels_its_call():
    async def part(stage):
        begun = asyncio.get_running_loop().create_future()

        async def requests():
            yield pb.Text(text="a")
            begun.set_result(asyncio.current_task())
            await asyncio.get_running_loop().create_future()

        call = stage.stub.Join(requests())
        (await begun).cancel()
        assert await call.code() == grpc.StatusCode.CANCELLED and call.cancelled()

    run(part)


class _Loop:
    """A loop of another thread."""

    def __enter__(self):
        self.loop = asyncio.new_event_loop()
        self.loop.set_debug(True)
        self.thread = threading.Thread(target=self.loop.run_forever)
        self.thread.start()
        return self

    def begin(self, coroutine):
        return asyncio.wrap_future(asyncio.run_coroutine_threadsafe(coroutine, self.loop))

    def __exit__(self, *_):
        self.loop.call_soon_threadsafe(self.loop.stop)
        self.thread.join()
        self.loop.close()


@pytest.mark.parametrize("is_intercepted", [False, True])
def test_closing_a_channel_leaves_calls_of_other_loops_their_grace_and_their_thread(is_intercepted):
    class Passes(grpc.aio.UnaryUnaryClientInterceptor):
        async def intercept_unary_unary(self, continuation, details, request):
            return await continuation(details, request)

    interceptors = [Passes()] if is_intercepted else []

    async def call(channel, begun, told):
        call = pb_grpc.ExamStub(channel).Echo(pb.Text(text="hang"))
        call.add_done_callback(lambda _: told.append(threading.get_ident()))
        begun.set()
        try:
            return (await call).text
        except asyncio.CancelledError:
            return "cancelled"

    async def close(exam, other, grace):
        channel = trunkline.aio.insecure_channel(interceptors=interceptors, **WHERE)
        begun, told = threading.Event(), []
        exam.over.clear()
        exam.entered.clear()
        called = other.begin(call(channel, begun, told))
        assert await asyncio.to_thread(begun.wait, 60) and await asyncio.to_thread(exam.entered.wait, 60)
        closing = asyncio.get_running_loop().create_task(channel.close(grace))
        for _ in range(20):
            await asyncio.sleep(0)
        if grace:
            exam.over.set()
        heard = await asyncio.wait_for(called, 60)
        await closing
        assert told == [other.thread.ident]
        exam.over.set()
        return heard

    exam = Exam()
    server = trunkline.server(futures.ThreadPoolExecutor(max_workers=4), **WHERE)
    pb_grpc.add_ExamServicer_to_server(exam, server)
    server.start()
    server.ready()
    with _Loop() as other:
        assert asyncio.run(close(exam, other, 60), debug=True) == "hang"
        assert asyncio.run(close(exam, other, None), debug=True) == "cancelled"
    assert server.stop(5).wait(60)


def test_services_that_are_added_after_the_start_are_served():
    async def echo(request, context):
        return request

    def handler(name):
        methods = {"Echo": grpc.unary_unary_rpc_method_handler(echo)}
        return grpc.method_handlers_generic_handler(name, methods)

    async def part():
        server = trunkline.aio.server(**WHERE)
        server.add_generic_rpc_handlers([handler("pyexam.v1.AioFirst")])
        await server.start()
        await server.start()
        server.add_generic_rpc_handlers([handler("pyexam.v1.AioSecond")])
        await server.ready(60)
        async with trunkline.aio.insecure_channel(**WHERE) as channel:
            for name in ("AioFirst", "AioSecond"):
                assert await channel.unary_unary(f"/pyexam.v1.{name}/Echo")(b"x") == b"x"
        await server.stop(5)
        with pytest.raises(grpc.aio.UsageError):
            await server.start()

    asyncio.run(part())


def test_a_wait_for_the_daemon_has_an_end(tmp_path):
    async def part():
        server = trunkline.aio.server(socket=str(tmp_path / "daemon.sock"), embedded=False)
        server.add_generic_rpc_handlers([grpc.method_handlers_generic_handler("pyexam.v1.Waits", {})])
        await server.start()
        with pytest.raises(TimeoutError):
            await server.ready(0.01)
        waiting = asyncio.create_task(server.ready())
        await asyncio.sleep(0.01)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        await server.stop(0)

    asyncio.run(part())
    # Who waits no more leaves no thread behind.
    until = time.monotonic() + 60
    while any(thread.name == "trunkline-server" for thread in threading.enumerate()):
        assert time.monotonic() < until
        time.sleep(0.05)
