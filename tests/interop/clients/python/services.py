"""Health, reflection (v1 and v1alpha) and channelz of a daemon, asked with grpcio's own clients.

services.py TARGET SERVICE [CA.pem]
"""

import sys

import grpc
from google.protobuf.descriptor_pool import DescriptorPool
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc
from grpc_reflection.v1alpha.proto_reflection_descriptor_database import ProtoReflectionDescriptorDatabase

TIMEOUT_S = 20


def health_check(channel, service):
    stub = health_pb2_grpc.HealthStub(channel)
    for name in ("", service):
        reply = stub.Check(health_pb2.HealthCheckRequest(service=name), timeout=TIMEOUT_S)
        assert reply.status == health_pb2.HealthCheckResponse.SERVING, (name, reply)


def health_of_nobody(channel, service):
    stub = health_pb2_grpc.HealthStub(channel)
    try:
        stub.Check(health_pb2.HealthCheckRequest(service="no.such.Service"), timeout=TIMEOUT_S)
    except grpc.RpcError as error:
        assert error.code() == grpc.StatusCode.NOT_FOUND, error
        return
    raise AssertionError("a service nobody serves is healthy")


def health_watch(channel, service):
    stub = health_pb2_grpc.HealthStub(channel)
    watch = stub.Watch(health_pb2.HealthCheckRequest(service=service), timeout=TIMEOUT_S)
    assert next(watch).status == health_pb2.HealthCheckResponse.SERVING
    watch.cancel()


def reflection_v1alpha(channel, service):
    database = ProtoReflectionDescriptorDatabase(channel)
    assert service in database.get_services(), database.get_services()
    found = DescriptorPool(database).FindServiceByName(service)
    assert found.methods_by_name["Query"].input_type.fields_by_name["query"].number == 1


def reflection_v1(channel, service):
    """The messages of both versions are the same, byte for byte."""
    call = channel.stream_stream(
        "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo",
        request_serializer=reflection_pb2.ServerReflectionRequest.SerializeToString,
        response_deserializer=reflection_pb2.ServerReflectionResponse.FromString,
    )
    asks = [
        reflection_pb2.ServerReflectionRequest(list_services=""),
        reflection_pb2.ServerReflectionRequest(file_containing_symbol=service),
        reflection_pb2.ServerReflectionRequest(file_containing_symbol="no.such.Symbol"),
    ]
    listed, files, nothing = list(call(iter(asks), timeout=TIMEOUT_S))
    assert service in [entry.name for entry in listed.list_services_response.service], listed
    assert files.file_descriptor_response.file_descriptor_proto, files
    assert nothing.error_response.error_code == grpc.StatusCode.NOT_FOUND.value[0], nothing


def health_list(channel, service):
    """List is younger than the stubs; its answer is a map of names and statuses."""
    call = channel.unary_unary("/grpc.health.v1.Health/List", response_deserializer=bytes)
    assert service.encode() in call(b"", timeout=TIMEOUT_S)


def opened(target, ca=None):
    if ca is None:
        return grpc.insecure_channel(target)
    with open(ca, "rb") as roots:
        return grpc.secure_channel(target, grpc.ssl_channel_credentials(roots.read()))


def main(target, service, *ca):
    failed = 0
    cases = (health_check, health_of_nobody, health_watch, health_list, reflection_v1alpha, reflection_v1)
    with opened(target, *ca) as channel:
        for case in cases:
            try:
                case(channel, service)
                print(f"passed {case.__name__}", flush=True)
            except Exception as error:  # whatever it is, the case failed
                failed += 1
                print(f"FAILED {case.__name__}: {error!r}".replace("\n", " "), flush=True)
    return failed != 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
