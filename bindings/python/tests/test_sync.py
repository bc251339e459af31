"""Shows a channel and a server of threads under unmodified stubs."""

import asyncio
import contextlib
import copy
import gc
import os
import pickle
import queue
import subprocess
import sys
import threading
import time
from concurrent import futures

import exam_pb2 as pb
import exam_pb2_grpc as pb_grpc
import grpc
import pytest
from grpc_status import rpc_status
from servicer import WHERE, Exam

import trunkline
import trunkline._server
import trunkline.aio
from trunkline._library import lib


@pytest.fixture(scope="module")
def exam():
    servicer = Exam()
    server = trunkline.server(futures.ThreadPoolExecutor(max_workers=8), name="exam", **WHERE)
    pb_grpc.add_ExamServicer_to_server(servicer, server)
    server.start()
    server.ready()
    yield servicer
    assert server.stop(5).wait(60)
    assert not server.wait_for_termination(1)


@pytest.fixture(scope="module")
def stub(exam):
    with trunkline.insecure_channel(**WHERE) as channel:
        yield pb_grpc.ExamStub(channel)


def failure(call):
    with pytest.raises(grpc.RpcError) as caught:
        call()
    return caught.value


def test_a_unary_call(stub):
    assert stub.Echo(pb.Text(text="hello")).text == "hello"
    large = "x" * (3 << 20)
    assert stub.Echo(pb.Text(text=large)).text == large


def test_statuses(stub):
    aborted = failure(lambda: stub.Echo(pb.Text(text="abort")))
    assert (aborted.code(), aborted.details()) == (grpc.StatusCode.ABORTED, "as ordered")
    coded = failure(lambda: stub.Echo(pb.Text(text="code")))
    assert (coded.code(), coded.details()) == (grpc.StatusCode.OUT_OF_RANGE, "größer")
    raised = failure(lambda: stub.Echo(pb.Text(text="raise")))
    assert (raised.code(), raised.details()) == (
        grpc.StatusCode.UNKNOWN,
        "Exception calling application: on order",
    )
    rich = rpc_status.from_call(failure(lambda: stub.Echo(pb.Text(text="rich"))))
    assert (rich.message, len(rich.details)) == ("nobody", 1)


def test_what_is_not_served_was_not_executed(stub):
    channel = trunkline.insecure_channel(**WHERE)
    nobody = channel.unary_unary("/nobody.v1.Nobody/Here")
    failed = failure(lambda: nobody(b"x"))
    assert (failed.code(), failed.execution()) == (grpc.StatusCode.UNAVAILABLE, "not executed")
    missing = channel.unary_unary("/pyexam.v1.Exam/Missing")
    assert failure(lambda: missing(b"x")).code() == grpc.StatusCode.UNIMPLEMENTED


def test_metadata_both_ways(stub):
    metadata = (("who", "python"), ("blob-bin", b"\x00\x01"))
    response, call = stub.Echo.with_call(pb.Text(text="metadata"), metadata=metadata)
    assert (response.text, call.code()) == ("metadata", grpc.StatusCode.OK)
    assert ("begun", "python") in call.initial_metadata() and ("blob-bin", b"\x00\x01") in call.initial_metadata()
    assert call.trailing_metadata() == (("ended", "yes"), ("end-bin", b"\x00\xff"))


def test_deadlines_and_cancellation(exam, stub):
    while not exam.over.wait(0.1):  # the handler learns it, if the call came to it in time
        late = failure(lambda: stub.Echo(pb.Text(text="hang"), timeout=0.05))
        assert late.code() == grpc.StatusCode.DEADLINE_EXCEEDED
    assert 1 < float(stub.Echo(pb.Text(text="time"), timeout=50).text) <= 50
    assert stub.Echo(pb.Text(text="time")).text == "none"
    exam.over.clear()
    exam.entered.clear()
    future = stub.Echo.future(pb.Text(text="hang"))
    assert exam.entered.wait(60)
    with pytest.raises(grpc.FutureTimeoutError):
        future.result(timeout=0.01)
    assert future.cancel() and future.cancelled() and future.done()
    with pytest.raises(grpc.FutureCancelledError):
        future.result()
    assert exam.over.wait(60), "the handler learns it"
    exam.over.clear()


def test_futures(stub):
    calls = [stub.Echo.future(pb.Text(text=str(number))) for number in range(20)]
    assert [call.result(timeout=60).text for call in calls] == [str(number) for number in range(20)]
    told = threading.Event()
    stub.Echo.future(pb.Text(text="x")).add_done_callback(lambda call: told.set())
    assert told.wait(60)
    failed = stub.Echo.future(pb.Text(text="abort"))
    assert failed.exception().code() == grpc.StatusCode.ABORTED


def test_streams(stub):
    assert [word.text for word in stub.Words(pb.Text(text="a b c"))] == ["a", "b", "c"]
    texts = [pb.Text(text=str(number)) for number in range(50)]
    assert stub.Join(iter(texts)).text == " ".join(text.text for text in texts)
    response, call = stub.Join.with_call(iter(texts[:2]))
    assert (response.text, call.code()) == ("0 1", grpc.StatusCode.OK)
    assert [text.text for text in stub.Chat(iter(texts))] == [text.text for text in texts]


def test_a_stream_that_fails_in_the_middle(stub):
    call = stub.Words(pb.Text(text="a fail b"))
    assert next(call).text == "a"
    failed = failure(lambda: next(call))
    assert (failed.code(), call.details()) == (grpc.StatusCode.DATA_LOSS, "a word is lost")


def test_a_conversation(stub):
    """Each request depends on the response before it; the server ends it."""
    said, heard = threading.Semaphore(1), []

    def requests():
        for text in ("one", "two", "enough", "never"):
            assert said.acquire(timeout=60)
            yield pb.Text(text=text)

    for response in stub.Chat(requests()):
        heard.append(response.text)
        said.release()
    assert heard == ["one", "two"]


def test_a_stream_that_is_cancelled(stub):
    waits = threading.Event()

    def requests():
        yield pb.Text(text="one")
        waits.wait(60)

    call = stub.Chat(requests())
    assert next(call).text == "one"
    assert call.cancel() and not call.is_active()
    assert failure(lambda: next(call)).code() == grpc.StatusCode.CANCELLED
    waits.set()


class Adds(grpc.UnaryUnaryClientInterceptor, grpc.ServerInterceptor):
    """Marks calls on one side, refuses those without the mark on the other."""

    def intercept_unary_unary(self, continuation, client_call_details, request):
        details = client_call_details._replace(metadata=(("mark", "set"),))
        return continuation(details, request)

    def intercept_service(self, continuation, handler_call_details):
        if ("mark", "set") in handler_call_details.invocation_metadata:
            return continuation(handler_call_details)
        refuse = lambda request, context: context.abort(grpc.StatusCode.UNAUTHENTICATED, "no mark")
        return grpc.unary_unary_rpc_method_handler(refuse)


