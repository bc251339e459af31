// A delivered call: what the classes of servers do with it, blocking or in a queue.
#ifndef TRUNKLINE_GRPCPP_IMPL_SERVER_CALL_H
#define TRUNKLINE_GRPCPP_IMPL_SERVER_CALL_H

#include <grpcpp/impl/library.h>
#include <grpcpp/impl/stream_interfaces.h>
#include <grpcpp/support/server_interceptor.h>

#include <atomic>
#include <deque>
#include <functional>
#include <optional>

namespace grpc::internal {

class ServerCall : public std::enable_shared_from_this<ServerCall> {
  public:
    using Done = std::function<void(bool)>;
    using Take = std::function<Status(tl_message)>;

    explicit ServerCall(tl_call handle) : call_(handle) {}
    ServerCall(const ServerCall &) = delete;
    // Unanswered, its caller gets UNAVAILABLE.
    ~ServerCall() { tl_call_release(call_); }

    // Kept for as long as anything of the call is still to come.
    void Keep(std::shared_ptr<void> what) { kept_ = std::move(what); }

    // Before anything is done with it: who makes its interceptors.
    void Intercept(const ServerInterceptorFactories *factories, experimental::ServerRpcInfo::Type type) {
        factories_ = factories;
        type_ = type;
    }
    // It has its context, and so gets its interceptors.
    void Bound(ServerContextBase *context) {
        if (factories_ == nullptr) return;
        auto made = std::make_unique<ServerInterception>(*factories_, context, std::string(method()), type_);
        if (!made->interceptors()->list.empty()) interception_ = std::move(made);
    }
    // What is done at once, for its interceptors; null if the call has none.
    std::shared_ptr<Batch> NewBatch() const {
        return interception_ == nullptr ? nullptr : std::make_shared<Batch>(interception_->interceptors());
    }

    // Its interceptors are told that it is over; then `then`.
    void Close(std::function<void()> then) {
        std::shared_ptr<Batch> batch = NewBatch();
        if (batch == nullptr) return then();
        batch->ReceivesClose();
        // They are this call's, which stays until they have all proceeded.
        batch->After([self = shared_from_this(), then = std::move(then)] { then(); });
    }

    tl_call get() const { return call_; }
    std::string_view method() const { return trunkline::detail::view(tl_call_method(call_)); }

    // No longer wanted: its caller has gone, its deadline has passed, or the program let go of it.
    bool IsCancelled() const { return is_let_go_ || (!is_answered_ && tl_call_is_over(call_) != 0); }
    void Cancel() {
        is_let_go_ = true;
        if (auto batch = NewBatch()) {
            batch->SendsCancel();
            batch->Before([] {});
        }
        tl_call_cancel(call_, nullptr);
    }

    // Whether the last request came compressed from a gRPC client.
    bool WasCompressed() const { return was_compressed_; }

    // The call ends with the first of these, whatever its handler says: what was sent or read is not the whole.
    bool Fault(const Status &status) {
        std::lock_guard<std::mutex> lock(fault_mutex_);
        if (!has_fault_) fault_ = status;
        has_fault_ = true;
        return false;
    }
    // Takes a message that was received.
    bool Decoded(const Take &take, tl_message message) {
        return take(message).ok() || Fault(Status(StatusCode::INVALID_ARGUMENT, "a request cannot be decoded"));
    }

    // ---- Blocking.

    bool SendHeaders(const SentMetadata &pairs) {
        MetadataHandle handle;
        Status written = WriteMetadata(pairs, handle);
        if (!written.ok()) return Fault(written);
        return tl_call_send_headers(call_, handle.get(), tl_queue{}, 0, nullptr) == TL_OK;
    }
    bool Send(const Slice &message, WriteOptions options) {
        return tl_call_send(call_, raw(message), options.trunkline_flags(), tl_queue{}, 0, nullptr) == TL_OK;
    }

    bool Receive(const Take &take) {
        tl_event event{};
        if (tl_call_receive(call_, tl_queue{}, 0, &event, nullptr) != TL_OK) return false;
        bool ok = Taken(event, take);
        tl_event_clear(&event);
        return ok;
    }

    bool Finish(const Status &status, const Slice *last, const SentMetadata &trailers) {
        return Finish(status, last, trailers, WriteOptions(), tl_queue{}, 0) == TL_OK;
    }

    // ---- In a queue.

    // Receives one request. One at a time.
    void Receive(tl_queue queue, Take take, Done done) {
        uint64_t tag = TagOf(queue, [self = shared_from_this(), take = std::move(take), done](tl_event &event) {
            done(self->Taken(event, take));
        });
        if (tl_call_receive(call_, queue, tag, nullptr, nullptr) == TL_OK) return;
        Forget(tag);
        done(false);
    }

