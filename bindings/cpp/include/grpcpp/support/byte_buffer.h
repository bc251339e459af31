// grpc::ByteBuffer: the bytes of a message. A received one lies where the daemon put it.
#ifndef TRUNKLINE_GRPCPP_SUPPORT_BYTE_BUFFER_H
#define TRUNKLINE_GRPCPP_SUPPORT_BYTE_BUFFER_H

#include <grpcpp/impl/serialization_traits.h>
#include <grpcpp/support/slice.h>
#include <grpcpp/support/status.h>

#include <string>
#include <vector>

namespace grpc {

class ByteBuffer final {
  public:
    ByteBuffer() = default;
    explicit ByteBuffer(Slice slice) : slices_(1, std::move(slice)), is_valid_(true) {}
    ByteBuffer(const Slice *slices, size_t count) : slices_(slices, slices + count), is_valid_(true) {}

    // All bytes as one slice; copied if there are several.
    Status DumpToSingleSlice(Slice *out) const {
        if (!is_valid_) return Status(StatusCode::FAILED_PRECONDITION, "the buffer is not initialised");
        *out = Single();
        return Status::OK;
    }
    Status TrySingleSlice(Slice *out) const {
        if (!is_valid_ || slices_.size() != 1) {
            return Status(StatusCode::FAILED_PRECONDITION, "the buffer is not one slice");
        }
        *out = slices_[0];
        return Status::OK;
    }
    Status Dump(std::vector<Slice> *slices) const {
        if (!is_valid_) return Status(StatusCode::FAILED_PRECONDITION, "the buffer is not initialised");
        *slices = slices_;
        return Status::OK;
    }
    void Clear() {
        slices_.clear();
        is_valid_ = false;
    }
    void Duplicate() {} // slices are shared and do not change
    void Release() { Clear(); }
    size_t Length() const {
        size_t out = 0;
        for (const Slice &slice : slices_) out += slice.size();
        return out;
    }
    void Swap(ByteBuffer *other) { std::swap(*this, *other); }
    bool Valid() const { return is_valid_; }

    // Beyond gRPC: `DumpToSingleSlice` of what may be nothing.
    Slice Single() const {
        if (slices_.size() == 1) return slices_[0];
        std::string all;
        for (const Slice &slice : slices_) all.append(reinterpret_cast<const char *>(slice.begin()), slice.size());
        return Slice(all);
    }

  private:
    std::vector<Slice> slices_;
    bool is_valid_ = false;
};

template <> class SerializationTraits<ByteBuffer, void> {
  public:
    static Status Serialize(const ByteBuffer &source, ByteBuffer *out, bool *own_buffer) {
        *out = source;
        *own_buffer = true;
        return Status::OK;
    }
    static Status Deserialize(ByteBuffer *from, ByteBuffer *out) {
        *out = std::move(*from);
        return Status::OK;
    }
};

} // namespace grpc

#endif
