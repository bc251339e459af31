// Trunkline: remote procedure calls as a managed service of the host. docs/c.md explains; this file is made from
// bindings/c/src by a test of that crate.
//
// Every function gives a code. One with a `status` argument writes how it failed there, unless that is NULL; what was
// written is released by `tl_status_release`. Handles are numbers: one of nothing, of another kind or used after its
// end gives TL_INVALID_ARGUMENT. Functions may be called on any thread unless they say otherwise.

#ifndef TRUNKLINE_H
#define TRUNKLINE_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define TL_VERSION 2


// Success.
#define TL_OK 0

// The caller cancelled.
#define TL_CANCELLED 1

// Nobody knows.
#define TL_UNKNOWN 2

// An argument makes no sense; also a handle of nothing, of another kind, or used after its end.
#define TL_INVALID_ARGUMENT 3

// The deadline passed.
#define TL_DEADLINE_EXCEEDED 4

// It is not there.
#define TL_NOT_FOUND 5

// It is there already.
#define TL_ALREADY_EXISTS 6

// It is not allowed.
#define TL_PERMISSION_DENIED 7

// A limit was reached.
#define TL_RESOURCE_EXHAUSTED 8

// Not in this state; also a second operation of one kind at a time on a call.
#define TL_FAILED_PRECONDITION 9

// Somebody else was faster.
#define TL_ABORTED 10

// Past the end; also a buffer too short.
#define TL_OUT_OF_RANGE 11

// The method is not implemented.
#define TL_UNIMPLEMENTED 12

// An invariant was broken; also a panic inside the library.
#define TL_INTERNAL 13

// Not there at the moment.
#define TL_UNAVAILABLE 14

// Data were lost.
#define TL_DATA_LOSS 15

// Nobody knows who calls.
#define TL_UNAUTHENTICATED 16

// The handler ran; the status is its own answer.
#define TL_EXECUTED 0

// The call never reached the handler: making it again is sound.
#define TL_NOT_EXECUTED 1

// The call may have run: make it again only if the method is idempotent.
#define TL_EXECUTION_UNKNOWN 2

// Flag of `tl_call_open` and `tl_call_send`: no message follows.
#define TL_LAST 1

// Flag of `tl_call_open`: there is no first message yet; the slice is not looked at.
#define TL_NO_MESSAGE 2

// Flag of `tl_call_open`, `tl_call_send` and `tl_outcome`: the message is not compressed towards a gRPC peer, whatever
// its call says (metadata `grpc-encoding`) or the daemon's configuration.
#define TL_UNCOMPRESSED 4

// Flag of `tl_event`: its message came compressed from a gRPC peer. What comes from this host, or from another's
// daemon, does not.
#define TL_COMPRESSED 1

// What the environment says, else the host's daemon, else one inside the process.
#define TL_ANY_DAEMON 0

// A daemon inside the process.
#define TL_EMBEDDED 1

// A daemon of the host, never one inside the process.
#define TL_ATTACHED 2

// A unary call has ended: `message` if it went well, `headers`, `trailers`, `status`.
#define TL_EVENT_REPLY 1

// A call was opened, or not: `status`.
#define TL_EVENT_OPENED 2

// A message was sent, or not: `status`.
#define TL_EVENT_SENT 3

// Response headers came: `headers`.
#define TL_EVENT_HEADERS 4

// A message came: `message`.
#define TL_EVENT_MESSAGE 5

// The caller sends no more messages. Only servers get it.
#define TL_EVENT_REQUESTS_END 6

// The call has ended: `status`, `trailers`.
#define TL_EVENT_END 7

// A call was delivered to a server: `call`, to be answered and released.
#define TL_EVENT_CALL 8

// A delivered call is over: answered, or no longer wanted. A call that was made has ended: `status`.
#define TL_EVENT_OVER 9

// What `tl_queue_post` was given.
#define TL_EVENT_POSTED 10

// A code of gRPC's: `TL_OK` to `TL_UNAUTHENTICATED`.
typedef uint32_t tl_code;

// Where calls go. Released by `tl_channel_release`.
typedef struct tl_channel {
  // 0 is no channel.
  uint64_t id;
} tl_channel;

