// Calls every function of the ABI with handles of every kind, ended ones and ones that never were among them, in random
// order: nothing crashes, hangs or stays behind. random SEED STEPS
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <trunkline.h>

#define SERVICE "random.v1.Random"
#define POOL 256

static uint64_t state;
// Handles, whatever they are of, or were.
static uint64_t pool[POOL];
static tl_queue queue;
static tl_channel channel;

static uint64_t number(uint64_t below) {
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return state % below;
}

static uint64_t any(void) {
    uint64_t at = number(POOL + 2);
    return at < POOL ? pool[at] : at == POOL ? 0 : state;
}

static void add(uint64_t id) {
    if (id != 0) {
        uint64_t at = number(POOL);
        uint64_t old = pool[at];
        pool[at] = id;
        // Whatever it was: one of these ends it.
        tl_message_release((tl_message){old});
        tl_metadata_release((tl_metadata){old});
        tl_status_release((tl_status){old});
        tl_call_release((tl_call){old});
        tl_schema_release((tl_schema){old});
        tl_memory_release((tl_memory){.id = old});
        if (old != channel.id) tl_channel_release((tl_channel){old});
    }
}

static tl_slice slice(void) {
    static const char *const texts[] = {"", "x", "/" SERVICE "/Echo", "/nobody/Here", "key", "key-bin", "\xff\xfe", "UP"};
    const char *text = texts[number(8)];
    tl_slice out = {number(20) == 0 ? NULL : (const uint8_t *)text, strlen(text)};
    return out;
}

static tl_queue any_queue(void) {
    switch (number(3)) {
    case 0: return queue;
    case 1: return (tl_queue){0};
    default: return (tl_queue){any()};
    }
}

static tl_channel any_channel(void) { return number(4) ? channel : (tl_channel){any()}; }

static void take(tl_event *event) {
    add(event->call.id);
    add(event->message.id);
    add(event->headers.id);
    add(event->trailers.id);
    add(event->status.id);
}

// Every call ends by itself: whoever waits for it does not wait for ever.
static tl_call_options options(void) {
    tl_call_options out = {0};
    out.size = number(20) ? sizeof out : (uint32_t)number(64);
    out.timeout_ns = (int64_t)number(3000000) + 1;
    if (number(4) == 0) out.metadata.id = any();
    if (number(4) == 0) out.parent.id = any();
    // A smaller structure may have no limit in it.
    if (out.size < sizeof out) out.size = number(2) ? 0 : sizeof out;
    if (number(4) == 0) out.built.id = any();
    out.built_bytes = (size_t)number(100);
    return out;
}

static void call(void) {
    tl_call_options how = options();
    tl_call made = {0};
    tl_message reply = {0};
    tl_event event = {0};
    tl_status status = {0};
    switch (number(4)) {
    case 0: tl_unary(any_channel(), slice(), slice(), &how, &reply, &status); break;
    case 1: tl_unary_event(any_channel(), slice(), slice(), &how, &event, &status); break;
    case 2: tl_unary_start(any_channel(), slice(), slice(), &how, any_queue(), 1, &made, &status); break;
    default: tl_call_open(any_channel(), slice(), slice(), (uint32_t)number(4), &how, any_queue(), 2, &made, &status);
    }
    add(made.id);
    add(reply.id);
    add(status.id);
    take(&event);
}

static void along(void) {
    tl_call call = {any()};
    tl_status status = {0};
    tl_event event = {0};
    tl_metadata metadata = {0};
    tl_outcome outcome = {0};
    tl_slice last = slice();
    outcome.size = sizeof outcome;
    outcome.code = (uint32_t)number(20);
    outcome.message = slice();
    outcome.trailers.id = number(4) ? 0 : any();
    switch (number(11)) {
    case 0: tl_call_send(call, slice(), (uint32_t)number(2), any_queue(), 3, &status); break;
    case 1: tl_call_end_requests(call, &status); break;
    case 2: tl_call_receive(call, any_queue(), 4, &event, &status); break;
    case 3: tl_call_cancel(call, &status); break;
    case 4: tl_call_method(call); break;
    case 5: tl_call_metadata(call, &metadata, &status); break;
    case 6: tl_call_time_left(call); break;
    case 7: tl_call_watch(call, queue, 5, &status); break;
    case 8: tl_call_send_headers(call, (tl_metadata){any()}, any_queue(), 6, &status); break;
    case 9: tl_call_finish(call, number(4) ? &outcome : NULL, number(2) ? &last : NULL, any_queue(), 7, &status); break;
    default:
        if (tl_context_enter(call, &status) == TL_OK && number(2)) tl_context_leave(NULL);
    }
    add(metadata.id);
    add(status.id);
    take(&event);
}

