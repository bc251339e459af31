// A call whose operations end in a queue: under the completion-queue API and under the callback API.
//
// Operations may be asked for at any time. What the library permits one of at a time (sending; receiving) is begun when
// the one before has ended, and nothing before the call was opened. How an operation ended is told to a function: on
// the thread that takes the queue's events, or, if nothing had to be waited for, on the thread that asked.
#ifndef TRUNKLINE_GRPCPP_IMPL_CLIENT_CALL_H
#define TRUNKLINE_GRPCPP_IMPL_CLIENT_CALL_H

#include <grpcpp/client_context.h>
#include <grpcpp/impl/stream_interfaces.h>

#include <deque>
#include <functional>

namespace grpc::internal {

// Where a received message goes.
struct Target {
    // Takes a message, and releases it.
    std::function<Status(tl_message)> take;
    // What it is read into.
    void *message = nullptr;

    explicit operator bool() const { return take != nullptr; }
};

template <class Response> Target Into(Response *response) {
    return {[response](tl_message message) { return Decode(message, response); }, response};
}

class ClientCall : public std::enable_shared_from_this<ClientCall> {
  public:
    using Done = std::function<void(bool)>;
    using Type = PreparedCall::Type;

    // `keeps_messages`: what is sent lives until it is told that it was.
    ClientCall(ChannelInterface *channel, const char *method, ClientContext *context, Type type, tl_queue queue,
               bool keeps_messages)
        : prepared_(channel, context, method, type), is_unary_(type == Type::UNARY), is_whole_(is_unary_),
          keeps_messages_(keeps_messages), queue_(queue) {}
    ~ClientCall() {
        if (next_.id != 0) tl_message_release(next_);
        if (call_.id == 0) return;
        // Not before the context has let go of it.
        prepared_.Opened(tl_call{});
        tl_call_release(call_);
    }

    // Encodes the only request, or the first.
    template <class Request> void Prepare(const Request &request) {
        Refuse(Encode(request, &first_));
        has_first_ = true;
        const Request *kept = keeps_messages_ ? &request : nullptr;
        sends_first_ = [this, kept](Batch &batch) {
            if (kept != nullptr) return batch.SendsMessage(*kept);
            batch.SendsBytes(first_);
        };
    }

    // Before a unary call begins: its headers are told when they come, and not with the response.
    void ReceiveInParts() { is_whole_ = false; }

    // Begins it: a unary call; or a stream, which with a request that was prepared has only that one. From here on until
    // what was asked for is told, the context is used.
    void Start(Done opened) {
        auto self = shared_from_this();
        auto sends = [this](Batch &batch) {
            prepared_.SendsHeaders(batch);
            if (!has_first_) return;
            sends_first_(batch);
            batch.SendsClose();
        };
        auto begins = [self](Batch *batch, Done done) {
            self->Begin(batch, std::move(done));
            if (batch != nullptr) self->HasBegun();
        };
        std::shared_ptr<Batch> batch = prepared_.NewBatch();
        Between(batch, sends, begins, [self, batch, opened](bool ok) {
            // Whoever is told may end the context, unless there is more to come.
            bool is_hijacked = batch != nullptr && batch->IsHijacked();
            if (opened) opened(ok);
            if (is_hijacked) self->HasBegun();
        });
    }

    template <class Request> void Send(const Request &message, WriteOptions options, Done done) {
        Slice bytes;
        Status status = Encode(message, &bytes);
        if (status.ok()) status = prepared_.Fits(bytes);
        if (!status.ok()) return RefuseMessage(status, done);
        const Request *kept = keeps_messages_ ? &message : nullptr;
        auto sends = [bytes, kept, options](Batch &batch) {
            if (kept != nullptr) batch.SendsMessage(*kept);
            if (kept == nullptr) batch.SendsBytes(bytes);
            if (options.is_last_message()) batch.SendsClose();
        };
        auto acts = [this, bytes, options](Batch *batch, Done done) {
            Slice sent = bytes;
            Status taken = batch != nullptr ? batch->Bytes(&sent) : Status::OK;
            if (taken.ok() && batch != nullptr) taken = prepared_.Fits(sent);
            if (!taken.ok()) return RefuseMessage(taken, done);
            Add({std::move(sent), options.trunkline_flags(), false, std::move(done)});
        };
        Asked(sends, acts, std::move(done));
    }

