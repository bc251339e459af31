// How interceptors come between a call and its operations.
//
// What is done with a call at once is a batch. Before it is done, the interceptors see what is sent (PRE_SEND_*), in
// the order of their factories; behind it, what came of it (POST_*), in the reverse order. The batch goes on when each
// has called `Proceed`, on whatever thread it does. Once an interceptor has hijacked a call, its batches reach no
// interceptor behind that one and not the library.
#ifndef TRUNKLINE_GRPCPP_IMPL_INTERCEPTION_H
#define TRUNKLINE_GRPCPP_IMPL_INTERCEPTION_H

#include <grpcpp/impl/library.h>
#include <grpcpp/support/interceptor.h>

#include <atomic>
#include <condition_variable>
#include <cstdlib>
#include <functional>
#include <vector>

namespace grpc::internal {

// The interceptors of a call.
struct Interceptors {
    static constexpr size_t kNobody = size_t(-1);

    bool IsHijacked() const { return hijacker != kNobody; }
    // How many see a batch.
    size_t seeing() const { return IsHijacked() ? hijacker + 1 : list.size(); }

    std::vector<std::unique_ptr<experimental::Interceptor>> list;
    size_t hijacker = kNobody;
    // At a client: the channel with the factories behind that of one of them.
    std::function<std::unique_ptr<ChannelInterface>(size_t)> channel_behind;
};

class Batch final : public experimental::InterceptorBatchMethods, public std::enable_shared_from_this<Batch> {
  public:
    using Hook = experimental::InterceptionHookPoints;
    using Then = std::function<void()>;

    explicit Batch(Interceptors *of) : of_(of) {}

    // ---- What is done.

    void SendsHeaders(SentMetadata *headers) {
        Adds(before_, Hook::PRE_SEND_INITIAL_METADATA);
        headers_ = headers;
    }
    // The message lives until it is encoded; where it does not, `SendsBytes`.
    template <class Message> void SendsMessage(const Message &message) {
        Sends();
        message_ = &message;
        encode_ = [](const void *from, Slice *out) { return Encode(*static_cast<const Message *>(from), out); };
    }
    void SendsBytes(Slice bytes) {
        Sends();
        bytes_ = ByteBuffer(std::move(bytes));
    }
    void SendsClose() { Adds(before_, Hook::PRE_SEND_CLOSE); }
    void SendsStatus(Status *status, SentMetadata *trailers) {
        Adds(before_, Hook::PRE_SEND_STATUS);
        sent_status_ = status;
        trailers_ = trailers;
    }
    void ReceivesHeaders(std::multimap<string_ref, string_ref> *headers) {
        Adds(hijacked_, Hook::PRE_RECV_INITIAL_METADATA);
        Adds(after_, Hook::POST_RECV_INITIAL_METADATA);
        received_headers_ = headers;
    }
    void ReceivesMessage(void *message) {
        Adds(hijacked_, Hook::PRE_RECV_MESSAGE);
        Adds(after_, Hook::POST_RECV_MESSAGE);
        received_ = message;
        receives_ = true;
    }
    void ReceivesStatus(Status *status, std::multimap<string_ref, string_ref> *trailers) {
        Adds(hijacked_, Hook::PRE_RECV_STATUS);
        Adds(after_, Hook::POST_RECV_STATUS);
        received_status_ = status;
        received_trailers_ = trailers;
    }
    void SendsCancel() { Adds(before_, Hook::PRE_SEND_CANCEL); }
    void ReceivesClose() { Adds(after_, Hook::POST_RECV_CLOSE); }

    // ---- Its way.

    // Runs what comes before; then `then`. The batch is a shared pointer's.
    void Before(Then then) { Run(before_, false, std::move(then)); }
    void After(Then then) { Run(after_, true, std::move(then)); }
    // The same, on a thread that waits.
    void Before() { Wait(&Batch::Before); }
    void After() { Wait(&Batch::After); }
    // It reaches no library.
    bool IsHijacked() const { return of_->IsHijacked(); }

    // The message to be sent, as the interceptors have left it.
    Status Bytes(Slice *out) {
        if (bytes_.Valid()) {
            *out = bytes_.Single();
            return Status::OK;
        }
        return encode_(message_, out);
    }
    // What came of it at the library; at a hijacker, what it says itself.
    void Done(bool ok) {
        is_sent_ = ok;
        Received(ok);
    }
    void Received(bool ok) {
        if (!ok) received_ = nullptr;
    }
    bool is_done() const { return is_sent_ && (received_ != nullptr || !receives_); }

    // ---- For interceptors.

    bool QueryInterceptionHookPoint(Hook type) override { return now_ >> static_cast<unsigned>(type) & 1; }
    // Whoever comes second, the interceptor's return or this, goes on: what follows may end the interceptor.
    void Proceed() override {
        if (has_passed_.exchange(true)) Go();
    }
    void Hijack() override {
        bool may = of_->channel_behind != nullptr && !of_->IsHijacked() && !is_reverse_ &&
                   QueryInterceptionHookPoint(Hook::PRE_SEND_INITIAL_METADATA);
        if (!may) {
            std::fprintf(stderr, "trunkline: Hijack is for clients' PRE_SEND_INITIAL_METADATA, once in a call\n");
            std::abort();
        }
        of_->hijacker = at_;
        Proceed();
    }

