// gpr_timespec, as far as programs in C++ use it for deadlines.
#ifndef TRUNKLINE_GRPC_SUPPORT_TIME_H
#define TRUNKLINE_GRPC_SUPPORT_TIME_H

#include <stdint.h>
#include <time.h>

typedef enum { GPR_CLOCK_MONOTONIC = 0, GPR_CLOCK_REALTIME, GPR_CLOCK_PRECISE, GPR_TIMESPAN } gpr_clock_type;

typedef struct gpr_timespec {
    int64_t tv_sec;
    int32_t tv_nsec;
    gpr_clock_type clock_type;
} gpr_timespec;

static inline gpr_timespec gpr_inf_future(gpr_clock_type type) {
    gpr_timespec out = {INT64_MAX, 0, type};
    return out;
}
static inline gpr_timespec gpr_inf_past(gpr_clock_type type) {
    gpr_timespec out = {INT64_MIN, 0, type};
    return out;
}
static inline gpr_timespec gpr_time_0(gpr_clock_type type) {
    gpr_timespec out = {0, 0, type};
    return out;
}
static inline gpr_timespec gpr_now(gpr_clock_type type) {
    struct timespec now;
    clock_gettime(type == GPR_CLOCK_REALTIME ? CLOCK_REALTIME : CLOCK_MONOTONIC, &now);
    gpr_timespec out = {now.tv_sec, (int32_t)now.tv_nsec, type};
    return out;
}
static inline int tl_gpr_is_infinite(gpr_timespec time) { return time.tv_sec == INT64_MAX || time.tv_sec == INT64_MIN; }
static inline gpr_timespec gpr_time_add(gpr_timespec a, gpr_timespec b) {
    if (tl_gpr_is_infinite(a)) return a;
    if (tl_gpr_is_infinite(b)) return gpr_inf_future(a.clock_type);
    a.tv_sec += b.tv_sec;
    a.tv_nsec += b.tv_nsec;
    if (a.tv_nsec >= 1000000000) {
        a.tv_nsec -= 1000000000;
        a.tv_sec += 1;
    }
    return a;
}
static inline gpr_timespec gpr_time_sub(gpr_timespec a, gpr_timespec b) {
    if (tl_gpr_is_infinite(a)) return a;
    a.tv_sec -= b.tv_sec;
    a.tv_nsec -= b.tv_nsec;
    if (a.tv_nsec < 0) {
        a.tv_nsec += 1000000000;
        a.tv_sec -= 1;
    }
    if (b.clock_type != GPR_TIMESPAN) a.clock_type = GPR_TIMESPAN;
    return a;
}
static inline int gpr_time_cmp(gpr_timespec a, gpr_timespec b) {
    if (a.tv_sec != b.tv_sec) return a.tv_sec < b.tv_sec ? -1 : 1;
    return a.tv_nsec == b.tv_nsec ? 0 : a.tv_nsec < b.tv_nsec ? -1 : 1;
}
static inline gpr_timespec gpr_time_from_nanos(int64_t ns, gpr_clock_type type) {
    gpr_timespec out = {ns / 1000000000, (int32_t)(ns % 1000000000), type};
    if (out.tv_nsec < 0) {
        out.tv_nsec += 1000000000;
        out.tv_sec -= 1;
    }
    return out;
}
static inline gpr_timespec gpr_time_from_micros(int64_t us, gpr_clock_type type) {
    gpr_timespec out = gpr_time_from_nanos(us % 1000000 * 1000, type);
    out.tv_sec += us / 1000000;
    return out;
}
static inline gpr_timespec gpr_time_from_millis(int64_t ms, gpr_clock_type type) {
    gpr_timespec out = gpr_time_from_nanos(ms % 1000 * 1000000, type);
    out.tv_sec += ms / 1000;
    return out;
}
static inline gpr_timespec gpr_time_from_seconds(int64_t s, gpr_clock_type type) {
    gpr_timespec out = {s, 0, type};
    return out;
}
static inline gpr_timespec gpr_time_from_minutes(int64_t m, gpr_clock_type type) { return gpr_time_from_seconds(m * 60, type); }
static inline gpr_timespec gpr_time_from_hours(int64_t h, gpr_clock_type type) { return gpr_time_from_seconds(h * 3600, type); }
static inline void gpr_sleep_until(gpr_timespec until) {
    gpr_timespec left = until.clock_type == GPR_TIMESPAN ? until : gpr_time_sub(until, gpr_now(until.clock_type));
    struct timespec time = {(time_t)left.tv_sec, left.tv_nsec};
    // A signal ends it early; then the rest is slept.
    while (time.tv_sec >= 0 && nanosleep(&time, &time) != 0) {
    }
}
static inline int64_t gpr_time_to_millis(gpr_timespec time) { return time.tv_sec * 1000 + time.tv_nsec / 1000000; }

#endif
