// Examines gRPC C++'s surface, of Trunkline or of gRPC itself:
//
//   exam serve sync|callback|async ADDRESS    serves until its input ends
//   exam call TARGET                          calls by each API
//   exam all                                  both in this process, with each API
#include <iostream>

#include "clients.h"
#include "ends.h"
#include "interceptors.h"
#include "servers.h"
#ifdef TRUNKLINE_HPP
#include "parts.h"
#include "threads.h"
#endif

static void say(const std::string &line) { std::cout << line << std::endl; }

static void call(const std::string &target) {
    auto channel = grpc::CreateChannel(target, grpc::InsecureChannelCredentials());
    exam::BlockingExaminer(channel).examine();
    exam::InterceptedExaminer<exam::BlockingExaminer>(target).examine();
    say("blocking");
    exam::ReactingExaminer(channel).examine();
    exam::InterceptedExaminer<exam::ReactingExaminer>(target).examine();
    auto stub = exam::v1::Exam::NewStub(channel);
    exam::unread(stub.get());
    exam::thrown(stub.get());
    exam::refused(target);
    exam::gone(target);
    say("callback");
    exam::QueuedExaminer(channel).examine();
    exam::InterceptedExaminer<exam::QueuedExaminer>(target).examine();
    exam::alarms();
#ifdef TRUNKLINE_HPP
    exam::abandoned(target);
#endif
    say("queued");
}

int main(int argc, char **argv) {
    std::vector<std::string> words(argv + 1, argv + argc);
    if (words.size() == 3 && words[0] == "serve") {
        exam::Served served(words[1], words[2]);
        say("ready");
        std::string line;
        while (std::getline(std::cin, line)) {
        }
    } else if (words.size() == 2 && words[0] == "call") {
        say("ready");
        call(words[1]);
    } else if (words.size() == 1 && words[0] == "all") {
#ifdef TRUNKLINE_HPP
        // First: it shows how what is made once is asked for again.
        exam::without_descriptors("localhost:50051");
#endif
        for (const char *by : {"sync", "callback", "async"}) {
            exam::Served served(by, "localhost:50051");
            call("localhost:50051");
            exam::unheaded("localhost:50051");
#ifdef TRUNKLINE_HPP
            exam::answered_twice("localhost:50051");
            exam::unopened("localhost:50051");
#endif
        }
        exam::unfinished("localhost:50051");
        exam::headed("localhost:50051");
        exam::notified("localhost:50051");
        exam::answered("localhost:50051");
        exam::outlived("localhost:50051");
#ifdef TRUNKLINE_HPP
        exam::looking();
        exam::signed_for();
        exam::watched("localhost:50051");
        exam::unasked("localhost:50051");
        exam::crowded("localhost:50051");
        exam::inherited("localhost:50051");
#endif
    } else {
        return 2;
    }
#ifdef TRUNKLINE_HPP
    say("handles " + std::to_string(tl_handles_open()));
#else
    say("handles 0");
#endif
    return 0;
}
