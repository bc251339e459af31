// grpc::experimental::ServerInterceptorFactoryInterface: makes the interceptors of a server's calls.
#ifndef TRUNKLINE_GRPCPP_SUPPORT_SERVER_INTERCEPTOR_H
#define TRUNKLINE_GRPCPP_SUPPORT_SERVER_INTERCEPTOR_H

#include <grpcpp/impl/interception.h>

#include <vector>

namespace grpc {

class ServerContextBase;

namespace internal {
class ServerInterception;
}

namespace experimental {

// The call an interceptor is made for.
class ServerRpcInfo {
  public:
    enum class Type { UNARY, CLIENT_STREAMING, SERVER_STREAMING, BIDI_STREAMING };

    ServerRpcInfo(const ServerRpcInfo &) = delete;
    const char *method() const { return method_.c_str(); }
    Type type() const { return type_; }
    ServerContextBase *server_context() { return context_; }

  private:
    friend class internal::ServerInterception;
    ServerRpcInfo(ServerContextBase *context, std::string method, Type type)
        : context_(context), method_(std::move(method)), type_(type) {}

    ServerContextBase *context_;
    std::string method_;
    Type type_;
};

class ServerInterceptorFactoryInterface {
  public:
    virtual ~ServerInterceptorFactoryInterface() = default;
    // Null: none for this call.
    virtual Interceptor *CreateServerInterceptor(ServerRpcInfo *info) = 0;
};

} // namespace experimental

namespace internal {

using ServerInterceptorFactories = std::vector<std::unique_ptr<experimental::ServerInterceptorFactoryInterface>>;

// The interceptors of a delivered call. It lives as long as the call.
class ServerInterception {
  public:
    ServerInterception(const ServerInterceptorFactories &factories, ServerContextBase *context, std::string method,
                       experimental::ServerRpcInfo::Type type)
        : info_(context, std::move(method), type) {
        for (const auto &factory : factories) {
            std::unique_ptr<experimental::Interceptor> made(factory->CreateServerInterceptor(&info_));
            if (made != nullptr) interceptors_.list.push_back(std::move(made));
        }
    }

    Interceptors *interceptors() { return &interceptors_; }

  private:
    experimental::ServerRpcInfo info_;
    Interceptors interceptors_;
};

} // namespace internal
} // namespace grpc

#endif