def test_interceptors_of_both_sides():
    server = trunkline.server(futures.ThreadPoolExecutor(max_workers=2), interceptors=[Adds()], **WHERE)
    methods = {"Echo": grpc.unary_unary_rpc_method_handler(lambda request, context: request)}
    server.add_generic_rpc_handlers([grpc.method_handlers_generic_handler("pyexam.v1.Guarded", methods)])
    server.start()
    server.ready()
    channel = trunkline.insecure_channel(**WHERE)
    echo = channel.unary_unary("/pyexam.v1.Guarded/Echo")
    assert failure(lambda: echo(b"x")).code() == grpc.StatusCode.UNAUTHENTICATED
    marked = trunkline.intercept_channel(channel, Adds()).unary_unary("/pyexam.v1.Guarded/Echo")
    assert marked(b"x") == b"x"
    assert server.stop(None).wait(60)


def test_methods_that_nobody_wrote_are_unimplemented():
    """As generated servicers have them: a code is set, then an exception is raised."""

    def unwritten(request, context):
        context.set_code(grpc.StatusCode.UNIMPLEMENTED)
        context.set_details("Method not implemented!")
        raise NotImplementedError("Method not implemented!")

    server = trunkline.server(futures.ThreadPoolExecutor(max_workers=2), **WHERE)
    methods = {"Echo": grpc.unary_unary_rpc_method_handler(unwritten)}
    server.add_generic_rpc_handlers([grpc.method_handlers_generic_handler("pyexam.v1.Unwritten", methods)])
    server.start()
    server.ready()
    echo = trunkline.insecure_channel(**WHERE).unary_unary("/pyexam.v1.Unwritten/Echo")
    failed = failure(lambda: echo(b"x"))
    assert (failed.code(), failed.details()) == (grpc.StatusCode.UNIMPLEMENTED, "Method not implemented!")
    assert server.stop(None).wait(60)


def test_many_threads(stub):
    def work(begin):
        for number in range(begin, begin + 50):
            assert stub.Echo(pb.Text(text=str(number))).text == str(number)

    with futures.ThreadPoolExecutor(max_workers=4) as pool:
        list(pool.map(work, range(0, 200, 50)))


def test_what_would_be_ignored_is_refused(stub):
    with pytest.raises(ValueError, match="metadata"):
        stub.Echo(pb.Text(), credentials=grpc.access_token_call_credentials("t"))
    server = trunkline.server(futures.ThreadPoolExecutor(max_workers=1), **WHERE)
    with pytest.raises(ValueError, match="TLS"):
        server.add_secure_port("[::]:1", None)
    with pytest.warns(UserWarning, match="daemon"):
        assert server.add_insecure_port("[::]:50051") == 50051


def test_what_a_server_cancels_is_an_error_and_no_cancellation_of_the_caller(stub):
    for call in (stub.Echo.future(pb.Text(text="cancelled")), stub.Join.future(iter(()), timeout=1e-9)):
        failed = failure(call.result)
        assert not call.cancelled() and call.exception() is failed
    assert failure(lambda: stub.Echo(pb.Text(text="cancelled"))).code() == grpc.StatusCode.CANCELLED


def test_only_who_asks_for_the_answer_waits_until_somebody_is_ready(stub, tmp_path):
    """Opening does not: there is no daemon, and none comes."""
    with trunkline.insecure_channel(socket=str(tmp_path / "nobody"), embedded=False) as channel:
        absent = pb_grpc.ExamStub(channel)
        call = absent.Echo.future(pb.Text(text="x"), wait_for_ready=True)
        told = threading.Event()
        call.add_done_callback(lambda _: told.set())
        assert call.running() and call.cancel() and told.wait(60) and call.cancelled()
        late = failure(absent.Echo.future(pb.Text(text="x"), wait_for_ready=True, timeout=0.1).result)
        assert late.code() == grpc.StatusCode.DEADLINE_EXCEEDED
        stream = absent.Chat(iter([pb.Text(text="x")]), wait_for_ready=True)
        assert stream.is_active()
    assert failure(lambda: next(stream)).details() == "Channel closed!"
    # Where somebody is, calls are made.
    assert stub.Echo.future(pb.Text(text="x"), wait_for_ready=True).result(60).text == "x"
    texts = ["a", "b", "c"]
    heard = stub.Chat((pb.Text(text=text) for text in texts), wait_for_ready=True)
    assert [text.text for text in heard] == texts
    assert stub.Join(iter([pb.Text(text="x")]), wait_for_ready=True).text == "x"


def test_an_iterator_of_requests_that_fails_ends_the_call_with_unknown(stub):
    def requests():
        yield pb.Text(text="one")
        raise RuntimeError("as the test wants it")

    for _ in range(100):
        assert failure(lambda: list(stub.Chat(requests()))).code() == grpc.StatusCode.UNKNOWN
        assert failure(lambda: stub.Join(requests())).code() == grpc.StatusCode.UNKNOWN


def test_callbacks_of_a_stream_that_nobody_reads(stub):
    waits = threading.Event()

    def requests():
        yield pb.Text(text="one")
        waits.wait(60)

    told = threading.Event()
    call = stub.Chat(requests(), timeout=0.2)
    call.add_done_callback(lambda _: told.set())
    assert told.wait(60) and call.done() and call.code() == grpc.StatusCode.DEADLINE_EXCEEDED
    waits.set()
    # Responses are left to who reads, and the end is told after them.
    told.clear()
    call = stub.Words(pb.Text(text="a b c"))
    assert call.add_callback(told.set)
    assert [word.text for word in call] == ["a", "b", "c"] and told.wait(60)
    told.clear()
    assert stub.Chat(iter(())).add_callback(told.set) and told.wait(60)


def test_a_stream_that_is_dropped_is_cancelled_though_its_requests_wait(exam, stub):
    waits = threading.Event()

    def requests():
        yield pb.Text(text="watch")
        waits.wait(60)

    exam.over.clear()
    call = stub.Chat(requests())
    assert next(call).text == "watch"
    del call
    gc.collect()
    assert exam.over.wait(60), "the handler is told"
    waits.set()


