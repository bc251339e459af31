// Streams in completion queues: of clients here, of servers in impl/server_async_stream.h.
#ifndef TRUNKLINE_GRPCPP_SUPPORT_ASYNC_STREAM_H
#define TRUNKLINE_GRPCPP_SUPPORT_ASYNC_STREAM_H

#include <grpcpp/impl/server_async_stream.h>
#include <grpcpp/impl/stream_interfaces.h>
#include <grpcpp/support/async_unary_call.h>

namespace grpc {
namespace internal {

class ClientAsyncStreamingInterface {
  public:
    virtual ~ClientAsyncStreamingInterface() = default;
    virtual void StartCall(void *tag) = 0;
    virtual void ReadInitialMetadata(void *tag) = 0;
    virtual void Finish(Status *status, void *tag) = 0;
};

template <class R> class AsyncReaderInterface {
  public:
    virtual ~AsyncReaderInterface() = default;
    virtual void Read(R *message, void *tag) = 0;
};

template <class W> class AsyncWriterInterface {
  public:
    virtual ~AsyncWriterInterface() = default;
    virtual void Write(const W &message, void *tag) = 0;
    virtual void Write(const W &message, WriteOptions options, void *tag) = 0;
    void WriteLast(const W &message, WriteOptions options, void *tag) {
        Write(message, options.set_last_message(), tag);
    }
};

// What the three classes of clients have in common. `Interface` is the one of them that is implemented.
template <class Interface> class ClientAsyncStream : public Interface {
  public:
    void StartCall(void *tag) override { call_->Start(TagIn(queue_, tag)); }
    void ReadInitialMetadata(void *tag) override { call_->WantHeaders(TagIn(queue_, tag)); }

  protected:
    ClientAsyncStream(ChannelInterface *channel, CompletionQueue *queue, const char *method, ClientContext *context,
                      ClientCall::Type type)
        : queue_(queue),
          call_(std::make_shared<ClientCall>(channel, method, context, type, queue->trunkline_queue(), false)) {}

    void Begin(bool starts, void *tag) {
        if (starts) StartCall(tag);
    }
    template <class R> void DoRead(R *message, void *tag) {
        call_->WantMessage(Into(message), TagIn(queue_, tag));
    }
    template <class W> void DoWrite(const W &message, WriteOptions options, void *tag) {
        call_->Send(message, options, TagIn(queue_, tag));
    }
    void DoFinish(Status *status, void *tag) { call_->WantEnd(status, true, TagIn(queue_, tag)); }

    CompletionQueue *queue_;
    std::shared_ptr<ClientCall> call_;
};

} // namespace internal

template <class R> class ClientAsyncReaderInterface : public internal::ClientAsyncStreamingInterface,
                                                      public internal::AsyncReaderInterface<R> {};
template <class W> class ClientAsyncWriterInterface : public internal::ClientAsyncStreamingInterface,
                                                      public internal::AsyncWriterInterface<W> {
  public:
    virtual void WritesDone(void *tag) = 0;
};
template <class W, class R> class ClientAsyncReaderWriterInterface : public internal::ClientAsyncStreamingInterface,
                                                                     public internal::AsyncWriterInterface<W>,
                                                                     public internal::AsyncReaderInterface<R> {
  public:
    virtual void WritesDone(void *tag) = 0;
};

template <class R>
class ClientAsyncReader final : public internal::ClientAsyncStream<ClientAsyncReaderInterface<R>> {
  public:
    template <class W>
    ClientAsyncReader(ChannelInterface *channel, CompletionQueue *queue, const char *method, ClientContext *context,
                      const W &request, bool starts, void *tag)
        : internal::ClientAsyncStream<ClientAsyncReaderInterface<R>>(channel, queue, method, context,
              internal::ClientCall::Type::SERVER_STREAMING) {
        this->call_->Prepare(request);
        this->Begin(starts, tag);
    }
    void Read(R *message, void *tag) override { this->DoRead(message, tag); }
    void Finish(Status *status, void *tag) override { this->DoFinish(status, tag); }
};

template <class W>
class ClientAsyncWriter final : public internal::ClientAsyncStream<ClientAsyncWriterInterface<W>> {
  public:
    template <class R>
    ClientAsyncWriter(ChannelInterface *channel, CompletionQueue *queue, const char *method, ClientContext *context,
                      R *response, bool starts, void *tag)
        : internal::ClientAsyncStream<ClientAsyncWriterInterface<W>>(channel, queue, method, context,
              internal::ClientCall::Type::CLIENT_STREAMING),
          target_(internal::Into(response)) {
        this->Begin(starts, tag);
    }
    void Write(const W &message, void *tag) override { Write(message, WriteOptions(), tag); }
    void Write(const W &message, WriteOptions options, void *tag) override { this->DoWrite(message, options, tag); }
    void WritesDone(void *tag) override { this->call_->EndRequests(internal::TagIn(this->queue_, tag)); }
    void Finish(Status *status, void *tag) override {
        this->call_->WantOnly(target_, status, internal::TagIn(this->queue_, tag));
    }

  private:
    internal::Target target_;
};

template <class W, class R>
class ClientAsyncReaderWriter final : public internal::ClientAsyncStream<ClientAsyncReaderWriterInterface<W, R>> {
  public:
    ClientAsyncReaderWriter(ChannelInterface *channel, CompletionQueue *queue, const char *method,
                            ClientContext *context, bool starts, void *tag)
        : internal::ClientAsyncStream<ClientAsyncReaderWriterInterface<W, R>>(channel, queue, method, context,
              internal::ClientCall::Type::BIDI_STREAMING) {
        this->Begin(starts, tag);
    }
    void Read(R *message, void *tag) override { this->DoRead(message, tag); }
    void Write(const W &message, void *tag) override { Write(message, WriteOptions(), tag); }
    void Write(const W &message, WriteOptions options, void *tag) override { this->DoWrite(message, options, tag); }
    void WritesDone(void *tag) override { this->call_->EndRequests(internal::TagIn(this->queue_, tag)); }
    void Finish(Status *status, void *tag) override { this->DoFinish(status, tag); }
};

} // namespace grpc

#endif
