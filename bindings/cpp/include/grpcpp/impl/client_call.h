// A call whose operations end in a queue: under the completion-queue API and under the callback API.
//
// Operations may be asked for at any time. What the library permits one of at a time (sending; receiving) is begun when
// the one before has ended, and nothing before the call was opened. How an operation ended is told to a function: on
// the thread that takes the queue's events, or, if nothing had to be waited for, on the thread that asked.
#ifndef TRUNKLINE_GRPCPP_IMPL_CLIENT_CALL_H
#define TRUNKLINE_GRPCPP_IMPL_CLIENT_CALL_H

#include <grpcpp/client_context.h>

#include <deque>
#include <functional>

namespace grpc::internal {

class ClientCall : public std::enable_shared_from_this<ClientCall> {
  public:
    using Done = std::function<void(bool)>;
    // Takes a message, and releases it.
    using Take = std::function<Status(tl_message)>;

    ClientCall(ChannelInterface *channel, const char *method, ClientContext *context, tl_queue queue)
        : prepared_(channel, context, method), queue_(queue) {}
    ~ClientCall() {
        if (next_.id != 0) tl_message_release(next_);
        tl_call_release(call_);
    }

    // Encodes the only request, or the first.
    template <class Request> void Prepare(const Request &request) {
        Status status = Encode(request, &first_);
        if (status.ok()) status = prepared_.Fits(first_);
        if (!status.ok() && refused_.ok()) refused_ = status;
        has_first_ = true;
    }

    // One request, one response.
    void StartUnary() {
        is_unary_ = true;
        Start([this](uint64_t tag, tl_status *failed) {
            return tl_unary_start(prepared_.channel(), prepared_.method(), raw(first_), prepared_.options(), queue_,
                                  tag, &call_, failed);
        });
    }

    // A stream; with a request that was prepared, that is the only one.
    void StartStream(Done opened) {
        opened_ = std::move(opened);
        Start([this](uint64_t tag, tl_status *failed) {
            return tl_call_open(prepared_.channel(), prepared_.method(), raw(first_),
                                has_first_ ? TL_LAST : TL_NO_MESSAGE, prepared_.options(), queue_, tag, &call_, failed);
        });
    }

    template <class Request> void Send(const Request &message, bool is_last, Done done) {
        Slice bytes;
        Status status = Encode(message, &bytes);
        if (status.ok()) status = prepared_.Fits(bytes);
        Then then;
        std::unique_lock<std::mutex> lock(mutex_);
        if (status.ok()) {
            sends_.push_back({std::move(bytes), is_last ? uint32_t(TL_LAST) : 0, false, std::move(done)});
            Pump(then);
        } else {
            then.emplace_back(std::move(done), false);
        }
        Finish(lock, then);
    }

    void EndRequests(Done done) {
        Then then;
        std::unique_lock<std::mutex> lock(mutex_);
        sends_.push_back({Slice(), 0, true, std::move(done)});
        Pump(then);
        Finish(lock, then);
    }

    void WantHeaders(Done done) {
        Then then;
        std::unique_lock<std::mutex> lock(mutex_);
        wants_headers_ = std::move(done);
        Pump(then);
        Finish(lock, then);
    }

    void WantMessage(Take take, Done done) {
        Then then;
        std::unique_lock<std::mutex> lock(mutex_);
        take_ = std::move(take);
        wants_message_ = std::move(done);
        Pump(then);
        Finish(lock, then);
    }

    // `take_only`: the call has one response, and without it has failed.
    void WantOnly(Take take_only, Done done) {
        owes_response_ = true;
        WantMessage(std::move(take_only), std::move(done));
    }

    // `discards`: messages nobody asks for are not waited with.
    void WantEnd(Status *status, bool discards, Done done) {
        Then then;
        std::unique_lock<std::mutex> lock(mutex_);
        status_out_ = status;
        discards_ = discards;
        wants_end_ = std::move(done);
        Pump(then);
        Finish(lock, then);
    }

  private:
    struct Sending {
        Slice message;
        uint32_t flags;
        bool is_end;
        Done done;
    };
    // What is told once nothing is locked.
    using Then = std::vector<std::pair<Done, bool>>;

    template <class Begin> void Start(Begin begin) {
        Then then;
        std::unique_lock<std::mutex> lock(mutex_);
        if (refused_.ok()) refused_ = prepared_.status();
        if (refused_.ok()) {
            uint64_t tag = TagOf([self = shared_from_this()](tl_event &event) { self->Opened(event); });
            tl_status failed{};
            // Its event may be taken by another thread before this returns; it waits for the lock.
            if (begin(tag, &failed) != TL_OK) {
                Forget(tag);
                refused_ = TakeStatus(failed);
            } else {
                prepared_.Opened(call_);
            }
        }
        if (!refused_.ok()) End(refused_, then);
        Pump(then);
        Finish(lock, then);
    }

