// Delivered calls in completion queues: asking for one, and answering it when it is unary.
#ifndef TRUNKLINE_GRPCPP_IMPL_SERVER_ASYNC_H
#define TRUNKLINE_GRPCPP_IMPL_SERVER_ASYNC_H

#include <grpcpp/impl/event_loop.h>
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
                     CompletionQueue *queue, CompletionQueue *notified, void *tag, void *request, ServerCall::Take take)
        : requests_(requests), context_(context), responder_(responder), queue_(queue), notified_(notified), tag_(tag),
          request_(request), take_(std::move(take)) {
        notified_->trunkline_begin();
    }

    void Give(std::shared_ptr<ServerCall> call) override {
        if (!take_) return Given(std::move(call));
        // Its queue may go before the request has come, and this with it.
        auto owner = std::make_shared<std::unique_ptr<AsyncCallRequest>>(this);
        auto received = [this, owner, call](bool ok) {
            owner->release();
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
        // As with gRPC the tag of its end comes where its operations end, not where the call was told.
        void *over;
        bool has_over = ServerAccess::DoneTag(*context_, &over);
        if (has_over) queue_->trunkline_begin();
        auto receives = [this](Batch &batch) {
            ServerAccess::ReceivesHeaders(*context_, batch);
            if (take_) batch.ReceivesMessage(request_);
        };
        Between(
            call->NewBatch(), receives, [](Batch *, ServerCall::Done done) { done(true); },
            [this, call, has_over, over](bool) {
                notified_->trunkline_ready(tag_, true);
                // Only now: the program and the interceptors hear of its end behind its beginning.
                if (has_over || call->NewBatch() != nullptr) Watch(call, has_over ? queue_ : nullptr, over);
                delete this;
            });
    }

    // One watch, for whoever wants to know that the call is over; `tag` comes in `queue`, if there is one.
    static void Watch(const std::shared_ptr<ServerCall> &call, CompletionQueue *queue, void *tag) {
        // Without a tag it may be over when nobody looks at the program's queue any more.
        call->Watch(queue != nullptr ? queue->trunkline_queue() : EventLoop::Get().queue(), [call, queue, tag] {
            call->Close([queue, tag] {
                if (queue != nullptr) queue->trunkline_ready(tag, true);
            });
        });
    }

    AsyncRequests *requests_;
    ServerContext *context_;
    ServerAsyncStreamingInterface *responder_;
    CompletionQueue *queue_, *notified_;
    void *tag_, *request_;
    ServerCall::Take take_;
};

// For generated code: asks for a call that comes with its request, or with `request` null without.
template <class Request>
void RequestCall(AsyncRequests &requests, ServerContext *context, Request *request,
                 ServerAsyncStreamingInterface *responder, CompletionQueue *queue, ServerCompletionQueue *notified,
                 void *tag) {
    ServerCall::Take take;
    if (request != nullptr) take = [request](tl_message message) { return Decode(message, request); };
    requests.Ask(new AsyncCallRequest(&requests, context, responder, queue, notified, tag, request, std::move(take)));
}

// What answers in a queue have in common.
template <class Interface> class ServerAsyncStream : public Interface {
  public:
    void SendInitialMetadata(void *tag) override {
        auto acts = [this](Batch *, ServerCall::Done done) {
            SentMetadata headers;
            if (!ServerAccess::TakeHeaders(*context_, true, &headers)) return done(false);
            Call().SendHeaders(queue_->trunkline_queue(), std::move(headers), std::move(done));
        };
        Between(
            Call().NewBatch(), [this](Batch &batch) { ServerAccess::SendsHeaders(*context_, batch); }, acts,
            Telling(tag));
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
        auto acts = [this, message](Batch *, ServerCall::Done done) {
            Call().Receive(
                queue_->trunkline_queue(), [message](tl_message received) { return Decode(received, message); },
                std::move(done));
        };
        Between(
            Call().NewBatch(), [message](Batch &batch) { batch.ReceivesMessage(message); }, acts, Telling(tag));
    }
    template <class W> void DoWrite(const W &message, WriteOptions options, void *tag) {
        Slice bytes;
        auto done = Telling(tag);
        Status encoded = Encode(message, &bytes);
        if (!encoded.ok()) return done(Call().Fault(encoded));
        auto sends = [this, bytes](Batch &batch) {
            ServerAccess::SendsHeaders(*context_, batch);
            batch.SendsBytes(bytes);
        };
        auto acts = [this, bytes, options](Batch *batch, ServerCall::Done done) {
            Slice sent = bytes;
            Status taken = batch != nullptr ? batch->Bytes(&sent) : Status::OK;
            if (!taken.ok()) return done(Call().Fault(taken));
            ServerAccess::SendHeaders(*context_, queue_->trunkline_queue());
            Call().Send(queue_->trunkline_queue(), std::move(sent), options, std::move(done));
        };
        Between(Call().NewBatch(), sends, acts, std::move(done));
    }
    template <class W> void DoFinish(const W &last, WriteOptions options, const Status &status, void *tag) {
        Slice bytes;
        Status encoded = status.ok() ? Encode(last, &bytes) : status;
        DoFinish(encoded, encoded.ok() ? std::optional<Slice>(std::move(bytes)) : std::nullopt, tag, options);
    }
    void DoFinish(const Status &status, std::optional<Slice> last, void *tag, WriteOptions options = WriteOptions()) {
        // Interceptors may make another of it.
        auto kept = std::make_shared<Status>(status);
        auto sends = [this, kept, last](Batch &batch) {
            if (last.has_value()) batch.SendsBytes(*last);
            ServerAccess::SendsStatus(*context_, batch, kept.get());
        };
        auto acts = [this, kept, last, options](Batch *batch, ServerCall::Done done) {
            std::optional<Slice> sent = last;
            if (batch != nullptr && sent.has_value() && kept->ok()) *kept = batch->Bytes(&*sent);
            if (!kept->ok()) sent = std::nullopt;
            tl_queue queue = queue_->trunkline_queue();
            ServerAccess::SendHeaders(*context_, queue);
            Call().Finish(queue, *kept, std::move(sent), ServerAccess::Trailers(*context_), std::move(done), options);
        };
        Between(Call().NewBatch(), sends, acts, Telling(tag));
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
    void Finish(const W &message, const Status &status, void *tag) {
        DoFinish(message, WriteOptions(), status, tag);
    }
    void FinishWithError(const Status &status, void *tag) { DoFinish(status, std::nullopt, tag); }
};

} // namespace grpc

#endif
