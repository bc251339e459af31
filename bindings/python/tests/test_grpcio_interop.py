"""Shows grpcio's own interop clients and servicers, unmodified, on channels and servers of this package: for threads
and for asyncio, with a server of grpcio's at the other end, too.

Runs where `TRUNKLINE_GRPC_SOURCES` names a tree of gRPC's sources. The cases are all that it has but those that need
Google's credentials; its modules for these stand empty where they are not installed.
"""

import asyncio
import importlib
import os
import sys
import tempfile
import types
from concurrent import futures

import grpc
import pytest
from grpc_tools import protoc
from servicer import WHERE

import trunkline
import trunkline.aio

_SOURCES = os.environ.get("TRUNKLINE_GRPC_SOURCES")
pytestmark = pytest.mark.skipif(not _SOURCES, reason="TRUNKLINE_GRPC_SOURCES names no sources of gRPC")

CREDENTIALS = {"COMPUTE_ENGINE_CREDS", "OAUTH2_AUTH_TOKEN", "JWT_TOKEN_CREDS", "PER_RPC_CREDS"}
CASES = [
    "EMPTY_UNARY",
    "LARGE_UNARY",
    "SERVER_STREAMING",
    "CLIENT_STREAMING",
    "PING_PONG",
    "CANCEL_AFTER_BEGIN",
    "CANCEL_AFTER_FIRST_RESPONSE",
    "EMPTY_STREAM",
    "STATUS_CODE_AND_MESSAGE",
    "UNIMPLEMENTED_METHOD",
    "UNIMPLEMENTED_SERVICE",
    "CUSTOM_METADATA",
    "TIMEOUT_ON_SLEEPING_SERVER",
    "SPECIAL_STATUS_MESSAGE",
]


class Programs:
    """grpcio's modules, and the stubs they are written for."""

    def __init__(self):
        out = tempfile.mkdtemp(prefix="grpciointerop")
        protos = [f"src/proto/grpc/testing/{name}.proto" for name in ("empty", "messages", "test")]
        assert protoc.main(["protoc", f"-I{_SOURCES}", f"--python_out={out}", f"--grpc_python_out={out}", *protos]) == 0
        sys.path.insert(0, out)
        for name in ("auth", "auth.environment_vars", "auth.transport", "auth.transport.grpc", "auth.transport.requests"):
            self._stand_in("google." + name)
        # Not the packages' own beginning, which wants a runner of tests.
        for package in ("tests", "tests_aio"):
            module = sys.modules[package] = types.ModuleType(package)
            module.__path__ = [os.path.join(_SOURCES, "src/python/grpcio_tests", package)]
        self.methods = importlib.import_module("tests.interop.methods")
        self.service = importlib.import_module("tests.interop.service")
        self.aio_methods = importlib.import_module("tests_aio.interop.methods")
        self.aio_servicer = importlib.import_module("tests_aio.unit._test_server").TestServiceServicer
        self.stubs = importlib.import_module("src.proto.grpc.testing.test_pb2_grpc")

    @staticmethod
    def _stand_in(name):
        try:
            importlib.import_module(name)
        except ImportError:
            module = sys.modules[name] = types.ModuleType(name)
            module.__path__ = []
            parent, _, last = name.rpartition(".")
            setattr(importlib.import_module(parent), last, module)

    def serve(self, server):
        self.stubs.add_TestServiceServicer_to_server(self.service.TestService(), server)

    def _stub(self, case, channel):
        service = "UnimplementedService" if case == "UNIMPLEMENTED_SERVICE" else "TestService"
        return getattr(self.stubs, service + "Stub")(channel)

    def play(self, case, channel):
        self.methods.TestCase[case].test_interoperability(self._stub(case, channel), None)

    async def play_aio(self, case, channel):
        await self.aio_methods.test_interoperability(self.aio_methods.TestCase[case], self._stub(case, channel), None)


@pytest.fixture(scope="module")
def programs():
    return Programs()


@pytest.fixture(scope="module")
def ours(programs):
    server = trunkline.server(futures.ThreadPoolExecutor(max_workers=8), name="grpcio interop", **WHERE)
    programs.serve(server)
    server.start()
    server.ready()
    with trunkline.insecure_channel(**WHERE) as channel:
        yield channel
    assert server.stop(5).wait(60)


@pytest.fixture(scope="module")
def stock(programs):
    server = grpc.server(futures.ThreadPoolExecutor(max_workers=8))
    programs.serve(server)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    with trunkline.insecure_channel(f"ipv4:127.0.0.1:{port}", **WHERE) as channel:
        yield channel
    server.stop(None).wait(60)


@pytest.mark.parametrize("case", CASES)
def test_the_case_passes_with_a_server_of_ours(programs, ours, case):
    if case == "UNIMPLEMENTED_SERVICE":
        # No server is asked that could say so: whoever serves it may be there in a moment.
        with pytest.raises(ValueError, match="UNAVAILABLE"):
            programs.play(case, ours)
    else:
        programs.play(case, ours)


@pytest.mark.parametrize("case", CASES)
def test_the_case_passes_with_a_server_of_grpcio(programs, stock, case):
    programs.play(case, stock)


@pytest.mark.parametrize("case", CASES)
def test_the_case_passes_in_asyncio(programs, case):
    async def play(server, target, stop):
        async with trunkline.aio.insecure_channel(target, **WHERE) as channel:
            if case == "UNIMPLEMENTED_SERVICE" and not target:
                with pytest.raises(ValueError, match="UNAVAILABLE"):
                    await programs.play_aio(case, channel)
            else:
                await programs.play_aio(case, channel)
        await server.stop(stop)

    async def both():
        ours = trunkline.aio.server(**WHERE)
        programs.stubs.add_TestServiceServicer_to_server(programs.aio_servicer(), ours)
        await ours.start()
        await ours.ready()
        await play(ours, "", 5)
        stock = grpc.aio.server()
        programs.stubs.add_TestServiceServicer_to_server(programs.aio_servicer(), stock)
        port = stock.add_insecure_port("127.0.0.1:0")
        await stock.start()
        await play(stock, f"ipv4:127.0.0.1:{port}", None)

    asyncio.run(both())


def test_every_case_is_played(programs):
    assert {case.name for case in programs.methods.TestCase} == set(CASES) | CREDENTIALS
    assert {case.name for case in programs.aio_methods.TestCase} == set(CASES) | CREDENTIALS