@pytest.mark.parametrize("error", [RuntimeError, SystemExit])
def test_a_callback_of_a_handler_that_fails_stops_no_server(error):
    entered, told, ends = threading.Event(), threading.Semaphore(0), threading.Event()

    def fail():
        told.release()
        raise error("as the test wants it")

    def watched(request, context):
        context.add_callback(fail)
        context.add_callback(told.release)
        entered.set()
        ends.wait(60)
        return request

    server = trunkline.server(futures.ThreadPoolExecutor(max_workers=4), **WHERE)
    methods = {"Watched": grpc.unary_unary_rpc_method_handler(watched)}
    server.add_generic_rpc_handlers([grpc.method_handlers_generic_handler("pyexam.v1.Watched", methods)])
    server.start()
    server.ready()
    call = trunkline.insecure_channel(**WHERE).unary_unary("/pyexam.v1.Watched/Watched")
    for _ in range(3):
        entered.clear()
        cancelled = call.future(b"x", timeout=60)
        assert entered.wait(60), "calls are still taken"
        cancelled.cancel()
        assert told.acquire(timeout=60) and told.acquire(timeout=60), "every callback is called"
    ends.set()
    assert call(b"x") == b"x"
    assert server.stop(5).wait(60)


def test_closing_a_channel_ends_its_calls(exam):
    channel = trunkline.insecure_channel(**WHERE)
    stub = pb_grpc.ExamStub(channel)
    waits = threading.Event()

    def requests():
        yield pb.Text(text="one")
        waits.wait(60)

    stream = stub.Chat(requests())
    assert next(stream).text == "one"
    exam.over.clear()
    exam.entered.clear()
    with futures.ThreadPoolExecutor(max_workers=2) as pool:
        hanging = pool.submit(lambda: failure(lambda: stub.Echo(pb.Text(text="hang"))))
        assert exam.entered.wait(60)
        channel.close()
        assert hanging.result(60).code() == grpc.StatusCode.CANCELLED
    assert exam.over.wait(60), "the handler learns it"
    exam.over.clear()
    ended = failure(lambda: next(stream))
    assert (ended.code(), ended.details()) == (grpc.StatusCode.CANCELLED, "Channel closed!")
    waits.set()
    for call in (lambda: stub.Echo(pb.Text()), lambda: stub.Words(pb.Text()), lambda: stub.Join(iter(()))):
        with pytest.raises(ValueError, match="closed channel"):
            call()


def test_trailers_that_cannot_be_sent_leave_no_call_unanswered(stub):
    spoilt = failure(lambda: stub.Echo(pb.Text(text="bad trailers")))
    assert spoilt.code() == grpc.StatusCode.INTERNAL and "trailing metadata" in spoilt.details()
    # What failed anyway fails as its handler says.
    aborted = failure(lambda: stub.Echo(pb.Text(text="bad abort")))
    assert (aborted.code(), aborted.details()) == (grpc.StatusCode.NOT_FOUND, "7")


def test_a_timeout_by_its_place(stub):
    requests = [pb.Text(text="a"), pb.Text(text="b")]
    assert stub.Join(iter(requests), 60).text == "a b"
    assert stub.Join.with_call(iter(requests), 60)[0].text == "a b"
    assert stub.Join.future(iter(requests), 60).result().text == "a b"


def test_the_thread_that_takes_all_calls_refuses_without_waiting(monkeypatch):
    waited = []

    class Watched:
        def __getattr__(self, name):
            return getattr(lib, name)

        def tl_call_finish(self, call, outcome, message, queue, *rest):
            if threading.current_thread().name == "trunkline-server" and not queue.id:
                waited.append(call)
            return lib.tl_call_finish(call, outcome, message, queue, *rest)

    monkeypatch.setattr(trunkline._server, "lib", Watched())
    busy = Exam()
    pool = futures.ThreadPoolExecutor(max_workers=1)
    server = trunkline.server(pool, name="busy", maximum_concurrent_rpcs=1, **WHERE)
    where = "of.the.busy.Exam"
    method = grpc.unary_unary_rpc_method_handler(busy.Echo, pb.Text.FromString, pb.Text.SerializeToString)
    server.add_registered_method_handlers(where, {"Echo": method})
    server.start()
    server.ready()
    with trunkline.insecure_channel(**WHERE) as channel:
        echo = channel.unary_unary(f"/{where}/Echo", pb.Text.SerializeToString, pb.Text.FromString)
        held = echo.future(pb.Text(text="hang"))
        assert busy.entered.wait(60)
        for _ in range(3):
            refused = failure(lambda: echo(pb.Text(text="too many")))
            assert (refused.code(), refused.details()) == (
                grpc.StatusCode.RESOURCE_EXHAUSTED,
                "Concurrent RPC limit exceeded!",
            )
        busy.over.set()
        assert held.result().text == "hang"
        pool.shutdown()
        assert failure(lambda: echo(pb.Text(text="no pool"))).code() == grpc.StatusCode.UNAVAILABLE
    assert server.stop(5).wait(60)
    assert not waited and not server._refused and not server._calls


def test_a_handler_that_ran_is_never_unavailable(stub):
    empty = failure(lambda: stub.Echo(pb.Text(text="nothing")))
    assert (empty.code(), empty.details()) == (grpc.StatusCode.INTERNAL, "Failed to serialize response!")
    assert failure(lambda: stub.Echo(pb.Text(text="exit"))).code() == grpc.StatusCode.UNKNOWN
    assert stub.Echo(pb.Text(text="on")).text == "on"


def test_a_request_that_cannot_be_read_is_internal(exam):
    with trunkline.insecure_channel(**WHERE) as channel:
        for method in ("Echo", "Join"):
            path = f"/{pb.DESCRIPTOR.services_by_name['Exam'].full_name}/{method}"
            if method == "Echo":
                spoilt = failure(lambda: channel.unary_unary(path)(b"\xff\xff"))
            else:
                spoilt = failure(lambda: channel.stream_unary(path)(iter([b"\xff\xff"])))
            assert (spoilt.code(), spoilt.details()) == (
                grpc.StatusCode.INTERNAL,
                "Exception deserializing request!",
            )


def test_a_call_without_its_request_is_unimplemented(exam):
    with trunkline.insecure_channel(**WHERE) as channel:
        for method in ("Echo", "Words"):
            call = channel.stream_unary(f"/pyexam.v1.Exam/{method}")
            assert failure(lambda: call(iter(()))).code() == grpc.StatusCode.UNIMPLEMENTED


def test_a_second_response_ends_one_call_and_no_later_one(stub):
    """Calls of one thread through one channel have one cancellation: it is the caller's."""
    with trunkline.insecure_channel(**WHERE) as channel:
        words = channel.unary_unary("/pyexam.v1.Exam/Words")
        failed = failure(lambda: words(pb.Text(text="a b").SerializeToString()))
        assert failed.code() == grpc.StatusCode.UNIMPLEMENTED
        assert words(pb.Text(text="alone").SerializeToString()) == pb.Text(text="alone").SerializeToString()


