// Strings, as programs of gRPC make them.
#ifndef TRUNKLINE_GRPC_SUPPORT_STRING_UTIL_H
#define TRUNKLINE_GRPC_SUPPORT_STRING_UTIL_H

#include <grpc/support/alloc.h>
#include <string.h>

// A copy to be freed by gpr_free; null of null.
static inline char *gpr_strdup(const char *text) {
    if (text == NULL) return NULL;
    size_t size = strlen(text) + 1;
    return (char *)memcpy(gpr_malloc(size), text, size);
}

#endif
