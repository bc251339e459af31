// Unary calls in completion queues: of clients, and answers of servers.
#ifndef TRUNKLINE_GRPCPP_SUPPORT_ASYNC_UNARY_CALL_H
#define TRUNKLINE_GRPCPP_SUPPORT_ASYNC_UNARY_CALL_H

#include <grpcpp/impl/client_call.h>
#include <grpcpp/impl/server_async.h>

namespace grpc {

namespace internal {

// How a queue is told of an operation's end.
inline ClientCall::Done TagIn(CompletionQueue *queue, void *tag) {
    queue->trunkline_begin();
    return [queue, tag](bool ok) { queue->trunkline_ready(tag, ok); };
}

} // namespace internal

template <class R> class ClientAsyncResponseReaderInterface {
  public:
    virtual ~ClientAsyncResponseReaderInterface() = default;
    virtual void StartCall() = 0;
    virtual void ReadInitialMetadata(void *tag) = 0;
    virtual void Finish(R *response, Status *status, void *tag) = 0;
};

template <class R> class ClientAsyncResponseReader final : public ClientAsyncResponseReaderInterface<R> {
  public:
    // Beyond gRPC, whose generated code makes these in a way of its own.
    template <class W>
    ClientAsyncResponseReader(ChannelInterface *channel, CompletionQueue *queue, const char *method,
                              ClientContext *context, const W &request, bool starts)
        : queue_(queue),
          call_(std::make_shared<internal::ClientCall>(channel, method, context, internal::ClientCall::Type::UNARY,
                                                       queue->trunkline_queue(), false)) {
        call_->Prepare(request);
        if (starts) StartCall();
    }

    // Nothing is sent before something is asked for, as with gRPC: until then a program may let go of call and context.
    void StartCall() override { is_started_ = true; }
    void ReadInitialMetadata(void *tag) override {
        if (!has_begun_) call_->ReceiveInParts();
        Begin();
        call_->WantHeaders(internal::TagIn(queue_, tag));
    }
    void Finish(R *response, Status *status, void *tag) override {
        Begin();
        call_->WantOnly(internal::Into(response), status, internal::TagIn(queue_, tag));
    }

  private:
    void Begin() {
        if (is_started_ && !std::exchange(has_begun_, true)) call_->Start(nullptr);
    }

    CompletionQueue *queue_;
    std::shared_ptr<internal::ClientCall> call_;
    bool is_started_ = false, has_begun_ = false;
};

} // namespace grpc

#endif
