// grpc::Slice: bytes that copies of it share.
#ifndef TRUNKLINE_GRPCPP_SUPPORT_SLICE_H
#define TRUNKLINE_GRPCPP_SUPPORT_SLICE_H

#include <cstdint>
#include <cstring>
#include <memory>
#include <string>

namespace grpc {

class Slice final {
  public:
    enum StaticSlice { STATIC_SLICE };

    Slice() = default;
    explicit Slice(size_t size) : size_(size) { own(new uint8_t[size]()); }
    Slice(const void *bytes, size_t size) : size_(size) {
        uint8_t *copy = new uint8_t[size];
        if (size > 0) std::memcpy(copy, bytes, size);
        own(copy);
    }
    Slice(const std::string &bytes) : Slice(bytes.data(), bytes.size()) {}
    Slice(const void *bytes, size_t size, StaticSlice) : begin_(static_cast<const uint8_t *>(bytes)), size_(size) {}
    // Gives `bytes` back to `destroy` with the last copy.
    Slice(void *bytes, size_t size, void (*destroy)(void *), void *user_data)
        : owner_(user_data, destroy), begin_(static_cast<const uint8_t *>(bytes)), size_(size) {}
    Slice(void *bytes, size_t size, void (*destroy)(void *)) : Slice(bytes, size, destroy, bytes) {}
    Slice(void *bytes, size_t size, void (*destroy)(void *, size_t))
        : owner_(bytes, [destroy, size](void *given) { destroy(given, size); }),
          begin_(static_cast<const uint8_t *>(bytes)), size_(size) {}
    // Beyond gRPC: bytes that live as long as `owner`.
    Slice(std::shared_ptr<void> owner, const uint8_t *bytes, size_t size)
        : owner_(std::move(owner)), begin_(bytes), size_(size) {}

    const uint8_t *begin() const { return begin_; }
    const uint8_t *end() const { return begin_ + size_; }
    size_t size() const { return size_; }
    Slice sub(size_t from, size_t to) const { return Slice(owner_, begin_ + from, to - from); }

  private:
    void own(uint8_t *bytes) {
        owner_ = std::shared_ptr<void>(bytes, [](void *given) { delete[] static_cast<uint8_t *>(given); });
        begin_ = bytes;
    }

    std::shared_ptr<void> owner_;
    const uint8_t *begin_ = nullptr;
    size_t size_ = 0;
};

} // namespace grpc

#endif
