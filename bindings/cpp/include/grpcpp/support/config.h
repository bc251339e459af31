// Names that gRPC C++ keeps for its own strings.
#ifndef TRUNKLINE_GRPCPP_SUPPORT_CONFIG_H
#define TRUNKLINE_GRPCPP_SUPPORT_CONFIG_H

#include <string>

#define GRPC_CUSTOM_STRING std::string
#define GRPC_FINAL final
#define GRPC_OVERRIDE override

namespace grpc {
using std::string;
using std::to_string;
} // namespace grpc

#endif
