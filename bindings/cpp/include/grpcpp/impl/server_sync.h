// Handlers that block, and the streams they are given.
#ifndef TRUNKLINE_GRPCPP_IMPL_SERVER_SYNC_H
#define TRUNKLINE_GRPCPP_IMPL_SERVER_SYNC_H

#include <grpcpp/impl/service_type.h>
#include <grpcpp/impl/stream_interfaces.h>

namespace grpc {
namespace internal {

// A delivered call, to a handler that blocks.
class BlockingServed {
  public:
    explicit BlockingServed(ServerContext *context) : context_(*context), call_(*ServerAccess::Call(*context)) {}

    void SendHeaders() { ServerAccess::SendHeaders(context_, true); }
    template <class R> bool Read(R *message) {
        if (next_.id != 0) return Decode(std::exchange(next_, tl_message{}), message).ok();
        return call_.Receive([message](tl_message received) { return Decode(received, message); });
    }
    bool NextMessageSize(uint32_t *size) {
        if (next_.id == 0) {
            bool ok = call_.Receive([this](tl_message received) {
                next_ = received;
                return Status::OK;
            });
            if (!ok) return false;
        }
        *size = static_cast<uint32_t>(tl_message_bytes(next_).len);
        return true;
    }
    template <class W> bool Write(const W &message) {
        Slice bytes;
        if (!Encode(message, &bytes).ok()) return false;
        ServerAccess::SendHeaders(context_, false);
        return call_.Send(bytes);
    }
    template <class W> void Finish(const Status &status, const W *last) {
        Slice bytes;
        Status encoded = last != nullptr && status.ok() ? Encode(*last, &bytes) : status;
        ServerAccess::SendHeaders(context_, false);
        call_.Finish(encoded, last != nullptr && encoded.ok() ? &bytes : nullptr, ServerAccess::Trailers(context_));
    }
    void Finish(const Status &status) { Finish<ByteBuffer>(status, nullptr); }
    ~BlockingServed() { tl_message_release(next_); }

  private:
    ServerContextBase &context_;
    ServerCall &call_;
    tl_message next_{};
};

// What a handler throws is the call's status, as gRPC makes it.
template <class Act> Status Guarded(Act act) {
    try {
        return act();
    } catch (...) {
        return Status(StatusCode::UNKNOWN, "Unexpected error in RPC handling");
    }
}

} // namespace internal

template <class R> class ServerReader final : public ServerReaderInterface<R> {
  public:
    explicit ServerReader(internal::BlockingServed *served) : served_(served) {}
    void SendInitialMetadata() override { served_->SendHeaders(); }
    bool NextMessageSize(uint32_t *size) override { return served_->NextMessageSize(size); }
    bool Read(R *message) override { return served_->Read(message); }

  private:
    internal::BlockingServed *served_;
};

template <class W> class ServerWriter final : public ServerWriterInterface<W> {
  public:
    explicit ServerWriter(internal::BlockingServed *served) : served_(served) {}
    void SendInitialMetadata() override { served_->SendHeaders(); }
    using internal::WriterInterface<W>::Write;
    bool Write(const W &message, WriteOptions) override { return served_->Write(message); }

  private:
    internal::BlockingServed *served_;
};

template <class W, class R> class ServerReaderWriter final : public ServerReaderWriterInterface<W, R> {
  public:
    explicit ServerReaderWriter(internal::BlockingServed *served) : served_(served) {}
    void SendInitialMetadata() override { served_->SendHeaders(); }
    bool NextMessageSize(uint32_t *size) override { return served_->NextMessageSize(size); }
    bool Read(R *message) override { return served_->Read(message); }
    using internal::WriterInterface<W>::Write;
    bool Write(const W &message, WriteOptions) override { return served_->Write(message); }

  private:
    internal::BlockingServed *served_;
};

namespace internal {

template <class Request, class Response>
ServedMethod::Handler UnaryMethod(std::function<Status(ServerContext *, const Request *, Response *)> act) {
    return [act = std::move(act)](std::shared_ptr<ServerCall> call) {
        ServerContext context;
        ServerAccess::Bind(context, std::move(call));
        BlockingServed served(&context);
        Request request;
        Response response;
        if (!served.Read(&request)) return served.Finish(Status(StatusCode::INTERNAL, "there is no request"));
        Status status = Guarded([&] { return act(&context, &request, &response); });
        served.Finish(status, &response);
    };
}

template <class Request, class Response>
ServedMethod::Handler ClientStreamingMethod(std::function<Status(ServerContext *, ServerReader<Request> *, Response *)> act) {
    return [act = std::move(act)](std::shared_ptr<ServerCall> call) {
        ServerContext context;
        ServerAccess::Bind(context, std::move(call));
        BlockingServed served(&context);
        ServerReader<Request> reader(&served);
        Response response;
        Status status = Guarded([&] { return act(&context, &reader, &response); });
        served.Finish(status, &response);
    };
}

template <class Request, class Response>
ServedMethod::Handler
ServerStreamingMethod(std::function<Status(ServerContext *, const Request *, ServerWriter<Response> *)> act) {
    return [act = std::move(act)](std::shared_ptr<ServerCall> call) {
        ServerContext context;
        ServerAccess::Bind(context, std::move(call));
        BlockingServed served(&context);
        ServerWriter<Response> writer(&served);
        Request request;
        if (!served.Read(&request)) return served.Finish(Status(StatusCode::INTERNAL, "there is no request"));
        served.Finish(Guarded([&] { return act(&context, &request, &writer); }));
    };
}

template <class Request, class Response>
ServedMethod::Handler
BidiStreamingMethod(std::function<Status(ServerContext *, ServerReaderWriter<Response, Request> *)> act) {
    return [act = std::move(act)](std::shared_ptr<ServerCall> call) {
        ServerContext context;
        ServerAccess::Bind(context, std::move(call));
        BlockingServed served(&context);
        ServerReaderWriter<Response, Request> stream(&served);
        served.Finish(Guarded([&] { return act(&context, &stream); }));
    };
}

} // namespace internal
} // namespace grpc

#endif
