// Deadlines: grpc::TimePoint over what gRPC takes as one.
#ifndef TRUNKLINE_GRPCPP_SUPPORT_TIME_H
#define TRUNKLINE_GRPCPP_SUPPORT_TIME_H

#include <grpc/support/time.h>

#include <chrono>
#include <cstdint>

namespace grpc {

// What is no time has no meaning as a deadline.
template <typename T> class TimePoint {
  public:
    TimePoint(const T &) { static_assert(sizeof(T) == 0, "a deadline is a std::chrono time_point or a gpr_timespec"); }
    gpr_timespec raw_time();
};

inline void Timepoint2Timespec(const std::chrono::system_clock::time_point &from, gpr_timespec *to) {
    if (from == std::chrono::system_clock::time_point::max()) {
        *to = gpr_inf_future(GPR_CLOCK_REALTIME);
        return;
    }
    auto since = std::chrono::duration_cast<std::chrono::nanoseconds>(from.time_since_epoch()).count();
    to->tv_sec = since / 1000000000;
    to->tv_nsec = static_cast<int32_t>(since % 1000000000);
    to->clock_type = GPR_CLOCK_REALTIME;
}

inline void TimepointHR2Timespec(const std::chrono::high_resolution_clock::time_point &from, gpr_timespec *to) {
    auto left = from - std::chrono::high_resolution_clock::now();
    auto at = std::chrono::system_clock::now() + std::chrono::duration_cast<std::chrono::system_clock::duration>(left);
    Timepoint2Timespec(from == std::chrono::high_resolution_clock::time_point::max()
                           ? std::chrono::system_clock::time_point::max()
                           : at,
                       to);
}

template <> class TimePoint<gpr_timespec> {
  public:
    TimePoint(const gpr_timespec &time) : time_(time) {}
    gpr_timespec raw_time() { return time_; }

  private:
    gpr_timespec time_;
};

template <> class TimePoint<std::chrono::system_clock::time_point> {
  public:
    TimePoint(const std::chrono::system_clock::time_point &time) { Timepoint2Timespec(time, &time_); }
    gpr_timespec raw_time() const { return time_; }

  private:
    gpr_timespec time_;
};

namespace internal {

// Nanoseconds until a deadline, not negative; INT64_MAX without one.
inline int64_t NanosecondsUntil(const gpr_timespec &deadline) {
    if (deadline.tv_sec == INT64_MAX) return INT64_MAX;
    if (deadline.tv_sec == INT64_MIN) return 0;
    gpr_timespec left =
        deadline.clock_type == GPR_TIMESPAN ? deadline : gpr_time_sub(deadline, gpr_now(deadline.clock_type));
    if (left.tv_sec < 0) return 0;
    // Of more than a century nobody sees the end.
    if (left.tv_sec > int64_t(3) * 1000 * 1000 * 1000) return INT64_MAX;
    return left.tv_sec * 1000000000 + left.tv_nsec;
}

inline std::chrono::system_clock::time_point Timespec2Timepoint(const gpr_timespec &time) {
    int64_t left = NanosecondsUntil(time);
    if (left == INT64_MAX) return std::chrono::system_clock::time_point::max();
    return std::chrono::system_clock::now() +
           std::chrono::duration_cast<std::chrono::system_clock::duration>(std::chrono::nanoseconds(left));
}

} // namespace internal
} // namespace grpc

#endif
