// What every C++ peer of trunkline-bench shares: orders as its drivers take them, and where a server says it listens.
//
// Order:  MILLIS SIZE OUTSTANDING, a line on standard input.
// Answer: CALLS ELAPSED_NS P50_NS P99_NS

#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iostream>
#include <string>
#include <vector>

namespace peer {

// A request's bytes on the wire as protobuf besides its data: tag and length, two bytes for the small call. Every peer
// sends the same data.
constexpr size_t kSmallOverhead = 2;
constexpr size_t kSmallBytesMax = 64;

inline uint64_t NowNs() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

[[noreturn]] inline void Fail(const std::string& why) {
  std::fprintf(stderr, "peer: %s\n", why.c_str());
  std::exit(1);
}

struct Order {
  uint64_t millis = 0;
  size_t request_bytes = 0;
  size_t outstanding = 0;

  bool IsSmall() const { return request_bytes <= kSmallBytesMax; }
  std::string Data() const { return std::string(IsSmall() ? request_bytes - kSmallOverhead : request_bytes, '\7'); }
};

inline uint64_t Percentile(const std::vector<uint64_t>& sorted, double share) {
  return sorted.empty() ? 0 : sorted[std::min(sorted.size() - 1, size_t(sorted.size() * share))];
}

// Carries out orders until there are no more. `carry_out` makes the calls and returns the nanoseconds each took.
template <typename CarryOut>
void Obey(CarryOut carry_out) {
  Order order;
  while (std::cin >> order.millis >> order.request_bytes >> order.outstanding) {
    const uint64_t began = NowNs();
    std::vector<uint64_t> took = carry_out(order);
    const uint64_t elapsed = NowNs() - began;
    std::sort(took.begin(), took.end());
    std::cout << took.size() << ' ' << elapsed << ' ' << Percentile(took, 0.5) << ' ' << Percentile(took, 0.99)
              << std::endl;
  }
}

// Written aside and renamed, so that a reader sees all of it or nothing.
inline void WriteAddress(const std::string& file, const std::string& address) {
  const std::string aside = file + ".new";
  std::ofstream(aside) << address;
  std::rename(aside.c_str(), file.c_str());
}

inline std::string LoopbackAddress(int port) { return "127.0.0.1:" + std::to_string(port); }

}  // namespace peer
