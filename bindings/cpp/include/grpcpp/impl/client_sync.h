// Calls of clients on the thread that makes them: it waits as the library does, at its ring and then asleep.
#ifndef TRUNKLINE_GRPCPP_IMPL_CLIENT_SYNC_H
#define TRUNKLINE_GRPCPP_IMPL_CLIENT_SYNC_H

#include <grpcpp/client_context.h>
#include <grpcpp/impl/stream_interfaces.h>

#include <functional>
#include <mutex>

namespace grpc {
namespace internal {

// Makes a unary call of which all is known. `encode` gives the request.
template <class Encode, class Response>
Status AnsweredUnary(PreparedCall &prepared, Encode encode, Response *response) {
    prepared.Seal();
    Slice bytes;
    Status status = prepared.status();
    if (status.ok()) status = encode(&bytes);
    if (status.ok()) status = prepared.Fits(bytes);
    if (!status.ok()) return status;
    prepared.MakeCancellable();
    tl_event event{};
    tl_status failed{};
    tl_code code = tl_unary_event(prepared.channel(), prepared.method(), raw(bytes), prepared.options(), &event, &failed);
    // The same is in the event, unless the call was not made.
    Status reason = TakeStatus(failed);
    prepared.Headers(event);
    prepared.Came(event);
    status = event.kind == TL_EVENT_REPLY ? prepared.End(event) : reason;
    if (code == TL_OK && event.message.id != 0) {
        status = prepared.Fits(event.message);
        if (status.ok()) status = Decode(std::exchange(event.message, tl_message{}), response);
    }
    tl_event_clear(&event);
    return status;
}

template <class Request, class Response>
Status BlockingUnaryCall(ChannelInterface *channel, const char *method, ClientContext *context, const Request &request,
                         Response *response) {
    PreparedCall prepared(channel, context, method, PreparedCall::Type::UNARY);
    std::shared_ptr<Batch> batch = prepared.NewBatch();
    if (batch == nullptr) {
        return AnsweredUnary(prepared, [&](Slice *out) { return Encode(request, out); }, response);
    }
    Status status;
    prepared.SendsHeaders(*batch);
    batch->SendsMessage(request);
    batch->SendsClose();
    batch->ReceivesMessage(response);
    prepared.ReceivesStatus(*batch, &status);
    batch->Before();
    if (!batch->IsHijacked()) {
        status = AnsweredUnary(prepared, [&](Slice *out) { return batch->Bytes(out); }, response);
        batch->Received(status.ok());
    } else if (status.ok() && !batch->is_done()) {
        status = Status(StatusCode::UNIMPLEMENTED, "an interceptor ended the call without a response");
    }
    batch->After();
    return status;
}

// A call to send and receive along.
class BlockingStream {
  public:
    BlockingStream(ChannelInterface *channel, const char *method, ClientContext *context, PreparedCall::Type type)
        : prepared_(channel, context, method, type) {}
    BlockingStream(const BlockingStream &) = delete;
    ~BlockingStream() {
        tl_message_release(next_);
        if (call_.id == 0) return;
        // Not before the context has let go of it.
        prepared_.Opened(tl_call{});
        tl_call_release(call_);
    }

    void Open() {
        Between(prepared_.NewBatch(), [this](Batch &batch) { prepared_.SendsHeaders(batch); },
                [this](Batch *) { return Open(Slice(), TL_NO_MESSAGE); });
    }

    template <class Request> void OpenWith(const Request &only) {
        auto sends = [&](Batch &batch) {
            prepared_.SendsHeaders(batch);
            batch.SendsMessage(only);
            batch.SendsClose();
        };
        Between(prepared_.NewBatch(), sends, [&](Batch *batch) {
            Slice bytes;
            Status status = Bytes(batch, only, &bytes);
            if (status.ok()) return Open(bytes, TL_LAST);
            return Fail(status);
        });
    }