    ByteBuffer *GetSerializedSendMessage() override {
        if (!bytes_.Valid() && message_ != nullptr) {
            Slice encoded;
            if (encode_(message_, &encoded).ok()) bytes_ = ByteBuffer(std::move(encoded));
            message_ = nullptr;
        }
        return &bytes_;
    }
    const void *GetSendMessage() override { return message_; }
    void ModifySendMessage(const void *message) override {
        message_ = message;
        bytes_.Clear();
    }
    bool GetSendMessageStatus() override { return is_sent_; }
    SentMetadata *GetSendInitialMetadata() override { return headers_; }
    Status GetSendStatus() override { return sent_status_ != nullptr ? *sent_status_ : Status::OK; }
    void ModifySendStatus(const Status &status) override {
        if (sent_status_ != nullptr) *sent_status_ = status;
    }
    SentMetadata *GetSendTrailingMetadata() override { return trailers_; }
    void *GetRecvMessage() override { return received_; }
    std::multimap<string_ref, string_ref> *GetRecvInitialMetadata() override { return received_headers_; }
    Status *GetRecvStatus() override { return received_status_; }
    std::multimap<string_ref, string_ref> *GetRecvTrailingMetadata() override { return received_trailers_; }
    std::unique_ptr<ChannelInterface> GetInterceptedChannel() override;
    void FailHijackedRecvMessage() override { received_ = nullptr; }
    void FailHijackedSendMessage() override { is_sent_ = false; }

  private:
    static void Adds(uint32_t &hooks, Hook hook) { hooks |= uint32_t(1) << static_cast<unsigned>(hook); }
    void Sends() {
        Adds(before_, Hook::PRE_SEND_MESSAGE);
        Adds(after_, Hook::POST_SEND_MESSAGE);
    }

    void Run(uint32_t hooks, bool is_reverse, Then then) {
        is_reverse_ = is_reverse;
        bool gives = !is_reverse && of_->IsHijacked() && hijacked_ != 0;
        if (of_->list.empty() || (hooks == 0 && !gives)) return then();
        then_ = std::move(then);
        // Who only receives asks the hijacker alone.
        now_ = hooks != 0 ? hooks : hijacked_;
        at_ = is_reverse ? of_->seeing() - 1 : hooks != 0 ? 0 : of_->hijacker;
        is_first_ = true;
        Go();
    }

    // Calls one after the other, until one has not proceeded when it returns; behind the last, what follows.
    void Go() {
        auto kept = shared_from_this();
        while (Next()) {
            has_passed_ = false;
            of_->list[at_]->Intercept(this);
            if (!has_passed_.exchange(true)) return;
        }
        std::exchange(then_, nullptr)();
    }

    bool Next() {
        if (std::exchange(is_first_, false)) return true;
        if (!is_reverse_ && at_ == of_->hijacker && hijacked_ != 0 && now_ != hijacked_) {
            now_ = hijacked_;
            return true;
        }
        bool is_last = is_reverse_ ? at_ == 0 : at_ + 1 >= of_->seeing();
        if (!is_last) at_ += is_reverse_ ? -1 : 1;
        return !is_last;
    }

    void Wait(void (Batch::*run)(Then)) {
        std::mutex mutex;
        std::condition_variable proceeded;
        bool is_through = false;
        (this->*run)([&] {
            std::lock_guard<std::mutex> lock(mutex);
            is_through = true;
            proceeded.notify_one();
        });
        std::unique_lock<std::mutex> lock(mutex);
        proceeded.wait(lock, [&] { return is_through; });
    }

    Interceptors *of_;
    uint32_t before_ = 0, hijacked_ = 0, after_ = 0, now_ = 0;
    size_t at_ = 0;
    bool is_first_ = false, is_reverse_ = false, is_sent_ = true, receives_ = false;
    std::atomic<bool> has_passed_{false};
    Then then_;
    SentMetadata *headers_ = nullptr, *trailers_ = nullptr;
    const void *message_ = nullptr;
    Status (*encode_)(const void *, Slice *) = nullptr;
    ByteBuffer bytes_;
    Status *sent_status_ = nullptr, *received_status_ = nullptr;
    void *received_ = nullptr;
    std::multimap<string_ref, string_ref> *received_headers_ = nullptr, *received_trailers_ = nullptr;
};

// Does something between a call's interceptors, on a thread that waits for them. `set` tells the batch what it is;
// `act` does it at the library, and gets the batch, or null where there are no interceptors. Whether it was done.
template <class Set, class Act> bool Between(std::shared_ptr<Batch> batch, Set set, Act act) {
    if (batch == nullptr) return act(nullptr);
    set(*batch);
    batch->Before();
    if (!batch->IsHijacked()) batch->Done(act(batch.get()));
    bool is_done = batch->is_done();
    batch->After();
    return is_done;
}

// The same in a queue: `act` gets what is to be told of its end, too.
template <class Set, class Act>
void Between(std::shared_ptr<Batch> batch, Set set, Act act, std::function<void(bool)> done) {
    if (batch == nullptr) return act(nullptr, std::move(done));
    set(*batch);
    batch->Before([batch, act = std::move(act), done = std::move(done)] {
        auto after = [batch, done](bool ok) {
            batch->Done(ok);
            batch->After([done, ok] {
                if (done) done(ok);
            });
        };
        if (batch->IsHijacked()) return after(batch->is_done());
        act(batch.get(), after);
    });
}

} // namespace grpc::internal

#include <grpcpp/impl/channel_interface.h>

// The channel with the interceptors behind the one that asks.
inline std::unique_ptr<grpc::ChannelInterface> grpc::internal::Batch::GetInterceptedChannel() {
    return of_->channel_behind == nullptr ? nullptr : of_->channel_behind(at_);
}

#endif