def test_a_message_that_cannot_be_sent_ends_its_call():
    """In a process with small heaps, by threads and by asyncio."""
    script = os.path.join(os.path.dirname(__file__), "too_large.py")
    environment = dict(os.environ, TRUNKLINE_HEAP_BYTES="4 MiB", PYEXAM=os.path.dirname(pb.__file__))
    ran = subprocess.run([sys.executable, script], env=environment, capture_output=True, text=True, timeout=100)
    assert ran.returncode == 0, ran.stdout + ran.stderr


def until(holds):
    """Asks until something holds, as a loop of a program does."""
    while not holds():
        time.sleep(0.001)


def test_a_future_is_done_though_nobody_waits_for_it(exam, stub):
    future = stub.Echo.future(pb.Text(text="x"))
    until(future.done)
    assert not future.running() and not future.cancelled() and future.result(timeout=0).text == "x"
    assert future.exception() is None and future.traceback() is None
    assert future.result() is future.result()
    failed = stub.Echo.future(pb.Text(text="abort"))
    until(lambda: not failed.running())
    assert failed.exception(timeout=0) is failed and failed.code() == grpc.StatusCode.ABORTED
    joined = stub.Join.future(iter([pb.Text(text="a"), pb.Text(text="b")]))
    until(joined.done)
    assert joined.result().text == "a b"
    # Nobody asks before it has ended.
    quiet = stub.Echo.future(pb.Text(text="x"))
    assert stub.Echo(pb.Text(text="y")).text == "y"
    while not quiet.done():
        assert stub.Echo(pb.Text(text="y")).text == "y"
    many = [stub.Echo.future(pb.Text(text=str(number))) for number in range(200)]
    until(lambda: all(future.done() for future in many))
    assert [future.result().text for future in many] == [str(number) for number in range(200)]


def test_a_stream_is_over_though_nobody_waits_for_it(stub):
    late = stub.Echo.future(pb.Text(text="hang"), timeout=0.05)
    until(late.done)
    assert late.code() == grpc.StatusCode.DEADLINE_EXCEEDED
    gone = stub.Words(pb.Text(text="fail"))
    until(lambda: not gone.is_active())
    assert gone.done() and gone.exception() is gone and gone.code() == grpc.StatusCode.DATA_LOSS
    words = stub.Words(pb.Text(text="a b"))
    # What it has answered is read first.
    assert [word.text for word in words] == ["a", "b"]
    assert words.done() and not words.running() and words.exception() is None


def test_waits_of_futures_have_timeouts(exam, stub):
    exam.over.clear()
    hanging = stub.Echo.future(pb.Text(text="hang"))
    for wait in (hanging.result, hanging.exception, hanging.traceback):
        with pytest.raises(grpc.FutureTimeoutError):
            wait(timeout=0.01)
    assert hanging.cancel() and not hanging.cancel()
    for wait in (hanging.result, hanging.exception, hanging.traceback):
        with pytest.raises(grpc.FutureCancelledError):
            wait(timeout=0.01)
    failed = stub.Echo.future(pb.Text(text="abort"))
    assert failed.traceback(timeout=60) is not None
    assert failure(lambda: stub.Echo(pb.Text(text="abort"))).traceback() is not None
    waiting = stub.Chat(iter(()), timeout=60)
    assert waiting.exception(timeout=60) is None and waiting.traceback() is None
    exam.over.set()
    exam.over.clear()


def test_a_callback_comes_though_nobody_keeps_the_future_and_once(stub):
    told = []
    for number in range(50):
        future = stub.Echo.future(pb.Text(text=str(number)))
        future.add_done_callback(lambda call: told.append(call.result().text))
        with contextlib.suppress(ZeroDivisionError):  # of a call that has ended: who adds it is told
            future.add_done_callback(lambda call: 1 / 0)
        del future
    gc.collect()
    until(lambda: len(told) == 50)
    assert sorted(told, key=int) == [str(number) for number in range(50)]
    done = stub.Echo.future(pb.Text(text="x"))
    done.result()
    done.add_done_callback(told.append)
    assert told[-1] is done


def test_what_cannot_be_written_or_read_is_internal():
    def broken(_):
        raise ValueError("on order")

    methods = {
        "Echo": grpc.unary_unary_rpc_method_handler(lambda request, context: request),
        "Words": grpc.unary_stream_rpc_method_handler(lambda request, context: iter([b"a", b"b"])),
        "Join": grpc.stream_unary_rpc_method_handler(lambda requests, context: b"".join(requests)),
        "Fails": grpc.unary_stream_rpc_method_handler(lambda request, context: (1 / 0 for _ in "ab")),
    }
    server = trunkline.server(futures.ThreadPoolExecutor(max_workers=4), **WHERE)
    server.add_generic_rpc_handlers([grpc.method_handlers_generic_handler("pyexam.v1.Broken", methods)])
    server.start()
    server.ready()
    with trunkline.insecure_channel(**WHERE) as channel:
        path = "/pyexam.v1.Broken/"
        written = channel.unary_unary(path + "Echo", request_serializer=broken)
        words = channel.unary_stream(path + "Words", request_serializer=broken)
        joined = channel.stream_unary(path + "Join", request_serializer=broken)
        unwritten = (lambda: written(b"x"), lambda: written.future(b"x"), lambda: words(b"x"), lambda: joined(iter([b"x"])))
        for call in unwritten:
            failed = failure(call)
            assert (failed.code(), failed.details()) == (grpc.StatusCode.INTERNAL, "Exception serializing request!")
        echo = channel.unary_unary(path + "Echo", response_deserializer=broken)
        words = channel.unary_stream(path + "Words", response_deserializer=broken)(b"x")
        joined = channel.stream_unary(path + "Join", response_deserializer=broken)
        unread = (lambda: echo(b"x"), echo.future(b"x").result, lambda: next(words), lambda: joined(iter([b"x"])))
        for call in unread:
            failed = failure(call)
            assert (failed.code(), failed.details()) == (grpc.StatusCode.INTERNAL, "Exception deserializing response!")
        assert words.code() == grpc.StatusCode.INTERNAL
        fails = failure(lambda: list(channel.unary_stream(path + "Fails")(b"x")))
        assert fails.code() == grpc.StatusCode.UNKNOWN
        assert fails.details() == "Exception iterating responses: division by zero"
    assert server.stop(None).wait(60)


def test_a_call_whose_metadata_cannot_be_sent_is_internal(stub):
    for metadata in ((("bad key", "x"),), (("text", "a\nb"),)):
        for call in (
            lambda: stub.Echo(pb.Text(text="x"), metadata=metadata),
            lambda: stub.Echo.future(pb.Text(text="x"), metadata=metadata).result(),
            lambda: next(stub.Words(pb.Text(text="x"), metadata=metadata)),
            lambda: stub.Join(iter([pb.Text(text="x")]), metadata=metadata),
        ):
            failed = failure(call)
            assert failed.code() == grpc.StatusCode.INTERNAL and failed.details().startswith("Invalid metadata")
            assert failed.execution() == "not executed"


