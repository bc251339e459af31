// grpc::ServerBuilderOption: settings of a server that come from elsewhere.
#ifndef TRUNKLINE_GRPCPP_IMPL_SERVER_BUILDER_OPTION_H
#define TRUNKLINE_GRPCPP_IMPL_SERVER_BUILDER_OPTION_H

#include <grpcpp/support/channel_arguments.h>

#include <memory>
#include <string>
#include <vector>

namespace grpc {

class ServerBuilder;

// Before a server is built, it registers what it brings along.
class ServerBuilderPlugin {
  public:
    virtual ~ServerBuilderPlugin() = default;
    virtual std::string name() = 0;
    virtual void UpdateServerBuilder(ServerBuilder *) {}
};

class ServerBuilderOption {
  public:
    virtual ~ServerBuilderOption() = default;
    // What is the daemon's to decide is said on standard error.
    virtual void UpdateArguments(ChannelArguments *arguments) = 0;
    virtual void UpdatePlugins(std::vector<std::unique_ptr<ServerBuilderPlugin>> *plugins) = 0;
};

} // namespace grpc

#endif
