// grpc::CreateChannel. Nothing is sent until the first call.
#ifndef TRUNKLINE_GRPCPP_CREATE_CHANNEL_H
#define TRUNKLINE_GRPCPP_CREATE_CHANNEL_H

#include <grpcpp/channel.h>
#include <grpcpp/security/credentials.h>

namespace grpc {

namespace experimental {

// A channel whose calls have these interceptors.
inline std::shared_ptr<Channel>
CreateCustomChannelWithInterceptors(const std::string &target, const std::shared_ptr<ChannelCredentials> &credentials,
                                    const ChannelArguments &arguments,
                                    internal::ClientInterceptorFactories interceptors) {
    if (credentials == nullptr) internal::SayIgnored("a channel without credentials", "the daemon's are used");
    return std::make_shared<Channel>(target, arguments, std::move(interceptors));
}

} // namespace experimental

inline std::shared_ptr<Channel> CreateCustomChannel(const std::string &target,
                                                    const std::shared_ptr<ChannelCredentials> &credentials,
                                                    const ChannelArguments &arguments) {
    return experimental::CreateCustomChannelWithInterceptors(target, credentials, arguments, {});
}

inline std::shared_ptr<Channel> CreateChannel(const std::string &target,
                                              const std::shared_ptr<ChannelCredentials> &credentials) {
    return CreateCustomChannel(target, credentials, ChannelArguments());
}

} // namespace grpc

#endif
