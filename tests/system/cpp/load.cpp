// Load from C++ over linear messages, for tests that kill and replace: load client THREADS | load server LOG
//
// As tests/system/c/load.c: calls until its input ends, and a line for each call.
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <fcntl.h>
#include <probe.v1.linear.hpp>
#include <unistd.h>

using namespace probe::v1;
using trunkline::Status;

static std::atomic<uint64_t> numbers;
static std::atomic<bool> is_over;

static int failed(const char *what) {
    std::fprintf(stderr, "%s\n", what);
    return 1;
}

static void work(const ProbeClient &probe) {
    while (!is_over) {
        uint64_t number = numbers++;
        std::string digits = std::to_string(number);
        trunkline::CallOptions options;
        options.timeout = std::chrono::seconds(60);
        options.metadata = {{"log", digits}};
        Text text(probe.tl_channel_of());
        text.set_text(digits);
        auto reply = probe.Echo(std::move(text), options);
        if (reply && reply->text() != digits) std::exit(failed("something else came back"));
        if (reply) {
            std::printf("answered %s\n", digits.c_str());
        } else if (reply.status().execution() == TL_NOT_EXECUTED) {
            std::printf("not-executed %s\n", digits.c_str());
            std::this_thread::sleep_for(std::chrono::milliseconds(1));
        } else {
            const Status &status = reply.status();
            std::printf("failed %s %u %s\n", digits.c_str(), status.code(), status.message().c_str());
        }
    }
}

static int client(int count) {
    trunkline::Channel::Options options;
    options.wait_for_ready = true;
    auto channel = trunkline::Channel::make(options);
    if (!channel) return failed("no channel");
    ProbeClient probe(*channel);
    std::puts("ready");
    std::vector<std::thread> threads;
    for (int at = 0; at < count; at++) threads.emplace_back([&probe] { work(probe); });
    while (std::getchar() != EOF) {
    }
    is_over = true;
    for (std::thread &thread : threads) thread.join();
    return 0;
}

class Server : public ProbeService {
  public:
    explicit Server(int log) : log_(log) {}

  private:
    Status Echo(const Text &request, Text &reply, trunkline::ServedCall &call) override {
        trunkline::Metadata said = call.metadata();
        if (auto number = trunkline::first(said, "log")) {
            std::string line = std::string(*number) + "\n";
            if (write(log_, line.data(), line.size()) != static_cast<ssize_t>(line.size())) std::exit(failed("the log"));
        }
        reply.set_text(request.text());
        return Status();
    }

    int log_;
};

static int serve(const char *path) {
    int log = open(path, O_WRONLY | O_CREAT | O_APPEND, 0600);
    if (log < 0) return failed("the log");
    Server probe(log);
    trunkline::Server::Options options;
    options.threads = 4;
    std::vector<trunkline::Service> services;
    services.push_back(probe.service());
    auto server = trunkline::Server::start(options, std::move(services));
    if (!server) return failed("no server");
    std::puts("ready");
    for (;;) pause();
}

int main(int argc, char **argv) {
    std::setvbuf(stdout, nullptr, _IOLBF, 0);
    if (argc != 3) return 2;
    int ended = std::string_view(argv[1]) == "server" ? serve(argv[2]) : client(std::atoi(argv[2]));
    // The types of the probe, which live as long as the program.
    std::printf("handles %d\n", static_cast<int>(tl_handles_open()) - 1);
    return ended;
}
