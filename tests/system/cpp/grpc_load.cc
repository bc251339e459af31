// Load from gRPC C++'s surface, for tests that kill and replace:
//
//   load client CALLS | load callback CALLS | load queued CALLS | load server LOG
//
// As tests/system/c/load.c: so many calls at a time until its input ends, and a line for each call.
#include <grpcpp/grpcpp.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <fcntl.h>
#include <thread>
#include <unistd.h>

#include "probe.grpc.pb.h"

using probe::v1::Probe;
using probe::v1::Text;

static std::atomic<uint64_t> numbers;
static std::atomic<bool> is_over;

[[noreturn]] static void fail(const char *what) {
    std::fprintf(stderr, "%s\n", what);
    std::exit(1);
}

// One call, and what came of it.
struct Call {
    Call() {
        digits = std::to_string(numbers++);
        context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(60));
        context.set_wait_for_ready(true);
        context.AddMetadata("log", digits);
        request.set_text(digits);
    }
    void tell() const {
        if (status.ok() && response.text() != digits) fail("something else came back");
        if (status.ok()) {
            std::printf("answered %s\n", digits.c_str());
        } else if (status.execution() == TL_NOT_EXECUTED) {
            std::printf("not-executed %s\n", digits.c_str());
        } else {
            std::printf("failed %s %d %s\n", digits.c_str(), status.error_code(), status.error_message().c_str());
        }
        if (!status.ok()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }

    std::string digits;
    grpc::ClientContext context;
    Text request, response;
    grpc::Status status;
};

static void until_input_ends() {
    std::puts("ready");
    while (std::getchar() != EOF) {
    }
    is_over = true;
}

static void block(Probe::Stub &stub, int calls) {
    std::vector<std::thread> threads;
    for (int at = 0; at < calls; at++) {
        threads.emplace_back([&stub] {
            while (!is_over) {
                Call call;
                call.status = stub.Echo(&call.context, call.request, &call.response);
                call.tell();
            }
        });
    }
    until_input_ends();
    for (std::thread &thread : threads) thread.join();
}

// Each call begins the next.
static void react(Probe::Stub &stub, std::atomic<int> &left) {
    if (is_over) {
        left--;
        return;
    }
    auto *call = new Call;
    stub.async()->Echo(&call->context, &call->request, &call->response, [&stub, &left, call](grpc::Status status) {
        call->status = std::move(status);
        call->tell();
        delete call;
        react(stub, left);
    });
}

static void queue(Probe::Stub &stub, int calls) {
    grpc::CompletionQueue queue;
    struct Queued : Call {
        std::unique_ptr<grpc::ClientAsyncResponseReader<Text>> reader;
    };
    auto begin = [&] {
        auto *call = new Queued;
        call->reader = stub.AsyncEcho(&call->context, call->request, &queue);
        call->reader->Finish(&call->response, &call->status, call);
    };
    for (int at = 0; at < calls; at++) begin();
    std::thread takes([&] {
        void *tag;
        bool ok;
        for (int left = calls; left > 0 && queue.Next(&tag, &ok);) {
            std::unique_ptr<Queued> call(static_cast<Queued *>(tag));
            call->tell();
            if (is_over) left--;
            if (!is_over) begin();
        }
    });
    until_input_ends();
    takes.join();
    queue.Shutdown();
}

class Server final : public Probe::Service {
  public:
    explicit Server(int log) : log_(log) {}

  private:
    grpc::Status Echo(grpc::ServerContext *context, const Text *request, Text *response) override {
        auto said = context->client_metadata().find("log");
        if (said != context->client_metadata().end()) {
            std::string line(said->second.begin(), said->second.end());
            line += "\n";
            if (write(log_, line.data(), line.size()) != static_cast<ssize_t>(line.size())) fail("the log");
        }
        response->set_text(request->text());
        return grpc::Status::OK;
    }

    int log_;
};

static void serve(const char *path) {
    int log = open(path, O_WRONLY | O_CREAT | O_APPEND, 0600);
    if (log < 0) fail("the log");
    Server probe(log);
    grpc::ServerBuilder builder;
    builder.RegisterService(&probe);
    std::unique_ptr<grpc::Server> server = builder.BuildAndStart();
    if (server == nullptr) fail("no server");
    std::puts("ready");
    server->Wait();
}

int main(int argc, char **argv) {
    std::setvbuf(stdout, nullptr, _IOLBF, 0);
    if (argc != 3) return 2;
    std::string part = argv[1];
    if (part == "server") serve(argv[2]);
    std::unique_ptr<Probe::Stub> stub =
        Probe::NewStub(grpc::CreateChannel("localhost:50051", grpc::InsecureChannelCredentials()));
    int calls = std::atoi(argv[2]);
    if (part == "client") block(*stub, calls);
    if (part == "queued") queue(*stub, calls);
    if (part == "callback") {
        std::atomic<int> left{calls};
        for (int at = 0; at < calls; at++) react(*stub, left);
        until_input_ends();
        while (left > 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    stub = nullptr;
    std::printf("handles %d\n", static_cast<int>(tl_handles_open()));
    return 0;
}
