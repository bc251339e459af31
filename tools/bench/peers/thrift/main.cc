// The Thrift peer: framed binary, a thread for each connection; the driver sends its calls one behind the other, as
// generated clients allow (`send_Sink`, `recv_Sink`).
//
//   thrift-peer serve|serve-corked PORT_FILE
//   thrift-peer drive|drive-corked ADDRESS
//   thrift-peer version
//
// Corked: see the class of that name.

#include <thrift/TConfiguration.h>
#include <thrift/config.h>
#include <thrift/protocol/TBinaryProtocol.h>
#include <thrift/transport/TBufferTransports.h>
#include <thrift/transport/TServerSocket.h>
#include <thrift/transport/TSocket.h>

#include <deque>
#include <limits>
#include <memory>
#include <thread>

#include "Bench.h"
#include "orders.h"

namespace {

using apache::thrift::TConfiguration;
using apache::thrift::protocol::TBinaryProtocol;
using apache::thrift::transport::TBufferedTransport;
using apache::thrift::transport::TFramedTransport;
using apache::thrift::transport::TServerSocket;
using apache::thrift::transport::TSocket;
using apache::thrift::transport::TTransport;
using apache::thrift::transport::TTransportException;

// Bytes read with one system call where messages are small. Each message is written by itself: that is what flushing
// means to Thrift.
constexpr uint32_t kBufferBytes = 64 << 10;

// Writes when it must wait for more to read, not after every message: not Thrift as it comes, but what an application
// can make of it. Replies are small, so that nobody waits for what the other has not read.
class Corked final : public TBufferedTransport {
 public:
  using TBufferedTransport::TBufferedTransport;
  uint32_t readSlow(uint8_t* buffer, uint32_t bytes) override {
    TBufferedTransport::flush();
    return TBufferedTransport::readSlow(buffer, bytes);
  }
  void flush() override {}
};

std::shared_ptr<TBinaryProtocol> Speak(std::shared_ptr<TTransport> socket, bool corked) {
  const int most = std::numeric_limits<int>::max();
  auto limits = std::make_shared<TConfiguration>(most, most);
  std::shared_ptr<TTransport> buffered;
  if (corked) {
    buffered = std::make_shared<Corked>(socket, kBufferBytes, limits);
  } else {
    buffered = std::make_shared<TBufferedTransport>(socket, kBufferBytes, limits);
  }
  return std::make_shared<TBinaryProtocol>(std::make_shared<TFramedTransport>(buffered, limits));
}

class Counter final : public bench::BenchIf {
  int64_t Sink(const std::string& data) override { return int64_t(data.size()); }
};

void ServeOne(std::shared_ptr<TTransport> connection, bool corked) {
  auto protocol = Speak(connection, corked);
  bench::BenchProcessor processor(std::make_shared<Counter>());
  try {
    while (processor.process(protocol, protocol, nullptr)) {
    }
  } catch (const TTransportException& gone) {
    if (gone.getType() != TTransportException::END_OF_FILE) peer::Fail(gone.what());
  }
}

[[noreturn]] void Serve(const char* port_file, bool corked) {
  TServerSocket listener("127.0.0.1", 0);
  listener.listen();
  peer::WriteAddress(port_file, peer::LoopbackAddress(listener.getPort()));
  for (;;) std::thread(ServeOne, listener.accept(), corked).detach();
}

// Answers come in the order of the calls.
std::vector<uint64_t> CarryOut(bench::BenchClient& bench, const peer::Order& order) {
  const std::string data = order.Data();
  const uint64_t end = peer::NowNs() + order.millis * 1'000'000;
  std::vector<uint64_t> took;
  std::deque<uint64_t> began;
  const auto send = [&](uint64_t now) {
    bench.send_Sink(data);
    began.push_back(now);
  };
  while (began.size() < order.outstanding) send(peer::NowNs());
  while (!began.empty()) {
    if (size_t(bench.recv_Sink()) != data.size()) peer::Fail("another count came back");
    const uint64_t now = peer::NowNs();
    took.push_back(now - began.front());
    began.pop_front();
    if (now < end) send(now);
  }
  return took;
}

void Drive(const std::string& address, bool corked) {
  const size_t colon = address.find(':');
  auto socket = std::make_shared<TSocket>(address.substr(0, colon), std::stoi(address.substr(colon + 1)));
  socket->open();
  bench::BenchClient bench(Speak(socket, corked));
  peer::Obey([&](const peer::Order& order) { return CarryOut(bench, order); });
}

}  // namespace

int main(int argc, char** argv) {
  const std::string role = argc > 1 ? argv[1] : "";
  if (argc == 3 && (role == "serve" || role == "serve-corked")) {
    Serve(argv[2], role == "serve-corked");
  } else if (argc == 3 && (role == "drive" || role == "drive-corked")) {
    Drive(argv[2], role == "drive-corked");
  } else if (argc == 2 && role == "version") {
    std::printf("Thrift %s\n", PACKAGE_VERSION);
  } else {
    std::fprintf(stderr, "usage: thrift-peer serve[-corked] PORT_FILE | drive[-corked] ADDRESS | version\n");
    return 2;
  }
}
