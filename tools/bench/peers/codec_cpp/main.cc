// Measures C++ protobuf on one payload: arena parsing and serialization, thread CPU nanoseconds per message.
//
// Built once per message type, because schemas may declare the same names:
//   -DHEADER='"shapes.pb.h"' -DMESSAGE=trunkline::shapes::Small
// Arguments: the payload, and for how many milliseconds to run each measurement. Output: "<parse ns> <serialize ns>".

#include <malloc.h>
#include <time.h>

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include <google/protobuf/arena.h>

#include HEADER

namespace {

double ThreadCpuNs() {
  timespec now;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return now.tv_sec * 1e9 + now.tv_nsec;
}

// The time of one call, from as many as fill `milliseconds`.
template <typename Call>
double NsPerCall(double milliseconds, Call call) {
  const double start = ThreadCpuNs();
  long calls = 0;
  double elapsed = 0;
  for (long batch = 1; elapsed < milliseconds * 1e6; batch *= 2) {
    for (long i = 0; i < batch; ++i) call();
    calls += batch;
    elapsed = ThreadCpuNs() - start;
  }
  return elapsed / calls;
}

[[noreturn]] void Fail(const char* why) {
  std::fprintf(stderr, "codec_cpp: %s\n", why);
  std::exit(1);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) Fail("usage: <payload> <milliseconds>");
  // Large strings live outside the arena: let malloc keep their memory, or page faults are all that is measured.
  mallopt(M_MMAP_THRESHOLD, 64 << 20);
  mallopt(M_TRIM_THRESHOLD, 128 << 20);
  std::ifstream file(argv[1], std::ios::binary);
  const std::string wire((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  const double milliseconds = std::atof(argv[2]);

  // The arena keeps its first block from message to message, as a server that reuses arenas would have it.
  std::vector<char> block(4 * wire.size() + (64 << 10));
  google::protobuf::ArenaOptions options;
  options.initial_block = block.data();
  options.initial_block_size = block.size();
  google::protobuf::Arena arena(options);

  const double parse_ns = NsPerCall(milliseconds, [&] {
    arena.Reset();
    auto* message = google::protobuf::Arena::CreateMessage<MESSAGE>(&arena);
    if (!message->ParseFromArray(wire.data(), static_cast<int>(wire.size()))) Fail("does not parse");
  });

  MESSAGE message;
  if (!message.ParseFromString(wire)) Fail("does not parse");
  std::vector<char> out(2 * wire.size() + 64);
  const double serialize_ns = NsPerCall(milliseconds, [&] {
    if (!message.SerializeToArray(out.data(), static_cast<int>(out.size()))) Fail("does not serialize");
  });
  if (message.ByteSizeLong() != wire.size()) Fail("comes back with another length");
  std::printf("%.1f %.1f\n", parse_ns, serialize_ns);
}
