// A const message over linear memory that several threads send, encode and copy at once: under the thread sanitizer.
#include <cstdio>
#include <cstdlib>
#include <string>
#include <thread>
#include <vectors.v1.linear.hpp>

using namespace vectors::v1;

// Something was left behind in it, and nothing has asked for its bytes yet.
static Choice made() {
    Choice out;
    out.mutable_choice()->set_text("left behind");
    out.set_text("kept");
    out.set_before(3);
    return out;
}

static void check(bool holds, const char *what) {
    if (holds) return;
    std::fprintf(stderr, "does not hold: %s\n", what);
    std::exit(1);
}

int main() {
    static const Choice shared = made();
    static const Choice empty;
    static const Tree plain = [] {
        Tree out;
        out.set_label("plain");
        return out;
    }();
    trunkline::Channel::Options where;
    where.daemon = TL_EMBEDDED;
    trunkline::Channel channel = trunkline::Channel::make(where).value();
    const std::string encoded = made().SerializeAsString();
    std::vector<std::thread> threads;
    for (int thread = 0; thread < 4; thread++) {
        threads.emplace_back([&channel, &encoded] {
            ExamClient client(channel);
            for (int round = 0; round < 250; round++) {
                // Nobody serves it: it is encoded all the same.
                check(client.Turn(shared).status().code() == TL_UNAVAILABLE, "a call to nobody");
                check(client.Turn(empty).status().code() == TL_UNAVAILABLE, "an empty call to nobody");
                check(shared.SerializeAsString() == encoded, "what is encoded");
                check(empty.SerializeAsString().empty(), "nothing is encoded");
                check(plain.SerializeAsString().size() == 7, "a label is encoded");
                check(Choice(shared).text() == "kept", "a copy");
            }
        });
    }
    for (std::thread &thread : threads) thread.join();
    std::printf("shared\n");
}
