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

    void SendHeaders() {
        Between(
            call_.NewBatch(), [this](Batch &batch) { ServerAccess::SendsHeaders(context_, batch); },
            [this](Batch *) {
                ServerAccess::SendHeaders(context_, true);
                return true;
            });
    }
    // What came with the call: of methods with one request, that.
    template <class R> bool Begin(R *request) {
        auto receives = [&](Batch &batch) {
            ServerAccess::ReceivesHeaders(context_, batch);
            batch.ReceivesMessage(request);
        };
        return Between(call_.NewBatch(), receives, [&](Batch *) { return Received(request); });
    }
    void Begin() {
        Between(
            call_.NewBatch(), [this](Batch &batch) { ServerAccess::ReceivesHeaders(context_, batch); },
            [](Batch *) { return true; });
    }
    template <class R> bool Read(R *message) {
        return Between(
            call_.NewBatch(), [&](Batch &batch) { batch.ReceivesMessage(message); },
            [&](Batch *) { return Received(message); });
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
    template <class W> bool Write(const W &message, WriteOptions options) {
        auto sends = [&](Batch &batch) {
            ServerAccess::SendsHeaders(context_, batch);
            batch.SendsMessage(message);
        };
        return Between(call_.NewBatch(), sends, [&](Batch *batch) {
            Slice bytes;
            Status status = Bytes(batch, message, &bytes);
            if (!status.ok()) return call_.Fault(status);
            ServerAccess::SendHeaders(context_, false);
            return call_.Send(bytes, options);
        });
    }
    template <class W> void Finish(Status status, const W *last) {
        bool has_last = last != nullptr && status.ok();
        auto sends = [&](Batch &batch) {
            if (has_last) batch.SendsMessage(*last);
            ServerAccess::SendsStatus(context_, batch, &status);
        };
        Between(call_.NewBatch(), sends, [&](Batch *batch) {
            Slice bytes;
            Status encoded = has_last ? Bytes(batch, *last, &bytes) : status;
            // An interceptor may have made another of it.
            if (encoded.ok()) encoded = status;
            ServerAccess::SendHeaders(context_, false);
            bool has_bytes = has_last && encoded.ok();
            return call_.Finish(encoded, has_bytes ? &bytes : nullptr, ServerAccess::Trailers(context_));
        });
        Between(
            call_.NewBatch(), [](Batch &batch) { batch.ReceivesClose(); }, [](Batch *) { return true; });
    }
    void Finish(const Status &status) { Finish<ByteBuffer>(status, nullptr); }
    ~BlockingServed() { tl_message_release(next_); }

  private:
    template <class R> bool Received(R *message) {
        auto take = [message](tl_message received) { return Decode(received, message); };
        if (next_.id != 0) return call_.Decoded(take, std::exchange(next_, tl_message{}));
        return call_.Receive(take);
    }
    template <class W> static Status Bytes(Batch *batch, const W &message, Slice *out) {
        return batch != nullptr ? batch->Bytes(out) : Encode(message, out);
    }

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
    bool Write(const W &message, WriteOptions options) override { return served_->Write(message, options); }

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
    bool Write(const W &message, WriteOptions options) override { return served_->Write(message, options); }

  private:
    internal::BlockingServed *served_;
};

namespace internal {

template <class Request, class Response>
ServedMethod::Handler UnaryMethod(std::function<Status(ServerContext *, const Request *, Response *)> act) {
    return {experimental::ServerRpcInfo::Type::UNARY, [act = std::move(act)](std::shared_ptr<ServerCall> call) {
        ServerContext context;
        ServerAccess::Bind(context, std::move(call));
        BlockingServed served(&context);
        Request request;
        Response response;
        if (!served.Begin(&request)) return served.Finish(Status(StatusCode::INTERNAL, "there is no request"));
        Status status = Guarded([&] { return act(&context, &request, &response); });
        served.Finish(status, &response);
    }};
}

template <class Request, class Response>
ServedMethod::Handler ClientStreamingMethod(std::function<Status(ServerContext *, ServerReader<Request> *, Response *)> act) {
    return {experimental::ServerRpcInfo::Type::CLIENT_STREAMING, [act = std::move(act)](std::shared_ptr<ServerCall> call) {
        ServerContext context;
        ServerAccess::Bind(context, std::move(call));
        BlockingServed served(&context);
        served.Begin();
        ServerReader<Request> reader(&served);
        Response response;
        Status status = Guarded([&] { return act(&context, &reader, &response); });
        served.Finish(status, &response);
    }};
}

template <class Request, class Response>
ServedMethod::Handler
ServerStreamingMethod(std::function<Status(ServerContext *, const Request *, ServerWriter<Response> *)> act) {
    return {experimental::ServerRpcInfo::Type::SERVER_STREAMING, [act = std::move(act)](std::shared_ptr<ServerCall> call) {
        ServerContext context;
        ServerAccess::Bind(context, std::move(call));
        BlockingServed served(&context);
        ServerWriter<Response> writer(&served);
        Request request;
        if (!served.Begin(&request)) return served.Finish(Status(StatusCode::INTERNAL, "there is no request"));
        served.Finish(Guarded([&] { return act(&context, &request, &writer); }));
    }};
}

template <class Request, class Response>
ServedMethod::Handler
BidiStreamingMethod(std::function<Status(ServerContext *, ServerReaderWriter<Response, Request> *)> act) {
    return {experimental::ServerRpcInfo::Type::BIDI_STREAMING, [act = std::move(act)](std::shared_ptr<ServerCall> call) {
        ServerContext context;
        ServerAccess::Bind(context, std::move(call));
        BlockingServed served(&context);
        served.Begin();
        ServerReaderWriter<Response, Request> stream(&served);
        served.Finish(Guarded([&] { return act(&context, &stream); }));
    }};
}

} // namespace internal
} // namespace grpc

#endif
