// What the interop programs look at inside gRPC's calls: how messages were compressed on their way. Of Trunkline's calls
// that is the daemon's to know; cases that ask for it are named in the test.
#pragma once

#include <grpc/compression.h>

#include <cstdint>

constexpr uint32_t GRPC_WRITE_INTERNAL_COMPRESS = 0x80000000u;
constexpr uint32_t GRPC_WRITE_INTERNAL_TEST_ONLY_WAS_COMPRESSED = 0x40000000u;

template <class Call> grpc_compression_algorithm grpc_call_test_only_get_compression_algorithm(const Call &) {
    return GRPC_COMPRESS_NONE;
}
template <class Call> uint32_t grpc_call_test_only_get_message_flags(const Call &) { return 0; }
template <class Call> uint32_t grpc_call_test_only_get_encodings_accepted_by_peer(const Call &) { return 1; }
