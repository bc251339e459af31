// What gRPC's interop programs use of its test utilities, without TLS: channels and credentials.
#include <grpcpp/create_channel.h>
#include <grpcpp/support/client_interceptor.h>

#include "test/cpp/util/create_test_channel.h"
#include "test/cpp/util/test_credentials_provider.h"

namespace grpc {

using Factories = std::vector<std::unique_ptr<experimental::ClientInterceptorFactoryInterface>>;

std::shared_ptr<Channel> CreateTestChannel(const std::string &server, const std::string &, testing::transport_security,
                                           bool, const std::shared_ptr<CallCredentials> &, Factories interceptors) {
    return experimental::CreateCustomChannelWithInterceptors(server, InsecureChannelCredentials(), ChannelArguments(),
                                                             std::move(interceptors));
}

std::shared_ptr<Channel> CreateTestChannel(const std::string &server, const std::string &, const std::string &, bool,
                                           const std::shared_ptr<CallCredentials> &, const ChannelArguments &arguments) {
    return CreateCustomChannel(server, InsecureChannelCredentials(), arguments);
}

std::shared_ptr<Channel> CreateTestChannel(const std::string &server, const std::string &,
                                           const std::shared_ptr<CallCredentials> &) {
    return CreateChannel(server, InsecureChannelCredentials());
}

std::shared_ptr<Channel> CreateTestChannel(const std::string &server, const std::string &,
                                           const std::shared_ptr<CallCredentials> &, Factories interceptors) {
    return experimental::CreateCustomChannelWithInterceptors(server, InsecureChannelCredentials(), ChannelArguments(),
                                                             std::move(interceptors));
}

namespace testing {
namespace {

class InsecureProvider final : public CredentialsProvider {
  public:
    void AddSecureType(const std::string &, std::unique_ptr<CredentialTypeProvider>) override {}
    std::shared_ptr<ChannelCredentials> GetChannelCredentials(const std::string &, ChannelArguments *) override {
        return InsecureChannelCredentials();
    }
    std::shared_ptr<ServerCredentials> GetServerCredentials(const std::string &) override {
        return InsecureServerCredentials();
    }
    std::vector<std::string> GetSecureCredentialsTypeList() override { return {}; }
};

} // namespace

CredentialsProvider *GetCredentialsProvider() {
    static CredentialsProvider *provider = new InsecureProvider;
    return provider;
}

void SetCredentialsProvider(CredentialsProvider *) {}

} // namespace testing
} // namespace grpc
