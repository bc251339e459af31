// grpc::experimental::ClientInterceptorFactoryInterface: makes the interceptors of a channel's calls.
#ifndef TRUNKLINE_GRPCPP_SUPPORT_CLIENT_INTERCEPTOR_H
#define TRUNKLINE_GRPCPP_SUPPORT_CLIENT_INTERCEPTOR_H

#include <grpc/support/log.h>
#include <grpcpp/impl/interception.h>

#include <vector>

namespace grpc {

class ClientContext;

namespace internal {
class ClientInterception;
}

namespace experimental {

// The call an interceptor is made for.
class ClientRpcInfo {
  public:
    enum class Type { UNARY, CLIENT_STREAMING, SERVER_STREAMING, BIDI_STREAMING, UNKNOWN };

    ClientRpcInfo(const ClientRpcInfo &) = delete;
    const char *method() const { return method_; }
    // Statistics are the daemon's, per method.
    const char *suffix_for_stats() const { return nullptr; }
    ChannelInterface *channel() { return channel_; }
    grpc::ClientContext *client_context() { return context_; }
    Type type() const { return type_; }

  private:
    friend class internal::ClientInterception;
    ClientRpcInfo(ClientContext *context, Type type, const char *method, ChannelInterface *channel)
        : context_(context), type_(type), method_(method), channel_(channel) {}

    ClientContext *context_;
    Type type_;
    const char *method_;
    ChannelInterface *channel_;
};

class ClientInterceptorFactoryInterface {
  public:
    virtual ~ClientInterceptorFactoryInterface() = default;
    // Null: none for this call.
    virtual Interceptor *CreateClientInterceptor(ClientRpcInfo *info) = 0;
};

} // namespace experimental

namespace internal {

inline experimental::ClientInterceptorFactoryInterface *&GlobalClientInterceptorFactory() {
    static experimental::ClientInterceptorFactoryInterface *factory = nullptr;
    return factory;
}

// A channel without its first interceptors, for calls of a hijacker's own. It keeps the channel, if that is shared.
class InterceptedChannel final : public ChannelInterface {
  public:
    InterceptedChannel(ChannelInterface *channel, size_t first)
        : kept_(channel->trunkline_shared()), channel_(channel), first_(first) {}
    grpc_connectivity_state GetState(bool try_to_connect) override { return channel_->GetState(try_to_connect); }
    tl_channel trunkline_channel(bool wait_for_ready) const override {
        return channel_->trunkline_channel(wait_for_ready);
    }
    const Status &trunkline_status() const override { return channel_->trunkline_status(); }
    const ChannelArguments &trunkline_arguments() const override { return channel_->trunkline_arguments(); }
    const std::string &trunkline_target() const override { return channel_->trunkline_target(); }
    const ClientInterceptorFactories &trunkline_interceptors() const override {
        return channel_->trunkline_interceptors();
    }
    size_t trunkline_first_interceptor() const override { return first_; }
    std::shared_ptr<ChannelInterface> trunkline_shared() override { return kept_; }

  private:
    std::shared_ptr<ChannelInterface> kept_;
    ChannelInterface *channel_;
    size_t first_;
};

// The interceptors of a client's call. It lives in the context.
class ClientInterception {
  public:
    // Null: the call has none.
    static std::unique_ptr<ClientInterception> Of(ChannelInterface *channel, ClientContext *context, const char *method,
                                                  experimental::ClientRpcInfo::Type type) {
        auto *global = GlobalClientInterceptorFactory();
        const ClientInterceptorFactories &factories = channel->trunkline_interceptors();
        if (global == nullptr && factories.empty()) return nullptr;
        auto out = std::unique_ptr<ClientInterception>(new ClientInterception(context, type, method, channel));
        for (size_t at = channel->trunkline_first_interceptor(); at < factories.size(); at++) {
            out->Add(factories[at].get(), at);
        }
        if (global != nullptr) out->Add(global, factories.size());
        return out->interceptors_.list.empty() ? nullptr : std::move(out);
    }

    Interceptors *interceptors() { return &interceptors_; }

  private:
    ClientInterception(ClientContext *context, experimental::ClientRpcInfo::Type type, const char *method,
                       ChannelInterface *channel)
        : info_(context, type, method, channel) {
        interceptors_.channel_behind = [this, channel](size_t at) {
            return std::make_unique<InterceptedChannel>(channel, factories_[at] + 1);
        };
    }

    void Add(experimental::ClientInterceptorFactoryInterface *factory, size_t index) {
        std::unique_ptr<experimental::Interceptor> made(factory->CreateClientInterceptor(&info_));
        if (made == nullptr) return;
        interceptors_.list.push_back(std::move(made));
        factories_.push_back(index);
    }

    experimental::ClientRpcInfo info_;
    // Of each interceptor, its factory.
    std::vector<size_t> factories_;
    Interceptors interceptors_;
};

} // namespace internal

namespace experimental {

// For all channels, behind their own interceptors; once, and before calls are made.
inline void RegisterGlobalClientInterceptorFactory(ClientInterceptorFactoryInterface *factory) {
    GPR_ASSERT(internal::GlobalClientInterceptorFactory() == nullptr);
    internal::GlobalClientInterceptorFactory() = factory;
}
inline void TestOnlyResetGlobalClientInterceptorFactory() { internal::GlobalClientInterceptorFactory() = nullptr; }

} // namespace experimental
} // namespace grpc

#endif
