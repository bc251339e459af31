"""Shows gRPC's interoperability cases (tests/interop) with channel and server of this package, under unmodified stubs."""

import importlib.util
import os
import sys
import tempfile
from concurrent import futures

import pytest
from grpc_tools import protoc
from servicer import WHERE

import trunkline

_INTEROP = os.path.join(os.path.dirname(__file__), "../../../tests/interop")

# All that interop.py has.
CASES = [
    "empty_unary",
    "large_unary",
    "client_streaming",
    "server_streaming",
    "ping_pong",
    "empty_stream",
    "cancel_after_begin",
    "cancel_after_first_response",
    "timeout_on_sleeping_server",
    "status_code_and_message",
    "special_status_message",
    "custom_metadata",
    "unimplemented_method",
    "unimplemented_service",
]


@pytest.fixture(scope="module")
def interop():
    out = tempfile.mkdtemp(prefix="pyinterop")
    os.mkdir(os.path.join(out, "testing"))
    for name in ("messages.proto", "test.proto"):
        with open(os.path.join(_INTEROP, "proto/grpc/testing", name), encoding="utf-8") as file:
            text = file.read().replace('"grpc/testing/', '"testing/')
        with open(os.path.join(out, "testing", name), "w", encoding="utf-8") as file:
            file.write(text)
    made = ["protoc", f"-I{out}", f"--python_out={out}", f"--grpc_python_out={out}"]
    assert protoc.main([*made, "testing/messages.proto", "testing/test.proto"]) == 0
    sys.path.insert(0, out)
    importlib.invalidate_caches()
    spec = importlib.util.spec_from_file_location("interop", os.path.join(_INTEROP, "clients/python/interop.py"))
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def channel(interop):
    server = trunkline.server(futures.ThreadPoolExecutor(max_workers=8), name="interop", **WHERE)
    interop.stubs.add_TestServiceServicer_to_server(interop.Server(), server)
    server.start()
    server.ready()
    with trunkline.insecure_channel(**WHERE) as channel:
        yield channel
    assert server.stop(5).wait(60)


@pytest.mark.parametrize("case", CASES)
def test_the_case_passes(interop, channel, case):
    play = getattr(interop, case)
    if case == "unimplemented_service":
        # No server is asked that could say so: whoever serves it may be there in a moment.
        with pytest.raises(AssertionError, match="UNAVAILABLE"):
            play(interop.stubs.TestServiceStub(channel), channel)
    else:
        play(interop.stubs.TestServiceStub(channel), channel)


def test_every_case_is_played(interop):
    takes_two = lambda found: callable(found) and getattr(found, "__code__", None) and found.__code__.co_argcount == 2
    cases = {name for name, found in vars(interop).items() if takes_two(found)} - {"hold", "end", "responses"}
    assert cases == set(CASES)