def test_a_message_that_is_none_is_internal_and_no_time_is_too_long(stub):
    with trunkline.insecure_channel(**WHERE) as channel:
        path = "/pyexam.v1.Exam/"
        for call in (
            lambda: channel.unary_unary(path + "Echo")(None),
            lambda: channel.stream_unary(path + "Join")(iter([None])),
        ):
            failed = failure(call)
            assert (failed.code(), failed.details()) == (grpc.StatusCode.INTERNAL, "Exception serializing request!")
    assert stub.Echo(pb.Text(text="x"), timeout=float("inf")).text == "x"


def served_later(service):
    """A server that is started by the test."""
    server = trunkline.server(futures.ThreadPoolExecutor(max_workers=4), **WHERE)
    methods = {"Echo": grpc.unary_unary_rpc_method_handler(lambda request, context: request)}
    server.add_generic_rpc_handlers([grpc.method_handlers_generic_handler(service, methods)])
    return server


def test_who_looks_whether_a_call_has_ended_deserializes_nothing():
    ran = []

    def deserialize(message):
        ran.append(message)
        if message == b"bad":
            raise ValueError("as the test wants it")
        return message.decode()

    server = served("pyexam.v1.Looked", {"Echo": lambda request, context: request})
    with trunkline.insecure_channel(**WHERE) as channel:
        echo = channel.unary_unary("/pyexam.v1.Looked/Echo", response_deserializer=deserialize)
        calls = [echo.future(message) for message in (b"a", b"b", b"bad")]
        until(lambda: all(call.done() and not call.running() and not call.is_active() for call in calls))
        assert not ran
        assert [call.result() for call in calls[:2]] == ["a", "b"] and calls[0].result(5) == "a"
        assert failure(calls[2].result).code() == calls[2].code() == grpc.StatusCode.INTERNAL
        assert ran == [b"a", b"b", b"bad"]
    assert server.stop(5).wait(60)


def test_a_call_whose_answer_comes_before_its_cancellation_is_not_cancelled():
    server = served("pyexam.v1.Faster", {"Echo": lambda request, context: request})
    with trunkline.insecure_channel(**WHERE) as channel:
        call = channel.unary_unary("/pyexam.v1.Faster/Echo").future(b"x")
        cut_short = call._cut_short

        def too_late(*how, **named):
            call.note_end()
            return cut_short(*how, **named)

        call._cut_short = too_late
        assert not call.cancel() and not call.cancelled() and call.result() == b"x"
        del call._cut_short
    assert server.stop(5).wait(60)


def test_services_that_are_added_after_the_start_are_served():
    echo = {"Echo": grpc.unary_unary_rpc_method_handler(lambda request, context: request)}
    server = served("pyexam.v1.First", {"Echo": lambda request, context: request})
    with pytest.raises(ValueError):
        server.start()
    with trunkline.insecure_channel(**WHERE) as channel:
        server.add_generic_rpc_handlers([grpc.method_handlers_generic_handler("pyexam.v1.Second", echo)])
        server.add_registered_method_handlers("pyexam.v1.Third", echo)
        server.ready(60)
        # A method more of a service that is served.
        server.add_registered_method_handlers("pyexam.v1.First", {"Again": echo["Echo"]})
        methods = ("First/Echo", "Second/Echo", "Third/Echo", "First/Again")
        assert [channel.unary_unary(f"/pyexam.v1.{method}")(b"x") for method in methods] == [b"x"] * 4
        assert server.stop(5).wait(60)
        with pytest.raises(ValueError):
            server.start()
        server.add_generic_rpc_handlers([grpc.method_handlers_generic_handler("pyexam.v1.Late", echo)])
        for method in (*methods, "Late/Echo"):
            assert failure(lambda: channel.unary_unary(f"/pyexam.v1.{method}")(b"x")).code() == (
                grpc.StatusCode.UNAVAILABLE
            )


def test_a_wait_for_the_daemon_has_an_end(tmp_path):
    where = {"socket": str(tmp_path / "daemon.sock"), "embedded": False}
    server = trunkline.server(futures.ThreadPoolExecutor(max_workers=1), **where)
    methods = {"Echo": grpc.unary_unary_rpc_method_handler(lambda request, context: request)}
    server.add_generic_rpc_handlers([grpc.method_handlers_generic_handler("pyexam.v1.Waits", methods)])
    server.start()
    for timeout in (0.01, 0):
        with pytest.raises(TimeoutError):
            server.ready(timeout)
    if os.environ.get("TRUNKLINE_SOCKET"):
        os.symlink(os.environ["TRUNKLINE_SOCKET"], where["socket"])
        server.ready(60)
        with trunkline.insecure_channel(**WHERE) as channel:
            assert channel.unary_unary("/pyexam.v1.Waits/Echo")(b"x") == b"x"
    assert server.stop(5).wait(60)


def test_a_call_that_waits_for_ready_waits_for_its_service(stub):
    with trunkline.insecure_channel(**WHERE) as channel:
        echo = channel.unary_unary("/pyexam.v1.Later/Echo")
        assert failure(lambda: echo(b"x")).code() == grpc.StatusCode.UNAVAILABLE
        late = failure(lambda: echo(b"x", timeout=0.05, wait_for_ready=True))
        assert late.code() == grpc.StatusCode.DEADLINE_EXCEEDED
        cancelled = echo.future(b"x", wait_for_ready=True)
        assert cancelled.cancel()
        waiting = [echo.future(str(number).encode(), wait_for_ready=True) for number in range(20)]
        with pytest.raises(grpc.FutureTimeoutError):
            waiting[0].result(timeout=0.05)
        for _ in range(2):
            assert not any(future.done() for future in waiting)
            server = served_later("pyexam.v1.Later")
            server.start()
            assert [future.result(60) for future in waiting] == [str(number).encode() for number in range(20)]
            # It leaves, and another comes.
            assert server.stop(None).wait(60)
            waiting = [echo.future(str(number).encode(), wait_for_ready=True) for number in range(20)]
        for future in waiting:
            assert future.cancel()


