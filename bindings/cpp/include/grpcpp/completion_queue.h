// grpc::CompletionQueue: what operations came to, taken by the program's own threads. There is no other thread.
#ifndef TRUNKLINE_GRPCPP_COMPLETION_QUEUE_H
#define TRUNKLINE_GRPCPP_COMPLETION_QUEUE_H

#include <grpcpp/impl/library.h>
#include <grpcpp/support/time.h>

#include <deque>
#include <system_error>

namespace grpc {

class CompletionQueue {
  public:
    enum NextStatus { SHUTDOWN, GOT_EVENT, TIMEOUT };

    // `std::system_error` where the process may have no more descriptors.
    CompletionQueue() {
        if (tl_queue_new(&queue_, nullptr) != TL_OK) {
            auto none = std::make_error_code(std::errc::too_many_files_open);
            throw std::system_error(none, "no descriptor for a completion queue");
        }
        internal::UnderWay::Keep(queue_);
    }
    // It should be shut down and empty, as gRPC demands. What is still under way in one that is not is let go of:
    // calls are cancelled, and nothing is told of them.
    virtual ~CompletionQueue() {
        tl_event event;
        size_t count = 0;
        while (tl_queue_next(queue_, &event, 1, 0, &count, nullptr) == TL_OK && count == 1) internal::Dispatch(event);
        tl_queue_release(queue_);
        internal::UnderWay::LetGo(queue_);
    }
    CompletionQueue(const CompletionQueue &) = delete;
    CompletionQueue &operator=(const CompletionQueue &) = delete;

    bool Next(void **tag, bool *ok) { return Take(tag, ok, INT64_MAX) == GOT_EVENT; }

    template <typename T> NextStatus AsyncNext(void **tag, bool *ok, const T &deadline) {
        TimePoint<T> until(deadline);
        return Take(tag, ok, internal::NanosecondsUntil(until.raw_time()));
    }

    template <typename T, typename F> NextStatus DoThenAsyncNext(F &&act, void **tag, bool *ok, const T &deadline) {
        std::forward<F>(act)();
        return AsyncNext(tag, ok, deadline);
    }

    // What was begun still comes; then `Next` gives false.
    void Shutdown() {
        std::lock_guard<std::mutex> lock(mutex_);
        is_shut_down_ = true;
        if (IsOver()) Ring();
    }

    // Beyond gRPC: readable while `AsyncNext` has something to do, for epoll and its kin. Once in a while it is, and
    // `AsyncNext` gives TIMEOUT: what there was has been taken.
    int trunkline_fd() const {
        std::lock_guard<std::mutex> lock(mutex_);
        is_watched_ = true;
        if (!ready_.empty() || IsOver()) Ring();
        return tl_queue_fd(queue_);
    }

    // For operations: one was begun that `Ready` ends.
    void trunkline_begin() {
        std::lock_guard<std::mutex> lock(mutex_);
        under_way_++;
    }
    // For operations: its tag is to be given out.
    void trunkline_ready(void *tag, bool ok) {
        std::lock_guard<std::mutex> lock(mutex_);
        ready_.emplace_back(tag, ok);
        // The thread that looks right now finds it itself.
        if (Looking() != this) Ring();
    }
    tl_queue trunkline_queue() const { return queue_; }

  private:
    // Under the lock: one that waits looks again, and the descriptor is readable if anybody watches that. One event does,
    // of which each that waits takes another.
    void Ring() const {
        bool is_told = posted_ >= std::max<size_t>(waiting_, is_watched_ ? 1 : 0);
        if (!is_told && tl_queue_post(queue_, 0, nullptr) == TL_OK) posted_++;
    }

    static const CompletionQueue *&Looking() {
        static thread_local const CompletionQueue *looking = nullptr;
        return looking;
    }

    NextStatus Take(void **tag, bool *ok, int64_t timeout_ns) {
        auto began = std::chrono::steady_clock::now();
        bool is_late = false;
        std::unique_lock<std::mutex> lock(mutex_);
        for (;;) {
            if (!ready_.empty()) {
                std::tie(*tag, *ok) = ready_.front();
                ready_.pop_front();
                under_way_--;
                if (!ready_.empty() || IsOver()) Ring();
                return GOT_EVENT;
            }
            if (IsOver()) {
                Ring();
                return SHUTDOWN;
            }
            if (is_late) return TIMEOUT;
            int64_t left = -1;
            if (timeout_ns != INT64_MAX) {
                std::chrono::nanoseconds passed = std::chrono::steady_clock::now() - began;
                left = std::max<int64_t>(timeout_ns - passed.count(), 0);
            }
            tl_event event;
            size_t count = 0;
            waiting_++;
            lock.unlock();
            tl_code code = tl_queue_next(queue_, &event, 1, left, &count, nullptr);
            // What comes of the event is for this thread to look at.
            const CompletionQueue *outer = std::exchange(Looking(), this);
            bool is_posted = code == TL_OK && count == 1 && event.kind == TL_EVENT_POSTED && event.tag == 0;
            if (code == TL_OK && count == 1) internal::Dispatch(event);
            Looking() = outer;
            lock.lock();
            waiting_--;
            if (is_posted) posted_--;
            if (code != TL_OK) return SHUTDOWN;
            is_late = count == 0;
        }
    }

    bool IsOver() const { return is_shut_down_ && under_way_ == 0; }

    tl_queue queue_{};
    mutable std::mutex mutex_;
    std::deque<std::pair<void *, bool>> ready_;
    size_t under_way_ = 0;
    // Threads in the library's queue, and events there that say no more than that there is something here.
    size_t waiting_ = 0;
    mutable size_t posted_ = 0;
    mutable bool is_watched_ = false;
    bool is_shut_down_ = false;
};

// The same; a server tells it of calls.
class ServerCompletionQueue : public CompletionQueue {
  public:
    bool IsFrequentlyPolled() { return true; }
};

} // namespace grpc

#endif
