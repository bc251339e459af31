// The C++ server over our own library: answers what bench.proto and large.proto ask for.
//
//   trunkline_server SOCKET WORK
//
// Handlers run on the thread that received the call, as those of the other peers do. Large messages are served only where
// they are called: their schema is large, too.

#include <atomic>
#include <memory>

#include "bench.v1.linear.hpp"
#include "large.v1.linear.hpp"
#include "orders.h"

namespace {

using trunkline::ServedCall;
using trunkline::Status;
using namespace bench::v1;

class Bench final : public BenchService {
 public:
  Status Small(const Bytes& request, Number& reply, ServedCall&) override { return Count(request, reply); }
  Status Sink(const Bytes& request, Number& reply, ServedCall&) override { return Count(request, reply); }

  Status Guarded(const Named& request, Number& reply, ServedCall&) override {
    if (request.name() == "mallory") forbidden_++;
    reply.set_value(forbidden_);
    return Status();
  }

  Status SayHello(const HelloRequest& request, HelloReply& reply, ServedCall&) override {
    reply.set_message("Hello " + std::string(request.name()));
    return Status();
  }

  Status Average(const Numbers& request, Mean& reply, ServedCall&) override {
    int64_t sum = 0;
    const auto values = request.values();
    for (size_t i = 0; i < values.size(); ++i) sum += values[i];
    reply.set_value(double(sum) / double(std::max<size_t>(values.size(), 1)));
    return Status();
  }

  Status GetRandNums(const ::bench::v1::Count& request, Numbers& reply, ServedCall&) override {
    int32_t* values = reply.fill_values(size_t(std::max(request.value(), 0)));
    uint32_t number = 1;
    for (int32_t i = 0; i < request.value(); ++i) {
      values[i] = int32_t(number >> 1);
      number = number * 1664525u + 1013904223u;
    }
    return Status();
  }

 private:
  static Status Count(const Bytes& request, Number& reply) {
    reply.set_value(int64_t(request.data().size()));
    return Status();
  }

  std::atomic<int64_t> forbidden_{0};
};

// What was received is sent back as it is: a copy, as the gRPC server makes one.
template <typename M>
Status Back(const M& request, M& reply) {
  reply = request;
  return Status();
}

class Large final : public large::v1::LargeService {
 public:
#define SEND_BACK(members)                                                                                     \
  Status SendRcv##members(const large::v1::LargeData##members& request, large::v1::LargeData##members& reply, \
                          ServedCall&) override {                                                              \
    return Back(request, reply);                                                                               \
  }
  SEND_BACK(128)
  SEND_BACK(256)
  SEND_BACK(512)
  SEND_BACK(1024)
  SEND_BACK(2048)
  SEND_BACK(4096)
  SEND_BACK(8192)
};

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) {
    std::fprintf(stderr, "usage: trunkline_server SOCKET WORK\n");
    return 2;
  }
  Bench bench;
  Large large;
  trunkline::Server::Options options;
  options.daemon = TL_ATTACHED;
  options.socket = argv[1];
  options.threads = 0;
  std::vector<trunkline::Service> services;
  // First, because a client looks for the other one.
  if (std::string(argv[2]) == "large") services.push_back(large.service());
  services.push_back(bench.service());
  auto server = trunkline::Server::start(options, std::move(services));
  if (!server) peer::Fail(server.status().message());
  // Until it is ended.
  std::string line;
  while (std::getline(std::cin, line)) {
  }
  for (;;) std::this_thread::sleep_for(std::chrono::hours(1));
}
