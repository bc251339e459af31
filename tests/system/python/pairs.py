"""Python's part of the matrix of languages: pairs.py server FORM | pairs.py client SIZES FORM...

A form is `linear` (the probe's own schema, without tags), `newer` (the same with fields added, so that the daemon goes
by way of protobuf) or `protobuf` (bytes, no schema). A client examines whoever serves, and says a line for each part.
TRUNKLINE_TEST_MODULES has the folders of the modules, those of `newer` below it.
"""

import os
import sys
import threading
from concurrent import futures

import grpc

import trunkline

SERVICE = "probe.v1.Probe"
# Of calls that are to end well: nothing waits for ever.
TIMEOUT_S = 120


def module_of(form):
    folder = os.environ["TRUNKLINE_TEST_MODULES"]
    sys.path.insert(0, os.path.join(folder, "newer") if form == "newer" else folder)
    for name in [name for name in sys.modules if name.partition(".")[0] == "probe"]:
        del sys.modules[name]
    from probe import v1_linear

    sys.path.pop(0)
    return v1_linear


# ---- the server


def servicer_of(probe):
    class Probe(probe.ProbeServicer):
        def Echo(self, request, context):
            ask = dict(context.invocation_metadata()).get("ask")
            if ask is not None:
                context.send_initial_metadata((("answer", ask),))
                context.set_trailing_metadata((("answer-bin", ask.encode()),))
            return request

        def Do(self, request, context):
            task = request.WhichOneof("task")
            if task == "fail":
                code = next(code for code in grpc.StatusCode if code.value[0] == request.fail.code)
                details = (("grpc-status-details-bin", bytes(request.fail.details)),)
                context.abort_with_status(Ending(code, request.fail.message, details))
            if task == "hang":
                over = threading.Event()
                if context.add_callback(over.set):
                    over.wait(TIMEOUT_S)
            return probe.Outcome(deadline_known=context.time_remaining() is not None)

        def Count(self, request, context):
            for number in range(request.count):
                yield probe.Item(number=number, body=bytes([number % 256]) * request.bytes)

        def Sum(self, request_iterator, context):
            total = probe.Total()
            for item in request_iterator:
                total.items += 1
                total.numbers += item.number
                total.bytes += len(item.body)
            return total

        def Take(self, request_iterator, context):
            read, wanted, size = 0, 1, 0
            for item in request_iterator:
                wanted = item.number if read == 0 else wanted
                read, size = read + 1, len(item.body)
                if read >= wanted:
                    break
            return probe.Item(number=read, body=bytes([read % 256]) * size)

        def Chat(self, request_iterator, context):
            yield from request_iterator

    return Probe()


class Ending(grpc.Status):
    def __init__(self, code, details, trailing_metadata):
        self.code, self.details, self.trailing_metadata = code, details, trailing_metadata


class Encoded:
    """Instead of a server: registers the same handlers with messages in protobuf."""

    def __init__(self, server):
        self._server = server

    def add_typed_method_handlers(self, service, package, handlers):
        def as_protobuf(handler):
            request = handler.request_deserializer.__self__
            return handler._replace(request_deserializer=request.FromString, response_serializer=encoded)

        methods = {name: as_protobuf(handler) for name, handler in handlers.items()}
        self._server.add_registered_method_handlers(service, methods)


def encoded(message):
    return message.SerializeToString()


def serve(form):
    probe = module_of(form)
    server = trunkline.server(futures.ThreadPoolExecutor(max_workers=16), name="pairs")
    probe.add_ProbeServicer_to_server(servicer_of(probe), Encoded(server) if form == "protobuf" else server)
    server.start()
    server.ready()
    print("ready", flush=True)
    sys.stdin.read()
    server.stop(5).wait()


# ---- the client


