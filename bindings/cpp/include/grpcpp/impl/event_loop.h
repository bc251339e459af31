// The threads that callbacks run on, one set in a process: they take events of one queue. And the thread of timers.
#ifndef TRUNKLINE_GRPCPP_IMPL_EVENT_LOOP_H
#define TRUNKLINE_GRPCPP_IMPL_EVENT_LOOP_H

#include <grpcpp/impl/library.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <functional>
#include <system_error>
#include <thread>

namespace grpc::internal {

// What a function of the program's throws goes no further, as with gRPC: the thread has more to do.
template <class Act> void Quietly(Act &&act) {
    try {
        act();
    } catch (...) {
    }
}

// Begins with its first user, and lives as long as the process: reactions may come until its end. Where there is no
// descriptor or no thread for it that user gets `std::system_error`, and the next asks again. A forked child has none of
// its threads.
class EventLoop {
  public:
    static EventLoop &Get() {
        static EventLoop *loop = new EventLoop;
        return *loop;
    }

    tl_queue queue() const { return queue_; }

    // Runs `act` on a thread of the loop.
    void Post(std::function<void()> act) {
        uint64_t tag = TagOf(queue_, [act = std::move(act)](tl_event &) { Quietly(act); });
        if (tl_queue_post(queue_, tag, nullptr) != TL_OK) Forget(tag);
    }

  private:
    EventLoop() {
        if (tl_queue_new(&queue_, nullptr) != TL_OK) {
            throw std::system_error(std::make_error_code(std::errc::too_many_files_open), "no descriptor for callbacks");
        }
        // Two at least: of two reactions of which one waits for the other, against the rules, both come.
        unsigned threads = std::clamp(std::thread::hardware_concurrency(), 2u, 16u);
        for (unsigned at = 0; at < threads; at++) {
            try {
                std::thread([queue = queue_] { Run(queue); }).detach();
            } catch (const std::system_error &) {
                // Those there are do. With none, who needs one is told, and the next asks again.
                if (at > 0) break;
                tl_queue_release(queue_);
                throw;
            }
        }
    }

    static void Run(tl_queue queue) {
        tl_event event;
        size_t count = 0;
        while (tl_queue_next(queue, &event, 1, -1, &count, nullptr) == TL_OK) {
            if (count == 1) Dispatch(event);
        }
    }

    tl_queue queue_{};
};

// Acts at times.
class Timers {
  public:
    using Clock = std::chrono::steady_clock;
    using Key = std::pair<Clock::time_point, uint64_t>;

    static Timers &Get() {
        static Timers *timers = new Timers;
        return *timers;
    }

    Key Set(Clock::time_point at, std::function<void()> act) {
        std::lock_guard<std::mutex> lock(mutex_);
        Key key(at, ++last_);
        acts_.emplace(key, std::move(act));
        changed_.notify_one();
        return key;
    }

    // Whether it was still to come; then it does not.
    bool Cancel(const Key &key) {
        std::lock_guard<std::mutex> lock(mutex_);
        return acts_.erase(key) == 1;
    }

  private:
    Timers() {
        std::thread([this] { Run(); }).detach();
    }

    void Run() {
        std::unique_lock<std::mutex> lock(mutex_);
        for (;;) {
            if (acts_.empty()) {
                changed_.wait(lock);
            } else if (auto first = acts_.begin(); first->first.first <= Clock::now()) {
                std::function<void()> act = std::move(first->second);
                acts_.erase(first);
                lock.unlock();
                act();
                lock.lock();
            } else {
                Clock::time_point at = first->first.first;
                changed_.wait_until(lock, at);
            }
        }
    }

    std::mutex mutex_;
    std::condition_variable changed_;
    std::map<Key, std::function<void()>> acts_;
    uint64_t last_ = 0;
};

} // namespace grpc::internal

#endif
