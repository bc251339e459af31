// grpc::SerializationTraits: how messages of a class become bytes. A program may specialise it for classes of its own.
//
// The general one is for protobuf's classes, and every other with `ByteSizeLong`, `SerializeToArray` and `ParseFromArray`.
#ifndef TRUNKLINE_GRPCPP_IMPL_SERIALIZATION_TRAITS_H
#define TRUNKLINE_GRPCPP_IMPL_SERIALIZATION_TRAITS_H

#include <grpcpp/support/slice.h>
#include <grpcpp/support/status.h>

#include <climits>

namespace grpc {

class ByteBuffer;

template <class Message, class UnusedButHereForPartialTemplateSpecialization = void> class SerializationTraits {
  public:
    template <class Buffer> static Status Serialize(const Message &message, Buffer *out, bool *own_buffer) {
        size_t size = message.ByteSizeLong();
        if (size > INT_MAX) return Status(StatusCode::INTERNAL, "a message is too large for protobuf");
        uint8_t *bytes = new uint8_t[size];
        Slice slice(bytes, size, [](void *given) { delete[] static_cast<uint8_t *>(given); });
        *own_buffer = true;
        if (!message.SerializeToArray(bytes, static_cast<int>(size))) {
            return Status(StatusCode::INTERNAL, "a message cannot be serialized");
        }
        *out = Buffer(std::move(slice));
        return Status::OK;
    }

    template <class Buffer> static Status Deserialize(Buffer *from, Message *message) {
        Slice bytes = from->Single();
        if (bytes.size() > INT_MAX || !message->ParseFromArray(bytes.begin(), static_cast<int>(bytes.size()))) {
            return Status(StatusCode::INTERNAL, "a message cannot be parsed");
        }
        return Status::OK;
    }
};

} // namespace grpc

#endif
