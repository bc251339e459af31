// Load from C, for tests that kill and replace: load client THREADS | load server LOG | load forks COUNT
//
// A client calls Echo of the probe service again and again until its input ends, each call with a number of its own,
// half of its threads waiting, half by a queue, and says a line for each: "answered N", "not-executed N", "failed N
// WHY". A server answers Echo, and writes the number of each call to LOG before it does. Forks are children of a program
// whose threads call, and call themselves.
#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <trunkline.h>
#include <unistd.h>

#define SERVICE "probe.v1.Probe"
#define MUST(call)                                                                                                     \
    do {                                                                                                               \
        tl_code code_of_it = (call);                                                                                   \
        if (code_of_it != TL_OK) {                                                                                     \
            fprintf(stderr, "%s: code %u\n", #call, code_of_it);                                                       \
            exit(1);                                                                                                   \
        }                                                                                                              \
    } while (0)

static tl_channel channel;
static _Atomic uint64_t numbers;
static atomic_bool stop;

static tl_slice text(const char *text) {
    tl_slice slice = {(const uint8_t *)text, strlen(text)};
    return slice;
}

// Makes a call and gives its status, to be released; the reply must be what was sent.
static tl_status call(tl_queue queue, tl_slice request, const tl_call_options *options) {
    tl_event event;
    tl_status status;
    tl_slice method = text("/" SERVICE "/Echo");
    if (queue.id == 0) {
        if (tl_unary_event(channel, method, request, options, &event, &status) != TL_OK) {
            tl_event_clear(&event);
            return status;
        }
    } else {
        tl_call call;
        size_t count = 0;
        if (tl_unary_start(channel, method, request, options, queue, 0, &call, &status) != TL_OK) return status;
        while (count == 0) MUST(tl_queue_next(queue, &event, 1, -1, &count, NULL));
        tl_call_release(call);
        status = event.status;
        event.status.id = 0;
    }
    if (event.code == TL_OK) {
        tl_slice reply = tl_message_bytes(event.message);
        if (reply.len != request.len || memcmp(reply.data, request.data, reply.len) != 0) {
            fprintf(stderr, "something else came back\n");
            exit(1);
        }
    }
    tl_event_clear(&event);
    return status;
}

static void *run(void *by_queue) {
    tl_queue queue = {0};
    if (by_queue != NULL) MUST(tl_queue_new(&queue, NULL));
    while (!atomic_load(&stop)) {
        uint64_t number = atomic_fetch_add(&numbers, 1);
        char digits[24];
        uint8_t request[32];
        int length = snprintf(digits, sizeof digits, "%" PRIu64, number);
        request[0] = 0x0a;
        request[1] = (uint8_t)length;
        memcpy(request + 2, digits, (size_t)length);
        tl_slice bytes = {request, (size_t)length + 2};
        tl_call_options options = {0};
        options.size = sizeof options;
        options.timeout_ns = INT64_C(60000000000);
        MUST(tl_metadata_new(&options.metadata, NULL));
        MUST(tl_metadata_add(options.metadata, text("log"), text(digits), NULL));
        tl_status status = call(queue, bytes, &options);
        tl_metadata_release(options.metadata);
        if (tl_status_code(status) == TL_OK) {
            printf("answered %" PRIu64 "\n", number);
        } else if (tl_status_execution(status) == TL_NOT_EXECUTED) {
            printf("not-executed %" PRIu64 "\n", number);
            struct timespec moment = {0, 1000000};
            nanosleep(&moment, NULL);
        } else {
            tl_slice why = tl_status_message(status);
            unsigned code = tl_status_code(status);
            printf("failed %" PRIu64 " %u %.*s\n", number, code, (int)why.len, (const char *)why.data);
        }
        tl_status_release(status);
    }
    tl_queue_release(queue);
    return NULL;
}

static int client(size_t count) {
    tl_channel_options options = {0};
    options.size = sizeof options;
    options.wait_for_ready = 1;
    MUST(tl_channel_new(&options, &channel, NULL));
    pthread_t threads[64];
    if (count > 64) count = 64;
    setvbuf(stdout, NULL, _IOLBF, 0);
    printf("ready\n");
    for (size_t at = 0; at < count; at++) {
        if (pthread_create(&threads[at], NULL, run, at % 2 ? &channel : NULL) != 0) return 1;
    }
    while (getchar() != EOF) {}
    atomic_store(&stop, true);
    for (size_t at = 0; at < count; at++) pthread_join(threads[at], NULL);
    tl_channel_release(channel);
    printf("handles %" PRIu64 "\n", tl_handles_open());
    return 0;
}

// What a child comes to: 0 if its calls were answered, waiting and by a queue it made itself.
static int child(void) {
    tl_queue waits = {0}, queue;
    tl_slice request = {(const uint8_t *)"\x0a\x01x", 3};
    tl_call_options options = {0};
    options.size = sizeof options;
    options.timeout_ns = INT64_C(60000000000);
    MUST(tl_queue_new(&queue, NULL));
    for (int count = 0; count < 3; count++) {
        tl_status by_waiting = call(waits, request, &options), by_queue = call(queue, request, &options);
        if (tl_status_code(by_waiting) != TL_OK || tl_status_code(by_queue) != TL_OK) return 1;
    }
    return 0;
}

static int forks(int count) {
    pthread_t threads[2];
    tl_channel_options options = {0};
    options.size = sizeof options;
    options.wait_for_ready = 1;
    MUST(tl_channel_new(&options, &channel, NULL));
    setvbuf(stdout, NULL, _IOLBF, 0);
    printf("ready\n");
    for (size_t at = 0; at < 2; at++) {
        if (pthread_create(&threads[at], NULL, run, at % 2 ? &channel : NULL) != 0) return 1;
    }
    for (int number = 0; number < count; number++) {
        int ended;
        pid_t process = fork();
        if (process == 0) _exit(child());
        if (process < 0 || waitpid(process, &ended, 0) != process) return 1;
        printf("child %d\n", WIFEXITED(ended) ? WEXITSTATUS(ended) : -1);
    }
    atomic_store(&stop, true);
    for (size_t at = 0; at < 2; at++) pthread_join(threads[at], NULL);
    tl_channel_release(channel);
    printf("handles %" PRIu64 "\n", tl_handles_open());
    return 0;
}

static void answer(tl_call call, tl_message request, int log) {
    tl_metadata metadata;
    tl_slice number, reply = tl_message_bytes(request);
    tl_queue waits = {0};
    MUST(tl_call_metadata(call, &metadata, NULL));
    if (tl_metadata_first(metadata, text("log"), &number, NULL) == TL_OK) {
        char line[32];
        int length = snprintf(line, sizeof line, "%.*s\n", (int)number.len, (const char *)number.data);
        if (write(log, line, (size_t)length) != length) exit(1);
    }
    tl_metadata_release(metadata);
    // Who has gone in between is not told.
    tl_call_finish(call, NULL, &reply, waits, 0, NULL);
}

static int server(const char *path) {
    tl_queue queue;
    tl_server server;
    int log = open(path, O_WRONLY | O_CREAT | O_APPEND, 0600);
    if (log < 0) return 1;
    MUST(tl_queue_new(&queue, NULL));
    MUST(tl_server_new(NULL, &server, NULL));
    MUST(tl_server_add_service(server, text(SERVICE), queue, 0, NULL, NULL, NULL));
    MUST(tl_server_start(server, NULL));
    MUST(tl_server_ready(server, NULL));
    setvbuf(stdout, NULL, _IOLBF, 0);
    printf("ready\n");
    for (;;) {
        tl_event events[16];
        size_t count;
        MUST(tl_queue_next(queue, events, 16, -1, &count, NULL));
        for (size_t at = 0; at < count; at++) {
            tl_event *event = &events[at];
            if (event->kind == TL_EVENT_CALL) {
                MUST(tl_call_receive(event->call, queue, 0, NULL, NULL));
            } else {
                if (event->kind == TL_EVENT_MESSAGE) answer(event->call, event->message, log);
                tl_call_release(event->call);
            }
            tl_event_clear(event);
        }
    }
}

int main(int argc, char **argv) {
    if (argc == 3 && strcmp(argv[1], "client") == 0) return client((size_t)atoi(argv[2]));
    if (argc == 3 && strcmp(argv[1], "server") == 0) return server(argv[2]);
    if (argc == 3 && strcmp(argv[1], "forks") == 0) return forks(atoi(argv[2]));
    return 2;
}