class EncodedStub:
    """The stub with messages in protobuf."""

    def __init__(self, channel, probe):
        for name, kind, request, response in (
            ("Echo", "unary_unary", probe.Text, probe.Text),
            ("Do", "unary_unary", probe.Order, probe.Outcome),
            ("Count", "unary_stream", probe.Wanted, probe.Item),
            ("Sum", "stream_unary", probe.Item, probe.Total),
            ("Take", "stream_unary", probe.Item, probe.Item),
            ("Chat", "stream_stream", probe.Text, probe.Text),
        ):
            make = getattr(channel, kind)
            setattr(self, name, make(f"/{SERVICE}/{name}", encoded, response.FromString))


def failure(call):
    try:
        call()
    except grpc.RpcError as error:
        return error
    raise AssertionError("the call did not fail")


def unary_and_sizes(probe, stub, sizes):
    for size in sizes:
        text = "é" * (size // 2) + "x" * (size % 2)
        if size <= 1 << 20:
            assert stub.Echo(probe.Text(text=text), timeout=TIMEOUT_S).text == text
        sent = probe.Item(number=1, body=b"\1" * size)
        assert bytes(stub.Take(iter([sent]), timeout=TIMEOUT_S).body) == bytes(sent.body)


def metadata(probe, stub):
    reply, call = stub.Echo.with_call(probe.Text(text="m"), metadata=(("ask", "what"),), timeout=TIMEOUT_S)
    assert reply.text == "m"
    assert ("answer", "what") in call.initial_metadata() and ("answer-bin", b"what") in call.trailing_metadata()


def rich_errors(probe, stub):
    order = probe.Order(fail={"code": 9, "message": "größer", "details": b"\x08\x09\x12\x01x"})
    failed = failure(lambda: stub.Do(order, timeout=TIMEOUT_S))
    assert (failed.code(), failed.details()) == (grpc.StatusCode.FAILED_PRECONDITION, "größer"), failed
    assert ("grpc-status-details-bin", b"\x08\x09\x12\x01x") in failed.trailing_metadata()
    assert failed.execution() == "executed"


def deadlines(probe, stub):
    late = failure(lambda: stub.Do(probe.Order(hang=True), timeout=0.05))
    assert late.code() == grpc.StatusCode.DEADLINE_EXCEEDED, late
    assert stub.Do(probe.Order(), timeout=TIMEOUT_S).deadline_known
    assert not stub.Do(probe.Order()).deadline_known


def cancellation(probe, stub):
    call = stub.Do.future(probe.Order(hang=True))
    assert call.cancel() and call.cancelled()
    chat = stub.Chat(iter([probe.Text(text="one")]), timeout=TIMEOUT_S)
    assert next(chat).text == "one"
    chat.cancel()
    assert failure(lambda: next(chat)).code() == grpc.StatusCode.CANCELLED


def streams(probe, stub):
    items = list(stub.Count(probe.Wanted(count=100, bytes=100), timeout=TIMEOUT_S))
    assert [(item.number, bytes(item.body)) for item in items] == [(n, bytes([n]) * 100) for n in range(100)]
    total = stub.Sum((probe.Item(number=n, body=b"x" * n) for n in range(50)), timeout=TIMEOUT_S)
    assert (total.items, total.numbers, total.bytes) == (50, 1225, 1225)
    said = threading.Semaphore(1)

    def requests():
        for number in range(10):
            said.acquire(timeout=TIMEOUT_S)
            yield probe.Text(text=str(number))

    for number, response in enumerate(stub.Chat(requests(), timeout=TIMEOUT_S)):
        assert response.text == str(number)
        said.release()
    assert number == 9


def client(sizes, forms):
    print("ready", flush=True)
    with trunkline.insecure_channel() as channel:
        for form in forms:
            probe = module_of(form)
            stub = EncodedStub(channel, probe) if form == "protobuf" else probe.ProbeStub(channel)
            unary_and_sizes(probe, stub, sizes)
            for part in (metadata, rich_errors, deadlines, cancellation, streams):
                part(probe, stub)
                print("passed", form, part.__name__, flush=True)


if __name__ == "__main__":
    if sys.argv[1] == "server":
        serve(sys.argv[2])
    else:
        client([int(size) for size in sys.argv[2].split(",")], sys.argv[3:])
    print("handles", trunkline._library.lib.tl_handles_open(), flush=True)
