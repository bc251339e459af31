// grpc::Server: serves through the host's daemon, which has the ports.
#ifndef TRUNKLINE_GRPCPP_SERVER_H
#define TRUNKLINE_GRPCPP_SERVER_H

#include <grpcpp/channel.h>
#include <grpcpp/health_check_service_interface.h>
#include <grpcpp/impl/event_loop.h>
#include <grpcpp/impl/service_type.h>

#include <condition_variable>
#include <cstdio>
#include <system_error>
#include <thread>
#include <unordered_map>
#include <unistd.h>

namespace grpc {

namespace internal {

// Calls of reactors that are not over: their reactions run on threads that are not the server's.
class ReactingCalls {
  public:
    // One more, until what is given goes.
    static std::shared_ptr<void> Enter(const std::shared_ptr<ReactingCalls> &calls) {
        {
            std::lock_guard<std::mutex> lock(calls->mutex_);
            calls->count_++;
        }
        return std::shared_ptr<void>(nullptr, [calls](void *) {
            std::lock_guard<std::mutex> lock(calls->mutex_);
            if (--calls->count_ == 0) calls->none_.notify_all();
        });
    }

    // Until there are none.
    void Wait() {
        std::unique_lock<std::mutex> lock(mutex_);
        none_.wait(lock, [this] { return count_ == 0; });
    }

  private:
    std::mutex mutex_;
    std::condition_variable none_;
    size_t count_ = 0;
};

} // namespace internal

class Server {
  public:
    Server(const Server &) = delete;
    ~Server() {
        Shutdown();
        tl_server_release(server_);
        tl_queue_release(queue_);
        if (IsParents()) Forget();
    }

    // Takes no new calls, waits for those in flight, and ends: no handler runs any more, and no reaction of a reactor is
    // still to come.
    void Shutdown() { End(kWithoutLimit); }
    // Callers of what has not been answered then get UNAVAILABLE.
    template <class T> void Shutdown(const T &deadline) {
        End(std::min(internal::NanosecondsUntil(TimePoint<T>(deadline).raw_time()), kWithoutLimit));
    }
    // Until it has ended. In a forked child it has: it is the parent's.
    void Wait() {
        if (IsParents()) return;
        std::unique_lock<std::mutex> lock(mutex_);
        changed_->wait(lock, [this] { return has_ended_; });
    }

    // Calls of this process to whoever serves on this host: to this server if no other serves the same service there.
    std::shared_ptr<Channel> InProcessChannel(const ChannelArguments &arguments) {
        return std::make_shared<Channel>("", arguments);
    }
    HealthCheckServiceInterface *GetHealthCheckService() { return DefaultHealthCheckServiceEnabled() ? &health_ : nullptr; }

  private:
    friend class ServerBuilder;

    // What a wait without limit is: longer than a machine runs.
    static constexpr int64_t kWithoutLimit = int64_t(365) * 24 * 3600 * 1000000000;
    // How long a start waits for the daemon to refuse a service: what the program does next may not depend on one.
    static constexpr int64_t kReadyNs = int64_t(5) * 1000000000;
    // Threads that stay when there is nothing to do, and how long the others do.
    static constexpr size_t kThreadsMin = 2;
    static constexpr int64_t kIdleNs = int64_t(10) * 1000000000;

    Server(std::vector<Service *> services, size_t threads_max, internal::ServerInterceptorFactories interceptors)
        : services_(std::move(services)), threads_max_(std::max(threads_max, size_t(1))),
          interceptors_(std::move(interceptors)) {}

    Status Begin() {
        tl_status status{};
        tl_server_options options{};
        options.size = sizeof options;
        if (tl_queue_new(&queue_, &status) != TL_OK) return internal::TakeStatus(status);
        if (tl_server_new(&options, &server_, &status) != TL_OK) return internal::TakeStatus(status);
        try {
            // Their reactions need its threads: where there are none, it is here that it is said.
            if (HasReactors()) internal::EventLoop::Get();
        } catch (const std::system_error &) {
            return Status(StatusCode::RESOURCE_EXHAUSTED, "no descriptor or no thread can be made for reactors");
        }
        for (Service *service : services_) {
            for (const auto &method : service->methods_) {
                std::string name = method->path.substr(1, method->path.rfind('/') - 1);
                bool is_new = methods_.emplace(method->path, method.get()).second;
                if (!is_new) return Status(StatusCode::ALREADY_EXISTS, name + " is registered twice");
                if (!names_.insert(name).second) continue;
                if (tl_server_add_service(server_, internal::slice(name), queue_, 0, nullptr, nullptr, &status) != TL_OK) {
                    return internal::TakeStatus(status);
                }
            }
        }
        if (tl_server_start(server_, &status) != TL_OK) return internal::TakeStatus(status);
        has_begun_ = true;
        {
            std::lock_guard<std::mutex> lock(mutex_);
            for (size_t at = 0; at < std::min(kThreadsMin, threads_max_); at++) AddThread();
            if (threads_ == 0) return Status(StatusCode::RESOURCE_EXHAUSTED, "no thread can be made for the handlers");
        }
        if (tl_server_ready_within(server_, kReadyNs, &status) == TL_DEADLINE_EXCEEDED) {
            tl_status_release(status);
            std::fprintf(stderr, "trunkline: there is no daemon yet: calls arrive once there is one\n");
            return Status();
        }
        return internal::TakeStatus(status);
    }