def test_a_callback_may_wait_for_a_call_that_waits_for_its_service(stub):
    with trunkline.insecure_channel(**WHERE) as channel:
        echo = channel.unary_unary("/pyexam.v1.Called/Echo")
        numbers = channel.unary_stream("/pyexam.v1.Called/Twice")
        heard, begun, over = [], threading.Event(), threading.Event()

        def wait(_):
            calls = echo.future(b"a", wait_for_ready=True), numbers(b"b", wait_for_ready=True)
            begun.set()
            heard.append(calls[0].result())
            heard.extend(calls[1])
            over.set()

        watched = threading.Event()

        def requests():
            assert watched.wait(60)
            yield from ()

        stub.Chat(requests(), timeout=60).add_done_callback(wait)
        watched.set()
        assert begun.wait(60) and not heard
        # Meanwhile others are opened, whose server is there.
        assert stub.Echo.future(pb.Text(text="x"), wait_for_ready=True).result().text == "x"
        server = trunkline.server(futures.ThreadPoolExecutor(max_workers=4), **WHERE)
        methods = {
            "Echo": grpc.unary_unary_rpc_method_handler(lambda request, context: request),
            "Twice": grpc.unary_stream_rpc_method_handler(lambda request, context: iter([request, request])),
        }
        server.add_generic_rpc_handlers([grpc.method_handlers_generic_handler("pyexam.v1.Called", methods)])
        server.start()
        assert over.wait(60) and heard == [b"a", b"b", b"b"]
        assert server.stop(None).wait(60)


def test_a_callback_that_ends_its_thread_ends_no_other_callback(stub):
    def leaves(*_):
        raise SystemExit("as the test wants it")

    with trunkline.insecure_channel(**WHERE) as channel:
        told, echo = threading.Semaphore(0), channel.unary_unary("/pyexam.v1.Left/Echo")
        waiting = [echo.future(b"", timeout=0.1, wait_for_ready=True) for _ in range(9)]
        for call in waiting:
            call.add_done_callback(leaves)
            call.add_done_callback(lambda _: told.release())
        for _ in waiting:
            assert told.acquire(timeout=60), "the others are told, of this call and of those after it"
        late = stub.Echo.future(pb.Text(text="x"))
        late.add_done_callback(lambda _: told.release())
        assert told.acquire(timeout=60)


def test_closing_a_channel_cancels_what_waits_for_a_service(stub):
    with trunkline.insecure_channel(**WHERE) as channel:
        echo = channel.unary_unary("/pyexam.v1.Never/Echo")
        future = echo.future(b"x", wait_for_ready=True)
        assert not future.done()
    assert (future.code(), future.done()) == (grpc.StatusCode.CANCELLED, True)
    assert failure(future.result).details() == "Channel closed!"


def test_a_server_may_be_stopped_again_and_again():
    server = served_later("pyexam.v1.Stopped")
    server.start()
    server.ready()
    events = [server.stop(grace) for grace in (10, None, 10, 0)]
    assert all(event.wait(60) for event in events) and server.stop(None).wait(60)
    assert not server.wait_for_termination(1)


class Unprintable(Exception):
    def __str__(self):
        raise ValueError("on order")

    __repr__ = __str__


def test_an_exception_that_says_nothing_ends_its_call(stub):
    def raises(request, context):
        raise Unprintable()

    def yields(request, context):
        yield b"a"
        raise Unprintable()

    async def raises_in_a_loop(request, context):
        raise Unprintable()

    def requests():
        yield pb.Text(text="a")
        raise Unprintable()

    async def in_a_loop():
        server = trunkline.aio.server(**WHERE)
        handlers = {"Aio": grpc.unary_unary_rpc_method_handler(raises_in_a_loop)}
        server.add_generic_rpc_handlers([grpc.method_handlers_generic_handler("pyexam.v1.SilentAio", handlers)])
        await server.start()
        await server.ready()
        async with trunkline.aio.insecure_channel(**WHERE) as channel:
            with pytest.raises(grpc.aio.AioRpcError, match="unprintable Unprintable") as caught:
                await channel.unary_unary("/pyexam.v1.SilentAio/Aio")(b"x")
            assert caught.value.code() == grpc.StatusCode.UNKNOWN
        await server.stop(5)

    server = trunkline.server(futures.ThreadPoolExecutor(max_workers=2), **WHERE)
    methods = {"Unary": grpc.unary_unary_rpc_method_handler(raises), "Down": grpc.unary_stream_rpc_method_handler(yields)}
    server.add_generic_rpc_handlers([grpc.method_handlers_generic_handler("pyexam.v1.Silent", methods)])
    server.start()
    server.ready()
    with trunkline.insecure_channel(**WHERE) as channel:
        calls = [
            lambda: channel.unary_unary("/pyexam.v1.Silent/Unary")(b"x"),
            lambda: list(channel.unary_stream("/pyexam.v1.Silent/Down")(b"x")),
            lambda: stub.Join(requests()),
        ]
        for call in calls:
            failed = failure(call)
            assert failed.code() == grpc.StatusCode.UNKNOWN and "unprintable Unprintable" in failed.details()
    asyncio.run(in_a_loop())
    assert server.stop(5).wait(60)


def test_a_failed_call_can_be_copied_and_pickled(stub):
    error = failure(lambda: stub.Echo(pb.Text(text="abort")))
    for copied in (copy.copy(error), copy.deepcopy(error), pickle.loads(pickle.dumps(error))):
        assert (copied.code(), copied.details(), copied.execution()) == (grpc.StatusCode.ABORTED, "as ordered", "executed")
        assert copied.trailing_metadata() == error.trailing_metadata() and str(copied) == str(error)
    _, call = stub.Echo.with_call(pb.Text(text="x"))
    assert pickle.loads(pickle.dumps(call)).result().text == "x"


def served(service, methods, workers=4):
    server = trunkline.server(futures.ThreadPoolExecutor(max_workers=workers), **WHERE)
    handlers = {name: grpc.unary_unary_rpc_method_handler(handler) for name, handler in methods.items()}
    server.add_generic_rpc_handlers([grpc.method_handlers_generic_handler(service, handlers)])
    server.start()
    server.ready()
    return server


def test_who_asks_first_of_a_call_that_is_over_is_told_so():
    entered, answered = threading.Event(), []

    def late(request, context):
        entered.set()
        until(lambda: lib.tl_call_is_over(context.call))
        answered.append(context.is_active() if request == b"active" else context.add_callback(entered.clear))
        answered.append(context._state.client)
        return request

    server = served("pyexam.v1.First", {"Late": late})
    with trunkline.insecure_channel(**WHERE) as channel:
        call = channel.unary_unary("/pyexam.v1.First/Late")
        for request in (b"active", b"callback") * 10:
            entered.clear()
            future = call.future(request)
            assert entered.wait(60) and future.cancel()
            until(lambda: len(answered) == 2)
            assert answered == [False, "cancelled"]
            answered.clear()
    assert server.stop(5).wait(60)


