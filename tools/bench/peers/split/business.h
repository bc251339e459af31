// The business of the split's application: this very source over gRPC C++ (linked.cc) and over Trunkline (split.cc).
//
// MESSAGE is the class of what goes there and back; with SPLIT_small or SPLIT_large its fields are filled one by one from
// what the application keeps, else it is a copy of a message the application keeps.

#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <fstream>
#include <iostream>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

namespace business {

// So many turns of a loop, each of which needs the one before.
inline void Turn(uint64_t turns) {
  uint64_t value = 1;
  for (uint64_t i = 0; i < turns; ++i) {
    value = value * 6364136223846793005u + 1;
    asm volatile("" : "+r"(value));
  }
}

// Turns in a microsecond, by the best of some tries: the others were disturbed.
inline uint64_t TurnsPerUs() {
  constexpr uint64_t kTurns = 2'000'000;
  uint64_t least = UINT64_MAX;
  for (int i = 0; i < 10; ++i) {
    const auto began = std::chrono::steady_clock::now();
    Turn(kTurns);
    const auto took = std::chrono::steady_clock::now() - began;
    least = std::min<uint64_t>(least, std::chrono::duration_cast<std::chrono::nanoseconds>(took).count());
  }
  return std::max<uint64_t>(1, kTurns * 1000 / std::max<uint64_t>(least, 1));
}

// Work of every call from now on, in turns.
inline std::atomic<uint64_t> turns{0};

// Takes the work in microseconds from lines of standard input, and says so, until it ends.
inline void TakeOrders() {
  const uint64_t per_us = TurnsPerUs();
  uint64_t work_us = 0;
  while (std::cin >> work_us) {
    turns = work_us * per_us;
    std::cout << work_us << std::endl;
  }
}

inline std::string ReadFile(const char* path) {
  std::ifstream in(path, std::ios::binary);
  std::ostringstream out;
  out << in.rdbuf();
  return out.str();
}

// What the application keeps, and how it makes its answers of that.
template <typename M>
class Answers {
 public:
  explicit Answers(const std::string& wire) {
    if (!kept_.ParseFromString(wire)) std::exit(1);
    Keep(kept_);
  }

  // Works, and answers.
  void Make(const M&, M* reply) const {
    Turn(turns.load(std::memory_order_relaxed));
    Fill(reply);
  }

 private:
#if defined(SPLIT_small)
  void Keep(const M& from) {
    summary_ = from.summary();
    detail_ = from.detail();
    owner_ = from.owner();
    hop_ = from.route().hop();
    cost_ = from.route().cost();
    width_ = from.window().width();
    for (int i = 0; i < from.window().mark_size(); ++i) marks_.push_back(from.window().mark(i));
    seen_ = from.health().seen();
    drift_ = from.health().drift();
    misses_ = from.health().misses();
    trace_id_ = from.trace_id();
    span_id_ = from.span_id();
    zone_ = from.zone();
    rank_ = from.rank();
    created_ = from.created();
  }

  void Fill(M* reply) const {
    auto* route = reply->mutable_route();
    route->set_hop(hop_);
    route->set_cost(cost_);
    auto* window = reply->mutable_window();
    window->set_width(width_);
    for (int32_t mark : marks_) window->add_mark(mark);
    auto* health = reply->mutable_health();
    health->set_seen(seen_);
    health->set_drift(drift_);
    health->set_misses(misses_);
    health->set_alive(true);
    health->set_fresh(true);
    reply->set_phase(trunkline::shapes::PHASE_OPEN);
    reply->set_wanted(trunkline::shapes::PHASE_LATE);
    reply->set_sticky(true);
    reply->set_trace_id(trace_id_);
    reply->set_span_id(span_id_);
    reply->set_summary(summary_);
    reply->set_detail(detail_);
    reply->set_owner(owner_);
    reply->set_zone(zone_);
    reply->set_rank(rank_);
    reply->set_created(created_);
  }

  std::string summary_, detail_, owner_;
  std::vector<int32_t> marks_;
  uint64_t hop_ = 0, seen_ = 0, trace_id_ = 0, span_id_ = 0;
  int64_t drift_ = 0, created_ = 0;
  int32_t cost_ = 0, width_ = 0, misses_ = 0, zone_ = 0, rank_ = 0;
#elif defined(SPLIT_large)
  void Keep(const M& from) {
    const auto& leaf = from.frame().layer().group().cell().leaf();
    data_ = from.part().data();
    pixels_ = leaf.pixels();
    thumb_ = leaf.thumb();
    for (int i = 0; i < leaf.lines_size(); ++i) lines_.emplace_back(leaf.lines(i));
    author_ = leaf.author();
    license_ = leaf.license();
    label_ = from.frame().layer().group().label();
    path_ = from.path();
  }

  void Fill(M* reply) const {
    const auto& from = kept_;
    auto* part = reply->mutable_part();
    part->set_data(data_);
    part->set_crc(from.part().crc());
    part->set_flags(from.part().flags());
    part->set_seq(from.part().seq());
    part->set_total(from.part().total());
    auto* frame = reply->mutable_frame();
    frame->set_scale(from.frame().scale());
    frame->set_angle(from.frame().angle());
    const auto& old_layer = from.frame().layer();
    auto* layer = frame->mutable_layer();
    layer->set_phase(old_layer.phase());
    layer->set_from(old_layer.from());
    layer->set_until(old_layer.until());
    layer->set_w(old_layer.w());
    layer->set_h(old_layer.h());
    layer->set_d(old_layer.d());
    layer->set_z(old_layer.z());
    const auto& old_group = old_layer.group();
    auto* group = layer->mutable_group();
    group->set_label(label_);
    group->set_order(old_group.order());
    auto* cell = group->mutable_cell();
    cell->set_slot(old_group.cell().slot());
    const auto& old_leaf = old_group.cell().leaf();
    auto* leaf = cell->mutable_leaf();
    leaf->set_pixels(pixels_);
    leaf->set_thumb(thumb_);
    for (const std::string& each : lines_) leaf->add_lines(each);
    leaf->set_author(author_);
    leaf->set_license(license_);
    leaf->set_id(old_leaf.id());
    leaf->set_kind(old_leaf.kind());
    leaf->set_depth(old_leaf.depth());
    leaf->set_gamma(old_leaf.gamma());
    leaf->set_gain(old_leaf.gain());
    reply->mutable_up()->set_n(from.up().n());
    reply->mutable_down()->set_n(from.down().n());
    reply->set_from(from.from());
    reply->set_to(from.to());
    reply->set_path(path_);
    reply->set_a(from.a());
    reply->set_b(from.b());
    reply->set_c(from.c());
    reply->set_d(from.d());
    reply->set_e(from.e());
    reply->set_f(from.f());
    reply->set_g(from.g());
  }

  std::string data_, pixels_, thumb_, author_, license_, label_, path_;
  std::vector<std::string> lines_;
#else
  void Keep(const M&) {}
  void Fill(M* reply) const { *reply = kept_; }
#endif

  M kept_;
};

}  // namespace business
