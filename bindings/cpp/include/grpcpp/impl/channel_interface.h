// grpc::ChannelInterface: what stubs are made of.
#ifndef TRUNKLINE_GRPCPP_IMPL_CHANNEL_INTERFACE_H
#define TRUNKLINE_GRPCPP_IMPL_CHANNEL_INTERFACE_H

#include <grpcpp/completion_queue.h>
#include <grpcpp/support/channel_arguments.h>

#include <memory>
#include <vector>

namespace grpc {

namespace experimental {
class ClientInterceptorFactoryInterface;
}

namespace internal {
using ClientInterceptorFactories = std::vector<std::unique_ptr<experimental::ClientInterceptorFactoryInterface>>;
}

class ChannelInterface {
  public:
    virtual ~ChannelInterface() = default;
    // Connections are the daemon's; whether a target can be reached shows when it is called.
    virtual grpc_connectivity_state GetState(bool try_to_connect) = 0;

    template <typename T> void NotifyOnStateChange(grpc_connectivity_state, T deadline, CompletionQueue *queue, void *tag);
    template <typename T> bool WaitForStateChange(grpc_connectivity_state last, T deadline);
    template <typename T> bool WaitForConnected(T) { return GetState(true) == GRPC_CHANNEL_READY; }

    // Where calls go; 0: nowhere, and `trunkline_status` says why.
    virtual tl_channel trunkline_channel(bool wait_for_ready) const = 0;
    virtual const Status &trunkline_status() const = 0;
    virtual const ChannelArguments &trunkline_arguments() const = 0;
    virtual const std::string &trunkline_target() const = 0;
    // The factories of interceptors, and which of them is the first for this.
    virtual const internal::ClientInterceptorFactories &trunkline_interceptors() const = 0;
    virtual size_t trunkline_first_interceptor() const { return 0; }
    // For calls, which keep it; null if nobody shares it.
    virtual std::shared_ptr<ChannelInterface> trunkline_shared() { return nullptr; }
};

} // namespace grpc

#include <grpcpp/alarm.h>
#include <thread>

namespace grpc {

// The state does not change: the deadline comes.
template <typename T>
void ChannelInterface::NotifyOnStateChange(grpc_connectivity_state last, T deadline, CompletionQueue *queue, void *tag) {
    bool differs = last != GetState(false);
    queue->trunkline_begin();
    if (differs) return queue->trunkline_ready(tag, true);
    int64_t left = internal::NanosecondsUntil(TimePoint<T>(deadline).raw_time());
    auto at = internal::Timers::Clock::time_point::max();
    if (left != INT64_MAX) at = internal::Timers::Clock::now() + std::chrono::nanoseconds(left);
    internal::Timers::Get().Set(at, [queue, tag] { queue->trunkline_ready(tag, false); });
}

template <typename T> bool ChannelInterface::WaitForStateChange(grpc_connectivity_state last, T deadline) {
    if (last != GetState(false)) return true;
    int64_t left = internal::NanosecondsUntil(TimePoint<T>(deadline).raw_time());
    std::this_thread::sleep_for(std::chrono::nanoseconds(left));
    return false;
}

} // namespace grpc

#endif
