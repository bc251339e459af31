// Examines the ABI from C: server and client in one process, with the daemon inside it. Run plainly, with
// TRUNKLINE_CHECKS=1, and under sanitizers. Says what it found, one line per part, and leaves no handle.
#include <inttypes.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <trunkline.h>
#include <unistd.h>

#define SERVICE "exam.v1.Exam"
#define CHECK(condition) check((condition), #condition, __LINE__)

static void check(bool holds, const char *condition, int line) {
    if (holds) return;
    fprintf(stderr, "line %d: does not hold: %s\n", line, condition);
    exit(1);
}

static const tl_queue WAITS = {0};

static tl_slice text(const char *text) {
    tl_slice slice = {(const uint8_t *)text, strlen(text)};
    return slice;
}

static bool equal(tl_slice slice, const char *text) {
    return slice.len == strlen(text) && memcmp(slice.data, text, slice.len) == 0;
}

static tl_event next(tl_queue queue) {
    tl_event event;
    size_t count = 0;
    while (count == 0) CHECK(tl_queue_next(queue, &event, 1, -1, &count, NULL) == TL_OK);
    return event;
}

// The same for programs with an event loop: the descriptor is watched, the queue never waits.
static tl_event watched(tl_queue queue) {
    struct pollfd fd = {tl_queue_fd(queue), POLLIN, 0};
    for (;;) {
        tl_event event;
        size_t count;
        CHECK(poll(&fd, 1, -1) == 1);
        CHECK(tl_queue_next(queue, &event, 1, 0, &count, NULL) == TL_OK);
        if (count == 1) return event;
    }
}

// ---- the server: a thread with a queue, and a handler

static tl_queue served;
static tl_channel onward;

static void finish(tl_call call, tl_code code, const char *message, const tl_slice *reply) {
    tl_outcome outcome = {0};
    outcome.size = sizeof outcome;
    outcome.code = code;
    outcome.message = text(message);
    outcome.details = code == TL_NOT_FOUND ? text("\x08\x05") : text("");
    CHECK(tl_metadata_new(&outcome.trailers, NULL) == TL_OK);
    CHECK(tl_metadata_add(outcome.trailers, text("ended"), text("yes"), NULL) == TL_OK);
    tl_code finished = tl_call_finish(call, &outcome, reply, WAITS, 0, NULL);
    // Some callers do not wait for their answer.
    CHECK(finished == TL_OK || finished == TL_CANCELLED);
    // Answered twice is answered once.
    CHECK(tl_call_finish(call, &outcome, reply, WAITS, 0, NULL) == TL_FAILED_PRECONDITION);
    tl_metadata_release(outcome.trailers);
}

static void on_call(tl_call call) {
    if (equal(tl_call_method(call), "/" SERVICE "/Hang")) {
        // Released when it is over.
        CHECK(tl_call_watch(call, served, 0, NULL) == TL_OK);
    } else {
        if (equal(tl_call_method(call), "/" SERVICE "/Chat")) {
            tl_metadata said;
            tl_slice value;
            CHECK(tl_call_metadata(call, &said, NULL) == TL_OK);
            CHECK(tl_metadata_first(said, text("who"), &value, NULL) == TL_OK && equal(value, "C"));
            CHECK(tl_call_send_headers(call, said, served, 7, NULL) == TL_OK);
            tl_metadata_release(said);
        }
        CHECK(tl_call_receive(call, served, 0, NULL, NULL) == TL_OK);
    }
}

static void on_message(tl_call call, tl_message message) {
    tl_slice bytes = tl_message_bytes(message);
    if (equal(tl_call_method(call), "/" SERVICE "/Chat")) {
        CHECK(tl_call_send(call, bytes, 0, served, 8, NULL) == TL_OK);
    } else if (equal(tl_call_method(call), "/" SERVICE "/Sum")) {
        CHECK(tl_call_receive(call, served, 0, NULL, NULL) == TL_OK);
    } else if (equal(tl_call_method(call), "/" SERVICE "/Fail")) {
        finish(call, TL_NOT_FOUND, "nobody", NULL);
        tl_call_release(call);
    } else {
        finish(call, TL_OK, "", &bytes);
        tl_call_release(call);
    }
}

static void *serve(void *nothing) {
    tl_event event;
    size_t count;
    while (tl_queue_next(served, &event, 1, -1, &count, NULL) == TL_OK) {
        if (count == 0) continue;
        tl_slice done = text("done");
        switch (event.kind) {
        case TL_EVENT_CALL: on_call(event.call); break;
        case TL_EVENT_MESSAGE: on_message(event.call, event.message); break;
        case TL_EVENT_SENT:
            if (event.tag == 8) CHECK(tl_call_receive(event.call, served, 0, NULL, NULL) == TL_OK);
            break;
        case TL_EVENT_REQUESTS_END:
            finish(event.call, TL_OK, "", equal(tl_call_method(event.call), "/" SERVICE "/Sum") ? &done : NULL);
            tl_call_release(event.call);
            break;
        default: tl_call_release(event.call);
        }
        tl_event_clear(&event);
    }
    return nothing;
}