def test_handlers_learn_that_their_server_has_ended():
    entered, told, left = threading.Semaphore(0), threading.Semaphore(0), threading.Semaphore(0)

    def waits(request, context):
        context.add_callback(told.release)
        entered.release()
        until(lambda: not context.is_active())
        left.release()
        return request

    for grace in (None, 0, 0.05):
        server = served("pyexam.v1.Ending", {"Waits": waits})
        with trunkline.insecure_channel(**WHERE) as channel:
            future = channel.unary_unary("/pyexam.v1.Ending/Waits").future(b"x")
            assert entered.acquire(timeout=60)
            ended = server.stop(grace)
            # Without a grace it has ended when `stop` returns.
            assert ended.is_set() or grace is not None
            assert ended.wait(60) and told.acquire(timeout=60) and left.acquire(timeout=60)
            assert failure(future.result).code() == grpc.StatusCode.UNAVAILABLE


def test_a_program_that_ends_while_its_server_stops_answers_its_calls():
    script = os.path.join(os.path.dirname(__file__), "stopping.py")
    ran = subprocess.run([sys.executable, script], capture_output=True, text=True, timeout=100)
    assert (ran.returncode, ran.stdout) == (0, "answered\n"), ran.stdout + ran.stderr


def test_a_callback_is_called_or_refused_whenever_the_call_ends():
    """The end is told just when a callback is added."""
    queue = trunkline._library.new_queue()
    context = trunkline._server.Context(trunkline._library.ffi.new("tl_call *")[0], queue)
    context._watched = True
    called = threading.Event()

    class Callbacks(list):
        def append(self, callback):
            telling = threading.Thread(target=context.note_over, daemon=True)
            telling.start()
            # It may have to wait until this is done.
            telling.join(0.2)
            super().append(callback)

    context._callbacks = Callbacks()
    assert not context.add_callback(called.set) or called.wait(10)
    assert not context.add_callback(called.set)
    lib.tl_queue_release(queue)


def test_a_channel_that_is_dropped_leaves_nothing(exam):
    def call():
        for wait_for_ready in (False, True):
            echo = trunkline.insecure_channel(**WHERE).unary_unary("/pyexam.v1.Exam/Echo")
            assert echo(b"", wait_for_ready=wait_for_ready) == b""

    call()
    gc.collect()
    before = lib.tl_handles_open()
    for _ in range(50):
        call()
    gc.collect()
    # What servers let go of takes its time.
    until(lambda: lib.tl_handles_open() < before + 50)


def test_calls_that_wait_for_ready_take_no_descriptor_and_no_thread_each(stub, monkeypatch):
    def held():
        return len(os.listdir("/proc/self/fd")), threading.active_count()

    with trunkline.insecure_channel(**WHERE) as channel:
        echo = channel.unary_unary("/pyexam.v1.Nobody/Echo")
        told = threading.Semaphore(0)
        waiting = [echo.future(b"x", wait_for_ready=True)]
        before = held()
        waiting += [echo.future(b"x", wait_for_ready=True) for _ in range(100)]
        assert [now - then < 20 for now, then in zip(held(), before)] == [True, True]
        for call in waiting:
            call.add_done_callback(lambda _: told.release())
        # Where somebody is, calls are made meanwhile.
        assert stub.Echo.future(pb.Text(text="x"), wait_for_ready=True).result(60).text == "x"
    for _ in waiting:
        assert told.acquire(timeout=60)
    # Without a descriptor for the first, or a thread, it is the call that fails.
    status = trunkline._library.Ending(8, "no more descriptors", (), 0)

    def refuses(error):
        def refuse(*_):
            raise error

        return refuse

    with trunkline.insecure_channel(**WHERE) as channel:
        echo = channel.unary_unary("/pyexam.v1.Exam/Echo")
        for place, name, error in (
            (trunkline._library, "new_queue", trunkline.LibraryError(status)),
            (threading.Thread, "start", RuntimeError("can't start new thread")),
        ):
            with monkeypatch.context() as without:
                without.setattr(trunkline._channel, "_openings", None)
                without.setattr(place, name, refuses(error))
                refused = failure(echo.future(b"", wait_for_ready=True).result)
                assert (refused.code(), refused.execution()) == (grpc.StatusCode.RESOURCE_EXHAUSTED, "not executed")
        assert echo.future(b"", wait_for_ready=True).result(60) == b""


def test_a_stream_gives_its_next_response(stub):
    words = stub.Words(pb.Text(text="a b"))
    assert [words.next().text, words.next().text] == ["a", "b"]
    with pytest.raises(StopIteration):
        words.next()


def test_what_ends_objects_can_be_called_while_garbage_is_collected():
    """cffi looks up functions with a lock, in which a collection may end objects: not after the import."""
    script = "import trunkline._library as library; print(all(name in vars(library.lib) for name in dir(library.lib)))"
    ran = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=100)
    assert ran.stdout == "True\n", ran.stdout + ran.stderr


def test_callbacks_run_on_a_thread_of_their_own_whoever_sees_the_end(exam, stub):
    """Who asks, cancels, closes or drops may hold a lock that they take, too."""
    lock, told = threading.Lock(), []

    def tell(number):
        with lock:
            told.append((number, threading.get_ident()))

    exam.over.clear()
    channel = trunkline.insecure_channel(**WHERE)
    closed = pb_grpc.ExamStub(channel)
    waiting, hanging = threading.Event(), pb.Text(text="hang")
    with lock:
        ended = stub.Echo.future(pb.Text(text="x"))
        ended.add_done_callback(lambda _: tell(0))
        other = stub.Echo.future(pb.Text(text="x"))
        until(lambda: other.done() and ended.done())
        cancelled = stub.Echo.future(hanging)
        cancelled.add_done_callback(lambda _: tell(1))
        assert cancelled.cancel()
        dropped = stub.Chat(waiting.wait(60) for _ in range(1))
        assert dropped.add_callback(lambda: tell(2))
        del dropped
        gc.collect()
        closed.Echo.future(hanging).add_done_callback(lambda _: tell(3))
        channel.close()
    until(lambda: len(told) == 4)
    assert {number for number, _ in told} == {0, 1, 2, 3}
    assert len({thread for _, thread in told} - {threading.get_ident()}) == 1
    waiting.set()
    exam.over.set()
    exam.over.clear()


def test_a_callback_may_wait_with_a_timeout(stub):
    heard, over = [], threading.Event()

    def wait(_):
        heard.append(stub.Echo.future(pb.Text(text="x")).result(timeout=60).text)
        heard.append(stub.Words(pb.Text(text="fail")).code())
        over.set()

    stub.Echo.future(pb.Text(text="x")).add_done_callback(wait)
    assert over.wait(60) and heard == ["x", grpc.StatusCode.DATA_LOSS]


