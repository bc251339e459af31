// What gRPC's test programs begin with.
#pragma once

namespace grpc::testing {

class TestEnvironment {
  public:
    TestEnvironment(int *, char **) {}
};

} // namespace grpc::testing