// A handler: asks another method on the call's behalf, and says how much time that left.
static void relay(void *user, tl_call call) {
    tl_event request;
    tl_message reply;
    tl_status status;
    CHECK(user == &served);
    // It may be over already.
    CHECK(tl_call_receive(call, WAITS, 0, &request, NULL) == TL_OK);
    CHECK(request.kind == TL_EVENT_MESSAGE || request.kind == TL_EVENT_END);
    CHECK(tl_call_time_left(call) < INT64_MAX);
    // Never answers, and there is no limit but the inherited one.
    tl_code code = tl_unary(onward, text("/" SERVICE "/Hang"), text("x"), NULL, &reply, &status);
    CHECK(code == TL_DEADLINE_EXCEEDED || code == TL_CANCELLED);
    tl_status_release(status);
    tl_event_clear(&request);
    tl_call_release(call);
}

// ---- the parts

static tl_channel channel;

static void unary(void) {
    tl_message reply;
    tl_status status;
    CHECK(tl_unary(channel, text("/" SERVICE "/Echo"), text("hello"), NULL, &reply, &status) == TL_OK);
    CHECK(status.id == 0 && equal(tl_message_bytes(reply), "hello"));
    uint8_t buffer[8];
    size_t length;
    CHECK(tl_message_copy(reply, buffer, 2, &length, &status) == TL_OUT_OF_RANGE && length == 5);
    CHECK(tl_status_code(status) == TL_OUT_OF_RANGE);
    tl_status_release(status);
    CHECK(tl_message_copy(reply, buffer, sizeof buffer, &length, NULL) == TL_OK && memcmp(buffer, "hello", 5) == 0);
    tl_message_release(reply);

    size_t size = 3 << 20;
    uint8_t *large = malloc(size);
    for (size_t at = 0; at < size; at++) large[at] = (uint8_t)(at * 7);
    tl_slice request = {large, size};
    CHECK(tl_unary(channel, text("/" SERVICE "/Echo"), request, NULL, &reply, NULL) == TL_OK);
    CHECK(tl_message_bytes(reply).len == size && memcmp(tl_message_bytes(reply).data, large, size) == 0);
    tl_message_release(reply);
    free(large);
    puts("unary");
}

static void failures(void) {
    tl_message reply;
    tl_status status;
    tl_slice value;
    tl_metadata trailers;
    CHECK(tl_unary(channel, text("/" SERVICE "/Fail"), text("x"), NULL, &reply, &status) == TL_NOT_FOUND);
    CHECK(reply.id == 0 && equal(tl_status_message(status), "nobody"));
    CHECK(equal(tl_status_details(status), "\x08\x05") && tl_status_execution(status) == TL_EXECUTED);
    CHECK(tl_status_metadata(status, &trailers, NULL) == TL_OK);
    CHECK(tl_metadata_first(trailers, text("ended"), &value, NULL) == TL_OK && equal(value, "yes"));
    CHECK(tl_metadata_first(trailers, text("begun"), &value, NULL) == TL_NOT_FOUND);
    tl_metadata_release(trailers);
    tl_status_release(status);

    CHECK(tl_unary(channel, text("/nobody.v1.Nobody/Here"), text("x"), NULL, &reply, &status) == TL_UNAVAILABLE);
    CHECK(tl_status_execution(status) == TL_NOT_EXECUTED);
    tl_status_release(status);

    tl_call_options options = {0};
    options.size = sizeof options;
    options.timeout_ns = 20 * 1000 * 1000;
    CHECK(tl_unary(channel, text("/" SERVICE "/Hang"), text("x"), &options, &reply, NULL) == TL_DEADLINE_EXCEEDED);
    CHECK(tl_unary(channel, text("/exam.v1.Relay/Go"), text("x"), &options, &reply, NULL) == TL_DEADLINE_EXCEEDED);
    puts("failures");
}