    template <class Request> bool Write(const Request &message, WriteOptions options) {
        auto sends = [&](Batch &batch) {
            batch.SendsMessage(message);
            if (options.is_last_message()) batch.SendsClose();
        };
        return Between(prepared_.NewBatch(), sends, [&](Batch *batch) {
            Slice bytes;
            if (call_.id == 0) return false;
            Status status = Bytes(batch, message, &bytes);
            if (!status.ok()) return Refuse(status);
            return tl_call_send(call_, raw(bytes), options.trunkline_flags(), tl_queue{}, 0, nullptr) == TL_OK;
        });
    }

    bool WritesDone() {
        return Between(prepared_.NewBatch(), [](Batch &batch) { batch.SendsClose(); },
                       [this](Batch *) { return call_.id != 0 && tl_call_end_requests(call_, nullptr) == TL_OK; });
    }

    template <class Response> bool Read(Response *message) {
        auto receives = [&](Batch &batch) {
            prepared_.ReceivesHeaders(batch);
            batch.ReceivesMessage(message);
        };
        return Between(prepared_.NewBatch(), receives, [&](Batch *) { return Received(message); });
    }

    bool NextMessageSize(uint32_t *size) {
        if (call_.id == 0 || !Look(true)) return false;
        *size = static_cast<uint32_t>(tl_message_bytes(next_).len);
        return true;
    }

    void WaitForHeaders() {
        Between(prepared_.NewBatch(), [this](Batch &batch) { prepared_.ReceivesHeaders(batch); },
                [this](Batch *) { return Look(false) || has_headers_; });
    }

    // Reads what is left.
    Status Finish() {
        return Finish([] { return true; }, [](Batch &) {});
    }

    // The same of a call with one response.
    template <class Response> Status FinishWith(Response *response) {
        return Finish([this, response] { return Received(response); },
                      [response](Batch &batch) { batch.ReceivesMessage(response); });
    }

  private:
    // A message to be sent.
    template <class Request> Status Bytes(Batch *batch, const Request &message, Slice *out) const {
        Status status = batch != nullptr ? batch->Bytes(out) : Encode(message, out);
        return status.ok() ? prepared_.Fits(*out) : status;
    }

    template <class Response> bool Received(Response *message) {
        if (!Look(true)) return false;
        tl_message received = std::exchange(next_, tl_message{});
        Status status = prepared_.Fits(received);
        if (!status.ok()) tl_message_release(received);
        if (status.ok()) status = Decode(received, message);
        if (status.ok()) return true;
        tl_call_cancel(call_, nullptr);
        return Fail(status);
    }

    template <class Last, class Set> Status Finish(Last last, Set set) {
        auto receives = [&](Batch &batch) {
            set(batch);
            prepared_.ReceivesStatus(batch, &status_);
        };
        auto ends = [&](Batch *) {
            bool has_last = last();
            while (Look(true)) tl_message_release(std::exchange(next_, tl_message{}));
            if (has_last || !status_.ok()) return has_last;
            return Fail(Status(StatusCode::UNIMPLEMENTED, "the server ended the call without a response"));
        };
        bool is_done = Between(prepared_.NewBatch(), receives, ends);
        if (is_done || !status_.ok()) return status_;
        return Status(StatusCode::UNIMPLEMENTED, "an interceptor ended the call without a response");
    }

    bool Open(const Slice &first, uint32_t flags) {
        prepared_.Seal();
        Status status = prepared_.status();
        if (!status.ok()) return Fail(status);
        prepared_.MakeCancellable();
        tl_status failed{};
        tl_code code = tl_call_open(prepared_.channel(), prepared_.method(), raw(first), flags, prepared_.options(),
                                    tl_queue{}, 0, &call_, &failed);
        if (code != TL_OK) return Fail(TakeStatus(failed));
        prepared_.Opened(call_);
        return true;
    }

