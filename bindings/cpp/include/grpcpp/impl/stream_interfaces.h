// What gRPC's stream classes have in common, and how a message is to be written.
#ifndef TRUNKLINE_GRPCPP_IMPL_STREAM_INTERFACES_H
#define TRUNKLINE_GRPCPP_IMPL_STREAM_INTERFACES_H

#include <grpcpp/support/status.h>
#include <trunkline.h>

#include <cstdint>
#include <utility>

namespace grpc {

// Hints for a message. The library sends each at once, which every hint permits; more than hints are `last message` and
// `no compression`, which is towards a gRPC peer.
class WriteOptions {
  public:
    WriteOptions &set_no_compression() {
        is_plain_ = true;
        return *this;
    }
    WriteOptions &clear_no_compression() {
        is_plain_ = false;
        return *this;
    }
    bool get_no_compression() const { return is_plain_; }
    WriteOptions &set_buffer_hint() { return *this; }
    WriteOptions &clear_buffer_hint() { return *this; }
    WriteOptions &set_corked() { return *this; }
    WriteOptions &clear_corked() { return *this; }
    WriteOptions &set_write_through() { return *this; }
    WriteOptions &clear_write_through() { return *this; }
    WriteOptions &set_last_message() {
        is_last_ = true;
        return *this;
    }
    WriteOptions &clear_last_message() {
        is_last_ = false;
        return *this;
    }
    bool is_last_message() const { return is_last_; }

    // Beyond gRPC: as flags of trunkline.h.
    uint32_t trunkline_flags() const { return (is_last_ ? TL_LAST : 0) | (is_plain_ ? TL_UNCOMPRESSED : 0); }

  private:
    bool is_last_ = false, is_plain_ = false;
};

namespace internal {

class ClientStreamingInterface {
  public:
    virtual ~ClientStreamingInterface() = default;
    virtual Status Finish() = 0;
};

class ServerStreamingInterface {
  public:
    virtual ~ServerStreamingInterface() = default;
    virtual void SendInitialMetadata() = 0;
};

template <class R> class ReaderInterface {
  public:
    virtual ~ReaderInterface() = default;
    virtual bool NextMessageSize(uint32_t *size) = 0;
    virtual bool Read(R *message) = 0;
};

template <class W> class WriterInterface {
  public:
    virtual ~WriterInterface() = default;
    virtual bool Write(const W &message, WriteOptions options) = 0;
    bool Write(const W &message) { return Write(message, WriteOptions()); }
    void WriteLast(const W &message, WriteOptions options) { Write(message, options.set_last_message()); }
};

} // namespace internal

template <class R> class ClientReaderInterface : public internal::ClientStreamingInterface,
                                                 public internal::ReaderInterface<R> {
  public:
    virtual void WaitForInitialMetadata() = 0;
};

template <class W> class ClientWriterInterface : public internal::ClientStreamingInterface,
                                                 public internal::WriterInterface<W> {
  public:
    virtual bool WritesDone() = 0;
};

template <class W, class R> class ClientReaderWriterInterface : public internal::ClientStreamingInterface,
                                                                public internal::WriterInterface<W>,
                                                                public internal::ReaderInterface<R> {
  public:
    virtual void WaitForInitialMetadata() = 0;
    virtual bool WritesDone() = 0;
};

template <class R> class ServerReaderInterface : public internal::ServerStreamingInterface,
                                                 public internal::ReaderInterface<R> {};
template <class W> class ServerWriterInterface : public internal::ServerStreamingInterface,
                                                 public internal::WriterInterface<W> {};
template <class W, class R> class ServerReaderWriterInterface : public internal::ServerStreamingInterface,
                                                                public internal::WriterInterface<W>,
                                                                public internal::ReaderInterface<R> {};

} // namespace grpc

#endif
