// grpc::StatusCode: the numbers are gRPC's, and Trunkline's own.
#ifndef TRUNKLINE_GRPCPP_SUPPORT_STATUS_CODE_ENUM_H
#define TRUNKLINE_GRPCPP_SUPPORT_STATUS_CODE_ENUM_H

namespace grpc {

enum StatusCode {
    OK = 0,
    CANCELLED = 1,
    UNKNOWN = 2,
    INVALID_ARGUMENT = 3,
    DEADLINE_EXCEEDED = 4,
    NOT_FOUND = 5,
    ALREADY_EXISTS = 6,
    PERMISSION_DENIED = 7,
    RESOURCE_EXHAUSTED = 8,
    FAILED_PRECONDITION = 9,
    ABORTED = 10,
    OUT_OF_RANGE = 11,
    UNIMPLEMENTED = 12,
    INTERNAL = 13,
    UNAVAILABLE = 14,
    DATA_LOSS = 15,
    UNAUTHENTICATED = 16,
    DO_NOT_USE = -1
};

} // namespace grpc

#endif
