// Streams of servers in completion queues.
#ifndef TRUNKLINE_GRPCPP_IMPL_SERVER_ASYNC_STREAM_H
#define TRUNKLINE_GRPCPP_IMPL_SERVER_ASYNC_STREAM_H

#include <grpcpp/impl/server_async.h>
#include <grpcpp/impl/stream_interfaces.h>

namespace grpc {

template <class W, class R>
class ServerAsyncReader final : public internal::ServerAsyncStream<internal::ServerAsyncStreamingInterface> {
  public:
    explicit ServerAsyncReader(ServerContext *context) : ServerAsyncStream(context) {}
    void Read(R *message, void *tag) { DoRead(message, tag); }
    void Finish(const W &message, const Status &status, void *tag) {
        DoFinish(message, WriteOptions(), status, tag);
    }
    void FinishWithError(const Status &status, void *tag) { DoFinish(status, std::nullopt, tag); }
};

template <class W>
class ServerAsyncWriter final : public internal::ServerAsyncStream<internal::ServerAsyncStreamingInterface> {
  public:
    explicit ServerAsyncWriter(ServerContext *context) : ServerAsyncStream(context) {}
    void Write(const W &message, void *tag) { DoWrite(message, WriteOptions(), tag); }
    void Write(const W &message, WriteOptions options, void *tag) { DoWrite(message, options, tag); }
    void WriteAndFinish(const W &message, WriteOptions options, const Status &status, void *tag) {
        DoFinish(message, options, status, tag);
    }
    void Finish(const Status &status, void *tag) { DoFinish(status, std::nullopt, tag); }
};

template <class W, class R>
class ServerAsyncReaderWriter final : public internal::ServerAsyncStream<internal::ServerAsyncStreamingInterface> {
  public:
    explicit ServerAsyncReaderWriter(ServerContext *context) : ServerAsyncStream(context) {}
    void Read(R *message, void *tag) { DoRead(message, tag); }
    void Write(const W &message, void *tag) { DoWrite(message, WriteOptions(), tag); }
    void Write(const W &message, WriteOptions options, void *tag) { DoWrite(message, options, tag); }
    void WriteAndFinish(const W &message, WriteOptions options, const Status &status, void *tag) {
        DoFinish(message, options, status, tag);
    }
    void Finish(const Status &status, void *tag) { DoFinish(status, std::nullopt, tag); }
};

} // namespace grpc

#endif
