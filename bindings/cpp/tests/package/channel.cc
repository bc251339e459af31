// A channel of gRPC C++'s surface, without generated code.
#include <grpcpp/grpcpp.h>

#include <cstdio>

int main() {
    auto channel = grpc::CreateChannel("localhost:50051", grpc::InsecureChannelCredentials());
    std::printf("state %d\n", channel->GetState(false));
    return 0;
}
