// grpc::StubOptions.
#ifndef TRUNKLINE_GRPCPP_SUPPORT_STUB_OPTIONS_H
#define TRUNKLINE_GRPCPP_SUPPORT_STUB_OPTIONS_H

#include <string>

namespace grpc {

// A name for statistics that the daemon takes itself, per method.
class StubOptions {
  public:
    StubOptions() = default;
};

} // namespace grpc

#endif
