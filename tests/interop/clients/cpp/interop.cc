// gRPC's interoperability cases, by its own test descriptions, with gRPC C++'s client and server.
//
//   interop serve PORT
//   interop play PORT CASE

#include <grpcpp/grpcpp.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <iostream>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "grpc/testing/test.grpc.pb.h"

// The library has this for tests, and no header that says so.
uint32_t grpc_call_test_only_get_message_flags(grpc_call* call);

namespace {

using grpc::testing::Empty;
using grpc::testing::SimpleRequest;
using grpc::testing::SimpleResponse;
using grpc::testing::StreamingInputCallRequest;
using grpc::testing::StreamingInputCallResponse;
using grpc::testing::StreamingOutputCallRequest;
using grpc::testing::StreamingOutputCallResponse;
using grpc::testing::TestService;
using grpc::testing::UnimplementedService;

// Sizes of the test descriptions.
constexpr int kLargeRequest = 271828, kLargeResponse = 314159;
const std::vector<int> kRequests = {27182, 8, 1828, 45904}, kResponses = {31415, 9, 2653, 58979};
constexpr int kSlowResponses = 2000, kSlowResponse = 1030;
constexpr std::chrono::seconds kLimit{30};
const char kInitial[] = "x-grpc-test-echo-initial", kTrailing[] = "x-grpc-test-echo-trailing-bin";
const char kSpecial[] = "\t\ntest with whitespace\r\nand Unicode BMP \u263a and non-BMP \U0001f608\t\n";
// Set in the flags of the last message that came, if it came compressed.
constexpr uint32_t kCompressed = 0x40000000u;

std::string Zeros(int size) { return std::string(size_t(size), '\0'); }

bool CameCompressed(grpc_call* call) { return (grpc_call_test_only_get_message_flags(call) & kCompressed) != 0; }

// ── The server ──────────────────────────────────────────────────────────────

grpc::WriteOptions OptionsOf(bool compressed) {
  grpc::WriteOptions options;
  return compressed ? options : options.set_no_compression();
}

// Sends back what a case wants to find in headers and trailers.
void Echo(grpc::ServerContext* context) {
  const auto& said = context->client_metadata();
  const auto text = [](grpc::string_ref bytes) { return std::string(bytes.data(), bytes.size()); };
  if (const auto found = said.find(kInitial); found != said.end())
    context->AddInitialMetadata(kInitial, text(found->second));
  if (const auto found = said.find(kTrailing); found != said.end())
    context->AddTrailingMetadata(kTrailing, text(found->second));
}

template <typename M>
grpc::Status WantedOf(const M& request) {
  if (!request.has_response_status() || request.response_status().code() == 0) return grpc::Status::OK;
  return {grpc::StatusCode(request.response_status().code()), request.response_status().message()};
}

template <typename M>
bool IsAsExpected(grpc::ServerContext* context, const M& request) {
  if (!request.has_expect_compressed()) return true;
  return request.expect_compressed().value() == CameCompressed(context->c_call());
}

const grpc::Status kUnexpected(grpc::StatusCode::INVALID_ARGUMENT, "not compressed as the request says");

template <typename Stream>
void Respond(const StreamingOutputCallRequest& request, Stream* stream) {
  for (const auto& wanted : request.response_parameters()) {
    if (wanted.interval_us() > 0) std::this_thread::sleep_for(std::chrono::microseconds(wanted.interval_us()));
    StreamingOutputCallResponse response;
    response.mutable_payload()->set_body(Zeros(wanted.size()));
    stream->Write(response, OptionsOf(wanted.compressed().value()));
  }
}

class Server final : public TestService::Service {
  grpc::Status EmptyCall(grpc::ServerContext* context, const Empty*, Empty*) override {
    Echo(context);
    return grpc::Status::OK;
  }
  grpc::Status UnaryCall(grpc::ServerContext* context, const SimpleRequest* request,
                         SimpleResponse* response) override {
    Echo(context);
    if (!IsAsExpected(context, *request)) return kUnexpected;
    const bool compressed = request->response_compressed().value();
    context->set_compression_level(compressed ? GRPC_COMPRESS_LEVEL_HIGH : GRPC_COMPRESS_LEVEL_NONE);
    response->mutable_payload()->set_body(Zeros(request->response_size()));
    return WantedOf(*request);
  }
  grpc::Status StreamingOutputCall(grpc::ServerContext* context, const StreamingOutputCallRequest* request,
                                   grpc::ServerWriter<StreamingOutputCallResponse>* stream) override {
    Echo(context);
    context->set_compression_level(GRPC_COMPRESS_LEVEL_HIGH);
    Respond(*request, stream);
    return WantedOf(*request);
  }
  grpc::Status StreamingInputCall(grpc::ServerContext* context, grpc::ServerReader<StreamingInputCallRequest>* stream,
                                  StreamingInputCallResponse* response) override {
    Echo(context);
    int total = 0;
    for (StreamingInputCallRequest request; stream->Read(&request);) {
      if (!IsAsExpected(context, request)) return kUnexpected;
      total += int(request.payload().body().size());
    }
    response->set_aggregated_payload_size(total);
    return grpc::Status::OK;
  }
  using Duplex = grpc::ServerReaderWriter<StreamingOutputCallResponse, StreamingOutputCallRequest>;
  grpc::Status FullDuplexCall(grpc::ServerContext* context, Duplex* stream) override {
    Echo(context);
    for (StreamingOutputCallRequest request; stream->Read(&request);) {
      Respond(request, stream);
      if (const grpc::Status wanted = WantedOf(request); !wanted.ok()) return wanted;
    }
    return grpc::Status::OK;
  }
  grpc::Status HalfDuplexCall(grpc::ServerContext* context, Duplex* stream) override {
    Echo(context);
    std::vector<StreamingOutputCallRequest> requests;
    for (StreamingOutputCallRequest request; stream->Read(&request);) requests.push_back(request);
    for (const auto& request : requests) Respond(request, stream);
    return grpc::Status::OK;
  }
};

int Serve(const std::string& port) {
  Server service;
  grpc::ServerBuilder builder;
  builder.AddListeningPort("127.0.0.1:" + port, grpc::InsecureServerCredentials());
  builder.RegisterService(&service);
  const std::unique_ptr<grpc::Server> server = builder.BuildAndStart();
  if (!server) return 1;
  server->Wait();
  return 0;
}

// ── The cases ───────────────────────────────────────────────────────────────

struct Failed {
  std::string why;
};

void Hold(bool is_so, const std::string& what) {
  if (!is_so) throw Failed{what};
}

void HoldEnd(const grpc::Status& status, grpc::StatusCode code, const std::string& message) {
  Hold(status.error_code() == code, "ended with " + std::to_string(status.error_code()) + " instead of " +
                                        std::to_string(code) + ": " + status.error_message());
  Hold(message.empty() || status.error_message() == message, "ended with other words: " + status.error_message());
}

void HoldOk(const grpc::Status& status) { HoldEnd(status, grpc::StatusCode::OK, ""); }

// A call's, with time enough for it.
std::unique_ptr<grpc::ClientContext> Context() {
  auto context = std::make_unique<grpc::ClientContext>();
  context->set_deadline(std::chrono::system_clock::now() + kLimit);
  return context;
}

// What a client plays cases with.
struct Client {
  std::shared_ptr<grpc::Channel> channel;
  std::unique_ptr<TestService::Stub> stub = TestService::NewStub(channel);
};

SimpleRequest Large() {
  SimpleRequest request;
  request.set_response_size(kLargeResponse);
  request.mutable_payload()->set_body(Zeros(kLargeRequest));
  return request;
}

StreamingOutputCallRequest Asking(const std::vector<int>& sizes) {
  StreamingOutputCallRequest request;
  for (const int size : sizes) request.add_response_parameters()->set_size(size);
  return request;
}

void EmptyUnary(const Client& client) {
  Empty response;
  HoldOk(client.stub->EmptyCall(Context().get(), {}, &response));
}

void PlayLarge(const Client& client, grpc::ClientContext* context, const SimpleRequest& request) {
  SimpleResponse response;
  HoldOk(client.stub->UnaryCall(context, request, &response));
  Hold(response.payload().body() == Zeros(kLargeResponse), "another body");
}

void LargeUnary(const Client& client) { PlayLarge(client, Context().get(), Large()); }

void ClientCompressedUnary(const Client& client) {
  SimpleRequest request = Large();
  // Does the server look?
  request.mutable_expect_compressed()->set_value(true);
  SimpleResponse response;
  HoldEnd(client.stub->UnaryCall(Context().get(), request, &response), grpc::StatusCode::INVALID_ARGUMENT, "");
  for (const bool compressed : {true, false}) {
    const auto context = Context();
    context->set_compression_algorithm(compressed ? GRPC_COMPRESS_GZIP : GRPC_COMPRESS_NONE);
    request.mutable_expect_compressed()->set_value(compressed);
    PlayLarge(client, context.get(), request);
  }
}

void ServerCompressedUnary(const Client& client) {
  for (const bool compressed : {true, false}) {
    const auto context = Context();
    SimpleRequest request = Large();
    request.mutable_response_compressed()->set_value(compressed);
    PlayLarge(client, context.get(), request);
    Hold(CameCompressed(context->c_call()) == compressed, "not compressed as asked for");
  }
}

void ClientStreaming(const Client& client) {
  const auto context = Context();
  StreamingInputCallResponse response;
  const auto stream = client.stub->StreamingInputCall(context.get(), &response);
  int total = 0;
  for (const int size : kRequests) {
    StreamingInputCallRequest request;
    request.mutable_payload()->set_body(Zeros(size));
    Hold(stream->Write(request), "a request was not taken");
    total += size;
  }
  stream->WritesDone();
  HoldOk(stream->Finish());
  Hold(response.aggregated_payload_size() == total, "another size");
}

void ClientCompressedStreaming(const Client& client) {
  const auto asked = [&](const std::vector<std::pair<int, bool>>& requests, bool is_compressed, int* total) {
    const auto context = Context();
    context->set_compression_algorithm(GRPC_COMPRESS_GZIP);
    StreamingInputCallResponse response;
    const auto stream = client.stub->StreamingInputCall(context.get(), &response);
    for (const auto& [size, expected] : requests) {
      StreamingInputCallRequest request;
      request.mutable_payload()->set_body(Zeros(size));
      request.mutable_expect_compressed()->set_value(expected);
      // Who has ended the call takes no more.
      if (!stream->Write(request, OptionsOf(expected && is_compressed))) break;
    }
    stream->WritesDone();
    const grpc::Status status = stream->Finish();
    *total = response.aggregated_payload_size();
    return status;
  };
  int total = 0;
  HoldEnd(asked({{kRequests[0], true}}, false, &total), grpc::StatusCode::INVALID_ARGUMENT, "");
  HoldOk(asked({{kRequests[0], true}, {kRequests[3], false}}, true, &total));
  Hold(total == kRequests[0] + kRequests[3], "another size");
}

void ServerStreaming(const Client& client) {
  const auto context = Context();
  const auto stream = client.stub->StreamingOutputCall(context.get(), Asking(kResponses));
  size_t count = 0;
  for (StreamingOutputCallResponse response; stream->Read(&response); ++count)
    Hold(count < kResponses.size() && response.payload().body() == Zeros(kResponses[count]), "another response");
  Hold(count == kResponses.size(), "too few responses");
  HoldOk(stream->Finish());
}

void ServerCompressedStreaming(const Client& client) {
  const std::vector<std::pair<int, bool>> wanted = {{kResponses[0], true}, {92653, false}};
  StreamingOutputCallRequest request;
  for (const auto& [size, compressed] : wanted) {
    auto* parameters = request.add_response_parameters();
    parameters->set_size(size);
    parameters->mutable_compressed()->set_value(compressed);
  }
  const auto context = Context();
  const auto stream = client.stub->StreamingOutputCall(context.get(), request);
  size_t count = 0;
  for (StreamingOutputCallResponse response; stream->Read(&response); ++count) {
    Hold(count < wanted.size() && int(response.payload().body().size()) == wanted[count].first, "another size");
    Hold(CameCompressed(context->c_call()) == wanted[count].second, "not compressed as asked for");
  }
  Hold(count == wanted.size(), "too few responses");
  HoldOk(stream->Finish());
}

// The server is far ahead of a client that takes its time.
void SlowConsumer(const Client& client) {
  const auto context = Context();
  const StreamingOutputCallRequest request = Asking(std::vector<int>(kSlowResponses, kSlowResponse));
  const auto stream = client.stub->StreamingOutputCall(context.get(), request);
  int count = 0;
  for (StreamingOutputCallResponse response; stream->Read(&response); ++count) {
    Hold(response.payload().body() == Zeros(kSlowResponse), "another response");
    if (count % 100 == 0) std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  Hold(count == kSlowResponses, "too few responses");
  HoldOk(stream->Finish());
}

void HalfDuplex(const Client& client) {
  const auto context = Context();
  const auto stream = client.stub->HalfDuplexCall(context.get());
  for (const int size : kResponses) Hold(stream->Write(Asking({size})), "a request was not taken");
  stream->WritesDone();
  size_t count = 0;
  for (StreamingOutputCallResponse response; stream->Read(&response); ++count)
    Hold(count < kResponses.size() && response.payload().body() == Zeros(kResponses[count]), "another response");
  Hold(count == kResponses.size(), "too few responses");
  HoldOk(stream->Finish());
}

void PingPong(const Client& client) {
  const auto context = Context();
  const auto stream = client.stub->FullDuplexCall(context.get());
  StreamingOutputCallResponse response;
  for (size_t at = 0; at < kRequests.size(); ++at) {
    StreamingOutputCallRequest request = Asking({kResponses[at]});
    request.mutable_payload()->set_body(Zeros(kRequests[at]));
    Hold(stream->Write(request) && stream->Read(&response), "no answer");
    Hold(response.payload().body() == Zeros(kResponses[at]), "another response");
  }
  stream->WritesDone();
  Hold(!stream->Read(&response), "more than was asked for");
  HoldOk(stream->Finish());
}

void EmptyStream(const Client& client) {
  const auto context = Context();
  const auto stream = client.stub->FullDuplexCall(context.get());
  stream->WritesDone();
  StreamingOutputCallResponse response;
  Hold(!stream->Read(&response), "an answer to nothing");
  HoldOk(stream->Finish());
}

void CancelAfterBegin(const Client& client) {
  const auto context = Context();
  StreamingInputCallResponse response;
  const auto stream = client.stub->StreamingInputCall(context.get(), &response);
  context->TryCancel();
  HoldEnd(stream->Finish(), grpc::StatusCode::CANCELLED, "");
}

void CancelAfterFirstResponse(const Client& client) {
  const auto context = Context();
  const auto stream = client.stub->FullDuplexCall(context.get());
  StreamingOutputCallResponse response;
  Hold(stream->Write(Asking({kResponses[0]})) && stream->Read(&response), "no answer");
  Hold(response.payload().body() == Zeros(kResponses[0]), "another response");
  context->TryCancel();
  HoldEnd(stream->Finish(), grpc::StatusCode::CANCELLED, "");
}

void TimeoutOnSleepingServer(const Client& client) {
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + std::chrono::milliseconds(1));
  const auto stream = client.stub->FullDuplexCall(&context);
  StreamingOutputCallRequest request;
  request.mutable_payload()->set_body(Zeros(kRequests[0]));
  stream->Write(request);
  HoldEnd(stream->Finish(), grpc::StatusCode::DEADLINE_EXCEEDED, "");
}

void StatusCodeAndMessage(const Client& client) {
  const auto code = grpc::StatusCode::UNKNOWN;
  const std::string message = "test status message";
  SimpleRequest request;
  request.mutable_response_status()->set_code(code);
  request.mutable_response_status()->set_message(message);
  SimpleResponse response;
  HoldEnd(client.stub->UnaryCall(Context().get(), request, &response), code, message);
  const auto context = Context();
  const auto stream = client.stub->FullDuplexCall(context.get());
  StreamingOutputCallRequest asking;
  *asking.mutable_response_status() = request.response_status();
  stream->Write(asking);
  stream->WritesDone();
  StreamingOutputCallResponse none;
  Hold(!stream->Read(&none), "a response where a status is due");
  HoldEnd(stream->Finish(), code, message);
}

void SpecialStatusMessage(const Client& client) {
  SimpleRequest request;
  request.mutable_response_status()->set_code(grpc::StatusCode::UNKNOWN);
  request.mutable_response_status()->set_message(kSpecial);
  SimpleResponse response;
  HoldEnd(client.stub->UnaryCall(Context().get(), request, &response), grpc::StatusCode::UNKNOWN, kSpecial);
}

void CustomMetadata(const Client& client) {
  const std::string initial = "test_initial_metadata_value", trailing = "\xab\xab\xab";
  const auto saying = [&] {
    auto context = Context();
    context->AddMetadata(kInitial, initial);
    context->AddMetadata(kTrailing, trailing);
    return context;
  };
  const auto hold = [&](const grpc::ClientContext& context) {
    const auto has = [](const std::multimap<grpc::string_ref, grpc::string_ref>& all, const char* key,
                        const std::string& value) {
      const auto found = all.find(key);
      return found != all.end() && std::string(found->second.data(), found->second.size()) == value;
    };
    Hold(has(context.GetServerInitialMetadata(), kInitial, initial), "no such header");
    Hold(has(context.GetServerTrailingMetadata(), kTrailing, trailing), "no such trailer");
  };
  const auto unary = saying();
  PlayLarge(client, unary.get(), Large());
  hold(*unary);
  const auto context = saying();
  const auto stream = client.stub->FullDuplexCall(context.get());
  Hold(stream->Write(Asking({kLargeResponse})), "a request was not taken");
  stream->WritesDone();
  StreamingOutputCallResponse response;
  Hold(stream->Read(&response) && response.payload().body() == Zeros(kLargeResponse), "another response");
  Hold(!stream->Read(&response), "more than was asked for");
  HoldOk(stream->Finish());
  hold(*context);
}

void UnimplementedMethod(const Client& client) {
  Empty response;
  HoldEnd(client.stub->UnimplementedCall(Context().get(), {}, &response), grpc::StatusCode::UNIMPLEMENTED, "");
}

void UnimplementedWhole(const Client& client) {
  Empty response;
  const auto stub = UnimplementedService::NewStub(client.channel);
  HoldEnd(stub->UnimplementedCall(Context().get(), {}, &response), grpc::StatusCode::UNIMPLEMENTED, "");
}

const std::map<std::string, std::function<void(const Client&)>> kCases = {
    {"empty_unary", EmptyUnary},
    {"large_unary", LargeUnary},
    {"client_compressed_unary", ClientCompressedUnary},
    {"server_compressed_unary", ServerCompressedUnary},
    {"client_streaming", ClientStreaming},
    {"client_compressed_streaming", ClientCompressedStreaming},
    {"server_streaming", ServerStreaming},
    {"server_compressed_streaming", ServerCompressedStreaming},
    {"slow_consumer", SlowConsumer},
    {"half_duplex", HalfDuplex},
    {"ping_pong", PingPong},
    {"empty_stream", EmptyStream},
    {"cancel_after_begin", CancelAfterBegin},
    {"cancel_after_first_response", CancelAfterFirstResponse},
    {"timeout_on_sleeping_server", TimeoutOnSleepingServer},
    {"status_code_and_message", StatusCodeAndMessage},
    {"special_status_message", SpecialStatusMessage},
    {"custom_metadata", CustomMetadata},
    {"unimplemented_method", UnimplementedMethod},
    {"unimplemented_service", UnimplementedWhole},
};

int Play(const std::string& port, const std::string& name) {
  const auto found = kCases.find(name);
  if (found == kCases.end()) {
    std::cerr << "there is no case " << name << "\n";
    return 2;
  }
  const std::string target = port.rfind("unix:", 0) == 0 ? port : "127.0.0.1:" + port;
  const Client client{grpc::CreateChannel(target, grpc::InsecureChannelCredentials())};
  try {
    found->second(client);
  } catch (const Failed& failed) {
    std::cerr << failed.why << "\n";
    return 1;
  }
  return 0;
}

}  // namespace

int main(int count, char** words) {
  const std::vector<std::string> arguments(words + 1, words + count);
  if (arguments.size() == 2 && arguments[0] == "serve") return Serve(arguments[1]);
  if (arguments.size() == 3 && arguments[0] == "play") return Play(arguments[1], arguments[2]);
  std::cerr << "usage: interop serve PORT | play PORT CASE\n";
  return 2;
}