    // Sends along: each when the one before is gone.
    void SendHeaders(tl_queue queue, SentMetadata pairs, Done done) {
        Add(queue, {kHeaders, Slice(), false, WriteOptions(), Status(), std::move(pairs), std::move(done)});
    }
    void Send(tl_queue queue, Slice message, WriteOptions options, Done done) {
        Add(queue, {kMessage, std::move(message), true, options, Status(), {}, std::move(done)});
    }
    void Finish(tl_queue queue, Status status, std::optional<Slice> last, SentMetadata trailers, Done done,
                WriteOptions options = WriteOptions()) {
        bool has_last = last.has_value();
        Add(queue, {kEnd, last.value_or(Slice()), has_last, options, std::move(status), std::move(trailers),
                    std::move(done)});
    }

    // Tells when the call is over, once.
    void Watch(tl_queue queue, std::function<void()> over) {
        uint64_t tag = TagOf(queue, [self = shared_from_this(), over](tl_event &) { over(); });
        if (tl_call_watch(call_, queue, tag, nullptr) == TL_OK) return;
        Forget(tag);
        over();
    }

  private:
    enum Kind { kHeaders, kMessage, kEnd };
    struct Sending {
        Kind kind;
        Slice message;
        bool has_message;
        WriteOptions options;
        Status status;
        SentMetadata pairs;
        Done done;
    };

    bool Taken(tl_event &event, const Take &take) {
        if (event.kind != TL_EVENT_MESSAGE) return false;
        was_compressed_ = (event.flags & TL_COMPRESSED) != 0;
        return Decoded(take, std::exchange(event.message, tl_message{}));
    }

    tl_code Finish(const Status &wanted, const Slice *last, const SentMetadata &trailers, WriteOptions options,
                   tl_queue queue, uint64_t tag) {
        MetadataHandle handle;
        Status written = WriteMetadata(trailers, handle);
        const Status &status = has_fault_ ? fault_ : written.ok() ? wanted : written;
        std::string message = status.error_message(), details = status.error_details();
        tl_outcome outcome{};
        outcome.size = sizeof outcome;
        outcome.code = static_cast<tl_code>(status.error_code());
        outcome.message = slice(message);
        outcome.details = slice(details);
        outcome.trailers = handle.get();
        outcome.flags = options.trunkline_flags();
        tl_slice bytes = last != nullptr ? raw(*last) : tl_slice{};
        // Before the library is told: who watches may hear that the call is over before this returns.
        bool is_answer = tl_call_is_over(call_) == 0 && !is_answered_.exchange(true);
        const tl_slice *response = last != nullptr && status.ok() ? &bytes : nullptr;
        tl_code code = tl_call_finish(call_, &outcome, response, queue, tag, nullptr);
        if (is_answer) Answers(code);
        return code;
    }

    // An answer that was not given is none.
    void Answers(tl_code code) {
        if (code != TL_OK) is_answered_ = false;
    }

    void Add(tl_queue queue, Sending sending) {
        std::unique_lock<std::mutex> lock(mutex_);
        sends_.push_back(std::move(sending));
        Pump(queue, lock);
    }

    void Pump(tl_queue queue, std::unique_lock<std::mutex> &lock) {
        while (!sends_.empty() && !is_sending_) {
            Sending next = std::move(sends_.front());
            sends_.pop_front();
            bool may_answer = next.kind == kEnd && !is_answered_;
            uint64_t tag = TagOf(queue, [self = shared_from_this(), queue, may_answer, done = next.done](tl_event &event) {
                std::unique_lock<std::mutex> lock(self->mutex_);
                self->is_sending_ = false;
                if (may_answer) self->Answers(event.code);
                self->Pump(queue, lock);
                lock.unlock();
                done(event.code == TL_OK);
            });
            is_sending_ = true;
            if (Begin(next, queue, tag) == TL_OK) return;
            Forget(tag);
            is_sending_ = false;
            lock.unlock();
            next.done(false);
            lock.lock();
        }
    }

    tl_code Begin(const Sending &next, tl_queue queue, uint64_t tag) {
        if (next.kind == kMessage) {
            return tl_call_send(call_, raw(next.message), next.options.trunkline_flags(), queue, tag, nullptr);
        }
        if (next.kind == kEnd) {
            const Slice *last = next.has_message ? &next.message : nullptr;
            return Finish(next.status, last, next.pairs, next.options, queue, tag);
        }
        MetadataHandle handle;
        Status written = WriteMetadata(next.pairs, handle);
        if (!written.ok()) {
            Fault(written);
            return TL_INVALID_ARGUMENT;
        }
        return tl_call_send_headers(call_, handle.get(), queue, tag, nullptr);
    }

    tl_call call_;
    const ServerInterceptorFactories *factories_ = nullptr;
    experimental::ServerRpcInfo::Type type_{};
    std::unique_ptr<ServerInterception> interception_;
    std::atomic<bool> is_answered_{false}, is_let_go_{false}, has_fault_{false}, was_compressed_{false};
    Status fault_;
    std::mutex mutex_, fault_mutex_;
    std::deque<Sending> sends_;
    bool is_sending_ = false;
    std::shared_ptr<void> kept_;
};

} // namespace grpc::internal

#endif
