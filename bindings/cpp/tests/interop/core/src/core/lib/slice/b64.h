// Of gRPC's core: binary metadata as text, for logs.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <string>

inline char *grpc_base64_encode(const void *bytes, size_t size, int /*url_safe*/, int /*multiline*/) {
    static const char letters[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    const auto *from = static_cast<const uint8_t *>(bytes);
    char *out = static_cast<char *>(std::malloc((size + 2) / 3 * 4 + 1)), *to = out;
    for (size_t at = 0; at < size; at += 3) {
        size_t left = size - at;
        uint32_t three = uint32_t(from[at]) << 16 | (left > 1 ? uint32_t(from[at + 1]) << 8 : 0) | (left > 2 ? from[at + 2] : 0);
        *to++ = letters[three >> 18];
        *to++ = letters[three >> 12 & 63];
        *to++ = left > 1 ? letters[three >> 6 & 63] : '=';
        *to++ = left > 2 ? letters[three & 63] : '=';
    }
    *to = 0;
    return out;
}