// Bytes that belong to somebody else. `data` may be null if `len` is 0.
typedef struct tl_slice {
  // The first byte.
  const uint8_t *data;
  // How many there are.
  size_t len;
} tl_slice;

// Pairs of keys and values. Released by `tl_metadata_release`.
typedef struct tl_metadata {
  // 0 is no metadata.
  uint64_t id;
} tl_metadata;

// A call, made or delivered. Released by `tl_call_release`.
typedef struct tl_call {
  // 0 is no call.
  uint64_t id;
} tl_call;

// Memory to build a linear message in (docs/linear.md), header included. Released by `tl_memory_release`, or by the
// function that sends what was built in it. One thread at a time uses it.
typedef struct tl_memory {
  // 0 is no memory.
  uint64_t id;
  // The first byte, aligned to 8. What it holds at first is anything.
  uint8_t *data;
  // Bytes that may be written.
  size_t capacity;
  // For what is yet to come: written by the library, and not looked at.
  uint64_t reserved;
} tl_memory;

// Settings of a call. Set all to zero, then `size`, then what is wanted.
typedef struct tl_call_options {
  // `sizeof(tl_call_options)`.
  uint32_t size;
  // 0.
  uint32_t reserved;
  // The call must have ended after so many nanoseconds; 0 for no limit.
  int64_t timeout_ns;
  // Metadata of the request, copied; 0 for none.
  struct tl_metadata metadata;
  // A delivered call, whose deadline, cancellation and trace context are inherited; 0 for that of the thread.
  struct tl_call parent;
  // Where the request was built, instead of the slice, which is not looked at then. The memory is released by the
  // function that is given the options, also if it fails.
  struct tl_memory built;
  // How many bytes the built request has.
  size_t built_bytes;
  // Of `tl_cancellation_new`: by it the call is cancelled from another thread, before it is made and while a
  // function waits for it; 0 for none. Of one call at a time.
  struct tl_call cancellation;
} tl_call_options;

// A received message. Released by `tl_message_release`.
typedef struct tl_message {
  // 0 is no message.
  uint64_t id;
} tl_message;

// How something failed. Released by `tl_status_release`.
typedef struct tl_status {
  // 0 is success.
  uint64_t id;
} tl_status;

// What came of an operation. `tl_event_clear` releases all but the call.
typedef struct tl_event {
  // As given with the operation, or to `tl_server_add_service`.
  uint64_t tag;
  // `TL_EVENT_REPLY`, ...
  uint32_t kind;
  // The code of `status`.
  tl_code code;
  // The call it is about; 0 in blocking operations.
  struct tl_call call;
  // A message, or 0.
  struct tl_message message;
  // Response headers, or 0.
  struct tl_metadata headers;
  // Trailers, or 0.
  struct tl_metadata trailers;
  // What failed, or 0.
  struct tl_status status;
  // `TL_COMPRESSED`, or 0.
  uint32_t flags;
  // 0.
  uint32_t reserved;
  // 0.
  uint64_t reserved_words[4];
} tl_event;

// A completion queue. Released by `tl_queue_release`.
typedef struct tl_queue {
  // 0 is no queue.
  uint64_t id;
} tl_queue;

// How a delivered call ends. Set all to zero, then `size`, then what is wanted.
typedef struct tl_outcome {
  // `sizeof(tl_outcome)`.
  uint32_t size;
  // The code.
  tl_code code;
  // What people read; UTF-8.
  struct tl_slice message;
  // A serialized `google.rpc.Status`, or nothing.
  struct tl_slice details;
  // Trailing metadata, copied; 0 for none.
  struct tl_metadata trailers;
  // Where the last response was built, instead of the slice, which is not looked at then. The memory is released by
  // the function that is given the outcome, also if it fails.
  struct tl_memory built;
  // How many bytes the built response has.
  size_t built_bytes;
  // `TL_UNCOMPRESSED`, or 0.
  uint32_t flags;
  // 0.
  uint32_t reserved;
} tl_outcome;

