// Delivered calls in completion queues: asking for one, and answering it when it is unary.
#ifndef TRUNKLINE_GRPCPP_IMPL_SERVER_ASYNC_H
#define TRUNKLINE_GRPCPP_IMPL_SERVER_ASYNC_H

#include <grpcpp/impl/service_type.h>

namespace grpc {
namespace internal {

// What answers a call in a queue.
class ServerAsyncStreamingInterface {
  public:
    virtual ~ServerAsyncStreamingInterface() = default;
    virtual void SendInitialMetadata(void *tag) = 0;
    // For requests: the call has come; its operations end in this queue.
    virtual void trunkline_bind(CompletionQueue *queue) = 0;
};

// Asks for a call of a method; `tag` comes in `notified` with it and, if `take` is there, its request.
class AsyncCallRequest final : public AsyncRequest {
  public:
    AsyncCallRequest(AsyncRequests *requests, ServerContext *context, ServerAsyncStreamingInterface *responder,
                     CompletionQueue *queue, CompletionQueue *notified, void *tag, ServerCall::Take take)
        : requests_(requests), context_(context), responder_(responder), queue_(queue), notified_(notified), tag_(tag),
          take_(std::move(take)) {
        notified_->trunkline_begin();
    }

    void Give(std::shared_ptr<ServerCall> call) override {
        if (!take_) return Given(std::move(call));
        auto received = [this, call](bool ok) {
            if (ok) return Given(call);
            // Its caller is told; this waits for the next.
            Status none(StatusCode::INTERNAL, "there is no request");
            call->Finish(notified_->trunkline_queue(), none, std::nullopt, {}, [](bool) {});
            requests_->Ask(this);
        };
        call->Receive(notified_->trunkline_queue(), take_, received);
    }

    void Refuse() override {
        notified_->trunkline_ready(tag_, false);
        delete this;
    }

  private:
    void Given(std::shared_ptr<ServerCall> call) {
        ServerAccess::Bind(*context_, call);
        responder_->trunkline_bind(queue_);
        void *tag;
        if (ServerAccess::DoneTag(*context_, &tag)) {
            CompletionQueue *notified = notified_;
            notified->trunkline_begin();
            call->Watch(notified->trunkline_queue(), [notified, tag] { notified->trunkline_ready(tag, true); });
        }
        notified_->trunkline_ready(tag_, true);
        delete this;
    }

    AsyncRequests *requests_;
    ServerContext *context_;
    ServerAsyncStreamingInterface *responder_;
    CompletionQueue *queue_, *notified_;
    void *tag_;
    ServerCall::Take take_;
};

// For generated code: asks for a call that comes with its request, or with `request` null without.
template <class Request>
void RequestCall(AsyncRequests &requests, ServerContext *context, Request *request,
                 ServerAsyncStreamingInterface *responder, CompletionQueue *queue, ServerCompletionQueue *notified,
                 void *tag) {
    ServerCall::Take take;
    if (request != nullptr) take = [request](tl_message message) { return Decode(message, request); };
    requests.Ask(new AsyncCallRequest(&requests, context, responder, queue, notified, tag, std::move(take)));
}

// What answers in a queue have in common.
template <class Interface> class ServerAsyncStream : public Interface {
  public:
    void SendInitialMetadata(void *tag) override {
        SentMetadata headers;
        auto done = Telling(tag);
        if (!ServerAccess::TakeHeaders(*context_, true, &headers)) return done(false);
        Call().SendHeaders(queue_->trunkline_queue(), std::move(headers), std::move(done));
    }
    void trunkline_bind(CompletionQueue *queue) override { queue_ = queue; }

  protected:
    explicit ServerAsyncStream(ServerContext *context) : context_(context) {}

    ServerCall::Done Telling(void *tag) {
        CompletionQueue *queue = queue_;
        queue->trunkline_begin();
        return [queue, tag](bool ok) { queue->trunkline_ready(tag, ok); };
    }
    template <class R> void DoRead(R *message, void *tag) {
        Call().Receive(
            queue_->trunkline_queue(), [message](tl_message received) { return Decode(received, message); },
            Telling(tag));
    }
    template <class W> void DoWrite(const W &message, void *tag) {
        Slice bytes;
        auto done = Telling(tag);
        if (!Encode(message, &bytes).ok()) return done(false);
        ServerAccess::SendHeaders(*context_, queue_->trunkline_queue());
        Call().Send(queue_->trunkline_queue(), std::move(bytes), std::move(done));
    }
    template <class W> void DoFinish(const W &last, const Status &status, void *tag) {
        Slice bytes;
        Status encoded = status.ok() ? Encode(last, &bytes) : status;
        DoFinish(encoded, encoded.ok() ? std::optional<Slice>(std::move(bytes)) : std::nullopt, tag);
    }
    void DoFinish(const Status &status, std::optional<Slice> last, void *tag) {
        tl_queue queue = queue_->trunkline_queue();
        ServerAccess::SendHeaders(*context_, queue);
        Call().Finish(queue, status, std::move(last), ServerAccess::Trailers(*context_), Telling(tag));
    }

  private:
    ServerCall &Call() { return *ServerAccess::Call(*context_); }

    ServerContext *context_;
    CompletionQueue *queue_ = nullptr;
};

} // namespace internal

template <class W>
class ServerAsyncResponseWriter final : public internal::ServerAsyncStream<internal::ServerAsyncStreamingInterface> {
  public:
    explicit ServerAsyncResponseWriter(ServerContext *context) : ServerAsyncStream(context) {}
    void Finish(const W &message, const Status &status, void *tag) { DoFinish(message, status, tag); }
    void FinishWithError(const Status &status, void *tag) { DoFinish(status, std::nullopt, tag); }
};

} // namespace grpc

#endif
