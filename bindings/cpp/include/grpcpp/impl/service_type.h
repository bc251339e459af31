// grpc::Service: methods, and who answers each: a function that blocks, a reactor, or whoever asks in a queue.
#ifndef TRUNKLINE_GRPCPP_IMPL_SERVICE_TYPE_H
#define TRUNKLINE_GRPCPP_IMPL_SERVICE_TYPE_H

#include <grpcpp/server_context.h>

#include <algorithm>
#include <list>
#include <vector>

namespace grpc {

class Server;

namespace internal {

// Somebody who asked for a call of a method.
class AsyncRequest {
  public:
    virtual ~AsyncRequest() = default;
    // Has been given a call. Ends this, or asks again.
    virtual void Give(std::shared_ptr<ServerCall> call) = 0;
    // None will come. Ends this.
    virtual void Refuse() = 0;
};

// Calls of one method and who asks for them, whichever is there first. As many calls wait as the daemon lets be open, and
// no more than that again which are over.
class AsyncRequests {
  public:
    void Ask(AsyncRequest *request) {
        std::unique_lock<std::mutex> lock(mutex_);
        if (is_closed_) {
            lock.unlock();
            return request->Refuse();
        }
        if (calls_.empty()) return requests_.push_back(request);
        std::shared_ptr<ServerCall> call = std::move(calls_.front());
        calls_.pop_front();
        lock.unlock();
        request->Give(std::move(call));
    }

    void Deliver(std::shared_ptr<ServerCall> call) {
        std::unique_lock<std::mutex> lock(mutex_);
        if (is_closed_) return;
        if (requests_.empty()) {
            calls_.push_back(std::move(call));
            if (calls_.size() < look_at_) return;
            auto over = LookForOver();
            lock.unlock();
            return;
        }
        AsyncRequest *request = requests_.front();
        requests_.pop_front();
        lock.unlock();
        request->Give(std::move(call));
    }

    void Close() {
        std::unique_lock<std::mutex> lock(mutex_);
        is_closed_ = true;
        auto requests = std::move(requests_);
        auto calls = std::move(calls_);
        lock.unlock();
        for (AsyncRequest *request : requests) request->Refuse();
    }

  private:
    static constexpr size_t kLookAtLeast = 64;

    // Takes out calls that are over. The next look is when there are twice as many as are left.
    std::vector<std::shared_ptr<ServerCall>> LookForOver() {
        std::vector<std::shared_ptr<ServerCall>> over;
        std::deque<std::shared_ptr<ServerCall>> wanted;
        for (auto &call : calls_) {
            if (tl_call_is_over(call->get())) {
                over.push_back(std::move(call));
            } else {
                wanted.push_back(std::move(call));
            }
        }
        calls_ = std::move(wanted);
        look_at_ = std::max(kLookAtLeast, 2 * calls_.size());
        return over;
    }

    std::mutex mutex_;
    size_t look_at_ = kLookAtLeast;
    std::deque<AsyncRequest *> requests_;
    std::deque<std::shared_ptr<ServerCall>> calls_;
    bool is_closed_ = false;
};

struct ServedMethod {
    enum Kind { kBlocking, kAsync, kCallback };
    struct Handler {
        experimental::ServerRpcInfo::Type type;
        // Gets the call; of kCallback it returns at once.
        std::function<void(std::shared_ptr<ServerCall>)> act;
    };

    std::string path;
    Kind kind;
    Handler handler;
    AsyncRequests requests;
};

} // namespace internal

class Service {
  public:
    Service() = default;
    Service(const Service &) = delete;
    virtual ~Service() = default;

    bool has_async_methods() const { return Has(internal::ServedMethod::kAsync); }
    bool has_synchronous_methods() const { return Has(internal::ServedMethod::kBlocking); }
    bool has_callback_methods() const { return Has(internal::ServedMethod::kCallback); }
    bool has_generic_methods() const { return false; }

  protected:
    // For generated code. Methods are known by the order they were added in.
    void trunkline_add(const char *path, internal::ServedMethod::Handler blocking) {
        auto method = std::make_unique<internal::ServedMethod>();
        method->path = path;
        method->kind = internal::ServedMethod::kBlocking;
        method->handler = std::move(blocking);
        methods_.push_back(std::move(method));
    }
    void MarkMethodAsync(int index) { methods_.at(index)->kind = internal::ServedMethod::kAsync; }
    void MarkMethodCallback(int index, internal::ServedMethod::Handler handler) {
        methods_.at(index)->kind = internal::ServedMethod::kCallback;
        methods_.at(index)->handler = std::move(handler);
    }
    internal::AsyncRequests &trunkline_requests(int index) { return methods_.at(index)->requests; }

  private:
    friend class Server;

    bool Has(internal::ServedMethod::Kind kind) const {
        for (const auto &method : methods_) {
            if (method->kind == kind) return true;
        }
        return false;
    }

    std::vector<std::unique_ptr<internal::ServedMethod>> methods_;
};

} // namespace grpc

#endif