static void queued(void) {
    enum { CALLS = 200 };
    tl_queue queue;
    tl_call calls[CALLS];
    bool seen[CALLS] = {false};
    CHECK(tl_queue_new(&queue, NULL) == TL_OK);
    for (uint64_t tag = 0; tag < CALLS; tag++) {
        char request[16];
        snprintf(request, sizeof request, "%" PRIu64, tag);
        tl_slice method = text("/" SERVICE "/Echo");
        CHECK(tl_unary_start(channel, method, text(request), NULL, queue, tag, &calls[tag], NULL) == TL_OK);
    }
    for (int count = 0; count < CALLS; count++) {
        tl_event event = watched(queue);
        char reply[16];
        snprintf(reply, sizeof reply, "%" PRIu64, event.tag);
        CHECK(event.kind == TL_EVENT_REPLY && event.code == TL_OK && event.call.id == calls[event.tag].id);
        CHECK(!seen[event.tag] && equal(tl_message_bytes(event.message), reply));
        CHECK(event.trailers.id != 0 && tl_metadata_count(event.trailers) == 1);
        seen[event.tag] = true;
        tl_event_clear(&event);
        CHECK(tl_call_release(calls[event.tag]) == TL_OK);
    }
    tl_call call;
    CHECK(tl_unary_start(channel, text("/" SERVICE "/Hang"), text("x"), NULL, queue, 1, &call, NULL) == TL_OK);
    CHECK(tl_call_cancel(call, NULL) == TL_OK);
    tl_event event = next(queue);
    CHECK(event.kind == TL_EVENT_REPLY && event.code == TL_CANCELLED);
    tl_event_clear(&event);
    tl_call_release(call);
    size_t count;
    CHECK(tl_queue_next(queue, &event, 1, 0, &count, NULL) == TL_OK && count == 0);
    tl_queue_release(queue);
    puts("queued");
}

static void streams(void) {
    tl_metadata metadata;
    tl_call call;
    tl_event event;
    tl_slice value;
    CHECK(tl_metadata_new(&metadata, NULL) == TL_OK);
    CHECK(tl_metadata_add(metadata, text("who"), text("C"), NULL) == TL_OK);
    tl_call_options options = {0};
    options.size = sizeof options;
    options.metadata = metadata;
    tl_slice none = {NULL, 0};
    CHECK(tl_call_open(channel, text("/" SERVICE "/Chat"), none, TL_NO_MESSAGE, &options, WAITS, 0, &call, NULL) ==
          TL_OK);
    CHECK(tl_call_receive(call, WAITS, 0, &event, NULL) == TL_OK && event.kind == TL_EVENT_HEADERS);
    CHECK(tl_metadata_first(event.headers, text("who"), &value, NULL) == TL_OK && equal(value, "C"));
    tl_event_clear(&event);
    for (int number = 0; number < 50; number++) {
        char message[16];
        snprintf(message, sizeof message, "%d", number);
        CHECK(tl_call_send(call, text(message), 0, WAITS, 0, NULL) == TL_OK);
        CHECK(tl_call_receive(call, WAITS, 0, &event, NULL) == TL_OK && event.kind == TL_EVENT_MESSAGE);
        CHECK(equal(tl_message_bytes(event.message), message));
        tl_event_clear(&event);
    }
    CHECK(tl_call_end_requests(call, NULL) == TL_OK);
    CHECK(tl_call_end_requests(call, NULL) == TL_FAILED_PRECONDITION);
    CHECK(tl_call_send(call, text("late"), 0, WAITS, 0, NULL) == TL_FAILED_PRECONDITION);
    CHECK(tl_call_receive(call, WAITS, 0, &event, NULL) == TL_OK);
    CHECK(event.kind == TL_EVENT_END && event.code == TL_OK && tl_metadata_count(event.trailers) == 1);
    tl_event_clear(&event);
    tl_call_release(call);

    // The same by a queue, and cancelled in the middle.
    tl_queue queue;
    CHECK(tl_queue_new(&queue, NULL) == TL_OK);
    CHECK(tl_call_open(channel, text("/" SERVICE "/Chat"), text("one"), 0, &options, queue, 5, &call, NULL) == TL_OK);
    event = watched(queue);
    CHECK(event.kind == TL_EVENT_OPENED && event.tag == 5 && event.code == TL_OK && event.call.id == call.id);
    CHECK(tl_call_receive(call, queue, 6, NULL, NULL) == TL_OK);
    event = watched(queue);
    CHECK(event.kind == TL_EVENT_HEADERS && event.tag == 6);
    tl_event_clear(&event);
    CHECK(tl_call_receive(call, queue, 7, NULL, NULL) == TL_OK);
    event = watched(queue);
    CHECK(event.kind == TL_EVENT_MESSAGE && equal(tl_message_bytes(event.message), "one"));
    tl_event_clear(&event);
    CHECK(tl_call_receive(call, queue, 8, NULL, NULL) == TL_OK);
    CHECK(tl_call_receive(call, WAITS, 8, &event, NULL) == TL_OK);
    CHECK(event.kind == TL_EVENT_END && event.code == TL_FAILED_PRECONDITION);
    tl_event_clear(&event);
    CHECK(tl_call_cancel(call, NULL) == TL_OK);
    event = next(queue);
    CHECK(event.kind == TL_EVENT_END && event.code == TL_CANCELLED && event.tag == 8);
    tl_event_clear(&event);
    tl_call_release(call);
    tl_queue_release(queue);
    tl_metadata_release(metadata);

    // Many requests, one response.
    CHECK(tl_call_open(channel, text("/" SERVICE "/Sum"), text("1"), 0, NULL, WAITS, 0, &call, NULL) == TL_OK);
    CHECK(tl_call_send(call, text("2"), TL_LAST, WAITS, 0, NULL) == TL_OK);
    do {
        CHECK(tl_call_receive(call, WAITS, 0, &event, NULL) == TL_OK);
        CHECK(event.kind != TL_EVENT_MESSAGE || equal(tl_message_bytes(event.message), "done"));
        CHECK(event.code == TL_OK);
        tl_event_clear(&event);
    } while (event.kind != TL_EVENT_END);
    tl_call_release(call);
    puts("streams");
}

