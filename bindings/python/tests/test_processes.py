"""Shows forked and spawned children, and the ecosystem's health and reflection servicers, under a daemon of the host."""

import asyncio
import multiprocessing
import os
import subprocess
import sys
from concurrent import futures

import exam_pb2 as pb
import exam_pb2_grpc as pb_grpc
import grpc
import pytest
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection, reflection_pb2, reflection_pb2_grpc
from servicer import WHERE, Exam

import trunkline
import trunkline.aio

# More of them by hand: TRUNKLINE_TEST_FORKS=1000.
FORKS = int(os.environ.get("TRUNKLINE_TEST_FORKS", "10"))

with_a_daemon = pytest.mark.skipif(not os.environ.get("TRUNKLINE_SOCKET"), reason="there is no daemon of the host")


def served(add, workers=4):
    server = trunkline.server(futures.ThreadPoolExecutor(max_workers=workers), **WHERE)
    add(server)
    server.start()
    server.ready()
    return server


def ask(number):
    """What a child does."""
    with trunkline.insecure_channel(**WHERE) as channel:
        return pb_grpc.ExamStub(channel).Echo(pb.Text(text=str(number)), timeout=60).text


@with_a_daemon
@pytest.mark.parametrize("how", ["fork", "spawn"])
def test_children_call(how):
    server = served(lambda server: pb_grpc.add_ExamServicer_to_server(Exam(), server))
    assert ask("parent") == "parent"
    with multiprocessing.get_context(how).Pool(2) as pool:
        assert pool.map(ask, range(10)) == [str(number) for number in range(10)]
    assert ask("still") == "still"
    assert server.stop(5).wait(60)


@with_a_daemon
def test_a_forked_child_goes_on_with_its_parents_channel():
    server = served(lambda server: pb_grpc.add_ExamServicer_to_server(Exam(), server))
    stub = pb_grpc.ExamStub(trunkline.insecure_channel(**WHERE))
    assert stub.Echo(pb.Text(text="before")).text == "before"
    for _ in range(FORKS):
        child = os.fork()
        if child == 0:
            os._exit(0 if stub.Echo(pb.Text(text="child"), timeout=60).text == "child" else 1)
        assert os.waitpid(child, 0)[1] == 0
        assert stub.Echo(pb.Text(text="parent")).text == "parent"
    assert server.stop(5).wait(60)


async def asked_by(loops, number):
    """What a loop does: calls of its own, and a loop beside it in a thread."""
    async with trunkline.aio.insecure_channel(**WHERE) as channel:
        echo = pb_grpc.ExamStub(channel).Echo
        wanted = [f"{number}/{each}" for each in range(5)]
        replies = await asyncio.gather(*(echo(pb.Text(text=text), timeout=60) for text in wanted))
        assert [reply.text for reply in replies] == wanted
        if loops > 1:
            await asyncio.to_thread(asyncio.run, asked_by(loops - 1, number))


@with_a_daemon
def test_loops_beside_loops_and_children_with_loops():
    server = served(lambda server: pb_grpc.add_ExamServicer_to_server(Exam(), server))
    with futures.ThreadPoolExecutor(max_workers=4) as pool:
        for number in range(max(1, FORKS // 10)):
            threads = [pool.submit(asyncio.run, asked_by(2, number)) for _ in range(4)]
            # While the loops call, children are made that have a loop of their own.
            child = os.fork()
            if child == 0:
                asyncio.run(asked_by(1, number))
                os._exit(0)
            assert os.waitpid(child, 0)[1] == 0
            for thread in threads:
                thread.result(timeout=60)
    assert server.stop(5).wait(60)


def test_a_child_that_ends_leaves_the_loops_of_its_parent_alone():
    script = os.path.join(os.path.dirname(__file__), "forking.py")
    ended = subprocess.run([sys.executable, script], capture_output=True, timeout=120)
    assert (ended.stdout.split(b"\n")[-2:], ended.returncode) == ([b"as before", b""], 0), ended


def test_the_ecosystems_health_servicer():
    servicer = health.HealthServicer(experimental_non_blocking=False)
    servicer.set("pyexam.v1.Exam", health_pb2.HealthCheckResponse.SERVING)
    server = served(lambda server: health_pb2_grpc.add_HealthServicer_to_server(servicer, server))
    stub = health_pb2_grpc.HealthStub(trunkline.insecure_channel(**WHERE))
    request = health_pb2.HealthCheckRequest(service="pyexam.v1.Exam")
    assert stub.Check(request).status == health_pb2.HealthCheckResponse.SERVING
    watching = stub.Watch(request)
    assert next(watching).status == health_pb2.HealthCheckResponse.SERVING
    servicer.set("pyexam.v1.Exam", health_pb2.HealthCheckResponse.NOT_SERVING)
    assert next(watching).status == health_pb2.HealthCheckResponse.NOT_SERVING
    watching.cancel()
    with pytest.raises(grpc.RpcError) as caught:
        stub.Check(health_pb2.HealthCheckRequest(service="nobody"))
    assert caught.value.code() == grpc.StatusCode.NOT_FOUND
    assert server.stop(5).wait(60)


def test_the_ecosystems_reflection_servicer():
    server = served(lambda server: reflection.enable_server_reflection(["pyexam.v1.Exam"], server))
    stub = reflection_pb2_grpc.ServerReflectionStub(trunkline.insecure_channel(**WHERE))
    request = reflection_pb2.ServerReflectionRequest(list_services="")
    responses = list(stub.ServerReflectionInfo(iter([request])))
    names = [service.name for service in responses[0].list_services_response.service]
    assert names == ["pyexam.v1.Exam"]
    assert server.stop(5).wait(60)