// Settings of a channel. Set all to zero, then `size`, then what is wanted.
typedef struct tl_channel_options {
  // `sizeof(tl_channel_options)`.
  uint32_t size;
  // `TL_ANY_DAEMON`, `TL_EMBEDDED` or `TL_ATTACHED`.
  uint32_t daemon;
  // Not 0: calls wait for a daemon and for a connection until their deadline, instead of failing.
  uint32_t wait_for_ready;
  // 0.
  uint32_t reserved;
  // `tcp://host:port`, `dns:///host:port`, ...; empty for whoever serves the called service.
  struct tl_slice target;
  // The daemon's socket, instead of `TRUNKLINE_SOCKET` and the default places.
  struct tl_slice socket;
  // The name operators see, instead of the program's file name.
  struct tl_slice name;
} tl_channel_options;

// Types of messages, read from descriptors. Released by `tl_schema_release`.
typedef struct tl_schema {
  // 0 is no schema.
  uint64_t id;
} tl_schema;

// Settings of a server. Set all to zero, then `size`, then what is wanted.
typedef struct tl_server_options {
  // `sizeof(tl_server_options)`.
  uint32_t size;
  // `TL_ANY_DAEMON`, `TL_EMBEDDED` or `TL_ATTACHED`.
  uint32_t daemon;
  // Threads that receive calls; 0 for one.
  uint32_t workers;
  // 0.
  uint32_t reserved;
  // The daemon's socket, instead of `TRUNKLINE_SOCKET` and the default places.
  struct tl_slice socket;
  // The name operators see, instead of the program's file name.
  struct tl_slice name;
} tl_server_options;

// A server. Released by `tl_server_release`.
typedef struct tl_server {
  // 0 is no server.
  uint64_t id;
} tl_server;

// Handles a delivered call on the thread that received it, which must not be kept for long: other calls wait. It may
// answer, or keep the call for later; it releases the call in the end.
typedef void (*tl_handler)(void *user, struct tl_call call);

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

// Calls a method with one request, and waits for its response. `options` may be null. The request is copied.
//
// Asks for: The slices are valid, `options` is null or valid, `reply` is valid for writing, `status` too or null.
tl_code tl_unary(struct tl_channel channel,
                 struct tl_slice method,
                 struct tl_slice request,
                 const struct tl_call_options *options,
                 struct tl_message *reply,
                 struct tl_status *status);

// The same with all that comes of it: `event` gets what `TL_EVENT_REPLY` has, also if the call fails. The code is that
// of the call.
//
// Asks for: The slices are valid, `options` is null or valid, `event` is valid for writing, `status` too or null.
tl_code tl_unary_event(struct tl_channel channel,
                       struct tl_slice method,
                       struct tl_slice request,
                       const struct tl_call_options *options,
                       struct tl_event *event,
                       struct tl_status *status);

// Begins a call with one request in a queue; its end is `TL_EVENT_REPLY`. `options` may be null, the request is
// copied. The call is there to be cancelled, and to be released.
//
// Asks for: The slices are valid, `options` is null or valid, `call` is valid for writing, `status` too or null.
tl_code tl_unary_start(struct tl_channel channel,
                       struct tl_slice method,
                       struct tl_slice request,
                       const struct tl_call_options *options,
                       struct tl_queue queue,
                       uint64_t tag,
                       struct tl_call *call,
                       struct tl_status *status);

// Opens a call of any pattern, with a first message unless `flags` has `TL_NO_MESSAGE`, and nothing after it if it has
// `TL_LAST`. With a queue: `TL_EVENT_OPENED`, the call can be used then, and is to be released even if it failed; with
// 0: waits. The message is copied.
//
// Asks for: The slices are valid, `options` is null or valid, `call` is valid for writing, `status` too or null.
tl_code tl_call_open(struct tl_channel channel,
                     struct tl_slice method,
                     struct tl_slice first,
                     uint32_t flags,
                     const struct tl_call_options *options,
                     struct tl_queue queue,
                     uint64_t tag,
                     struct tl_call *call,
                     struct tl_status *status);

// Sends a message: a request of a call that was made (the last with `TL_LAST`), a response of one that was delivered.
// With a queue: `TL_EVENT_SENT`; with 0: waits until there is room for it. The message is copied.
//
// Asks for: The slice is valid, `status` is valid for writing or null.
tl_code tl_call_send(struct tl_call call,
                     struct tl_slice message,
                     uint32_t flags,
                     struct tl_queue queue,
                     uint64_t tag,
                     struct tl_status *status);