// How a call ends is told while nobody receives, and nothing is taken from who does afterwards.
static void watches(void) {
    tl_call call;
    tl_event event;
    tl_queue queue;
    tl_call_options options = {0};
    options.size = sizeof options;
    CHECK(tl_queue_new(&queue, NULL) == TL_OK);
    CHECK(tl_metadata_new(&options.metadata, NULL) == TL_OK);
    CHECK(tl_metadata_add(options.metadata, text("who"), text("C"), NULL) == TL_OK);
    for (int waits = 0; waits < 2; waits++) {
        // It ends well, and what was answered waits.
        CHECK(tl_call_open(channel, text("/" SERVICE "/Chat"), text("one"), 0, &options, WAITS, 0, &call, NULL) ==
              TL_OK);
        CHECK(tl_call_send(call, text("two"), TL_LAST, WAITS, 0, NULL) == TL_OK);
        CHECK(tl_call_watch(call, waits ? WAITS : queue, 4, NULL) == TL_OK);
        if (!waits) {
            event = watched(queue);
            CHECK(event.kind == TL_EVENT_OVER && event.tag == 4 && event.call.id == call.id && event.code == TL_OK);
            tl_event_clear(&event);
        }
        uint32_t come[] = {TL_EVENT_HEADERS, TL_EVENT_MESSAGE, TL_EVENT_MESSAGE, TL_EVENT_END};
        for (int at = 0; at < 4; at++) {
            CHECK(tl_call_receive(call, WAITS, 0, &event, NULL) == TL_OK);
            CHECK(event.kind == come[at] && event.code == TL_OK);
            tl_event_clear(&event);
        }
        CHECK(tl_call_watch(call, WAITS, 0, NULL) == TL_OK);
        tl_call_release(call);
        // Its time passes; and it fails, with all that is known of it.
        tl_call_options late = {0};
        late.size = sizeof late;
        late.timeout_ns = 20000000;
        CHECK(tl_call_open(channel, text("/" SERVICE "/Hang"), text("x"), 0, &late, WAITS, 0, &call, NULL) == TL_OK);
        CHECK(tl_call_watch(call, waits ? WAITS : queue, 5, NULL) == TL_OK);
        if (!waits) {
            event = next(queue);
            CHECK(event.kind == TL_EVENT_OVER && event.tag == 5 && event.code == TL_DEADLINE_EXCEEDED);
            tl_event_clear(&event);
        }
        CHECK(tl_call_receive(call, WAITS, 0, &event, NULL) == TL_OK);
        CHECK(event.kind == TL_EVENT_END && event.code == TL_DEADLINE_EXCEEDED);
        tl_event_clear(&event);
        tl_call_release(call);
    }
    CHECK(tl_call_open(channel, text("/" SERVICE "/Fail"), text("x"), TL_LAST, NULL, WAITS, 0, &call, NULL) == TL_OK);
    CHECK(tl_call_watch(call, queue, 6, NULL) == TL_OK);
    event = next(queue);
    CHECK(event.kind == TL_EVENT_OVER && event.code == TL_NOT_FOUND);
    CHECK(equal(tl_status_message(event.status), "nobody") && tl_status_execution(event.status) == TL_EXECUTED);
    tl_event_clear(&event);
    tl_call_release(call);
    // It is cancelled; it is released; and a unary call ends by itself.
    CHECK(tl_call_open(channel, text("/" SERVICE "/Hang"), text("x"), 0, NULL, WAITS, 0, &call, NULL) == TL_OK);
    CHECK(tl_call_watch(call, queue, 7, NULL) == TL_OK);
    CHECK(tl_call_cancel(call, NULL) == TL_OK);
    event = next(queue);
    CHECK(event.kind == TL_EVENT_OVER && event.tag == 7 && event.code == TL_CANCELLED);
    tl_event_clear(&event);
    tl_call_release(call);
    CHECK(tl_call_open(channel, text("/" SERVICE "/Hang"), text("x"), 0, NULL, WAITS, 0, &call, NULL) == TL_OK);
    CHECK(tl_call_watch(call, queue, 8, NULL) == TL_OK);
    tl_call_release(call);
    event = next(queue);
    CHECK(event.kind == TL_EVENT_OVER && event.tag == 8 && event.code == TL_CANCELLED);
    tl_event_clear(&event);
    CHECK(tl_unary_start(channel, text("/" SERVICE "/Echo"), text("x"), NULL, queue, 9, &call, NULL) == TL_OK);
    CHECK(tl_call_watch(call, queue, 10, NULL) == TL_FAILED_PRECONDITION);
    event = next(queue);
    CHECK(event.kind == TL_EVENT_REPLY && event.tag == 9);
    tl_event_clear(&event);
    tl_call_release(call);
    tl_metadata_release(options.metadata);
    tl_queue_release(queue);
    puts("watches");
}