    // Whether a message is there; without `wants_message`, whether headers or more are.
    bool Look(bool wants_message) {
        while (!is_ended_ && next_.id == 0 && (wants_message || !has_headers_)) {
            tl_event event{};
            tl_status failed{};
            if (tl_call_receive(call_, tl_queue{}, 0, &event, &failed) != TL_OK) {
                Fail(TakeStatus(failed));
                return false;
            }
            has_headers_ = true;
            if (event.kind == TL_EVENT_HEADERS) prepared_.Headers(event);
            prepared_.Came(event);
            if (event.kind == TL_EVENT_MESSAGE) next_ = std::exchange(event.message, tl_message{});
            if (event.kind == TL_EVENT_END) Fail(prepared_.End(event));
            tl_event_clear(&event);
        }
        return next_.id != 0;
    }

    // The call has ended. Never true.
    bool Fail(const Status &status) {
        std::lock_guard<std::mutex> lock(mutex_);
        is_ended_ = true;
        status_ = refused_.ok() ? status : refused_;
        return false;
    }

    // A message cannot be sent: that ends the call, for its server must not take the others for all. Never true. Another
    // thread may be reading, and finds the end.
    bool Refuse(const Status &status) {
        {
            std::lock_guard<std::mutex> lock(mutex_);
            if (refused_.ok()) refused_ = status;
        }
        tl_call_cancel(call_, nullptr);
        return false;
    }

    PreparedCall prepared_;
    tl_call call_{};
    tl_message next_{};
    bool has_headers_ = false, is_ended_ = false;
    std::mutex mutex_;
    Status status_, refused_;
};

} // namespace internal

template <class R> class ClientReader final : public ClientReaderInterface<R> {
  public:
    template <class W>
    ClientReader(ChannelInterface *channel, const char *method, ClientContext *context, const W &request)
        : stream_(channel, method, context, internal::PreparedCall::Type::SERVER_STREAMING) {
        stream_.OpenWith(request);
    }
    void WaitForInitialMetadata() override { stream_.WaitForHeaders(); }
    bool NextMessageSize(uint32_t *size) override { return stream_.NextMessageSize(size); }
    bool Read(R *message) override { return stream_.Read(message); }
    Status Finish() override { return stream_.Finish(); }

  private:
    internal::BlockingStream stream_;
};

template <class W> class ClientWriter final : public ClientWriterInterface<W> {
  public:
    template <class R>
    ClientWriter(ChannelInterface *channel, const char *method, ClientContext *context, R *response)
        : stream_(channel, method, context, internal::PreparedCall::Type::CLIENT_STREAMING),
          finish_([this, response] { return stream_.FinishWith(response); }) {
        stream_.Open();
    }
    void WaitForInitialMetadata() { stream_.WaitForHeaders(); }
    using internal::WriterInterface<W>::Write;
    bool Write(const W &message, WriteOptions options) override {
        return stream_.Write(message, options);
    }
    bool WritesDone() override { return stream_.WritesDone(); }
    Status Finish() override { return finish_(); }

  private:
    internal::BlockingStream stream_;
    std::function<Status()> finish_;
};

template <class W, class R> class ClientReaderWriter final : public ClientReaderWriterInterface<W, R> {
  public:
    ClientReaderWriter(ChannelInterface *channel, const char *method, ClientContext *context)
        : stream_(channel, method, context, internal::PreparedCall::Type::BIDI_STREAMING) {
        stream_.Open();
    }
    void WaitForInitialMetadata() override { stream_.WaitForHeaders(); }
    bool NextMessageSize(uint32_t *size) override { return stream_.NextMessageSize(size); }
    bool Read(R *message) override { return stream_.Read(message); }
    using internal::WriterInterface<W>::Write;
    bool Write(const W &message, WriteOptions options) override {
        return stream_.Write(message, options);
    }
    bool WritesDone() override { return stream_.WritesDone(); }
    Status Finish() override { return stream_.Finish(); }

  private:
    internal::BlockingStream stream_;
};

} // namespace grpc

#endif