// The same of a message that was built in memory, which is released, also if this fails: its first `bytes`. Nothing is
// copied where it lies in the heap that it is sent from.
//
// Asks for: `status` is valid for writing or null.
tl_code tl_call_send_built(struct tl_call call,
                           struct tl_memory built,
                           size_t bytes,
                           uint32_t flags,
                           struct tl_queue queue,
                           uint64_t tag,
                           struct tl_status *status);

// Says that no requests follow; `TL_FAILED_PRECONDITION` if that was said, and while a request is being sent.
//
// Asks for: `status` is valid for writing or null.
tl_code tl_call_end_requests(struct tl_call call,
                             struct tl_status *status);

// What comes next: `TL_EVENT_HEADERS`, `TL_EVENT_MESSAGE`, `TL_EVENT_REQUESTS_END` (servers), `TL_EVENT_END`. With a
// queue it comes there, and `event` may be null; with 0: waits, and writes it to `event`.
//
// Asks for: `event` and `status` are valid for writing or null.
tl_code tl_call_receive(struct tl_call call,
                        struct tl_queue queue,
                        uint64_t tag,
                        struct tl_event *event,
                        struct tl_status *status);

// Cancels a call that was made; operations under way end with `TL_CANCELLED`. A delivered call is let go of: without
// an answer its caller gets `TL_UNAVAILABLE`, and nothing can be sent any more.
//
// Asks for: `status` is valid for writing or null.
tl_code tl_call_cancel(struct tl_call call,
                       struct tl_status *status);

// Something to cancel a call by that a function waits for: `tl_call_options.cancellation`, given to `tl_call_cancel`.
// Released by `tl_call_release`.
//
// Asks for: `out` is valid for writing, `status` too or null.
tl_code tl_cancellation_new(struct tl_call *out,
                            struct tl_status *status);

// 1 if a delivered call is over: answered, or no longer wanted because its caller has gone, its deadline has passed or
// the session has ended. 0 otherwise, and of what is no delivered call.
//
// Asks for: May be called with any handle.
uint32_t tl_call_is_over(struct tl_call call);

// `/package.Service/Method` of a delivered call, until it is released.
//
// Asks for: May be called with any handle.
struct tl_slice tl_call_method(struct tl_call call);

// The request's metadata of a delivered call, as a handle of its own; 0 if there are none.
//
// Asks for: `out` is valid for writing, `status` too or null.
tl_code tl_call_metadata(struct tl_call call, struct tl_metadata *out, struct tl_status *status);

// Nanoseconds left to answer a delivered call; `INT64_MAX` without a limit, 0 of what is no delivered call.
//
// Asks for: May be called with any handle.
int64_t tl_call_time_left(struct tl_call call);

// `TL_EVENT_OVER` in a queue, or with 0 waits. Of a delivered call: when it is over, answered, or no longer wanted
// because its caller has gone, its deadline has passed or the session has ended. Of a call that `tl_call_open` made
// and that has been opened: when it has ended, also by `tl_call_cancel`; what came before its end can still be
// received, and its end with the trailers. Once per call.
//
// Asks for: `status` is valid for writing or null.
tl_code tl_call_watch(struct tl_call call,
                      struct tl_queue queue,
                      uint64_t tag,
                      struct tl_status *status);

// Sends response headers of a delivered call: once, before all responses. With a queue: `TL_EVENT_SENT`; else waits.
//
// Asks for: `status` is valid for writing or null.
tl_code tl_call_send_headers(struct tl_call call,
                             struct tl_metadata headers,
                             struct tl_queue queue,
                             uint64_t tag,
                             struct tl_status *status);

// Answers a delivered call: with an outcome (null: success), and a last response unless `message` is null. With a
// queue: `TL_EVENT_SENT`; with 0: waits until there is room for it. The call is still to be released. An answer that
// nobody gets is none: `TL_CANCELLED`, `TL_DEADLINE_EXCEEDED` or `TL_UNAVAILABLE` then, because the call was no longer
// wanted.
//
// Asks for: `outcome` and `message` are null or valid, and so are their slices; `status` is valid for writing or null.
tl_code tl_call_finish(struct tl_call call,
                       const struct tl_outcome *outcome,
                       const struct tl_slice *message,
                       struct tl_queue queue,
                       uint64_t tag,
                       struct tl_status *status);