static void values(void) {
    tl_metadata metadata = {0};
    tl_slice key, value;
    tl_status status = {0};
    uint8_t buffer[2];
    size_t length;
    switch (number(9)) {
    case 0: tl_metadata_new(&metadata, &status); break;
    case 1: tl_metadata_add((tl_metadata){any()}, slice(), slice(), &status); break;
    case 2: tl_metadata_at((tl_metadata){any()}, (size_t)number(3), &key, &value, &status); break;
    case 3: tl_metadata_first((tl_metadata){any()}, slice(), &value, &status); break;
    case 4: tl_message_copy((tl_message){any()}, buffer, (size_t)number(3), &length, &status); break;
    case 5: tl_message_bytes((tl_message){any()}); break;
    case 6: tl_status_metadata((tl_status){any()}, &metadata, &status); break;
    case 7: tl_status_message((tl_status){any()}); break;
    default: tl_metadata_count((tl_metadata){any()});
    }
    add(metadata.id);
    add(status.id);
}

// message M { int32 a = 1; }
static const uint8_t TYPES[] = "\x0a\x1b\x0a\x01r\x22\x0e\x0a\x01M\x12\x09\x0a\x01"
                               "a\x18\x01\x20\x01\x28\x05\x62\x06proto3";

static void types(void) {
    tl_schema schema = {0};
    tl_channel typed = {0};
    tl_memory memory = {0};
    tl_message message = {0};
    tl_status status = {0};
    tl_slice set = {TYPES, number(8) ? sizeof TYPES - 1 : (size_t)number(sizeof TYPES)};
    tl_slice name = {(const uint8_t *)"M", 1};
    size_t bytes = 0;
    switch (number(8)) {
    case 0: tl_schema_new(set, &schema, &status); break;
    case 1: tl_channel_typed(any_channel(), (tl_schema){any()}, &typed, &status); break;
    case 2: tl_memory_new(any_channel(), (tl_call){number(2) ? 0 : any()}, (size_t)number(5000), &memory, &status); break;
    case 3:
        memory.id = any();
        tl_memory_grow(&memory, (size_t)number(100000), &status);
        memory.id = 0;
        break;
    case 4: tl_schema_check((tl_schema){any()}, number(4) ? name : slice(), slice(), &status); break;
    case 5: tl_schema_encode((tl_schema){any()}, name, slice(), &message, &status); break;
    case 6: tl_schema_decode((tl_schema){any()}, name, slice(), &memory, &bytes, &status); break;
    default:
        tl_call_send_built((tl_call){any()}, (tl_memory){.id = any()}, (size_t)number(100), (uint32_t)number(2),
                           any_queue(), 9, &status);
    }
    if (memory.id != 0 && number(2)) memset(memory.data, (int)number(256), memory.capacity);
    add(schema.id);
    add(typed.id);
    add(memory.id);
    add(message.id);
    add(status.id);
}

static void drain(void) {
    tl_event events[8];
    size_t count = 0;
    tl_queue_next(queue, events, 1 + (size_t)number(8), 0, &count, NULL);
    for (size_t at = 0; at < count; at++) {
        if (number(2)) take(&events[at]);
        else {
            add(events[at].call.id);
            tl_event_clear(&events[at]);
        }
    }
}

int main(int argc, char **argv) {
    if (argc != 3) return 2;
    state = strtoull(argv[1], NULL, 10) * 2654435761u + 1;
    tl_channel_options to = {0};
    tl_server_options from = {0};
    tl_server server;
    to.size = sizeof to;
    from.size = sizeof from;
    to.daemon = from.daemon = TL_EMBEDDED;
    tl_slice name = {(const uint8_t *)SERVICE, strlen(SERVICE)};
    if (tl_channel_new(&to, &channel, NULL) || tl_queue_new(&queue, NULL) || tl_server_new(&from, &server, NULL)) return 1;
    tl_schema schema;
    tl_slice set = {TYPES, sizeof TYPES - 1}, other = {(const uint8_t *)"M", 1};
    if (tl_schema_new(set, &schema, NULL)) return 1;
    // Of a queue that is none: the server is as it was.
    if (tl_server_add_typed_service(server, schema, other, (tl_queue){0}, 10, NULL, NULL, NULL) == TL_OK) return 1;
    tl_schema_release(schema);
    if (tl_server_add_service(server, name, queue, 8, NULL, NULL, NULL) || tl_server_start(server, NULL)) return 1;
    if (tl_server_ready(server, NULL)) return 1;
    for (uint64_t step = strtoull(argv[2], NULL, 10); step > 0; step--) {
        switch (number(5)) {
        case 0: call(); break;
        case 1: along(); break;
        case 2: values(); break;
        case 3: types(); break;
        default: drain();
        }
    }
    while (tl_context_leave(NULL) == TL_OK) {}
    tl_server_shutdown(server, 0, NULL);
    // Ended twice is ended once, and a queue's operations end with it.
    tl_queue_release(queue);
    for (int round = 0; round < 2; round++) {
        for (size_t at = 0; at < POOL; at++) {
            uint64_t id = pool[at];
            tl_message_release((tl_message){id});
            tl_metadata_release((tl_metadata){id});
            tl_status_release((tl_status){id});
            tl_call_release((tl_call){id});
            tl_queue_release((tl_queue){id});
            tl_schema_release((tl_schema){id});
            tl_memory_release((tl_memory){.id = id});
            if (id != channel.id) tl_channel_release((tl_channel){id});
        }
    }
    tl_server_release(server);
    tl_channel_release(channel);
    printf("handles %" PRIu64 "\n", tl_handles_open());
    return tl_handles_open() == 0 ? 0 : 1;
}
