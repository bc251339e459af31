// gRPC C++'s own surface over Trunkline: programs written for gRPC C++ compile against it as they are, and call and
// serve through the daemon of their host. docs/grpc-cpp.md explains.
#ifndef TRUNKLINE_GRPCPP_GRPCPP_H
#define TRUNKLINE_GRPCPP_GRPCPP_H

#include <grpc/grpc.h>
#include <grpcpp/channel.h>
#include <grpcpp/client_context.h>
#include <grpcpp/completion_queue.h>
#include <grpcpp/create_channel.h>
#include <grpcpp/security/server_credentials.h>
#include <grpcpp/server.h>
#include <grpcpp/server_builder.h>
#include <grpcpp/server_context.h>
#include <grpcpp/support/async_stream.h>
#include <grpcpp/support/async_unary_call.h>
#include <grpcpp/support/byte_buffer.h>
#include <grpcpp/support/client_callback.h>
#include <grpcpp/support/server_callback.h>
#include <grpcpp/support/status.h>
#include <grpcpp/support/stub_options.h>
#include <grpcpp/support/sync_stream.h>
#include <grpcpp/version_info.h>

namespace grpc {
// The version of gRPC C++ whose surface this is.
inline std::string Version() { return GRPC_CPP_VERSION_STRING; }
} // namespace grpc

#endif