// Ends a call: one that was made and has not ended is cancelled, one that was delivered and not answered gets
// `TL_UNAVAILABLE`, operations under way end. Nothing happens to 0.
//
// Asks for: May be called with any handle.
tl_code tl_call_release(struct tl_call call);

// The version of the ABI: major times 65536 and minor. A program built for a lower minor runs with a higher one,
// once there is a major.
uint32_t tl_version(void);

// Handles that were not released, of all kinds: for tests that look for leaks.
uint64_t tl_handles_open(void);

// A channel. Nothing is sent until the first call. `options` may be null: calls go to whoever serves on this host.
//
// Asks for: `options` is null or valid, and so are the slices in it; `out` is valid for writing, `status` too or null.
tl_code tl_channel_new(const struct tl_channel_options *options,
                       struct tl_channel *out,
                       struct tl_status *status);

// Ends a channel. Calls made through it go on. Nothing happens to 0.
//
// Asks for: May be called with any handle.
tl_code tl_channel_release(struct tl_channel channel);

// Calls this thread makes from now on inherit deadline, cancellation and trace context of a delivered call, until
// `tl_context_leave` on the same thread. In a `tl_handler` that is so for the call it handles.
//
// Asks for: `status` is valid for writing or null.
tl_code tl_context_enter(struct tl_call call,
                         struct tl_status *status);

// Ends the last `tl_context_enter` of this thread; `TL_FAILED_PRECONDITION` on a thread that has entered none.
//
// Asks for: `status` is valid for writing or null.
tl_code tl_context_leave(struct tl_status *status);

// Releases what an event brought, except the call, and forgets it. Null and an event cleared before are nothing.
//
// Asks for: `event` is null or valid, and was written by the library.
tl_code tl_event_clear(struct tl_event *event);

// Memory of `bytes` or more: of the delivered call `call`, to answer it, or if that is 0 of the channel, for a
// request. It lies in the heap that the thread's calls through the channel are sent from, if it has made any. What
// does not fit there at the moment lies in memory of the process, and is copied once when it is sent.
//
// Asks for: `out` is valid for writing, `status` too or null.
tl_code tl_memory_new(struct tl_channel channel,
                      struct tl_call call,
                      size_t bytes,
                      struct tl_memory *out,
                      struct tl_status *status);

// Makes memory at least `bytes` large. The content is kept; `data` and `capacity` are written anew.
//
// Asks for: `memory` is valid for reading and writing, `status` for writing or null.
tl_code tl_memory_grow(struct tl_memory *memory, size_t bytes, struct tl_status *status);

// Ends memory that was not sent. Nothing happens to 0.
//
// Asks for: May be called with any handle.
tl_code tl_memory_release(struct tl_memory memory);

// The bytes of a message, until it is released. Nothing is copied.
//
// Asks for: May be called with any handle.
struct tl_slice tl_message_bytes(struct tl_message message);

// Copies a message to a buffer of `capacity` bytes; `TL_OUT_OF_RANGE` if it is too short. `len` gets the length of the
// message in both cases.
//
// Asks for: `buffer` is valid for writing `capacity` bytes, `len` and `status` are valid for writing or null.
tl_code tl_message_copy(struct tl_message message,
                        uint8_t *buffer,
                        size_t capacity,
                        size_t *len,
                        struct tl_status *status);

// Ends a message: its memory goes back. Nothing happens to 0. Slices of it must not be used any more.
//
// Asks for: May be called with any handle.
tl_code tl_message_release(struct tl_message message);

// Metadata without pairs.
//
// Asks for: `out` is valid for writing, `status` too or null.
tl_code tl_metadata_new(struct tl_metadata *out, struct tl_status *status);

// Adds a pair, copied. Keys are lower case; only one that ends in `-bin` has a value of any bytes.
//
// Asks for: The slices are valid, `status` is valid for writing or null.
tl_code tl_metadata_add(struct tl_metadata metadata,
                        struct tl_slice key,
                        struct tl_slice value,
                        struct tl_status *status);

// How many pairs there are; 0 of what is no metadata.
//
// Asks for: May be called with any handle.
size_t tl_metadata_count(struct tl_metadata metadata);

