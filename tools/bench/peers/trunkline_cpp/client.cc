// The C++ client over our own library: takes orders on standard input, as every driver of trunkline-bench does, one call
// at a time.
//
//   trunkline_client SOCKET TARGET WORK
//
// WORK is what it calls: bytes, hello, average, numbers, large (src/harness/work.rs has their meaning).

#include <functional>
#include <memory>
#include <thread>

#include "bench.v1.linear.hpp"
#include "large.v1.linear.hpp"
#include "orders.h"

namespace {

using peer::Fail;
using peer::NowNs;
using peer::Order;
using namespace bench::v1;

void Need(const trunkline::Status& status) {
  if (!status.ok()) Fail(std::to_string(status.code()) + " " + status.message());
}

// Makes calls for an order's time; `call` makes one and looks at the answer.
template <typename Call>
std::vector<uint64_t> OneAtATime(const Order& order, Call call) {
  if (order.outstanding != 1) Fail("one call at a time is what this client makes");
  const uint64_t end = NowNs() + order.millis * 1'000'000;
  std::vector<uint64_t> took;
  for (uint64_t began = NowNs(); began < end;) {
    call();
    const uint64_t now = NowNs();
    took.push_back(now - began);
    began = now;
  }
  return took;
}

std::vector<uint64_t> CarryOutBytes(const BenchClient& client, const Order& order) {
  const std::string data = order.Data();
  return OneAtATime(order, [&] {
    Bytes request(client.tl_channel_of());
    request.set_data(data);
    auto reply = order.IsSmall() ? client.Small(std::move(request)) : client.Sink(std::move(request));
    Need(reply.status());
    if (reply->value() != int64_t(data.size())) Fail("another length came back");
  });
}

std::vector<uint64_t> CarryOutHello(const BenchClient& client, const Order& order) {
  return OneAtATime(order, [&] {
    HelloRequest request(client.tl_channel_of());
    request.set_name("world");
    auto reply = client.SayHello(std::move(request));
    Need(reply.status());
    if (reply->message() != "Hello world") Fail("another greeting came back");
  });
}

std::vector<uint64_t> CarryOutAverage(const BenchClient& client, const Order& order) {
  std::vector<int32_t> values;
  uint32_t number = 1;
  for (size_t i = 0; i < order.request_bytes; ++i) {
    values.push_back(int32_t(number >> 1));
    number = number * 1664525u + 1013904223u;
  }
  return OneAtATime(order, [&] {
    Numbers request(client.tl_channel_of());
    request.assign_values(values.data(), values.size());
    Need(client.Average(std::move(request)).status());
  });
}

std::vector<uint64_t> CarryOutNumbers(const BenchClient& client, const Order& order) {
  return OneAtATime(order, [&] {
    ::bench::v1::Count request(client.tl_channel_of());
    request.set_value(int32_t(order.request_bytes));
    auto reply = client.GetRandNums(std::move(request));
    Need(reply.status());
    if (reply->values_size() != int(order.request_bytes)) Fail("another number of numbers came back");
  });
}

// As the gRPC client does: filled once, written anew for every call; of the answer the last member is looked at.
template <typename M>
std::vector<uint64_t> CarryOutLarge(const large::v1::LargeClient& client, const Order& order,
                                    trunkline::Result<M> (large::v1::LargeClient::*method)(
                                        const M&, const trunkline::CallOptions&) const,
                                    void (M::*set_first)(int32_t), void (M::*set_last)(int32_t), int32_t last,
                                    int32_t (*get_last)(const M&)) {
  M filled;
  // Every member, by what its setter does: its bit, and its slot in the row.
  (filled.*set_first)(1 * 7919 % 100'000 + 1);
  (filled.*set_last)(last);
  std::string bytes(filled.linear_bytes());
  const size_t presence = 28, words = (order.request_bytes + 31) / 32, slots = presence + 4 * words;
  for (size_t member = 1; member <= order.request_bytes; ++member) {
    const int32_t value = int32_t(member * 7919 % 100'000 + 1);
    std::memcpy(&bytes[slots + 4 * (member - 1)], &value, 4);
    bytes[presence + (member - 1) / 8] |= char(1 << (member - 1) % 8);
  }
  if (!filled.ParseFromLinear(bytes)) Fail("the members do not lie in a row");
  return OneAtATime(order, [&] {
    auto reply = (client.*method)(filled, {});
    Need(reply.status());
    if (get_last(*reply) != last) Fail("another last member came back");
  });
}

#define LARGE(members)                                                                                            \
  case members:                                                                                                   \
    return CarryOutLarge<large::v1::LargeData##members>(                                                          \
        client, order, &large::v1::LargeClient::SendRcv##members, &large::v1::LargeData##members::set_m1,         \
        &large::v1::LargeData##members::set_m##members, int32_t(uint64_t(members) * 7919 % 100'000 + 1),          \
        [](const large::v1::LargeData##members& message) { return message.m##members(); });

std::vector<uint64_t> CarryOutLarge(const large::v1::LargeClient& client, const Order& order) {
  switch (order.request_bytes) {
    LARGE(128)
    LARGE(256)
    LARGE(512)
    LARGE(1024)
    LARGE(2048)
    LARGE(4096)
    LARGE(8192)
    default:
      Fail("there is no message of so many members");
  }
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 4) {
    std::fprintf(stderr, "usage: trunkline_client SOCKET TARGET WORK\n");
    return 2;
  }
  trunkline::Channel::Options options;
  options.daemon = TL_ATTACHED;
  options.socket = argv[1];
  options.target = argv[2];
  auto channel = trunkline::Channel::make(options);
  Need(channel.status());
  const std::string work = argv[3];
  const BenchClient client(*channel);
  // Until the server is there.
  for (int look = 0; !client.Small(Bytes()).ok(); ++look) {
    if (look == 1000) Fail("nobody answers");
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  std::unique_ptr<large::v1::LargeClient> large;
  if (work == "large") large = std::make_unique<large::v1::LargeClient>(*channel);
  peer::Obey([&](const Order& order) -> std::vector<uint64_t> {
    if (work == "bytes") return CarryOutBytes(client, order);
    if (work == "hello") return CarryOutHello(client, order);
    if (work == "average") return CarryOutAverage(client, order);
    if (work == "numbers") return CarryOutNumbers(client, order);
    if (work == "large") return CarryOutLarge(*large, order);
    Fail("no such work: " + work);
  });
}
