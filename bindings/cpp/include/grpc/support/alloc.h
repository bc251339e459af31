// Memory, as programs of gRPC ask for it.
#ifndef TRUNKLINE_GRPC_SUPPORT_ALLOC_H
#define TRUNKLINE_GRPC_SUPPORT_ALLOC_H

#include <stdlib.h>

static inline void *tl_gpr_found(void *memory, size_t size) {
    if (memory == NULL && size > 0) abort();
    return memory;
}
static inline void *gpr_malloc(size_t size) { return tl_gpr_found(malloc(size), size); }
static inline void *gpr_zalloc(size_t size) { return tl_gpr_found(calloc(1, size), size); }
static inline void *gpr_realloc(void *memory, size_t size) { return tl_gpr_found(realloc(memory, size), size); }
static inline void gpr_free(void *memory) { free(memory); }

#endif