// The pair at `index`, until the metadata are released.
//
// Asks for: `key`, `value` and `status` are valid for writing or null.
tl_code tl_metadata_at(struct tl_metadata metadata,
                       size_t index,
                       struct tl_slice *key,
                       struct tl_slice *value,
                       struct tl_status *status);

// The first value of a key, until the metadata are released; `TL_NOT_FOUND` without one.
//
// Asks for: The slice is valid, `value` and `status` are valid for writing or null.
tl_code tl_metadata_first(struct tl_metadata metadata,
                          struct tl_slice key,
                          struct tl_slice *value,
                          struct tl_status *status);

// Ends metadata. Nothing happens to 0.
//
// Asks for: May be called with any handle.
tl_code tl_metadata_release(struct tl_metadata metadata);

// A completion queue.
//
// Asks for: `out` is valid for writing, `status` too or null.
tl_code tl_queue_new(struct tl_queue *out, struct tl_status *status);

// A descriptor that is readable while `tl_queue_next` has something to do, to be watched and not to be read; -1 of
// what is no queue. It is the queue's, and closed with it.
//
// Asks for: May be called with any handle.
int32_t tl_queue_fd(struct tl_queue queue);

// Adds an event of the caller's own, `TL_EVENT_POSTED` with `tag`: a thread that waits in `tl_queue_next` gets it.
// What waits to be taken is the caller's to bound.
//
// Asks for: `status` is valid for writing or null.
tl_code tl_queue_post(struct tl_queue queue,
                      uint64_t tag,
                      struct tl_status *status);

// Goes on with the operations of a queue, and takes up to `capacity` events; waits up to `timeout_ns` for the first,
// for ever if that is negative: a time left that was computed is to be kept from going below 0. `count` gets how many
// there are, 0 if none came in time. When it is released threads that wait get `TL_CANCELLED`.
//
// Asks for: `events` is valid for writing `capacity` of them, `count` for writing, `status` too or null.
tl_code tl_queue_next(struct tl_queue queue,
                      struct tl_event *events,
                      size_t capacity,
                      int64_t timeout_ns,
                      size_t *count,
                      struct tl_status *status);

// Ends a queue: its operations are cancelled, threads that wait in it return. Nothing happens to 0.
//
// Asks for: May be called with any handle.
tl_code tl_queue_release(struct tl_queue queue);

// The types that an encoded `FileDescriptorSet` declares, copied.
//
// Asks for: The slice is valid, `out` is valid for writing, `status` too or null.
tl_code tl_schema_new(struct tl_slice descriptor_set,
                      struct tl_schema *out,
                      struct tl_status *status);

// Ends a schema. Channels and services made with it go on. Nothing happens to 0.
//
// Asks for: May be called with any handle.
tl_code tl_schema_release(struct tl_schema schema);

// A channel like `channel` for methods that `schema` declares: messages of its calls are linear.
//
// Asks for: `out` is valid for writing, `status` too or null.
tl_code tl_channel_typed(struct tl_channel channel,
                         struct tl_schema schema,
                         struct tl_channel *out,
                         struct tl_status *status);

// Whether bytes from anybody are a linear message of the type with this full name: `TL_INVALID_ARGUMENT` says what is
// wrong. What the library received has been checked.
//
// Asks for: The slices are valid, `status` is valid for writing or null.
tl_code tl_schema_check(struct tl_schema schema,
                        struct tl_slice type_name,
                        struct tl_slice linear,
                        struct tl_status *status);

// A linear message of the type with this full name, from anybody, as protobuf.
//
// Asks for: The slices are valid, `out` is valid for writing, `status` too or null.
tl_code tl_schema_encode(struct tl_schema schema,
                         struct tl_slice type_name,
                         struct tl_slice linear,
                         struct tl_message *out,
                         struct tl_status *status);

// A message in protobuf of the type with this full name, as a linear one in memory of the process, to be released.
// `bytes` gets its length.
//
// Asks for: The slices are valid, `out` and `bytes` are valid for writing, `status` too or null.
tl_code tl_schema_decode(struct tl_schema schema,
                         struct tl_slice type_name,
                         struct tl_slice protobuf,
                         struct tl_memory *out,
                         size_t *bytes,
                         struct tl_status *status);

