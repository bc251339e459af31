"""A server of grpcio's own services, health and reflection, for whoever wants to ask them.

reflecting.py PORT [CERTIFICATE.pem KEY.pem]
"""

import sys
from concurrent import futures

import grpc
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection


def main(port, *keys):
    server = grpc.server(futures.ThreadPoolExecutor(max_workers=4))
    health_pb2_grpc.add_HealthServicer_to_server(health.HealthServicer(), server)
    name = health_pb2.DESCRIPTOR.services_by_name["Health"].full_name
    reflection.enable_server_reflection((name, reflection.SERVICE_NAME), server)
    if keys:
        certificate, key = (open(path, "rb").read() for path in keys)
        server.add_secure_port(f"127.0.0.1:{port}", grpc.ssl_server_credentials([(key, certificate)]))
    else:
        server.add_insecure_port(f"127.0.0.1:{port}")
    server.start()
    print("serving", flush=True)
    server.wait_for_termination()


if __name__ == "__main__":
    main(*sys.argv[1:])
