// grpc::Channel: calls through the host's daemon.
#ifndef TRUNKLINE_GRPCPP_CHANNEL_H
#define TRUNKLINE_GRPCPP_CHANNEL_H

#include <grpcpp/impl/channel_interface.h>
#include <grpcpp/support/client_interceptor.h>

namespace grpc {

namespace internal {

// The host of `HOST:PORT`; nothing of what is written otherwise.
inline std::string HostOf(const std::string &target) {
    size_t colon = target.rfind(':');
    if (colon == std::string::npos || target.find('/') != std::string::npos) return "";
    std::string host = target.substr(0, colon), port = target.substr(colon + 1);
    bool is_port = !port.empty() && port.find_first_not_of("0123456789") == std::string::npos;
    if (!is_port) return "";
    if (host.size() > 2 && host.front() == '[' && host.back() == ']') return host.substr(1, host.size() - 2);
    return host.find(':') == std::string::npos ? host : "";
}

// A target of gRPC's as one of Trunkline's. Ports of this host are the daemon's, so `localhost:PORT` is whoever serves
// the called service on this host; so is what has no port: a name of a service. The rest the daemon connects to.
inline std::string TargetOf(const std::string &target) {
    std::string host = HostOf(target);
    bool is_loopback = host == "localhost" || host == "::1" || host == "0.0.0.0" || host == "::" ||
                       host == "ip6-localhost" || host.rfind("127.", 0) == 0;
    return is_loopback || target.find(':') == std::string::npos ? "" : target;
}

} // namespace internal

class Channel final : public ChannelInterface, public std::enable_shared_from_this<Channel> {
  public:
    Channel(const std::string &target, const ChannelArguments &arguments,
            internal::ClientInterceptorFactories interceptors = {})
        : target_(target), arguments_(arguments), interceptors_(std::move(interceptors)), ready_(Make(false)),
          waiting_(Make(true)) {}

    grpc_connectivity_state GetState(bool) override {
        return status_.ok() ? GRPC_CHANNEL_READY : GRPC_CHANNEL_TRANSIENT_FAILURE;
    }
    std::string GetLoadBalancingPolicyName() const { return ""; }
    std::string GetServiceConfigJSON() const { return ""; }

    tl_channel trunkline_channel(bool wait_for_ready) const override {
        return wait_for_ready ? waiting_.get() : ready_.get();
    }
    const Status &trunkline_status() const override { return status_; }
    const ChannelArguments &trunkline_arguments() const override { return arguments_; }
    const std::string &trunkline_target() const override { return target_; }
    const internal::ClientInterceptorFactories &trunkline_interceptors() const override { return interceptors_; }
    std::shared_ptr<ChannelInterface> trunkline_shared() override { return weak_from_this().lock(); }

  private:
    using Handle = trunkline::detail::Owned<tl_channel, tl_channel_release>;

    Handle Make(bool waits) {
        std::string target = internal::TargetOf(target_);
        tl_channel_options options{};
        options.size = sizeof options;
        options.wait_for_ready = waits;
        options.target = internal::slice(target);
        Handle out;
        tl_status status{};
        if (tl_channel_new(&options, out.out(), &status) != TL_OK) status_ = internal::TakeStatus(status);
        return out;
    }

    std::string target_;
    ChannelArguments arguments_;
    internal::ClientInterceptorFactories interceptors_;
    Status status_;
    Handle ready_, waiting_;
};

} // namespace grpc

#endif
