/*
 * The C ABI of Trunkline's policy modules, version 1. docs/modules.md explains it.
 *
 * A module is a shared object that exports one constant:
 *
 *     const trunkline_policy_module TRUNKLINE_POLICY_MODULE = {
 *         TRUNKLINE_POLICY_HEAD,
 *         .name = TRUNKLINE_TEXT("my-policy"), .version = TRUNKLINE_TEXT("1"),
 *         .create = create, .destroy = destroy, .decide = decide,
 *     };
 *
 * Build it with: cc -shared -fPIC -fvisibility=hidden -O2 -o libmy_policy.so my_policy.c
 *
 * Within a version, members are added at the end of structs and never moved, changed or taken away; every struct begins
 * with its size as its writer knew it. Reserved members are zero. What the daemon hands in is read-only and lies there
 * until the callback returns. Text is UTF-8 with a length.
 *
 * create may be called on another thread than the other callbacks; no two callbacks of one instance run at once.
 * A callback must return soon: calls of the host wait for it. It must not throw, block, fork, or change the process.
 */
#ifndef TRUNKLINE_POLICY_H
#define TRUNKLINE_POLICY_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define TRUNKLINE_POLICY_ABI_VERSION 1u
#define TRUNKLINE_POLICY_MAGIC 0x59434c4f504b5254ull /* "TRKPOLCY" */

/* Limits. */
#define TRUNKLINE_NAME_BYTES_MAX 64u
#define TRUNKLINE_CONFIG_PAIRS_MAX 256u
#define TRUNKLINE_CONFIG_BYTES_MAX 65536u
#define TRUNKLINE_FIELDS_MAX 16u
#define TRUNKLINE_WORDS_BYTES_MAX 1024u
#define TRUNKLINE_METADATA_ADDED_MAX 16u
#define TRUNKLINE_METADATA_ADDED_BYTES_MAX 4096u
#define TRUNKLINE_STATE_BYTES_MAX 16777216u

/* What a callback returns. Any other number is a fault. */
#define TRUNKLINE_DONE 0
#define TRUNKLINE_REFUSED 1 /* a configuration or a state it cannot use */
#define TRUNKLINE_FAULT 2   /* it is broken and must not be called again */

/* Bytes that belong to somebody else. */
typedef struct trunkline_slice {
    const uint8_t *data;
    size_t bytes;
} trunkline_slice;

#define TRUNKLINE_TEXT(literal) { (const uint8_t *)("" literal), sizeof(literal) - 1 }

/* Room for words: write at most capacity bytes at data, and their number to bytes. */
typedef struct trunkline_words {
    uint8_t *data;
    uint32_t capacity;
    uint32_t bytes;
} trunkline_words;

#define TRUNKLINE_KIND_NONE 0u
#define TRUNKLINE_KIND_BOOL 1u
#define TRUNKLINE_KIND_INT 2u
#define TRUNKLINE_KIND_UINT 3u
#define TRUNKLINE_KIND_DOUBLE 4u
#define TRUNKLINE_KIND_TEXT 5u
#define TRUNKLINE_KIND_BYTES 6u

typedef struct trunkline_value {
    uint32_t kind;
    uint32_t reserved;
    union {
        uint64_t bits;
        uint64_t boolean; /* 0 or 1 */
        int64_t integer;
        uint64_t unsigned_integer;
        double real;
    } number;
    trunkline_slice text; /* of kinds TEXT and BYTES */
} trunkline_value;

/* A value of the configuration; the parts of the way to it are joined by dots. */
typedef struct trunkline_pair {
    trunkline_slice key;
    trunkline_value value;
} trunkline_pair;

typedef struct trunkline_config {
    uint32_t struct_bytes;
    uint32_t pairs_count;
    const trunkline_pair *pairs; /* in the order of their keys */
    trunkline_slice policy;      /* the policy's name */
} trunkline_config;

#define TRUNKLINE_FIELD_OPTIONAL 1u

/* Something an instance wants to see of every call: an expression as in docs/policy.md, and the kind of its value. */
typedef struct trunkline_field {
    trunkline_slice expression;
    uint32_t kind;
    uint32_t flags;
} trunkline_field;

#define TRUNKLINE_WANTS_END 1u
#define TRUNKLINE_WANTS_METADATA 2u

typedef struct trunkline_created {
    uint32_t struct_bytes;
    uint32_t wants;
    void *instance;                /* handed to every other callback */
    const trunkline_field *fields; /* lies there until destroy */
    uint32_t fields_count;
    uint32_t reserved;
} trunkline_created;

