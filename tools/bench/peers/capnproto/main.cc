// The Cap'n Proto peer: a server with one event loop, and a driver with another.
//
//   capnproto-peer serve PORT_FILE
//   capnproto-peer drive ADDRESS
//   capnproto-peer version

#include <capnp/ez-rpc.h>
#include <kj/common.h>

#include "bench.capnp.h"
#include "orders.h"

namespace {

class Server final : public Bench::Server {
  kj::Promise<void> sink(SinkContext context) override {
    context.getResults().setValue(int64_t(context.getParams().getData().size()));
    return kj::READY_NOW;
  }
};

void Serve(const char* port_file) {
  capnp::EzRpcServer server(kj::heap<Server>(), "127.0.0.1", 0);
  peer::WriteAddress(port_file, peer::LoopbackAddress(server.getPort().wait(server.getWaitScope())));
  kj::NEVER_DONE.wait(server.getWaitScope());
}

// Words of a request besides its data, with room to spare: all of a request in one segment.
constexpr uint64_t kWordsBesideData = 16;

// Calls of one order: each that ends before its time begins the next.
class Round {
 public:
  Round(Bench::Client bench, const peer::Order& order)
      : bench_(bench), data_(order.Data()), end_(peer::NowNs() + order.millis * 1'000'000) {}

  // One call, and those after it.
  kj::Promise<void> Calls() {
    const uint64_t began = peer::NowNs();
    auto request = bench_.sinkRequest(capnp::MessageSize{data_.size() / sizeof(capnp::word) + kWordsBesideData, 0});
    request.setData(kj::arrayPtr(reinterpret_cast<const kj::byte*>(data_.data()), data_.size()));
    return request.send().then([this, began](capnp::Response<Bench::SinkResults>&& reply) -> kj::Promise<void> {
      if (size_t(reply.getValue()) != data_.size()) peer::Fail("another count came back");
      const uint64_t now = peer::NowNs();
      took_.push_back(now - began);
      return now < end_ ? Calls() : kj::Promise<void>(kj::READY_NOW);
    });
  }

  std::vector<uint64_t> Took() && { return std::move(took_); }

 private:
  Bench::Client bench_;
  std::string data_;
  uint64_t end_;
  std::vector<uint64_t> took_;
};

void Drive(const char* address) {
  capnp::EzRpcClient client(address);
  Bench::Client bench = client.getMain<Bench>();
  peer::Obey([&](const peer::Order& order) {
    Round round(bench, order);
    auto calls = kj::heapArrayBuilder<kj::Promise<void>>(order.outstanding);
    for (size_t i = 0; i < order.outstanding; ++i) calls.add(round.Calls());
    kj::joinPromises(calls.finish()).wait(client.getWaitScope());
    return std::move(round).Took();
  });
}

}  // namespace

int main(int argc, char** argv) {
  const std::string role = argc > 1 ? argv[1] : "";
  if (argc == 3 && role == "serve") {
    Serve(argv[2]);
  } else if (argc == 3 && role == "drive") {
    Drive(argv[2]);
  } else if (argc == 2 && role == "version") {
    std::printf("Cap'n Proto %d.%d.%d\n", CAPNP_VERSION / 1'000'000, CAPNP_VERSION / 1000 % 1000, CAPNP_VERSION % 1000);
  } else {
    std::fprintf(stderr, "usage: capnproto-peer serve PORT_FILE | drive ADDRESS | version\n");
    return 2;
  }
}