// Calls that this thread serves.
static tl_queue apart;

static tl_call made_and_come(tl_call *call) {
    tl_slice none = {NULL, 0};
    CHECK(tl_call_open(channel, text("/exam.v1.Apart/Any"), none, TL_NO_MESSAGE, NULL, WAITS, 0, call, NULL) == TL_OK);
    tl_event event = next(apart);
    CHECK(event.kind == TL_EVENT_CALL);
    tl_call come = event.call;
    tl_event_clear(&event);
    return come;
}

// Whether what was begun in the queue has not ended.
static int waits(void) {
    tl_event event;
    size_t count;
    CHECK(tl_queue_next(apart, &event, 1, INT64_C(300000000), &count, NULL) == TL_OK);
    if (count == 1) CHECK(event.kind == TL_EVENT_SENT && event.code == TL_OK);
    return count == 0;
}

static void sent(tl_code code) {
    tl_event event = next(apart);
    CHECK(event.kind == TL_EVENT_SENT && event.code == code);
    tl_event_clear(&event);
}

static tl_code end_of(tl_call call) {
    tl_event event;
    do {
        CHECK(tl_call_receive(call, WAITS, 0, &event, NULL) == TL_OK);
        tl_event_clear(&event);
    } while (event.kind != TL_EVENT_END);
    tl_call_release(call);
    return event.code;
}

// An answer that nobody gets is none, and who lets go of a call while something is sent has let go of it.
static void answers(void) {
    static char large[1 << 20];
    tl_slice message = {(const uint8_t *)large, sizeof large};
    tl_call call, come = made_and_come(&call);
    CHECK(tl_call_cancel(call, NULL) == TL_OK && tl_call_watch(come, WAITS, 0, NULL) == TL_OK);
    CHECK(tl_call_finish(come, NULL, &message, WAITS, 0, NULL) == TL_CANCELLED);
    tl_call_release(come);
    tl_call_release(call);

    // Nobody reads, and so it cannot go on.
    come = made_and_come(&call);
    do CHECK(tl_call_send(come, message, 0, apart, 0, NULL) == TL_OK);
    while (!waits());
    CHECK(tl_call_cancel(come, NULL) == TL_OK);
    sent(TL_CANCELLED);
    CHECK(tl_call_finish(come, NULL, NULL, WAITS, 0, NULL) == TL_FAILED_PRECONDITION);
    CHECK(end_of(call) == TL_UNAVAILABLE);
    tl_call_release(come);

    // No room for the answer: 512 MiB are taken. With checks what is built lies elsewhere.
    if (getenv("TRUNKLINE_CHECKS") != NULL) {
        puts("answers");
        return;
    }
    tl_memory all[140];
    const int count = sizeof all / sizeof all[0];
    tl_channel nowhere = {0};
    come = made_and_come(&call);
    for (int at = 0; at < count; at++) {
        CHECK(tl_memory_new(nowhere, come, at < 130 ? 4 * sizeof large : sizeof large, &all[at], NULL) == TL_OK);
    }
    CHECK(tl_call_finish(come, NULL, &message, apart, 0, NULL) == TL_OK && waits());
    CHECK(tl_call_cancel(come, NULL) == TL_OK);
    sent(TL_CANCELLED);
    CHECK(end_of(call) == TL_UNAVAILABLE);
    tl_call_release(come);
    for (int at = 0; at < count; at++) tl_memory_release(all[at]);
    puts("answers");
}