typedef struct trunkline_metadata_pair {
    trunkline_slice key;
    trunkline_slice value;
} trunkline_metadata_pair;

#define TRUNKLINE_SIDE_CLIENT 0u
#define TRUNKLINE_SIDE_SERVER 1u
#define TRUNKLINE_CALL_STREAMS 1u
#define TRUNKLINE_NO_DEADLINE UINT64_MAX

/* A call that begins. */
typedef struct trunkline_call {
    uint32_t struct_bytes;
    uint32_t side;
    uint32_t flags; /* TRUNKLINE_CALL_STREAMS: requests are a stream, there may be no message yet */
    uint32_t metadata_count;
    uint32_t values_count;
    uint32_t reserved;
    uint64_t now_ns; /* a clock that only goes forward and begins anywhere */
    uint64_t deadline_ns;
    uint64_t request_bytes;
    trunkline_slice path; /* "/package.Service/Method" */
    trunkline_slice application;
    trunkline_slice peer_identity;
    trunkline_slice peer_address;
    const trunkline_metadata_pair *metadata; /* if the instance wants it */
    const trunkline_value *values;           /* of the fields, in their order */
} trunkline_call;

#define TRUNKLINE_PASS 0u
#define TRUNKLINE_DENY 1u

/* What is said about a call; lent with verdict TRUNKLINE_PASS. */
typedef struct trunkline_answer {
    uint32_t struct_bytes;
    uint32_t verdict;
    uint32_t code; /* of a denied call: 1 to 16, as gRPC numbers them */
    uint32_t reserved;
    uint64_t token; /* anything; comes back with the end of the call */
    /* For its caller. Control characters in it, also those of a field or metadata that is quoted, are a fault. */
    trunkline_words message;
    void *context; /* first argument of add_metadata */
    /* Adds a pair to the metadata of a call that passes, whose own values of that key it loses: 0, or 1 if it is not
       legal or too much. */
    int32_t (*add_metadata)(void *context, trunkline_slice key, trunkline_slice value);
} trunkline_answer;

/* How a call ended that had passed. */
typedef struct trunkline_end {
    uint32_t struct_bytes;
    uint32_t code; /* 0 to 16 */
    uint64_t now_ns;
    uint64_t elapsed_ns; /* since decide */
    uint64_t token;      /* from the answer */
} trunkline_end;

/* Where exported state goes, piece by piece: 0, or 1 if there is no more room. */
typedef struct trunkline_sink {
    uint32_t struct_bytes;
    uint32_t reserved;
    void *context; /* first argument of write */
    int32_t (*write)(void *context, trunkline_slice piece);
} trunkline_sink;

typedef struct trunkline_state {
    uint32_t struct_bytes;
    uint32_t format; /* state_format of the module that exported it */
    trunkline_slice bytes;
} trunkline_state;

typedef struct trunkline_head {
    uint64_t magic;
    uint32_t abi_version;
    uint32_t table_bytes;
} trunkline_head;

/* What a module exports under the name TRUNKLINE_POLICY_MODULE. */
typedef struct trunkline_policy_module {
    trunkline_head head;     /* TRUNKLINE_POLICY_HEAD */
    trunkline_slice name;    /* state is handed over only between modules of one name */
    trunkline_slice version; /* for people */
    uint32_t state_format;
    uint32_t reserved;
    /* Needed. */
    int32_t (*create)(const trunkline_config *config, trunkline_created *out, trunkline_words *words);
    void (*destroy)(void *instance);
    int32_t (*decide)(void *instance, const trunkline_call *call, trunkline_answer *answer, trunkline_words *words);
    /* May be null: nothing is wanted of the end of calls; there is no state; none is taken. */
    int32_t (*finish)(void *instance, const trunkline_end *end, trunkline_words *words);
    int32_t (*export_state)(const void *instance, const trunkline_sink *sink, trunkline_words *words);
    int32_t (*import_state)(void *instance, const trunkline_state *state, trunkline_words *words);
} trunkline_policy_module;

#define TRUNKLINE_POLICY_HEAD \
    .head = { TRUNKLINE_POLICY_MAGIC, TRUNKLINE_POLICY_ABI_VERSION, (uint32_t)sizeof(trunkline_policy_module) }

#if defined(__GNUC__)
#define TRUNKLINE_EXPORT __attribute__((visibility("default")))
#else
#define TRUNKLINE_EXPORT
#endif

extern TRUNKLINE_EXPORT const trunkline_policy_module TRUNKLINE_POLICY_MODULE;

#ifdef __cplusplus
}
#endif

#endif
