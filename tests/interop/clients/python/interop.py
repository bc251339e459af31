"""gRPC's interoperability cases, by its own test descriptions, with grpcio's client and server.

    interop.py serve PORT
    interop.py play PORT CASE
"""

import sys
import threading
from concurrent import futures

import grpc
from testing import messages_pb2 as messages
from testing import test_pb2_grpc as stubs

# Sizes of the test descriptions.
LARGE_REQUEST, LARGE_RESPONSE = 271_828, 314_159
REQUESTS, RESPONSES = (27_182, 8, 1_828, 45_904), (31_415, 9, 2_653, 58_979)
LIMIT = 30
SPECIAL = "\t\ntest with whitespace\r\nand Unicode BMP \u263a and non-BMP \U0001f608\t\n"
INITIAL, TRAILING = "x-grpc-test-echo-initial", "x-grpc-test-echo-trailing-bin"


class Server(stubs.TestServiceServicer):
    """What an interoperability server does."""

    def EmptyCall(self, request, context):
        echo(context)
        return messages.Empty()

    def UnaryCall(self, request, context):
        echo(context)
        end(request, context)
        return messages.SimpleResponse(payload=payload(request.response_size))

    def StreamingOutputCall(self, request, context):
        echo(context)
        yield from responses(request, context)

    def StreamingInputCall(self, requests, context):
        echo(context)
        total = sum(len(request.payload.body) for request in requests)
        return messages.StreamingInputCallResponse(aggregated_payload_size=total)

    def FullDuplexCall(self, requests, context):
        echo(context)
        for request in requests:
            yield from responses(request, context)
            end(request, context)


def echo(context):
    """Sends back what a case wants to find in headers and trailers."""
    said = dict(context.invocation_metadata())
    if INITIAL in said:
        context.send_initial_metadata(((INITIAL, said[INITIAL]),))
    if TRAILING in said:
        context.set_trailing_metadata(((TRAILING, said[TRAILING]),))


def end(request, context):
    if request.HasField("response_status"):
        code = next(code for code in grpc.StatusCode if code.value[0] == request.response_status.code)
        context.abort(code, request.response_status.message)


def responses(request, context):
    for wanted in request.response_parameters:
        if wanted.interval_us and context.is_active():
            threading.Event().wait(wanted.interval_us / 1e6)
        yield messages.StreamingOutputCallResponse(payload=payload(wanted.size))


def payload(size):
    return messages.Payload(body=bytes(size))


def streamed(size):
    wanted = messages.ResponseParameters(size=size)
    return messages.StreamingOutputCallRequest(response_parameters=[wanted], payload=payload(size))


def hold(is_so, what):
    if not is_so:
        raise AssertionError(what)


def fails(call, code, message=None):
    """Holds that a call, or the stream it answers with, ends with this status."""
    try:
        answer = call()
        if hasattr(answer, "__next__"):
            list(answer)
    except grpc.RpcError as error:
        hold(error.code() == code, f"{error.code()} instead of {code}: {error.details()}")
        hold(message is None or error.details() == message, f"message {error.details()!r}")
        return
    raise AssertionError(f"no failure where {code} is wanted")


def empty_unary(stub, _):
    hold(stub.EmptyCall(messages.Empty(), timeout=LIMIT) == messages.Empty(), "not empty")


def large_unary(stub, _):
    request = messages.SimpleRequest(response_size=LARGE_RESPONSE, payload=payload(LARGE_REQUEST))
    response = stub.UnaryCall(request, timeout=LIMIT)
    hold(response.payload.body == bytes(LARGE_RESPONSE), "another body")


def client_streaming(stub, _):
    requests = (messages.StreamingInputCallRequest(payload=payload(size)) for size in REQUESTS)
    response = stub.StreamingInputCall(requests, timeout=LIMIT)
    hold(response.aggregated_payload_size == sum(REQUESTS), f"{response.aggregated_payload_size}")


def server_streaming(stub, _):
    wanted = [messages.ResponseParameters(size=size) for size in RESPONSES]
    request = messages.StreamingOutputCallRequest(response_parameters=wanted)
    sizes = [len(response.payload.body) for response in stub.StreamingOutputCall(request, timeout=LIMIT)]
    hold(sizes == list(RESPONSES), f"sizes {sizes}")