    void EndRequests(Done done) {
        Asked([](Batch &batch) { batch.SendsClose(); },
              [this](Batch *, Done done) { Add({Slice(), 0, true, std::move(done)}); }, std::move(done));
    }

    void WantHeaders(Done done) {
        auto acts = [this](Batch *, Done done) {
            Then then;
            std::unique_lock<std::mutex> lock(mutex_);
            wants_headers_ = std::move(done);
            Pump(then);
            Finish(lock, then);
        };
        Asked([this](Batch &batch) { prepared_.ReceivesHeaders(batch); }, acts, std::move(done));
    }

    // Once that was told: the call has failed before anything came of it, headers or a message.
    bool HasOnlyTrailers() const { return has_only_trailers_; }

    void WantMessage(Target target, Done done) {
        auto receives = [this, message = target.message](Batch &batch) {
            prepared_.ReceivesHeaders(batch);
            batch.ReceivesMessage(message);
        };
        auto acts = [this, take = std::move(target.take)](Batch *, Done done) {
            Then then;
            std::unique_lock<std::mutex> lock(mutex_);
            take_ = take;
            wants_message_ = std::move(done);
            Pump(then);
            Finish(lock, then);
        };
        Asked(receives, acts, std::move(done));
    }

    // The end of a call with one response, which it owes unless it fails.
    void WantOnly(Target target, Status *status, Done done) {
        auto receives = [this, message = target.message, status](Batch &batch) {
            batch.ReceivesMessage(message);
            prepared_.ReceivesStatus(batch, status);
        };
        auto acts = [this, take = std::move(target.take), status](Batch *batch, Done done) {
            Then then;
            std::unique_lock<std::mutex> lock(mutex_);
            owes_response_ = true;
            take_ = take;
            // Under the lock, and so before the end is told.
            missed_ = [batch] {
                if (batch != nullptr) batch->Received(false);
            };
            wants_message_ = [](bool) {};
            status_out_ = status;
            discards_ = true;
            wants_end_ = std::move(done);
            Pump(then);
            Finish(lock, then);
        };
        Asked(receives, acts, [status, done = std::move(done)](bool has_message) {
            if (!has_message && status->ok()) {
                *status = Status(StatusCode::UNIMPLEMENTED, "an interceptor ended the call without a response");
            }
            done(true);
        });
    }