// A server with nothing to serve yet. `options` may be null.
//
// Asks for: `options` is null or valid, and so are the slices in it; `out` is valid for writing, `status` too or null.
tl_code tl_server_new(const struct tl_server_options *options,
                      struct tl_server *out,
                      struct tl_status *status);

// Adds a service by its full name (`package.Service`). Its calls go to `handler` with `user`, on the thread that
// received them; if that is null, to a queue as `TL_EVENT_CALL` with `tag`. A call that is over before its event is
// taken leaves the queue again.
//
// Asks for: The slice is valid; `handler` is null or a function that may be called on any thread, with `user`, until the server
// has ended; `status` is valid for writing or null.
tl_code tl_server_add_service(struct tl_server server,
                              struct tl_slice name,
                              struct tl_queue queue,
                              uint64_t tag,
                              tl_handler handler,
                              void *user,
                              struct tl_status *status);

// The same with the types of a schema: messages of its calls are linear.
//
// Asks for: As `tl_server_add_service` asks for.
tl_code tl_server_add_typed_service(struct tl_server server,
                                    struct tl_schema schema,
                                    struct tl_slice name,
                                    struct tl_queue queue,
                                    uint64_t tag,
                                    tl_handler handler,
                                    void *user,
                                    struct tl_status *status);

// Starts a server in the background. It waits for a daemon if there is none, and attaches anew when one comes back.
//
// Asks for: `status` is valid for writing or null.
tl_code tl_server_start(struct tl_server server,
                        struct tl_status *status);

// Waits until a server's services are known to the daemon: from here on calls arrive. `TL_PERMISSION_DENIED` if the
// daemon refuses one, because its name is another's or a rule forbids it; the server goes on, and asks again.
//
// Asks for: `status` is valid for writing or null.
tl_code tl_server_ready(struct tl_server server,
                        struct tl_status *status);

// The same for `timeout_ns` at most, for ever if that is negative: then `TL_DEADLINE_EXCEEDED`, and the server goes on
// as it was. There may be no daemon yet: calls arrive once it comes.
//
// Asks for: `status` is valid for writing or null.
tl_code tl_server_ready_within(struct tl_server server,
                               int64_t timeout_ns,
                               struct tl_status *status);

// Waits until a server has ended: stopped from another thread, or refused by the daemon.
//
// Asks for: `status` is valid for writing or null.
tl_code tl_server_wait(struct tl_server server, struct tl_status *status);

// Stops a server and waits for its end: no new calls, those in flight have `grace_ns` to be answered. Then their
// callers get `TL_UNAVAILABLE`. Negative is 0.
//
// Asks for: `status` is valid for writing or null.
tl_code tl_server_shutdown(struct tl_server server,
                           int64_t grace_ns,
                           struct tl_status *status);

// Ends a server, without waiting: calls in flight have ten seconds to be answered. Nothing happens to 0.
//
// Asks for: May be called with any handle.
tl_code tl_server_release(struct tl_server server);

// The code of a status; `TL_OK` of 0, `TL_INVALID_ARGUMENT` of what is no status.
//
// Asks for: May be called with any handle.
tl_code tl_status_code(struct tl_status status);

// The message of a status, until it is released. Not terminated by 0.
//
// Asks for: May be called with any handle.
struct tl_slice tl_status_message(struct tl_status status);

// The serialized `google.rpc.Status` of a status, if there is one, until it is released.
//
// Asks for: May be called with any handle.
struct tl_slice tl_status_details(struct tl_status status);

// Whether the handler may have run: `TL_EXECUTED`, `TL_NOT_EXECUTED` or `TL_EXECUTION_UNKNOWN`.
//
// Asks for: May be called with any handle.
uint32_t tl_status_execution(struct tl_status status);

// The metadata that came with a status (gRPC: trailers), as a handle of its own; 0 if there are none.
//
// Asks for: `out` is null or valid for writing.
tl_code tl_status_metadata(struct tl_status status,
                           struct tl_metadata *out,
                           struct tl_status *failed);

// Ends a status. Nothing happens to 0.
//
// Asks for: May be called with any handle.
tl_code tl_status_release(struct tl_status status);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* TRUNKLINE_H */