class Turns:
    """Requests that are sent one by one."""

    def __init__(self):
        self.condition, self.waiting, self.over = threading.Condition(), [], False

    def send(self, request):
        with self.condition:
            self.waiting.append(request)
            self.condition.notify()

    def close(self):
        with self.condition:
            self.over = True
            self.condition.notify()

    def __iter__(self):
        return self

    def __next__(self):
        with self.condition:
            self.condition.wait_for(lambda: self.waiting or self.over)
            if self.waiting:
                return self.waiting.pop(0)
            raise StopIteration


def ping_pong(stub, _):
    turns = Turns()
    answers = stub.FullDuplexCall(turns, timeout=LIMIT)
    for sent, wanted in zip(REQUESTS, RESPONSES):
        request = streamed(wanted)
        request.payload.body = bytes(sent)
        turns.send(request)
        hold(len(next(answers).payload.body) == wanted, "another size")
    turns.close()
    hold(list(answers) == [], "more than was asked for")


def empty_stream(stub, _):
    hold(list(stub.FullDuplexCall(iter(()), timeout=LIMIT)) == [], "an answer to nothing")


def cancel_after_begin(stub, _):
    turns = Turns()
    call = stub.StreamingInputCall.future(turns)
    call.cancel()
    turns.close()
    hold(call.cancelled() and call.code() == grpc.StatusCode.CANCELLED, "not cancelled")


def cancel_after_first_response(stub, _):
    turns = Turns()
    answers = stub.FullDuplexCall(turns)
    turns.send(streamed(RESPONSES[0]))
    hold(len(next(answers).payload.body) == RESPONSES[0], "another size")
    answers.cancel()
    fails(lambda: answers, grpc.StatusCode.CANCELLED)
    turns.close()


def timeout_on_sleeping_server(stub, _):
    turns = Turns()
    turns.send(messages.StreamingOutputCallRequest(payload=payload(REQUESTS[0])))
    fails(lambda: stub.FullDuplexCall(turns, timeout=0.001), grpc.StatusCode.DEADLINE_EXCEEDED)
    turns.close()


def ends_with(stub, code, message):
    status = messages.EchoStatus(code=code.value[0], message=message)
    fails(lambda: stub.UnaryCall(messages.SimpleRequest(response_status=status), timeout=LIMIT), code, message)
    return status


def status_code_and_message(stub, _):
    code, message = grpc.StatusCode.UNKNOWN, "test status message"
    status = ends_with(stub, code, message)
    request = messages.StreamingOutputCallRequest(response_status=status)
    fails(lambda: stub.FullDuplexCall(iter((request,)), timeout=LIMIT), code, message)


def special_status_message(stub, _):
    ends_with(stub, grpc.StatusCode.UNKNOWN, SPECIAL)


def custom_metadata(stub, _):
    said = ((INITIAL, "test_initial_metadata_value"), (TRAILING, b"\xab\xab\xab"))
    request = messages.SimpleRequest(response_size=LARGE_RESPONSE, payload=payload(LARGE_REQUEST))
    _, unary = stub.UnaryCall.with_call(request, metadata=said, timeout=LIMIT)
    stream = stub.FullDuplexCall(iter((streamed(RESPONSES[0]),)), metadata=said, timeout=LIMIT)
    list(stream)
    for call in (unary, stream):
        hold(dict(call.initial_metadata()).get(INITIAL) == said[0][1], "no such header")
        hold(dict(call.trailing_metadata()).get(TRAILING) == said[1][1], "no such trailer")


def unimplemented_method(stub, _):
    fails(lambda: stub.UnimplementedCall(messages.Empty(), timeout=LIMIT), grpc.StatusCode.UNIMPLEMENTED)


def unimplemented_service(_, channel):
    stub = stubs.UnimplementedServiceStub(channel)
    fails(lambda: stub.UnimplementedCall(messages.Empty(), timeout=LIMIT), grpc.StatusCode.UNIMPLEMENTED)


def main(order, port, case=None):
    if order == "serve":
        server = grpc.server(futures.ThreadPoolExecutor(max_workers=8))
        stubs.add_TestServiceServicer_to_server(Server(), server)
        server.add_insecure_port(f"127.0.0.1:{port}")
        server.start()
        server.wait_for_termination()
    with grpc.insecure_channel(port if port.startswith("unix:") else f"127.0.0.1:{port}") as channel:
        globals()[case](stubs.TestServiceStub(channel), channel)


if __name__ == "__main__":
    main(*sys.argv[1:])