    // The call was opened, or has ended at once; of a unary one, with all that comes of it.
    void Opened(tl_event &event) {
        Then then;
        std::unique_lock<std::mutex> lock(mutex_);
        if (event.kind == TL_EVENT_REPLY || event.kind == TL_EVENT_END) {
            prepared_.Headers(event);
            has_headers_ = true;
            next_ = std::exchange(event.message, tl_message{});
            End(prepared_.End(event), then);
        } else if (event.code != TL_OK) {
            End(TakeStatus(std::exchange(event.status, tl_status{})), then);
        } else {
            is_open_ = true;
            if (opened_) then.emplace_back(std::exchange(opened_, nullptr), true);
        }
        Pump(then);
        Finish(lock, then);
    }

    void End(Status status, Then &then) {
        is_ended_ = true;
        status_ = std::move(status);
        if (opened_) then.emplace_back(std::exchange(opened_, nullptr), false);
    }

    // Begins what can begin, and ends what can end.
    void Pump(Then &then) {
        PumpSends(then);
        PumpReceive(then);
    }

    void PumpSends(Then &then) {
        while (!sends_.empty() && !is_sending_ && (is_open_ || is_ended_)) {
            Sending next = std::move(sends_.front());
            sends_.pop_front();
            if (is_ended_) {
                then.emplace_back(std::move(next.done), false);
            } else if (next.is_end) {
                then.emplace_back(std::move(next.done), tl_call_end_requests(call_, nullptr) == TL_OK);
            } else {
                BeginSend(next, then);
            }
        }
    }

    void BeginSend(Sending &next, Then &then) {
        uint64_t tag = TagOf([self = shared_from_this(), done = next.done](tl_event &event) {
            std::unique_lock<std::mutex> lock(self->mutex_);
            self->is_sending_ = false;
            Then then{{done, event.code == TL_OK}};
            self->Pump(then);
            Finish(lock, then);
        });
        is_sending_ = true;
        if (tl_call_send(call_, raw(next.message), next.flags, queue_, tag, nullptr) == TL_OK) return;
        Forget(tag);
        is_sending_ = false;
        then.emplace_back(std::move(next.done), false);
    }

    void PumpReceive(Then &then) {
        if (wants_headers_ && (has_headers_ || is_ended_)) {
            then.emplace_back(std::exchange(wants_headers_, nullptr), has_headers_);
        }
        if (wants_message_ && (next_.id != 0 || is_ended_)) GiveMessage(then);
        if (wants_end_ && discards_ && !wants_message_ && next_.id != 0 && !is_unary_) {
            tl_message_release(std::exchange(next_, tl_message{}));
        }
        if (wants_end_ && is_ended_) {
            *status_out_ = status_;
            then.emplace_back(std::exchange(wants_end_, nullptr), true);
        }
        bool is_wanted = wants_headers_ || wants_message_ || wants_end_;
        if (is_wanted && is_open_ && !is_ended_ && !is_receiving_ && next_.id == 0) BeginReceive(then);
    }

    void GiveMessage(Then &then) {
        bool is_given = next_.id != 0 && (!is_unary_ || status_.ok());
        if (is_given) {
            tl_message message = std::exchange(next_, tl_message{});
            Status status = prepared_.Fits(message);
            if (!status.ok()) tl_message_release(message);
            if (status.ok()) status = take_(message);
            if (!status.ok()) {
                // The end the server sends is not that of this call any more.
                if (is_open_ && !is_ended_) tl_call_cancel(call_, nullptr);
                is_ended_ = true;
                status_ = status;
                is_given = false;
            }
        }
        if (!is_given && owes_response_ && status_.ok()) {
            status_ = Status(StatusCode::INTERNAL, "the server ended the call without a response");
        }
        take_ = nullptr;
        then.emplace_back(std::exchange(wants_message_, nullptr), is_given);
    }

    void BeginReceive(Then &then) {
        uint64_t tag = TagOf([self = shared_from_this()](tl_event &event) { self->Received(event); });
        is_receiving_ = true;
        tl_status failed{};
        if (tl_call_receive(call_, queue_, tag, nullptr, &failed) == TL_OK) return;
        Forget(tag);
        is_receiving_ = false;
        End(TakeStatus(failed), then);
        PumpReceive(then);
    }

    void Received(tl_event &event) {
        Then then;
        std::unique_lock<std::mutex> lock(mutex_);
        is_receiving_ = false;
        has_headers_ = true;
        if (event.kind == TL_EVENT_HEADERS) prepared_.Headers(event);
        if (event.kind == TL_EVENT_MESSAGE) next_ = std::exchange(event.message, tl_message{});
        if (event.kind == TL_EVENT_END && !is_ended_) End(prepared_.End(event), then);
        Pump(then);
        Finish(lock, then);
    }

    static void Finish(std::unique_lock<std::mutex> &lock, Then &then) {
        lock.unlock();
        for (auto &[done, ok] : then) {
            if (done) done(ok);
        }
    }

    std::mutex mutex_;
    PreparedCall prepared_;
    tl_queue queue_;
    tl_call call_{};
    Slice first_;
    bool has_first_ = false, is_unary_ = false, is_open_ = false, is_ended_ = false, is_sending_ = false;
    bool is_receiving_ = false, has_headers_ = false, discards_ = false, owes_response_ = false;
    std::deque<Sending> sends_;
    tl_message next_{};
    Take take_;
    Done opened_, wants_headers_, wants_message_, wants_end_;
    Status *status_out_ = nullptr;
    Status status_, refused_;
};

} // namespace grpc::internal

#endif