def test_a_callback_that_leaves_ends_no_thread_that_asks(stub):
    def leaves(_):
        told.set()
        raise SystemExit("as the test wants it")

    told, entered, waits = threading.Event(), threading.Event(), threading.Event()
    # The thread that calls back is busy: whoever asks is the first to see an end.
    stub.Echo.future(pb.Text(text="x")).add_done_callback(lambda _: (entered.set(), waits.wait(60)))
    assert entered.wait(60)
    left = stub.Echo.future(pb.Text(text="x"))
    left.add_done_callback(leaves)
    until(stub.Echo.future(pb.Text(text="y")).done)
    until(left.done)
    assert not told.is_set()
    waits.set()
    assert told.wait(60)


def conversations(service, talk, answer=None):
    """A server of a method of streams, and one that is answered once."""
    server = trunkline.server(futures.ThreadPoolExecutor(max_workers=4), **WHERE)
    methods = {"Talk": grpc.stream_stream_rpc_method_handler(talk)}
    if answer is not None:
        methods["Answer"] = grpc.stream_unary_rpc_method_handler(answer)
    server.add_generic_rpc_handlers([grpc.method_handlers_generic_handler(service, methods)])
    server.start()
    server.ready()
    return server


def test_headers_are_told_while_another_thread_waits_for_a_response():
    """The first request is sent when they have come."""

    def talk(requests, context):
        context.send_initial_metadata((("begun", "yes"),))
        yield from requests

    def answer(requests, context):
        return b"".join(talk(requests, context))

    def requests():
        assert begun.wait(60)
        yield b"a"

    server = conversations("pyexam.v1.Headers", talk, answer)
    with trunkline.insecure_channel(**WHERE) as channel, futures.ThreadPoolExecutor(max_workers=2) as pool:
        path = "/pyexam.v1.Headers/"
        for begin, read in (
            (channel.stream_stream(path + "Talk"), lambda call: b"".join(call)),
            (channel.stream_unary(path + "Answer").future, lambda call: call.result()),
        ):
            for _ in range(5):
                begun = threading.Event()
                call = begin(requests())
                reading = pool.submit(read, call)
                asked = pool.submit(call.initial_metadata)
                assert ("begun", "yes") in asked.result(60)
                begun.set()
                assert reading.result(60) == b"a"
    assert server.stop(5).wait(60)


def test_who_waits_for_the_end_of_a_stream_reads_nothing():
    """What is not read holds the server back, though somebody asks how the call ended."""
    sent, flooded, most = [], threading.Event(), 64

    def talk(requests, context):
        for number in range(most):
            sent.append(number)
            yield bytes(1 << 20)
        flooded.set()

    server = conversations("pyexam.v1.Endless", talk)
    with trunkline.insecure_channel(**WHERE) as channel, futures.ThreadPoolExecutor(max_workers=4) as pool:
        call = channel.stream_stream("/pyexam.v1.Endless/Talk")(iter(()))
        asked = [pool.submit(ask) for ask in (call.code, call.exception, call.trailing_metadata)]
        timed = pool.submit(lambda: pytest.raises(grpc.FutureTimeoutError, call.result, timeout=1))
        assert len(next(call)) == 1 << 20
        timed.result(60)
        assert not flooded.is_set() and len(sent) < most, "it is not read ahead"
        assert call.cancel()
        assert asked[0].result(60) == grpc.StatusCode.CANCELLED and asked[2].result(60) == ()
        with pytest.raises(grpc.FutureCancelledError):
            asked[1].result(60)
    assert server.stop(5).wait(60)


def test_a_channel_that_is_closed_just_before_a_call_cancels_it(exam, monkeypatch):
    """Wherever the thread is that makes it."""
    request, metadata = pb.Text(text="hang"), (("who", "python"),)
    for place, name, is_called_before in (
        (trunkline._channel, "lib", True),
        (trunkline._channel, "Options", True),
        (trunkline._library, "Cancellation", False),
    ):
        for options in ({}, {"timeout": 600}, {"metadata": metadata})[name == "Options" :]:
            channel = trunkline.insecure_channel(**WHERE)
            closed, real = pb_grpc.ExamStub(channel), getattr(place, name)

            class Closes:
                def __getattr__(self, name):
                    return getattr(real, name)

                def __call__(self, *given, **named):
                    channel.close()
                    return real(*given, **named)

                def tl_unary_event(self, *given):
                    channel.close()
                    return real.tl_unary_event(*given)

                def tl_call_open(self, *given):
                    channel.close()
                    return real.tl_call_open(*given)

            if is_called_before:
                assert closed.Echo(pb.Text(text="x")).text == "x"
            with monkeypatch.context() as closing:
                closing.setattr(place, name, Closes())
                # It is not made, or it would wait.
                with pytest.raises((grpc.RpcError, ValueError)) as caught:
                    closed.Echo(request, **options)
                is_made = isinstance(caught.value, grpc.RpcError)
                assert not is_made or caught.value.code() == grpc.StatusCode.CANCELLED
                assert is_made or "closed channel" in str(caught.value)
            if name == "lib":
                channel = trunkline.insecure_channel(**WHERE)
                with monkeypatch.context() as closing:
                    closing.setattr(place, name, Closes())
                    stream = pb_grpc.ExamStub(channel).Words(request, **options)
                    ended = failure(lambda: next(stream))
                assert (ended.code(), ended.details()) == (grpc.StatusCode.CANCELLED, "Channel closed!")


def test_a_pool_that_is_full_refuses_and_no_grace_is_too_long():
    class Full(futures.ThreadPoolExecutor):
        def submit(self, *_):
            raise queue.Full()

    server = trunkline.server(Full(max_workers=1), **WHERE)
    methods = {"Echo": grpc.unary_unary_rpc_method_handler(lambda request, context: request)}
    server.add_generic_rpc_handlers([grpc.method_handlers_generic_handler("pyexam.v1.Full", methods)])
    server.start()
    server.ready()
    with trunkline.insecure_channel(**WHERE) as channel:
        refused = failure(lambda: channel.unary_unary("/pyexam.v1.Full/Echo")(b"x"))
        assert (refused.code(), refused.details()) == (grpc.StatusCode.RESOURCE_EXHAUSTED, "Full")
    assert not server._calls
    assert server.stop(1e10).wait(60)


def test_a_response_whose_reading_ends_the_thread_ends_no_thread_that_all_calls_need(stub):
    def leaves(_):
        left.set()
        raise SystemExit("as the test wants it")

    left, told = threading.Event(), threading.Semaphore(0)
    with trunkline.insecure_channel(**WHERE) as channel:
        echo = channel.unary_unary("/pyexam.v1.Exam/Echo", response_deserializer=leaves)
        for _ in range(3):
            left.clear()
            unread = echo.future(b"")
            unread.add_done_callback(lambda call: call.result())
            assert left.wait(60)
            stub.Echo.future(pb.Text(text="x")).add_done_callback(lambda _: told.release())
            assert told.acquire(timeout=60)
