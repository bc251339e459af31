// Calls of clients on the thread that makes them: it waits as the library does, at its ring and then asleep.
#ifndef TRUNKLINE_GRPCPP_IMPL_CLIENT_SYNC_H
#define TRUNKLINE_GRPCPP_IMPL_CLIENT_SYNC_H

#include <grpcpp/client_context.h>
#include <grpcpp/impl/stream_interfaces.h>

#include <functional>

namespace grpc {
namespace internal {

template <class Request, class Response>
Status BlockingUnaryCall(const ChannelInterface *channel, const char *method, ClientContext *context,
                         const Request &request, Response *response) {
    PreparedCall prepared(channel, context, method);
    Slice bytes;
    Status status = prepared.status();
    if (status.ok()) status = Encode(request, &bytes);
    if (status.ok()) status = prepared.Fits(bytes);
    if (!status.ok()) return status;
    prepared.MakeCancellable();
    tl_event event{};
    tl_status failed{};
    tl_code code = tl_unary_event(prepared.channel(), prepared.method(), raw(bytes), prepared.options(), &event, &failed);
    // The same is in the event, unless the call was not made.
    Status reason = TakeStatus(failed);
    prepared.Headers(event);
    status = event.kind == TL_EVENT_REPLY ? prepared.End(event) : reason;
    if (code == TL_OK && event.message.id != 0) {
        status = prepared.Fits(event.message);
        if (status.ok()) status = Decode(std::exchange(event.message, tl_message{}), response);
    }
    tl_event_clear(&event);
    return status;
}

// A call to send and receive along.
class BlockingStream {
  public:
    BlockingStream(const ChannelInterface *channel, const char *method, ClientContext *context)
        : prepared_(channel, context, method) {}
    BlockingStream(const BlockingStream &) = delete;
    ~BlockingStream() {
        tl_message_release(next_);
        if (call_.id == 0) return;
        // Not before the context has let go of it.
        prepared_.Opened(tl_call{});
        tl_call_release(call_);
    }

    void Open() { Open(Slice(), TL_NO_MESSAGE); }

    template <class Request> void OpenWith(const Request &only) {
        Slice bytes;
        Status status = Encode(only, &bytes);
        if (status.ok()) status = prepared_.Fits(bytes);
        if (status.ok()) return Open(bytes, TL_LAST);
        Fail(status);
    }

    template <class Request> bool Write(const Request &message, bool is_last) {
        Slice bytes;
        Status status = call_.id == 0 ? Status::CANCELLED : Encode(message, &bytes);
        if (status.ok()) status = prepared_.Fits(bytes);
        if (!status.ok()) return false;
        return tl_call_send(call_, raw(bytes), is_last ? TL_LAST : 0, tl_queue{}, 0, nullptr) == TL_OK;
    }

    bool WritesDone() { return call_.id != 0 && tl_call_end_requests(call_, nullptr) == TL_OK; }

    template <class Response> bool Read(Response *message) {
        if (!Look(true)) return false;
        tl_message received = std::exchange(next_, tl_message{});
        Status status = prepared_.Fits(received);
        if (!status.ok()) tl_message_release(received);
        if (status.ok()) status = Decode(received, message);
        if (status.ok()) return true;
        tl_call_cancel(call_, nullptr);
        Fail(status);
        return false;
    }

    bool NextMessageSize(uint32_t *size) {
        if (!Look(true)) return false;
        *size = static_cast<uint32_t>(tl_message_bytes(next_).len);
        return true;
    }

    void WaitForHeaders() { Look(false); }

    // Reads what is left.
    Status Finish() {
        while (Look(true)) tl_message_release(std::exchange(next_, tl_message{}));
        return status_;
    }

  private:
    void Open(const Slice &first, uint32_t flags) {
        Status status = prepared_.status();
        if (!status.ok()) return Fail(status);
        prepared_.MakeCancellable();
        tl_status failed{};
        tl_code code = tl_call_open(prepared_.channel(), prepared_.method(), raw(first), flags, prepared_.options(),
                                    tl_queue{}, 0, &call_, &failed);
        if (code != TL_OK) return Fail(TakeStatus(failed));
        prepared_.Opened(call_);
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
            if (event.kind == TL_EVENT_MESSAGE) next_ = std::exchange(event.message, tl_message{});
            if (event.kind == TL_EVENT_END) Fail(prepared_.End(event));
            tl_event_clear(&event);
        }
        return next_.id != 0;
    }

    void Fail(const Status &status) {
        is_ended_ = true;
        status_ = status;
    }

    PreparedCall prepared_;
    tl_call call_{};
    tl_message next_{};
    bool has_headers_ = false, is_ended_ = false;
    Status status_;
};

} // namespace internal

template <class R> class ClientReader final : public ClientReaderInterface<R> {
  public:
    template <class W>
    ClientReader(ChannelInterface *channel, const char *method, ClientContext *context, const W &request)
        : stream_(channel, method, context) {
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
        : stream_(channel, method, context), read_([this, response] { return stream_.Read(response); }) {
        stream_.Open();
    }
    void WaitForInitialMetadata() { stream_.WaitForHeaders(); }
    using internal::WriterInterface<W>::Write;
    bool Write(const W &message, WriteOptions options) override {
        return stream_.Write(message, options.is_last_message());
    }
    bool WritesDone() override { return stream_.WritesDone(); }
    Status Finish() override {
        bool has_response = read_();
        Status status = stream_.Finish();
        if (!status.ok() || has_response) return status;
        return Status(StatusCode::INTERNAL, "the server ended the call without a response");
    }

  private:
    internal::BlockingStream stream_;
    std::function<bool()> read_;
};

template <class W, class R> class ClientReaderWriter final : public ClientReaderWriterInterface<W, R> {
  public:
    ClientReaderWriter(ChannelInterface *channel, const char *method, ClientContext *context)
        : stream_(channel, method, context) {
        stream_.Open();
    }
    void WaitForInitialMetadata() override { stream_.WaitForHeaders(); }
    bool NextMessageSize(uint32_t *size) override { return stream_.NextMessageSize(size); }
    bool Read(R *message) override { return stream_.Read(message); }
    using internal::WriterInterface<W>::Write;
    bool Write(const W &message, WriteOptions options) override {
        return stream_.Write(message, options.is_last_message());
    }
    bool WritesDone() override { return stream_.WritesDone(); }
    Status Finish() override { return stream_.Finish(); }

  private:
    internal::BlockingStream stream_;
};

} // namespace grpc

#endif
