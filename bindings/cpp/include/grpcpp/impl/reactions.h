// When a reactor's reactions run: on the threads of the event loop, never inside the call that asked for something, and
// the last of them after all others.
#ifndef TRUNKLINE_GRPCPP_IMPL_REACTIONS_H
#define TRUNKLINE_GRPCPP_IMPL_REACTIONS_H

#include <grpcpp/impl/event_loop.h>

#include <atomic>

namespace grpc::internal {

// While one is there, the thread is inside a call of the program's: what is ready reacts elsewhere.
class Asking {
  public:
    Asking() { Depth()++; }
    ~Asking() { Depth()--; }
    static bool IsUnderWay() { return Depth() > 0; }

  private:
    static int &Depth() {
        static thread_local int depth = 0;
        return depth;
    }
};

inline void React(std::function<void()> act) {
    if (Asking::IsUnderWay()) return EventLoop::Get().Post(std::move(act));
    Quietly(act);
}

// Counts what is still to come for a reactor; the last to leave runs the end.
class Reactions : public std::enable_shared_from_this<Reactions> {
  public:
    explicit Reactions(std::function<void()> end) : end_(std::move(end)) {}

    void Enter(int count = 1) { count_ += count; }
    void Leave() {
        if (--count_ == 0) React([self = shared_from_this()] { std::exchange(self->end_, nullptr)(); });
    }

    // How an operation's end is told.
    std::function<void(bool)> Telling(std::function<void(bool)> react) {
        Enter();
        return [self = shared_from_this(), react = std::move(react)](bool ok) {
            React([self, react, ok] {
                Quietly([&] { react(ok); });
                self->Leave();
            });
        };
    }

  private:
    std::atomic<int> count_{0};
    std::function<void()> end_;
};

} // namespace grpc::internal

#endif