// A call that nobody takes is gone from the queue when it is over.
static void untaken(void) {
    tl_slice none = {NULL, 0};
    struct pollfd fd = {tl_queue_fd(apart), POLLIN, 0};
    CHECK(poll(&fd, 1, 0) == 0);
    for (int round = 0; round < 20; round++) {
        tl_call call;
        CHECK(tl_call_open(channel, text("/exam.v1.Apart/Any"), none, TL_NO_MESSAGE, NULL, WAITS, 0, &call, NULL) ==
              TL_OK);
        CHECK(poll(&fd, 1, -1) == 1);
        CHECK(tl_call_cancel(call, NULL) == TL_OK);
        tl_call_release(call);
        while (poll(&fd, 1, 0) == 1) usleep(1000);
    }
    puts("untaken");
}

static void misuse(void) {
    tl_message reply, gone;
    tl_channel nothing = {0}, wild = {UINT64_MAX};
    tl_call no_call = {0}, call;
    tl_metadata metadata;
    tl_slice bad = {NULL, 5}, value;
    tl_event event;
    tl_slice echo = text("/" SERVICE "/Echo");
    size_t count;
    CHECK(tl_unary(nothing, echo, text("x"), NULL, &reply, NULL) == TL_INVALID_ARGUMENT);
    CHECK(tl_unary(wild, echo, text("x"), NULL, &reply, NULL) == TL_INVALID_ARGUMENT);
    CHECK(tl_unary(channel, echo, text("x"), NULL, NULL, NULL) == TL_INVALID_ARGUMENT);
    CHECK(tl_unary(channel, echo, bad, NULL, &reply, NULL) == TL_INVALID_ARGUMENT);
    CHECK(tl_unary(channel, text("Echo"), text("x"), NULL, &reply, NULL) == TL_INVALID_ARGUMENT);
    tl_call_options sizeless = {0};
    CHECK(tl_unary(channel, echo, text("x"), &sizeless, &reply, NULL) == TL_INVALID_ARGUMENT);
    sizeless.size = sizeof sizeless;
    sizeless.timeout_ns = -1;
    CHECK(tl_unary(channel, echo, text("x"), &sizeless, &reply, NULL) == TL_INVALID_ARGUMENT);

    CHECK(tl_unary(channel, echo, text("x"), NULL, &reply, NULL) == TL_OK);
    gone = reply;
    CHECK(tl_message_release(reply) == TL_OK && tl_message_release(gone) == TL_INVALID_ARGUMENT);
#ifdef USE_AFTER_RELEASE
    CHECK(tl_unary(channel, echo, text("freed"), NULL, &reply, NULL) == TL_OK);
    value = tl_message_bytes(reply);
    tl_message_release(reply);
    CHECK(value.data[0] == 'f');
#endif
    CHECK(tl_message_bytes(gone).data == NULL && tl_message_copy(gone, NULL, 0, NULL, NULL) == TL_INVALID_ARGUMENT);
    // Handles of another kind.
    tl_queue no_queue = {channel.id};
    CHECK(tl_queue_fd(no_queue) == -1 && tl_queue_next(no_queue, &event, 1, 0, &count, NULL) == TL_INVALID_ARGUMENT);
    tl_message no_message = {channel.id};
    CHECK(tl_message_release(no_message) == TL_INVALID_ARGUMENT);
    CHECK(tl_call_send(no_call, text("x"), 0, WAITS, 0, NULL) == TL_INVALID_ARGUMENT);
    CHECK(tl_context_enter(no_call, NULL) == TL_INVALID_ARGUMENT);
    CHECK(tl_context_leave(NULL) == TL_FAILED_PRECONDITION);
    CHECK(tl_metadata_new(&metadata, NULL) == TL_OK);
    CHECK(tl_metadata_add(metadata, text("Upper"), text("x"), NULL) == TL_INVALID_ARGUMENT);
    CHECK(tl_metadata_at(metadata, 0, &value, &value, NULL) == TL_OUT_OF_RANGE);
    tl_metadata_release(metadata);
    CHECK(tl_metadata_count(metadata) == 0);
    // A call of the caller's is nobody's to answer.
    CHECK(tl_call_open(channel, echo, text("x"), TL_LAST, NULL, WAITS, 0, &call, NULL) == TL_OK);
    CHECK(tl_call_finish(call, NULL, NULL, WAITS, 0, NULL) == TL_INVALID_ARGUMENT);
    CHECK(tl_call_release(call) == TL_OK && tl_call_release(call) == TL_INVALID_ARGUMENT);
    CHECK(tl_call_receive(call, WAITS, 0, &event, NULL) == TL_INVALID_ARGUMENT);
    tl_server server;
    tl_server_options options = {0};
    options.size = sizeof options;
    options.daemon = 9;
    CHECK(tl_server_new(&options, &server, NULL) == TL_INVALID_ARGUMENT && server.id == 0);
    CHECK(tl_server_new(NULL, &server, NULL) == TL_OK);
    CHECK(tl_server_ready(server, NULL) == TL_FAILED_PRECONDITION);
    CHECK(tl_server_add_service(server, text("x.Y"), WAITS, 0, NULL, NULL, NULL) == TL_INVALID_ARGUMENT);
    CHECK(tl_server_ready_within(server, 0, NULL) == TL_FAILED_PRECONDITION);
    // What was built goes also where there is nowhere to write what comes of it.
    tl_memory memory;
    tl_call_options building = {0};
    building.size = sizeof building;
    for (int turn = 0; turn < 4; turn++) {
        CHECK(tl_memory_new(channel, (tl_call){0}, 64, &memory, NULL) == TL_OK);
        building.built = memory;
        tl_code code = turn == 0   ? tl_unary(channel, echo, text(""), &building, NULL, NULL)
                       : turn == 1 ? tl_unary_event(channel, echo, text(""), &building, NULL, NULL)
                       : turn == 2 ? tl_unary_start(channel, echo, text(""), &building, served, 0, NULL, NULL)
                                   : tl_call_open(channel, echo, text(""), 0, &building, WAITS, 0, NULL, NULL);
        CHECK(code == TL_INVALID_ARGUMENT && tl_memory_release(memory) == TL_INVALID_ARGUMENT);
    }
    CHECK(tl_server_release(server) == TL_OK);
    // A server that has no daemon yet goes on waiting for one.
    options.daemon = TL_ATTACHED;
    options.socket = text("/nowhere/daemon.sock");
    CHECK(tl_server_new(&options, &server, NULL) == TL_OK);
    CHECK(tl_server_add_service(server, text("x.Y"), apart, 0, NULL, NULL, NULL) == TL_OK);
    CHECK(tl_server_start(server, NULL) == TL_OK);
    CHECK(tl_server_ready_within(server, 1000000, NULL) == TL_DEADLINE_EXCEEDED);
    CHECK(tl_server_ready_within(server, 0, NULL) == TL_DEADLINE_EXCEEDED);
    CHECK(tl_server_shutdown(server, 0, NULL) == TL_OK && tl_server_release(server) == TL_OK);
    puts("misuse");
}

