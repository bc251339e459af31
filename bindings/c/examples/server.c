// Greets callers until it is killed: its calls come through a completion queue.
#include "hello.h"

static void answer(tl_call call, tl_message request) {
    tl_slice name = decode(tl_message_bytes(request));
    tl_outcome outcome = {0};
    outcome.size = sizeof outcome;
    if (name.len == 0) {
        outcome.code = TL_INVALID_ARGUMENT;
        outcome.message = text("whom shall I greet?");
        tl_queue waits = {0};
        tl_call_finish(call, &outcome, NULL, waits, 0, NULL);
        return;
    }
    char greeting[160];
    int length = snprintf(greeting, sizeof greeting, "Hello, %.*s!", (int)name.len, (const char *)name.data);
    uint8_t bytes[129];
    tl_slice reply = {bytes, encode(greeting, (size_t)length, bytes)};
    tl_queue waits = {0};
    tl_call_finish(call, &outcome, &reply, waits, 0, NULL);
}

int main(void) {
    tl_status status;
    tl_queue queue;
    tl_server server;
    if (tl_queue_new(&queue, &status) != TL_OK) return failed("queue", status);
    if (tl_server_new(NULL, &server, &status) != TL_OK) return failed("server", status);
    if (tl_server_add_service(server, text(SERVICE), queue, 0, NULL, NULL, &status) != TL_OK)
        return failed("service", status);
    if (tl_server_start(server, &status) != TL_OK) return failed("start", status);
    if (tl_server_ready(server, &status) != TL_OK) return failed("ready", status);
    printf("ready\n");
    fflush(stdout);

    for (;;) {
        tl_event event;
        size_t count;
        if (tl_queue_next(queue, &event, 1, -1, &count, &status) != TL_OK) return failed("next", status);
        if (count == 0) continue;
        if (event.kind == TL_EVENT_CALL) {
            // Its request comes as an event of its own.
            tl_call_receive(event.call, queue, 0, NULL, NULL);
        } else if (event.kind == TL_EVENT_MESSAGE) {
            answer(event.call, event.message);
            tl_call_release(event.call);
        } else {
            // The caller has gone, or sent nothing.
            tl_call_release(event.call);
        }
        tl_event_clear(&event);
    }
}
