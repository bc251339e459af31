// Says hello to whoever is named, through the host's daemon: client NAME
#include "hello.h"

int main(int argc, char **argv) {
    tl_channel channel;
    tl_status status;
    if (tl_channel_new(NULL, &channel, &status) != TL_OK) return failed("channel", status);

    const char *name = argc > 1 ? argv[1] : "world";
    uint8_t request[129];
    tl_slice bytes = {request, encode(name, strlen(name), request)};
    tl_call_options options = {0};
    options.size = sizeof options;
    options.timeout_ns = INT64_C(5000000000);

    tl_message reply;
    if (tl_unary(channel, text("/" SERVICE "/SayHello"), bytes, &options, &reply, &status) != TL_OK)
        return failed("SayHello", status);
    tl_slice greeting = decode(tl_message_bytes(reply));
    printf("%.*s\n", (int)greeting.len, (const char *)greeting.data);

    tl_message_release(reply);
    tl_channel_release(channel);
    return 0;
}