static void *calls(void *nothing) {
    for (int number = 0; number < 100; number++) {
        tl_message reply;
        char request[16];
        snprintf(request, sizeof request, "%d", number);
        CHECK(tl_unary(channel, text("/" SERVICE "/Echo"), text(request), NULL, &reply, NULL) == TL_OK);
        CHECK(equal(tl_message_bytes(reply), request));
        tl_message_release(reply);
    }
    return nothing;
}

static void threads(void) {
    pthread_t many[4];
    for (int number = 0; number < 4; number++) CHECK(pthread_create(&many[number], NULL, calls, NULL) == 0);
    for (int number = 0; number < 4; number++) CHECK(pthread_join(many[number], NULL) == 0);
    puts("threads");
}

// In a forked child queue and server are the parent's, who has them as before, whatever is done with them there.
static void in_child(tl_queue queue, tl_server server, bool releases) {
    alarm(60);
    tl_event event;
    size_t count;
    if (!releases) {
        CHECK(tl_queue_next(queue, &event, 1, -1, &count, NULL) == TL_CANCELLED && count == 0);
        CHECK(tl_queue_post(queue, 1, NULL) == TL_OK && tl_queue_fd(queue) >= 0);
    }
    CHECK(tl_queue_release(queue) == TL_OK);
    CHECK(tl_server_ready(server, NULL) == TL_UNAVAILABLE && tl_server_wait(server, NULL) == TL_UNAVAILABLE);
    CHECK(tl_server_shutdown(server, 0, NULL) == TL_UNAVAILABLE && tl_server_release(server) == TL_OK);
    // And it has queues of its own.
    CHECK(tl_queue_new(&queue, NULL) == TL_OK && tl_queue_post(queue, 1, NULL) == TL_OK);
    CHECK(tl_queue_next(queue, &event, 1, -1, &count, NULL) == TL_OK && count == 1);
    _exit(0);
}