    bool HasReactors() const {
        return std::any_of(services_.begin(), services_.end(), [](Service *each) { return each->has_callback_methods(); });
    }

    // Whether this is a child forked since: without its threads, and with locks that one of them may have.
    bool IsParents() const { return getpid() != process_; }

    // What ends with the child only: the end of a condition waits for who waits there, and nobody does.
    void Forget() {
        static auto &kept = *new std::vector<std::pair<std::shared_ptr<internal::ReactingCalls>,
                                                       std::unique_ptr<std::condition_variable>>>();
        kept.emplace_back(std::move(reacting_), std::move(changed_));
    }

    void End(int64_t grace_ns) {
        if (IsParents()) return;
        {
            std::unique_lock<std::mutex> lock(mutex_);
            if (is_ending_) return changed_->wait(lock, [this] { return has_ended_; });
            is_ending_ = true;
        }
        for (auto &[path, method] : methods_) method->requests.Close();
        if (has_begun_) tl_server_shutdown(server_, grace_ns, nullptr);
        // Threads in the queue return.
        tl_queue_release(std::exchange(queue_, tl_queue{}));
        std::unique_lock<std::mutex> lock(mutex_);
        changed_->wait(lock, [this] { return threads_ == 0; });
        lock.unlock();
        reacting_->Wait();
        lock.lock();
        has_ended_ = true;
        changed_->notify_all();
    }

    // Under the lock. Where the machine has no thread to give, those that are there do: calls wait for them.
    void AddThread() {
        try {
            std::thread([this, queue = queue_] { Serve(queue); }).detach();
        } catch (const std::system_error &) {
            return;
        }
        threads_++;
        idle_++;
    }

    // One call at a time; with the last idle thread's call comes another thread, for the next.
    void Serve(tl_queue queue) {
        tl_event event;
        size_t count = 0;
        std::unique_lock<std::mutex> lock(mutex_, std::defer_lock);
        while (tl_queue_next(queue, &event, 1, kIdleNs, &count, nullptr) == TL_OK) {
            lock.lock();
            if (count == 0 && idle_ > kThreadsMin) break;
            if (count == 1 && --idle_ == 0 && threads_ < threads_max_ && !is_ending_) AddThread();
            lock.unlock();
            if (count == 0) continue;
            if (event.kind == TL_EVENT_CALL) Handle(std::make_shared<internal::ServerCall>(event.call));
            tl_event_clear(&event);
            lock.lock();
            idle_++;
            lock.unlock();
        }
        if (!lock.owns_lock()) lock.lock();
        idle_--;
        // Nothing of this is looked at once the last has said so.
        if (--threads_ == 0) changed_->notify_all();
    }

    void Handle(std::shared_ptr<internal::ServerCall> call) {
        auto found = methods_.find(std::string(call->method()));
        if (found == methods_.end()) {
            call->Finish(Status(StatusCode::UNIMPLEMENTED, "this server does not implement the method"), nullptr, {});
            return;
        }
        if (found->second->kind == internal::ServedMethod::kCallback) call->Keep(internal::ReactingCalls::Enter(reacting_));
        if (!interceptors_.empty()) call->Intercept(&interceptors_, found->second->handler.type);
        if (found->second->kind == internal::ServedMethod::kAsync) {
            found->second->requests.Deliver(std::move(call));
        } else {
            found->second->handler.act(std::move(call));
        }
    }

    std::vector<Service *> services_;
    std::set<std::string> names_;
    std::unordered_map<std::string, internal::ServedMethod *> methods_;
    size_t threads_max_;
    internal::ServerInterceptorFactories interceptors_;
    HealthCheckServiceInterface health_;
    tl_server server_{};
    tl_queue queue_{};
    std::shared_ptr<internal::ReactingCalls> reacting_ = std::make_shared<internal::ReactingCalls>();
    std::mutex mutex_;
    std::unique_ptr<std::condition_variable> changed_ = std::make_unique<std::condition_variable>();
    size_t threads_ = 0, idle_ = 0;
    bool has_begun_ = false, is_ending_ = false, has_ended_ = false;
    pid_t process_ = getpid();
};

} // namespace grpc

#endif
