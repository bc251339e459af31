// grpc::Alarm: a tag, or a callback, at a time.
#ifndef TRUNKLINE_GRPCPP_ALARM_H
#define TRUNKLINE_GRPCPP_ALARM_H

#include <grpcpp/completion_queue.h>
#include <grpcpp/impl/event_loop.h>

namespace grpc {

class Alarm {
  public:
    Alarm() = default;
    Alarm(const Alarm &) = delete;
    Alarm &operator=(const Alarm &) = delete;
    Alarm(Alarm &&other) noexcept : state_(std::move(other.state_)) {}
    Alarm &operator=(Alarm &&other) noexcept {
        std::swap(state_, other.state_);
        return *this;
    }
    template <typename T> Alarm(CompletionQueue *queue, const T &deadline, void *tag) { Set(queue, deadline, tag); }
    ~Alarm() { Cancel(); }

    template <typename T> void Set(CompletionQueue *queue, const T &deadline, void *tag) {
        queue->trunkline_begin();
        SetAct(TimePoint<T>(deadline).raw_time(), [queue, tag](bool ok) { queue->trunkline_ready(tag, ok); });
    }
    template <typename T> void Set(const T &deadline, std::function<void(bool)> act) {
        // Where it cannot be made it is said here.
        internal::EventLoop::Get();
        SetAct(TimePoint<T>(deadline).raw_time(), [act = std::move(act)](bool ok) {
            internal::EventLoop::Get().Post([act, ok] { act(ok); });
        });
    }

    // What was set comes at once, with false.
    void Cancel() {
        if (state_ == nullptr || !internal::Timers::Get().Cancel(state_->key)) return;
        state_->act(false);
    }

  private:
    struct State {
        internal::Timers::Key key;
        std::function<void(bool)> act;
    };

    void SetAct(const gpr_timespec &deadline, std::function<void(bool)> act) {
        Cancel();
        auto at = internal::Timers::Clock::time_point::max();
        int64_t left = internal::NanosecondsUntil(deadline);
        if (left != INT64_MAX) at = internal::Timers::Clock::now() + std::chrono::nanoseconds(left);
        state_ = std::make_shared<State>();
        state_->act = act;
        state_->key = internal::Timers::Get().Set(at, [act = std::move(act)] { act(true); });
    }

    std::shared_ptr<State> state_;
};

} // namespace grpc

#endif