static void children(tl_server server) {
    tl_queue queue;
    CHECK(tl_queue_new(&queue, NULL) == TL_OK);
    struct pollfd fd = {tl_queue_fd(queue), POLLIN, 0};
    for (int turn = 0; turn < 4; turn++) {
        bool is_posted = turn >= 2;
        if (is_posted) CHECK(tl_queue_post(queue, 7, NULL) == TL_OK);
        pid_t child = fork();
        CHECK(child >= 0);
        if (child == 0) in_child(queue, server, turn % 2 == 0);
        int ended;
        CHECK(waitpid(child, &ended, 0) == child && ended == 0);
        CHECK(poll(&fd, 1, 0) == is_posted);
        if (!is_posted) CHECK(tl_queue_post(queue, 7, NULL) == TL_OK && poll(&fd, 1, 0) == 1);
        CHECK(watched(queue).tag == 7 && poll(&fd, 1, 0) == 0);
    }
    CHECK(tl_queue_release(queue) == TL_OK);
    puts("children");
}

// A program's own functions around a fork, which it registers in `main`: they take a lock under which other threads call
// the library, and call it themselves.
static pthread_mutex_t mine = PTHREAD_MUTEX_INITIALIZER;
static atomic_bool forked_enough;

static void made_and_released(void) {
    tl_queue queue;
    CHECK(tl_queue_new(&queue, NULL) == TL_OK && tl_queue_release(queue) == TL_OK);
}

static void before_fork(void) {
    pthread_mutex_lock(&mine);
    made_and_released();
}

static void after_fork(void) {
    made_and_released();
    pthread_mutex_unlock(&mine);
}

static void *beside(void *nothing) {
    while (!forked_enough) {
        pthread_mutex_lock(&mine);
        made_and_released();
        pthread_mutex_unlock(&mine);
    }
    return nothing;
}

static void forks(void) {
    alarm(120);
    pthread_t other;
    CHECK(pthread_create(&other, NULL, beside, NULL) == 0);
    for (int number = 0; number < 100; number++) {
        pid_t child = fork();
        CHECK(child >= 0);
        if (child == 0) _exit(0);
        int ended;
        CHECK(waitpid(child, &ended, 0) == child && ended == 0);
    }
    forked_enough = true;
    CHECK(pthread_join(other, NULL) == 0);
    alarm(0);
    puts("forks");
}

int main(void) {
    CHECK(pthread_atfork(before_fork, after_fork, after_fork) == 0);
    setvbuf(stdout, NULL, _IOLBF, 0);
    CHECK(tl_version() == TL_VERSION && tl_handles_open() == 0);
    tl_channel_options to = {0};
    to.size = sizeof to;
    to.daemon = TL_EMBEDDED;
    CHECK(tl_channel_new(&to, &channel, NULL) == TL_OK);
    CHECK(tl_channel_new(&to, &onward, NULL) == TL_OK);
    CHECK(tl_queue_new(&served, NULL) == TL_OK && tl_queue_new(&apart, NULL) == TL_OK);
    tl_server server;
    tl_server_options options = {0};
    options.size = sizeof options;
    options.daemon = TL_EMBEDDED;
    options.workers = 2;
    CHECK(tl_server_new(&options, &server, NULL) == TL_OK);
    CHECK(tl_server_add_service(server, text(SERVICE), served, 0, NULL, NULL, NULL) == TL_OK);
    CHECK(tl_server_add_service(server, text("exam.v1.Apart"), apart, 0, NULL, NULL, NULL) == TL_OK);
    CHECK(tl_server_add_service(server, text("exam.v1.Relay"), WAITS, 0, relay, &served, NULL) == TL_OK);
    CHECK(tl_server_start(server, NULL) == TL_OK && tl_server_ready(server, NULL) == TL_OK);
    CHECK(tl_server_ready_within(server, 0, NULL) == TL_OK && tl_server_ready_within(server, -1, NULL) == TL_OK);
    CHECK(tl_server_start(server, NULL) == TL_FAILED_PRECONDITION);
    pthread_t serving;
    CHECK(pthread_create(&serving, NULL, serve, NULL) == 0);

    unary();
    failures();
    queued();
    streams();
    watches();
    answers();
    untaken();
    misuse();
    threads();
    children(server);
    forks();

    CHECK(tl_server_shutdown(server, INT64_C(10000000000), NULL) == TL_OK);
    CHECK(tl_queue_release(served) == TL_OK && tl_queue_release(apart) == TL_OK);
    CHECK(pthread_join(serving, NULL) == 0);
    tl_server_release(server);
    tl_channel_release(onward);
    tl_channel_release(channel);
    printf("handles %" PRIu64 "\n", tl_handles_open());
    return tl_handles_open() == 0 ? 0 : 1;
}
