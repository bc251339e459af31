// The split application: the same business in a process of its own, the infrastructure in the host's daemon. Calls are
// handled on the thread that receives them.
//
//   split_NAME SOCKET WIRE

#include "echo.linear.hpp"
#include "business.h"
#include "orders.h"

namespace {

using Message = MESSAGE;

class Echo final : public echo::EchoService {
 public:
  explicit Echo(const std::string& wire) : answers_(wire) {}

  // gRPC C++ gives a pointer to the answer where Trunkline gives a reference: all that differs.
  trunkline::Status Call(const Message& request, Message& reply, trunkline::ServedCall&) override {
    answers_.Make(request, &reply);
    return trunkline::Status();
  }

 private:
  business::Answers<Message> answers_;
};

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  Echo echo(business::ReadFile(argv[2]));
  trunkline::Server::Options options;
  options.daemon = TL_ATTACHED;
  options.socket = argv[1];
  options.threads = 0;
  std::vector<trunkline::Service> services;
  services.push_back(echo.service());
  auto server = trunkline::Server::start(options, std::move(services));
  if (!server) peer::Fail(server.status().message());
  business::TakeOrders();
}
