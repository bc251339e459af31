// Its standard error takes nothing: a pipe without a reader, or one that is full. There is no daemon at the socket that is
// named, so the library has something to say. Afterwards its thread keeps limits all the same. unread gone|full
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <trunkline.h>
#include <unistd.h>

static tl_slice text(const char *bytes) { return (tl_slice){(const uint8_t *)bytes, strlen(bytes)}; }

// A pipe for standard error.
static void unread(int is_full) {
    int ends[2];
    if (pipe(ends) != 0) _exit(3);
    if (is_full) {
        static const char page[4096];
        fcntl(ends[1], F_SETFL, O_NONBLOCK);
        while (write(ends[1], page, sizeof page) > 0) {
        }
        fcntl(ends[1], F_SETFL, 0);
    } else {
        close(ends[0]);
    }
    dup2(ends[1], 2);
    close(ends[1]);
}

int main(int argc, char **argv) {
    tl_queue queue;
    tl_server server;
    tl_channel channel;
    tl_channel_options options = {.size = sizeof options, .wait_for_ready = 1};
    unread(argc > 1 && strcmp(argv[1], "full") == 0);
    if (tl_queue_new(&queue, NULL) != TL_OK || tl_server_new(NULL, &server, NULL) != TL_OK) return 1;
    if (tl_server_add_service(server, text("unread.v1.Unread"), queue, 0, NULL, NULL, NULL) != TL_OK) return 1;
    if (tl_server_start(server, NULL) != TL_OK) return 1;
    if (tl_channel_new(&options, &channel, NULL) != TL_OK) return 1;
    // The library has said why the server is not attached after two seconds: longer than the first of these calls.
    for (int call = 0; call < 4; call++) {
        tl_call_options limit = {.size = sizeof limit, .timeout_ns = 1500000000};
        tl_slice none = {NULL, 0};
        tl_message reply;
        tl_code code = tl_unary(channel, text("/unread.v1.Unread/Ask"), none, &limit, &reply, NULL);
        printf("%u\n", code);
    }
    // A misuse, which is told where checks are on.
    tl_message_release((tl_message){77});
    return 0;
}
