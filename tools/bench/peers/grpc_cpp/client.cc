// The gRPC C++ client: takes orders on standard input, as every driver of trunkline-bench does.
//
//   grpc_client ADDRESS
//
// Order:  MILLIS REQUEST_BYTES OUTSTANDING
// Answer: CALLS ELAPSED_NS P50_NS P99_NS
//
// With one outstanding it uses the blocking stub, with more one thread on one completion queue.

#include <grpcpp/grpcpp.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <iostream>
#include <memory>
#include <string>
#include <vector>

#include "bench.grpc.pb.h"


namespace {

// A request's bytes on the wire besides its data: tag and length, two bytes for the small call.
constexpr size_t kSmallOverhead = 2;
constexpr size_t kSmallBytesMax = 64;

uint64_t NowNs() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

struct Order {
  uint64_t millis = 0;
  size_t request_bytes = 0;
  size_t outstanding = 0;

  bool IsSmall() const { return request_bytes <= kSmallBytesMax; }
  std::string Data() const { return std::string(IsSmall() ? request_bytes - kSmallOverhead : request_bytes, '\7'); }
};

[[noreturn]] void Fail(const grpc::Status& status) {
  std::fprintf(stderr, "grpc_client: %d %s\n", status.error_code(), status.error_message().c_str());
  std::exit(1);
}


std::vector<uint64_t> OneAtATime(bench::v1::Bench::Stub* stub, const Order& order) {
  const std::string data = order.Data();
  const uint64_t end = NowNs() + order.millis * 1'000'000;
  std::vector<uint64_t> took;
  for (uint64_t began = NowNs(); began < end;) {
    grpc::ClientContext context;
    bench::v1::Bytes request;
    bench::v1::Number reply;
    request.set_data(data);
    const grpc::Status status =
        order.IsSmall() ? stub->Small(&context, request, &reply) : stub->Sink(&context, request, &reply);
    if (!status.ok()) Fail(status);
    const uint64_t now = NowNs();
    took.push_back(now - began);
    began = now;
  }
  return took;
}

struct Pending {
  grpc::ClientContext context;
  bench::v1::Number reply;
  grpc::Status status;
  uint64_t began = 0;
  std::unique_ptr<grpc::ClientAsyncResponseReader<bench::v1::Number>> reader;
};

void Start(bench::v1::Bench::Stub* stub, grpc::CompletionQueue* queue, const Order& order, const std::string& data) {
  auto* call = new Pending;
  call->began = NowNs();
  bench::v1::Bytes request;
  request.set_data(data);
  call->reader = order.IsSmall() ? stub->AsyncSmall(&call->context, request, queue)
                                 : stub->AsyncSink(&call->context, request, queue);
  call->reader->Finish(&call->reply, &call->status, call);
}

std::vector<uint64_t> ManyAtOnce(bench::v1::Bench::Stub* stub, const Order& order) {
  const std::string data = order.Data();
  const uint64_t end = NowNs() + order.millis * 1'000'000;
  std::vector<uint64_t> took;
  grpc::CompletionQueue queue;
  for (size_t i = 0; i < order.outstanding; ++i) Start(stub, &queue, order, data);
  size_t under_way = order.outstanding;
  void* tag = nullptr;
  bool ok = false;
  while (under_way > 0 && queue.Next(&tag, &ok)) {
    std::unique_ptr<Pending> call(static_cast<Pending*>(tag));
    if (!call->status.ok()) Fail(call->status);
    const uint64_t now = NowNs();
    took.push_back(now - call->began);
    call.reset();
    if (now < end) {
      Start(stub, &queue, order, data);
    } else {
      --under_way;
    }
  }
  return took;
}

uint64_t Percentile(std::vector<uint64_t>* sorted, double share) {
  return sorted->empty() ? 0 : (*sorted)[std::min(sorted->size() - 1, size_t(sorted->size() * share))];
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fprintf(stderr, "usage: grpc_client ADDRESS\n");
    return 2;
  }
  grpc::ChannelArguments arguments;
  arguments.SetMaxReceiveMessageSize(-1);
  auto channel = grpc::CreateCustomChannel(argv[1], grpc::InsecureChannelCredentials(), arguments);
  auto stub = bench::v1::Bench::NewStub(channel);
  Order order;
  while (std::cin >> order.millis >> order.request_bytes >> order.outstanding) {
    const uint64_t began = NowNs();
    auto took = order.outstanding == 1 ? OneAtATime(stub.get(), order) : ManyAtOnce(stub.get(), order);
    const uint64_t elapsed = NowNs() - began;
    std::sort(took.begin(), took.end());
    std::cout << took.size() << ' ' << elapsed << ' ' << Percentile(&took, 0.5) << ' ' << Percentile(&took, 0.99)
              << std::endl;
  }
}