    // `discards`: messages nobody asks for are not waited with.
    void WantEnd(Status *status, bool discards, Done done) {
        auto acts = [this, status, discards](Batch *, Done done) {
            Then then;
            std::unique_lock<std::mutex> lock(mutex_);
            status_out_ = status;
            discards_ = discards;
            wants_end_ = std::move(done);
            Pump(then);
            Finish(lock, then);
        };
        Asked([this, status](Batch &batch) { prepared_.ReceivesStatus(batch, status); }, acts, std::move(done));
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

    // Does something between the call's interceptors. What is asked for while those of the beginning have not all
    // proceeded waits for them: one may hijack the call.
    template <class Set, class Act> void Asked(Set set, Act act, Done done) {
        std::shared_ptr<Batch> batch = prepared_.NewBatch();
        if (batch == nullptr) return act(nullptr, std::move(done));
        auto self = shared_from_this();
        auto held = [self, act = std::move(act)](Batch *through, Done done) { act(through, std::move(done)); };
        std::unique_lock<std::mutex> lock(mutex_);
        if (!has_begun_) return waiting_.push_back([=] { Between(batch, set, held, done); });
        lock.unlock();
        Between(batch, set, held, std::move(done));
    }

    void HasBegun() {
        std::unique_lock<std::mutex> lock(mutex_);
        while (!waiting_.empty()) {
            std::function<void()> next = std::move(waiting_.front());
            waiting_.pop_front();
            lock.unlock();
            next();
            lock.lock();
        }
        has_begun_ = true;
    }

    // It is not made, for the first reason there is.
    void Refuse(const Status &status) {
        if (refused_.ok()) refused_ = status;
    }

    // A message cannot be sent: that ends the call, for its server must not take the others for all.
    void RefuseMessage(const Status &status, const Done &done) {
        Then then;
        std::unique_lock<std::mutex> lock(mutex_);
        Refuse(status);
        // Before it was started nothing is told: it ends when it is.
        if (is_started_ && !is_ended_) {
            if (call_.id != 0) tl_call_cancel(call_, nullptr);
            End(status, then);
        }
        sends_.push_back({Slice(), 0, false, done});
        Pump(then);
        Finish(lock, then);
    }

    void Begin(Batch *batch, Done opened) {
        if (batch != nullptr && has_first_) Refuse(batch->Bytes(&first_));
        if (has_first_) Refuse(prepared_.Fits(first_));
        prepared_.Seal();
        if (!is_whole_) {
            opened_ = std::move(opened);
            return Begin([this](uint64_t tag, tl_status *failed) {
                return tl_call_open(prepared_.channel(), prepared_.method(), raw(first_),
                                    has_first_ ? TL_LAST : TL_NO_MESSAGE, prepared_.options(), queue_, tag, &call_,
                                    failed);
            });
        }
        Begin([this](uint64_t tag, tl_status *failed) {
            return tl_unary_start(prepared_.channel(), prepared_.method(), raw(first_), prepared_.options(), queue_,
                                  tag, &call_, failed);
        });
        // How it ends is told otherwise.
        opened(true);
    }

    template <class Begins> void Begin(Begins begin) {
        Then then;
        std::unique_lock<std::mutex> lock(mutex_);
        is_started_ = true;
        Refuse(prepared_.status());
        if (refused_.ok()) {
            uint64_t tag = TagOf(queue_, [self = shared_from_this()](tl_event &event) { self->Opened(event); });
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

    void Add(Sending sending) {
        Then then;
        std::unique_lock<std::mutex> lock(mutex_);
        sends_.push_back(std::move(sending));
        Pump(then);
        Finish(lock, then);
    }

    // The call was opened, or has ended at once; of a unary one, with all that comes of it.
    void Opened(tl_event &event) {
        Then then;
        std::unique_lock<std::mutex> lock(mutex_);
        if (event.kind == TL_EVENT_REPLY || event.kind == TL_EVENT_END) {
            has_only_trailers_ = event.code != TL_OK && event.headers.id == 0;
            prepared_.Headers(event);
            prepared_.Came(event);
            has_headers_ = true;
            next_ = std::exchange(event.message, tl_message{});
            End(prepared_.End(event), then);
        } else if (event.code != TL_OK) {
            // Once another end was told, the context may be gone.
            if (!is_ended_) End(prepared_.End(event), then);
        } else {
            is_open_ = true;
            if (opened_) then.emplace_back(std::exchange(opened_, nullptr), true);
        }
        Pump(then);
        Finish(lock, then);
    }

    void End(Status status, Then &then) {
        // The first counts: an event of what was under way may come behind it.
        if (!std::exchange(is_ended_, true)) status_ = std::move(status);
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
        uint64_t tag = TagOf(queue_, [self = shared_from_this(), done = next.done](tl_event &event) {
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
        if (wants_end_ && discards_ && !wants_message_ && next_.id != 0 && !is_whole_) {
            tl_message_release(std::exchange(next_, tl_message{}));
        }
        if (wants_end_ && is_ended_) {
            *status_out_ = status_;
            then.emplace_back(std::exchange(wants_end_, nullptr), true);
        }
        // Nothing is received while a message waits to be read, and the end is wanted all the same.
        if (wants_end_ && is_open_ && !is_watched_ && next_.id != 0) WatchForEnd();
        bool is_wanted = wants_headers_ || wants_message_ || wants_end_;
        if (is_wanted && is_open_ && !is_ended_ && !is_receiving_ && next_.id == 0) BeginReceive(then);
    }

    void GiveMessage(Then &then) {
        bool is_given = next_.id != 0 && (!is_whole_ || status_.ok());
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
            status_ = Status(StatusCode::UNIMPLEMENTED, "the server ended the call without a response");
        }
        take_ = nullptr;
        if (auto missed = std::exchange(missed_, nullptr); missed && !is_given) missed();
        then.emplace_back(std::exchange(wants_message_, nullptr), is_given);
    }

    void BeginReceive(Then &then) {
        uint64_t tag = TagOf(queue_, [self = shared_from_this()](tl_event &event) { self->Received(event); });
        is_receiving_ = true;
        tl_status failed{};
        if (tl_call_receive(call_, queue_, tag, nullptr, &failed) == TL_OK) return;
        Forget(tag);
        is_receiving_ = false;
        End(TakeStatus(failed), then);
        PumpReceive(then);
    }

    // Tells of an end that is no answer of a handler's: cancelled, too late (servers of gRPC say so themselves), or cut
    // off. What was not read until then is let go, as gRPC does.
    void WatchForEnd() {
        uint64_t tag = TagOf(queue_, [self = shared_from_this()](tl_event &event) {
            bool is_cut_short = event.code == TL_CANCELLED || event.code == TL_DEADLINE_EXCEEDED ||
                                (event.code != TL_OK && tl_status_execution(event.status) != TL_EXECUTED);
            if (!is_cut_short) return;
            Then then;
            std::unique_lock<std::mutex> lock(self->mutex_);
            self->discards_ = true;
            self->Pump(then);
            Finish(lock, then);
        });
        is_watched_ = true;
        if (tl_call_watch(call_, queue_, tag, nullptr) != TL_OK) Forget(tag);
    }

    void Received(tl_event &event) {
        Then then;
        std::unique_lock<std::mutex> lock(mutex_);
        is_receiving_ = false;
        // Once its end was told, the context may be gone.
        if (is_ended_) return;
        if (!has_headers_) has_only_trailers_ = event.kind == TL_EVENT_END && event.code != TL_OK;
        has_headers_ = true;
        if (event.kind == TL_EVENT_HEADERS) prepared_.Headers(event);
        prepared_.Came(event);
        if (event.kind == TL_EVENT_MESSAGE && is_unary_ && std::exchange(has_response_, true)) {
            tl_call_cancel(call_, nullptr);
            Status status(StatusCode::UNIMPLEMENTED, "the server sent more than one response");
            End(prepared_.End(std::move(status)), then);
        } else if (event.kind == TL_EVENT_MESSAGE) {
            next_ = std::exchange(event.message, tl_message{});
        }
        if (event.kind == TL_EVENT_END) End(prepared_.End(event), then);
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
    const bool is_unary_;
    // A unary call of which all comes in one event.
    bool is_whole_;
    const bool keeps_messages_;
    tl_queue queue_;
    tl_call call_{};
    Slice first_;
    bool has_first_ = false, has_begun_ = false, is_started_ = false, is_open_ = false, is_ended_ = false;
    bool is_sending_ = false;
    bool is_receiving_ = false, is_watched_ = false, has_headers_ = false, discards_ = false, owes_response_ = false;
    bool has_only_trailers_ = false, has_response_ = false;
    std::deque<Sending> sends_;
    std::function<void(Batch &)> sends_first_;
    // Of a call with interceptors, what was asked for before it began.
    std::deque<std::function<void()>> waiting_;
    tl_message next_{};
    std::function<Status(tl_message)> take_;
    std::function<void()> missed_;
    Done opened_, wants_headers_, wants_message_, wants_end_;
    Status *status_out_ = nullptr;
    Status status_, refused_;
};

} // namespace grpc::internal

#endif
