// The messages of greeter.v1: one string in field 1. Programs with more than that use a protobuf library.
#ifndef HELLO_H
#define HELLO_H

#include <stdio.h>
#include <string.h>
#include <trunkline.h>

#define SERVICE "greeter.v1.Greeter"

static inline tl_slice text(const char *text) {
    tl_slice slice = {(const uint8_t *)text, strlen(text)};
    return slice;
}

// Encodes `string` as field 1 into `out`; how many bytes that are. Strings up to 127 bytes have a length of one byte.
static inline size_t encode(const char *string, size_t length, uint8_t out[129]) {
    if (length > 127) length = 127;
    out[0] = 0x0a;
    out[1] = (uint8_t)length;
    memcpy(out + 2, string, length);
    return length + 2;
}

// Field 1 of a message as `encode` writes it; empty if it is not one.
static inline tl_slice decode(tl_slice message) {
    tl_slice none = {NULL, 0};
    if (message.len < 2 || message.data[0] != 0x0a || message.data[1] > 127) return none;
    if (message.len < (size_t)message.data[1] + 2) return none;
    tl_slice string = {message.data + 2, message.data[1]};
    return string;
}

// Tells why something failed, releases that, and gives the program's exit code.
static inline int failed(const char *what, tl_status status) {
    tl_slice message = tl_status_message(status);
    fprintf(stderr, "%s: code %u: %.*s\n", what, tl_status_code(status), (int)message.len, (const char *)message.data);
    tl_status_release(status);
    return 1;
}

#endif
