"""Asks a scheduler over gRPC whether it is alive; ends with 0 if so, with 1 and one sentence otherwise."""

import argparse
import sys
from pathlib import Path

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("address", help="HOST:PORT of the scheduler")
    parser.add_argument("--service", default="", help="unset: is the process alive; else: is this service")
    parser.add_argument("--ca", type=Path, help="certificate to trust; without it the connection is plain")
    parser.add_argument("--timeout", type=float, default=3.0, help="seconds")
    return parser.parse_args()


def open_channel(options: argparse.Namespace) -> grpc.Channel:
    if options.ca is None:
        return grpc.insecure_channel(options.address)
    return grpc.secure_channel(options.address, grpc.ssl_channel_credentials(options.ca.read_bytes()))


def main() -> int:
    options = parse_arguments()
    request = health_pb2.HealthCheckRequest(service=options.service)
    with open_channel(options) as channel:
        try:
            answer = health_pb2_grpc.HealthStub(channel).Check(request, timeout=options.timeout)
        except grpc.RpcError as error:
            print(f"healthcheck: {options.address} answers {error.code().name}: {error.details()}", file=sys.stderr)
            return 1
    if answer.status != health_pb2.HealthCheckResponse.SERVING:
        print(f"healthcheck: {options.address} is not serving", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
