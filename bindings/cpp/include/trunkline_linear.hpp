// What classes over linear messages (docs/linear.md) are made of; protoc-gen-trunkline writes them with
// `lang=cpp,messages=linear`. For C++17 and later, header only, over trunkline.hpp.
//
// A message class `M` has protobuf's accessors. What was received is read where the daemon put it; what is to be sent is
// built where it will be sent from, if it was made for a channel or a delivered call (`M(channel)`), and moved to the
// call. `MView` only reads: what the accessor of a message field gives, and what can be copied about for nothing.
//
// Setting and adding may move the memory of a message: views, strings and lists read from one that is being built are
// good until the next change. Pointers to messages (`mutable_x()`, `add_x()`) are good until what they point to, or
// something around it, is cleared, assigned or moved from, or ends. Building fails as containers fail, by exceptions. An
// object is one thread's at a time while it is changed or asked for `linear_bytes()`; other const functions, and calls
// with a const message, may be any number of threads' at once. There is no reflection.
//
// What was cleared or replaced does not leave the process: text and numbers are zeroed, and of anything else (messages,
// lists of strings, members of a oneof) the message is written anew when it is sent or its bytes are asked for. Memory
// that was left behind is used again once it is about as much as what is in use.
#ifndef TRUNKLINE_LINEAR_HPP
#define TRUNKLINE_LINEAR_HPP

#include <trunkline.hpp>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <iterator>
#include <new>
#include <unordered_map>

namespace trunkline::linear {

// The types of a package, known to the library. Lives as long as the program.
class Schema {
  public:
    explicit Schema(std::string_view descriptor_set) {
        tl_status status;
        if (tl_schema_new(trunkline::detail::slice(descriptor_set), handle_.out(), &status) != TL_OK) {
            throw Error(Status::take(status));
        }
    }

    tl_schema get() const { return handle_.get(); }

  private:
    trunkline::detail::Owned<tl_schema, tl_schema_release> handle_;
};

namespace detail {

constexpr uint32_t kHeaderBytes = 24;
constexpr size_t kMessageBytesMax = size_t(1) << 31;
// Memory a message begins with: more than most have.
constexpr size_t kFirstBytes = 2048;
// What may be left behind in a message beside as much as is in use: writing it anew is worth while then.
constexpr uint32_t kLeftBytes = 4096;
// What is read where there is no message: presence words of as many fields as a message may have.
inline const uint8_t kAbsent[4 + 65536 / 8] = {};

template <class T> T load(const uint8_t *at) {
    T out;
    std::memcpy(&out, at, sizeof out);
    return out;
}

template <class T> void store(uint8_t *at, T value) { std::memcpy(at, &value, sizeof value); }

// Entries of maps, which are no message by themselves, have none.
template <class M> constexpr auto fingerprint_of(int) -> decltype(M::kFingerprint) { return M::kFingerprint; }
template <class M> constexpr uint64_t fingerprint_of(long) { return 0; }

inline void write_header(uint8_t *at, uint32_t bytes, uint64_t fingerprint) {
    const uint8_t start[4] = {'T', 'L', 1, 0};
    std::memcpy(at, start, sizeof start);
    store<uint32_t>(at + 4, bytes);
    store<uint32_t>(at + 8, kHeaderBytes);
    store<uint32_t>(at + 12, 0);
    store<uint64_t>(at + 16, fingerprint);
}

constexpr uint32_t word_of(uint32_t bit) { return 4 + bit / 32 * 4; }
constexpr uint32_t mask_of(uint32_t bit) { return uint32_t(1) << bit % 32; }

// Bytes that a message lies in, from its header on.
struct Bytes {
    const uint8_t *data = nullptr;
    uint32_t size = 0;

    // The place of a block, or of what reads as an empty one.
    const uint8_t *block(uint32_t at, uint32_t block_bytes) const {
        bool lies_within = at >= kHeaderBytes && at % 8 == 0 && uint64_t(at) + block_bytes <= size;
        return lies_within ? data + at : kAbsent;
    }

    // The elements of an array, or nothing.
    const uint8_t *elements(uint32_t offset, uint32_t count, uint32_t element_bytes) const {
        bool lies_within = count > 0 && uint64_t(offset) + uint64_t(count) * element_bytes <= size;
        return lies_within ? data + offset : nullptr;
    }

    std::string_view text(const uint8_t *slot) const {
        uint32_t count = load<uint32_t>(slot + 4);
        const uint8_t *at = elements(load<uint32_t>(slot), count, 1);
        return at == nullptr ? std::string_view() : std::string_view(reinterpret_cast<const char *>(at), count);
    }
};

// Walks what has `size()` and `operator[]`.
template <class L> class Iterator {
  public:
    using iterator_category = std::input_iterator_tag;
    using value_type = typename L::value_type;
    using difference_type = std::ptrdiff_t;
    using pointer = const value_type *;
    using reference = value_type;

    Iterator(L list, size_t at) : list_(list), at_(at) {}
    value_type operator*() const { return list_[at_]; }
    Iterator &operator++() {
        at_++;
        return *this;
    }
    Iterator operator++(int) { return Iterator(list_, at_++); }
    bool operator==(const Iterator &other) const { return at_ == other.at_; }
    bool operator!=(const Iterator &other) const { return at_ != other.at_; }

  private:
    L list_;
    size_t at_;
};

} // namespace detail

// A place in a message that is being read. Copies are cheap; what it reads must outlive it.
class View {
  public:
    View() = default;
    View(detail::Bytes bytes, uint32_t at, uint32_t block_bytes) : bytes_(bytes), block_(bytes.block(at, block_bytes)) {}

  protected:
    const detail::Bytes &tl_bytes() const { return bytes_; }
    const uint8_t *tl_block() const { return block_; }

  private:
    detail::Bytes bytes_;
    const uint8_t *block_ = detail::kAbsent;
};

// Elements of a repeated field, where they lie. Numbers lie as in an array: `data()` is theirs.
template <class T> class List {
  public:
    using value_type = T;
    using const_iterator = detail::Iterator<List>;

    List() = default;
    List(const uint8_t *data, uint32_t count) : data_(data), count_(data == nullptr ? 0 : count) {}

    size_t size() const { return count_; }
    bool empty() const { return count_ == 0; }
    T operator[](size_t at) const {
        if constexpr (std::is_same_v<T, bool>) {
            return data_[at] != 0;
        } else {
            return detail::load<T>(data_ + at * sizeof(T));
        }
    }
    T Get(int at) const { return (*this)[static_cast<size_t>(at)]; }
    const T *data() const {
        static_assert(std::is_arithmetic_v<T> && !std::is_same_v<T, bool>, "only numbers lie as in an array");
        return reinterpret_cast<const T *>(data_);
    }
    const_iterator begin() const { return {*this, 0}; }
    const_iterator end() const { return {*this, count_}; }

  private:
    const uint8_t *data_ = nullptr;
    uint32_t count_ = 0;
};

template <> class List<std::string_view> {
  public:
    using value_type = std::string_view;
    using const_iterator = detail::Iterator<List>;

    List() = default;
    List(detail::Bytes bytes, const uint8_t *data, uint32_t count)
        : bytes_(bytes), data_(data), count_(data == nullptr ? 0 : count) {}

    size_t size() const { return count_; }
    bool empty() const { return count_ == 0; }
    std::string_view operator[](size_t at) const { return bytes_.text(data_ + 8 * at); }
    std::string_view Get(int at) const { return (*this)[static_cast<size_t>(at)]; }
    const_iterator begin() const { return {*this, 0}; }
    const_iterator end() const { return {*this, count_}; }

  private:
    detail::Bytes bytes_;
    const uint8_t *data_ = nullptr;
    uint32_t count_ = 0;
};

// Messages of a repeated field.
template <class V> class Messages {
  public:
    using value_type = V;
    using const_iterator = detail::Iterator<Messages>;

    Messages() = default;
    Messages(detail::Bytes bytes, const uint8_t *data, uint32_t count)
        : bytes_(bytes), data_(data), count_(data == nullptr ? 0 : count) {}

    size_t size() const { return count_; }
    bool empty() const { return count_ == 0; }
    V operator[](size_t at) const {
        return V(View(bytes_, detail::load<uint32_t>(data_ + 4 * at), V::kBlockBytes));
    }
    V Get(int at) const { return (*this)[static_cast<size_t>(at)]; }
    const_iterator begin() const { return {*this, 0}; }
    const_iterator end() const { return {*this, count_}; }

  private:
    detail::Bytes bytes_;
    const uint8_t *data_ = nullptr;
    uint32_t count_ = 0;
};

// Entries of a map, in the order in which they came. Looked through from the end: of several with one key the last
// counts, as everywhere in protobuf.
template <class E> class Map {
  public:
    using Key = decltype(std::declval<const E &>().key());
    using Value = decltype(std::declval<const E &>().value());
    using value_type = std::pair<Key, Value>;
    using const_iterator = detail::Iterator<Map>;

    Map() = default;
    explicit Map(Messages<E> entries) : entries_(entries) {}

    size_t size() const { return entries_.size(); }
    bool empty() const { return entries_.empty(); }
    value_type operator[](size_t at) const {
        E entry = entries_[at];
        return {entry.key(), entry.value()};
    }
    std::optional<Value> find(const Key &key) const {
        for (size_t at = entries_.size(); at-- > 0;) {
            E entry = entries_[at];
            if (entry.key() == key) return entry.value();
        }
        return std::nullopt;
    }
    bool contains(const Key &key) const { return find(key).has_value(); }
    Value at(const Key &key) const {
        std::optional<Value> found = find(key);
        if (!found) throw std::out_of_range("the map has no such key");
        return *found;
    }
    const_iterator begin() const { return {*this, 0}; }
    const_iterator end() const { return {*this, entries_.size()}; }

  private:
    Messages<E> entries_;
};

// Accessors of fields for generated classes, over a `View` or a `Part`.
template <class Where> class Reader : public Where {
  public:
    using Where::Where;
    Reader() = default;
    explicit Reader(Where where) : Where(std::move(where)) {}

    // Fields that the type does not declare, in protobuf's encoding.
    std::string_view unknown_fields() const {
        const detail::Bytes &bytes = this->tl_bytes();
        uint32_t at = detail::load<uint32_t>(this->tl_block());
        if (at == 0 || bytes.elements(at, 1, 4) == nullptr) return {};
        uint32_t length = detail::load<uint32_t>(bytes.data + at);
        const uint8_t *data = bytes.elements(at + 4, length, 1);
        return data == nullptr ? std::string_view() : std::string_view(reinterpret_cast<const char *>(data), length);
    }

    // For generated code.
    const uint8_t *tl_block_of() const { return this->tl_block(); }
    const uint8_t *tl_memory_of() const { return this->tl_bytes().data; }

    bool tl_has(uint32_t bit) const {
        return (detail::load<uint32_t>(this->tl_block() + detail::word_of(bit)) & detail::mask_of(bit)) != 0;
    }

    template <class T> T tl_number(uint32_t slot, uint32_t bit, T otherwise) const {
        if (!tl_has(bit)) return otherwise;
        if constexpr (std::is_same_v<T, bool>) {
            return this->tl_block()[slot] != 0;
        } else {
            return detail::load<T>(this->tl_block() + slot);
        }
    }

    std::string_view tl_text(uint32_t slot, uint32_t bit, std::string_view otherwise) const {
        return tl_has(bit) ? this->tl_bytes().text(this->tl_block() + slot) : otherwise;
    }

    template <class V> V tl_message(uint32_t slot, uint32_t bit) const {
        if (!tl_has(bit)) return V();
        return V(View(this->tl_bytes(), detail::load<uint32_t>(this->tl_block() + slot), V::kBlockBytes));
    }

    template <class T> List<T> tl_list(uint32_t slot, uint32_t bit) const {
        auto [offset, count] = tl_pair(slot, bit);
        if constexpr (std::is_same_v<T, std::string_view>) {
            const detail::Bytes &bytes = this->tl_bytes();
            return List<T>(bytes, bytes.elements(offset, count, 8), count);
        } else {
            return List<T>(this->tl_bytes().elements(offset, count, sizeof(T)), count);
        }
    }

    template <class V> Messages<V> tl_messages(uint32_t slot, uint32_t bit) const {
        auto [offset, count] = tl_pair(slot, bit);
        const detail::Bytes &bytes = this->tl_bytes();
        return Messages<V>(bytes, bytes.elements(offset, count, 4), count);
    }

    template <class E> Map<E> tl_map(uint32_t slot, uint32_t bit) const { return Map<E>(tl_messages<E>(slot, bit)); }

  private:
    std::pair<uint32_t, uint32_t> tl_pair(uint32_t slot, uint32_t bit) const {
        if (!tl_has(bit)) return {0, 0};
        const uint8_t *at = this->tl_block() + slot;
        return {detail::load<uint32_t>(at), detail::load<uint32_t>(at + 4)};
    }
};

namespace detail {

class Arena;

} // namespace detail

// A message, or a part of one, that can be changed: whoever owns the memory, and where in it. Generated classes derive
// from this and add no members.
class Part {
  public:
    Part() = default;
    Part(const Part &) = delete;
    Part &operator=(const Part &) = delete;
    inline ~Part();

  protected:
    inline detail::Bytes tl_bytes() const;
    const uint8_t *tl_block() const { return arena_ == nullptr ? detail::kAbsent : tl_bytes().data + at_; }

    friend class detail::Arena;
    detail::Arena *arena_ = nullptr;
    uint32_t at_ = 0;
    bool owns_ = false;
};

namespace detail {

// The memory of a message: the library's, this process's, or a received message's. What others wrote (a received
// message, a linear message from elsewhere) may have parts that overlap: it is written anew before it is changed.
class Arena {
  public:
    Arena() = default;
    Arena(const Arena &) = delete;
    ~Arena() {
        if (memory_.id != 0) {
            tl_memory_release(memory_);
        } else if (is_own_) {
            std::free(data_);
        }
    }

    // Memory for a message through a channel, or in answer to a call.
    void reserve(tl_channel channel, tl_call call, size_t bytes) {
        tl_status status;
        if (tl_memory_new(channel, call, bytes, &memory_, &status) != TL_OK) throw Error(Status::take(status));
        data_ = memory_.data;
        capacity_ = memory_.capacity;
    }

    // A received message, read where it is.
    void lend(Message message) {
        received_ = std::move(message);
        std::string_view bytes = received_.bytes();
        data_ = reinterpret_cast<uint8_t *>(const_cast<char *>(bytes.data()));
        size_ = static_cast<uint32_t>(bytes.size());
        is_lent_ = is_foreign_ = true;
    }

    // A message that lies in memory of the library.
    void adopt(tl_memory memory, size_t bytes) {
        memory_ = memory;
        data_ = memory.data;
        capacity_ = memory.capacity;
        size_ = in_use_ = static_cast<uint32_t>(bytes);
    }

    // A copy of a message.
    void copy(std::string_view linear, bool is_foreign) {
        if (linear.size() > capacity_ || data_ == nullptr) grow(linear.size());
        if (!linear.empty()) std::memcpy(data_, linear.data(), linear.size());
        size_ = in_use_ = static_cast<uint32_t>(linear.size());
        is_foreign_ = is_foreign;
    }

    // Begins anew, with an empty root. The header is right from here on: who only reads the bytes need not write it.
    void begin(uint32_t block_bytes, uint64_t fingerprint) {
        roomy_.clear();
        last_room_ = Room();
        made_.clear();
        found_.clear();
        spare_parts_.clear();
        last_part_ = nullptr;
        chunks_ = parts_left_ = 0;
        anew_.reset();
        if (is_lent_) forget_lent();
        is_foreign_ = has_left_ = false;
        size_ = 0;
        zeroed(kHeaderBytes, 8);
        write_header(data_, size_, fingerprint);
        zeroed(block_bytes, 8);
        in_use_ = size_;
    }

    bool is_lent() const { return is_lent_; }
    bool is_foreign() const { return is_foreign_; }

    // Whether content lies here that no field leads to.
    bool has_left() const { return has_left_; }
    void leave() { has_left_ = true; }

    // Before something is left behind: begins anew if much was.
    void trim() {
        if (moves_ == nullptr && size_ >= 2 * uint64_t(in_use_) + kLeftBytes) write_anew();
    }

    void write_anew() { rewrite_(*this); }

    // For who writes it anew, in `fresh`: which messages were handed out by pointer, to learn where they are then.
    void begin_moves(Arena &fresh, std::unordered_map<uint32_t, uint32_t> &moves) const {
        for (const auto &[at, part] : made_) moves.emplace(at, 0);
        for (const auto &[at, part] : found_) moves.emplace(at, 0);
        fresh.moves_ = &moves;
    }

    void note_move(uint32_t from, uint32_t to) {
        if (moves_ == nullptr) return;
        auto found = moves_->find(from);
        if (found != moves_->end()) found->second = to;
    }

    // Takes the place of what is here, in memory of the same kind. Pointers to messages that are no more are ended.
    void replace(Arena &fresh, const std::unordered_map<uint32_t, uint32_t> &moves) {
        std::vector<Handed> moved;
        moved.reserve(moves.size());
        spare_parts_.reserve(spare_parts_.size() + moves.size());
        if (memory_.id != 0) {
            if (fresh.size_ > capacity_) grow(fresh.size_);
            std::memcpy(data_, fresh.data_, fresh.size_);
        } else {
            if (is_lent_) forget_lent();
            std::swap(data_, fresh.data_);
            std::swap(capacity_, fresh.capacity_);
            std::swap(is_own_, fresh.is_own_);
        }
        size_ = in_use_ = fresh.size_;
        roomy_.swap(fresh.roomy_);
        last_room_ = fresh.last_room_;
        is_foreign_ = has_left_ = false;
        anew_.reset();
        last_part_ = nullptr;
        for (const auto &[at, part] : made_) move(part, moves.at(at), moved);
        for (const auto &[at, part] : found_) move(part, moves.at(at), moved);
        std::sort(moved.begin(), moved.end());
        made_.swap(moved);
        found_.clear();
    }

    // What was written anew of this, kept for who reads its bytes until this changes.
    Arena *anew() const { return anew_.get(); }
    void keep(std::unique_ptr<Arena> anew) { anew_ = std::move(anew); }
    void change() { anew_.reset(); }

    // Whether bytes lie here, which change or go when this changes.
    bool holds(const uint8_t *data) const {
        bool is_here = data_ != nullptr && data >= data_ && data < data_ + size_;
        return is_here || (anew_ != nullptr && anew_->holds(data));
    }

    Bytes bytes() const { return {data_, size_}; }
    uint8_t *at(uint32_t offset) { return data_ + offset; }

    std::string_view text() const { return {reinterpret_cast<const char *>(data_), size_}; }

    // Gives the message away, to be sent; from other memory than the library's it is copied.
    void give(tl_channel channel, tl_call call, trunkline::detail::Outgoing &out) {
        out.built_bytes = size_;
        if (memory_.id != 0) {
            *out.built.out() = std::exchange(memory_, tl_memory{});
        } else {
            copy_out(bytes(), channel, call, out);
        }
    }

    static void copy_out(Bytes from, tl_channel channel, tl_call call, trunkline::detail::Outgoing &out) {
        tl_status status;
        if (tl_memory_new(channel, call, from.size, out.built.out(), &status) != TL_OK) {
            throw Error(Status::take(status));
        }
        std::memcpy(out.built.get().data, from.data, from.size);
        out.built_bytes = from.size;
    }

    // Bytes at the end; what lies before them for their alignment is zeroed.
    uint32_t take(size_t bytes, uint32_t alignment) {
        uint32_t at = (size_ + (alignment - 1)) & ~(alignment - 1);
        if (at + bytes > capacity_) grow(at + bytes);
        std::memset(data_ + size_, 0, at - size_);
        size_ = static_cast<uint32_t>(at + bytes);
        store<uint32_t>(data_ + 4, size_);
        return at;
    }

    uint32_t zeroed(size_t bytes, uint32_t alignment) {
        uint32_t at = take(bytes, alignment);
        std::memset(data_ + at, 0, bytes);
        return at;
    }

    uint32_t append(const void *bytes, size_t count, uint32_t alignment) {
        uint32_t at = take(count, alignment);
        std::memcpy(data_ + at, bytes, count);
        return at;
    }

    // A place for one more element of the array whose slot is at `slot`: at the end where the array is the last of the
    // memory, else with it in a place of twice as many.
    uint32_t next(uint32_t slot, bool is_present, uint32_t element_bytes, uint32_t alignment) {
        uint32_t offset = is_present ? load<uint32_t>(data_ + slot) : 0;
        uint32_t count = is_present ? load<uint32_t>(data_ + slot + 4) : 0;
        uint32_t room = offset == 0 ? 0 : room_of(slot, offset, count);
        if (count == room) {
            uint64_t old_bytes = uint64_t(room) * element_bytes;
            uint32_t spare = std::min(std::max(room, kSpareLeast), kSpareMost);
            if (room > 0 && offset + old_bytes == size_) {
                room += 1 + spare;
                zeroed(uint64_t(1 + spare) * element_bytes, 1);
            } else {
                room = std::max(room + 1 + spare, 2 * room);
                uint32_t moved = zeroed(uint64_t(room) * element_bytes, alignment);
                std::memcpy(data_ + moved, data_ + offset, old_bytes);
                std::memset(data_ + offset, 0, old_bytes);
                offset = moved;
            }
            roomy_[slot] = last_room_ = {slot, offset, room};
        }
        store<uint32_t>(data_ + slot, offset);
        store<uint32_t>(data_ + slot + 4, count + 1);
        return offset + count * element_bytes;
    }

    // Room for the elements that an array will have, which has none yet.
    void expect(uint32_t slot, uint32_t count, uint32_t element_bytes, uint32_t alignment) {
        uint32_t offset = zeroed(uint64_t(count) * element_bytes, alignment);
        store(data_ + slot, offset);
        store<uint32_t>(data_ + slot + 4, 0);
        roomy_[slot] = last_room_ = {slot, offset, count};
    }

    // A message in this memory, as its class: for as long as the memory is, the same each time.
    template <class M> M *part(uint32_t at) {
        static_assert(sizeof(M) == sizeof(Part), "generated classes add no members");
        if (last_part_ != nullptr && last_part_->at_ == at) return static_cast<M *>(last_part_);
        // Those that were made here come by ascending offset: a map is for the others.
        bool is_last = made_.empty() || made_.back().first < at;
        Part *known = is_last ? nullptr : known_part(at);
        if (known == nullptr) {
            Part *made = new (place()) M();
            made->arena_ = this;
            made->at_ = at;
            if (is_last) {
                made_.emplace_back(at, made);
            } else {
                found_.emplace(at, made);
            }
            known = made;
        }
        last_part_ = known;
        return static_cast<M *>(known);
    }

    // A whole message, and what writes one of its class anew.
    static void bind(Part &part, Arena *arena, void (*rewrite)(Arena &)) {
        arena->rewrite_ = rewrite;
        part.arena_ = arena;
        part.at_ = kHeaderBytes;
        part.owns_ = true;
    }

  private:
    struct Room {
        uint32_t slot, offset, elements;
    };
    struct alignas(Part) Place {
        unsigned char bytes[sizeof(Part)];
    };
    using Handed = std::pair<uint32_t, Part *>;

    // Elements that an array gets room for beyond the one that is added.
    static constexpr uint32_t kSpareLeast = 3, kSpareMost = 15;

    // For how many elements there is room. An array that was set as a whole has none to spare.
    uint32_t room_of(uint32_t slot, uint32_t offset, uint32_t count) {
        if (last_room_.slot != slot) {
            auto found = roomy_.find(slot);
            if (found == roomy_.end()) return count;
            last_room_ = found->second;
        }
        return last_room_.offset == offset ? last_room_.elements : count;
    }

    Part *known_part(uint32_t at) const {
        auto lower = std::lower_bound(made_.begin(), made_.end(), at,
                                      [](const Handed &each, uint32_t offset) { return each.first < offset; });
        if (lower != made_.end() && lower->first == at) return lower->second;
        auto found = found_.find(at);
        return found == found_.end() ? nullptr : found->second;
    }

    void *place() {
        if (!spare_parts_.empty()) {
            Part *spare = spare_parts_.back();
            spare_parts_.pop_back();
            spare->~Part();
            return spare;
        }
        if (parts_left_ == 0) {
            size_t count = std::min<size_t>(8 << std::min<size_t>(chunks_, 5), 256);
            if (chunks_ == parts_.size()) parts_.push_back(std::make_unique<Place[]>(count));
            chunks_++;
            parts_left_ = count;
        }
        return &parts_[chunks_ - 1][--parts_left_];
    }

    void move(Part *part, uint32_t to, std::vector<Handed> &moved) {
        if (to == 0) {
            part->arena_ = nullptr;
            spare_parts_.push_back(part);
        } else {
            part->at_ = to;
            moved.emplace_back(to, part);
        }
    }

    void forget_lent() {
        received_ = Message();
        data_ = nullptr;
        is_lent_ = false;
        capacity_ = size_ = 0;
    }

    void grow(size_t bytes) {
        if (bytes > kMessageBytesMax) throw std::length_error("a message of more than 2 GiB");
        if (memory_.id != 0) {
            tl_status status;
            if (tl_memory_grow(&memory_, bytes, &status) != TL_OK) throw Error(Status::take(status));
            data_ = memory_.data;
            capacity_ = memory_.capacity;
            return;
        }
        size_t wanted = std::max({bytes, 2 * capacity_, kFirstBytes});
        void *grown = std::realloc(data_, wanted);
        if (grown == nullptr) throw std::bad_alloc();
        data_ = static_cast<uint8_t *>(grown);
        capacity_ = wanted;
        is_own_ = true;
    }

    uint8_t *data_ = nullptr;
    uint32_t size_ = 0;
    size_t capacity_ = 0;
    // Where it lies, if that is the library's.
    tl_memory memory_{};
    Message received_;
    bool is_lent_ = false, is_own_ = false, is_foreign_ = false, has_left_ = false;
    // What it had when last nothing was left behind.
    uint32_t in_use_ = 0;
    void (*rewrite_)(Arena &) = nullptr;
    // While this is what another is written anew to.
    std::unordered_map<uint32_t, uint32_t> *moves_ = nullptr;
    std::unique_ptr<Arena> anew_;
    // Arrays that elements were added to, by the offset of their slot; the last of them.
    std::unordered_map<uint32_t, Room> roomy_;
    Room last_room_{};
    // Messages that were handed out by pointer, by offset: those that were new, and the others.
    std::vector<Handed> made_;
    std::unordered_map<uint32_t, Part *> found_;
    std::vector<Part *> spare_parts_;
    // Where they are: chunks, of which so many are in use, the last with so many places left.
    std::vector<std::unique_ptr<Place[]>> parts_;
    size_t chunks_ = 0, parts_left_ = 0;
    Part *last_part_ = nullptr;
};

} // namespace detail

Part::~Part() {
    if (owns_) delete arena_;
}

detail::Bytes Part::tl_bytes() const { return arena_ == nullptr ? detail::Bytes() : arena_->bytes(); }

// Numbers of a repeated field that are being added: `mutable_x()->Add(1)`.
template <class Owner, class T> class MutableList {
  public:
    using Adder = void (Owner::*)(T);
    MutableList(Owner *owner, Adder add) : owner_(owner), add_(add) {}
    MutableList *operator->() { return this; }
    MutableList &operator*() { return *this; }
    void Add(T value) { (owner_->*add_)(value); }
    template <class It> void Add(It from, It to) {
        for (; from != to; ++from) Add(static_cast<T>(*from));
    }

  private:
    Owner *owner_;
    Adder add_;
};

// What every generated message class `M` has, over the accessors `Fields<Part>`.
template <class M, class Fields> class Editor : public Fields {
  public:
    // Empties it. Pointers to messages in it end.
    void Clear() {
        if (this->arena_ == nullptr) return;
        if (this->owns_) {
            this->arena_->begin(M::kBlockBytes, detail::fingerprint_of<M>(0));
            this->at_ = detail::kHeaderBytes;
        } else {
            tl_need();
            this->arena_->trim();
            std::memset(this->arena_->at(this->at_), 0, M::kBlockBytes);
            this->arena_->leave();
        }
    }

    // As protobuf's: what `from` has of single fields replaces what this has, messages are merged, lists and maps are
    // appended to. Goes by way of protobuf's form. Pointers to messages in this end.
    template <class From> void MergeFrom(const From &from) {
        if constexpr (std::is_same_v<From, M>) {
            tl_merge_whole(from);
        } else {
            M whole;
            whole.CopyFrom(from);
            tl_merge_whole(whole);
        }
    }

    // Each becomes what the other was.
    void Swap(M *other) {
        M &self = static_cast<M &>(*this);
        if (other == &self) return;
        M kept(std::move(self));
        self = std::move(*other);
        *other = std::move(kept);
    }

    // Bytes of protobuf's form, which is made for that.
    size_t ByteSizeLong() const { return SerializeAsString().size(); }

    // As protobuf. False if it cannot be, or there is no room for it.
    bool SerializeToArray(void *data, int size) const {
        std::string out;
        if (!SerializeToString(&out) || size < 0 || out.size() > static_cast<size_t>(size)) return false;
        if (!out.empty()) std::memcpy(data, out.data(), out.size());
        return true;
    }

    // As protobuf. False if it cannot be.
    bool SerializeToString(std::string *out) const {
        if (this->arena_ != nullptr && !is_root()) {
            M whole;
            whole.CopyFrom(static_cast<const M &>(*this));
            return whole.SerializeToString(out);
        }
        // What was left behind is not encoded.
        std::string_view linear = is_root() ? this->arena_->text() : linear_bytes();
        trunkline::detail::Owned<tl_message, tl_message_release> encoded;
        if (tl_schema_encode(M::tl_schema_of().get(), trunkline::detail::slice(M::kName),
                             trunkline::detail::slice(linear), encoded.out(), nullptr) != TL_OK) {
            return false;
        }
        *out = trunkline::detail::view(tl_message_bytes(encoded.get()));
        return true;
    }

    std::string SerializeAsString() const {
        std::string out;
        SerializeToString(&out);
        return out;
    }

    // From protobuf; false if it is none, and the message is as it was.
    bool ParseFromArray(const void *data, int size) {
        if (size < 0) return false;
        tl_memory memory;
        size_t bytes = 0;
        tl_slice wire{static_cast<const uint8_t *>(data), static_cast<size_t>(size)};
        if (tl_schema_decode(M::tl_schema_of().get(), trunkline::detail::slice(M::kName), wire, &memory, &bytes,
                             nullptr) != TL_OK) {
            return false;
        }
        auto arena = std::make_unique<detail::Arena>();
        arena->adopt(memory, bytes);
        M parsed;
        detail::Arena::bind(parsed, arena.release(), tl_rewrite);
        static_cast<M &>(*this) = std::move(parsed);
        return true;
    }

    bool ParseFromString(std::string_view wire) {
        return wire.size() <= INT32_MAX && ParseFromArray(wire.data(), static_cast<int>(wire.size()));
    }

    // The linear message, until the next change.
    std::string_view linear_bytes() const {
        if (is_root()) {
            if (!this->arena_->has_left()) return this->arena_->text();
            if (this->arena_->anew() == nullptr) this->arena_->keep(tl_written_anew());
            return this->arena_->anew()->text();
        }
        if (this->arena_ == nullptr) return tl_empty();
        throw std::logic_error("only a whole message has linear bytes: copy this part");
    }

    // A linear message from anywhere, checked and copied; false if it is none, and this is as it was.
    bool ParseFromLinear(std::string_view linear) {
        auto arena = std::make_unique<detail::Arena>();
        arena->copy(linear, true);
        detail::Bytes bytes = arena->bytes();
        tl_slice copied{bytes.data, bytes.size};
        if (tl_schema_check(M::tl_schema_of().get(), trunkline::detail::slice(M::kName), copied, nullptr) != TL_OK) {
            return false;
        }
        M read;
        detail::Arena::bind(read, arena.release(), tl_rewrite);
        static_cast<M &>(*this) = std::move(read);
        return true;
    }

    // For the codec.
    void tl_give(tl_channel channel, tl_call call, trunkline::detail::Outgoing &out) {
        if (!is_root() || this->arena_->is_lent()) return tl_copy_out(channel, call, out);
        if (this->arena_->has_left()) this->arena_->write_anew();
        this->arena_->give(channel, call, out);
        delete std::exchange(this->arena_, nullptr);
        this->owns_ = false;
    }

    void tl_copy_out(tl_channel channel, tl_call call, trunkline::detail::Outgoing &out) const {
        if (this->arena_ != nullptr && !is_root()) {
            M whole;
            whole.CopyFrom(static_cast<const M &>(*this));
            return whole.tl_copy_out(channel, call, out);
        }
        // Other threads may do the same with this message: nothing is kept in it.
        std::unique_ptr<detail::Arena> anew;
        std::string_view linear = this->arena_ == nullptr ? tl_empty() : this->arena_->text();
        if (this->arena_ != nullptr && this->arena_->has_left()) {
            if (this->arena_->anew() == nullptr) anew = tl_written_anew();
            linear = (anew ? anew.get() : this->arena_->anew())->text();
        }
        detail::Bytes bytes{reinterpret_cast<const uint8_t *>(linear.data()), static_cast<uint32_t>(linear.size())};
        detail::Arena::copy_out(bytes, channel, call, out);
    }

    bool tl_take(Message message) {
        std::string_view bytes = message.bytes();
        if (bytes.size() < detail::kHeaderBytes + M::kBlockBytes) return false;
        auto arena = std::make_unique<detail::Arena>();
        arena->lend(std::move(message));
        M received;
        detail::Arena::bind(received, arena.release(), tl_rewrite);
        static_cast<M &>(*this) = std::move(received);
        return true;
    }

  protected:
    // Memory that can be changed.
    void tl_need() {
        if (this->arena_ == nullptr) {
            auto arena = std::make_unique<detail::Arena>();
            arena->begin(M::kBlockBytes, detail::fingerprint_of<M>(0));
            detail::Arena::bind(*this, arena.release(), tl_rewrite);
        } else if (this->arena_->is_foreign()) {
            this->arena_->write_anew();
        } else {
            this->arena_->change();
        }
    }

    void tl_reserve(tl_channel channel, tl_call call) {
        auto arena = std::make_unique<detail::Arena>();
        arena->reserve(channel, call, detail::kHeaderBytes + M::kBlockBytes);
        arena->begin(M::kBlockBytes, detail::fingerprint_of<M>(0));
        detail::Arena::bind(*this, arena.release(), tl_rewrite);
    }

    void tl_steal(M &&other) {
        if (this == &other) return;
        if (!other.owns_ || (this->arena_ != nullptr && !this->owns_)) {
            static_cast<M *>(this)->CopyFrom(other);
            return;
        }
        if (this->owns_) delete this->arena_;
        this->arena_ = std::exchange(other.arena_, nullptr);
        this->at_ = other.at_;
        this->owns_ = std::exchange(other.owns_, false);
    }

    // A whole message of the same class as a whole: one copy of its bytes. False if it is a part, or something in it was
    // left behind.
    bool tl_copy_whole(const M &other) {
        const Editor &from = other;
        if (!from.is_root() || from.arena_->has_left() || (this->arena_ != nullptr && !this->owns_)) return false;
        detail::Bytes bytes = from.arena_->bytes();
        if (this->arena_ == nullptr) tl_need();
        this->arena_->begin(0, detail::fingerprint_of<M>(0));
        this->arena_->copy({reinterpret_cast<const char *>(bytes.data), bytes.size}, from.arena_->is_foreign());
        this->at_ = detail::kHeaderBytes;
        return true;
    }

    // Anything else. What lies in the memory of this moves while this grows, and is gone once this is cleared: then a
    // copy of it is copied.
    template <class From> void tl_copy(const From &from) {
        if (this->arena_ != nullptr && from.tl_memory_of() == this->arena_->bytes().data) {
            M kept;
            kept.tl_merge(from);
            return static_cast<M *>(this)->CopyFrom(kept);
        }
        Clear();
        static_cast<M *>(this)->tl_merge(from);
    }

    template <class T> void tl_set(uint32_t slot, uint32_t bit, T value) {
        tl_need();
        uint8_t *block = tl_mark(bit);
        if constexpr (std::is_same_v<T, bool>) {
            block[slot] = value ? 1 : 0;
        } else {
            detail::store(block + slot, value);
        }
    }

    void tl_set_text(uint32_t slot, uint32_t bit, std::string_view value) {
        tl_set_array(slot, bit, value.data(), value.size(), value.size(), 1);
    }

    // Sets a list of numbers, or the bytes of a string: over what was there if it fits, else at the end.
    void tl_set_array(uint32_t slot, uint32_t bit, const void *data, size_t count, size_t bytes, uint32_t alignment) {
        if (bytes == 0) {
            tl_outgrown(slot, bit, 0, alignment);
            return tl_put_pair(slot, bit, 0, 0);
        }
        // The end may move when memory grows, and `data` may lie in it.
        const uint8_t *from = static_cast<const uint8_t *>(data);
        std::string kept;
        if (is_ours(from)) {
            kept.assign(reinterpret_cast<const char *>(from), bytes);
            from = reinterpret_cast<const uint8_t *>(kept.data());
        }
        if (uint32_t old = tl_outgrown(slot, bit, bytes, alignment); old != 0) {
            std::memcpy(this->arena_->at(old), from, bytes);
            return tl_put_pair(slot, bit, old, static_cast<uint32_t>(count));
        }
        uint32_t at = this->arena_->append(from, bytes, alignment);
        tl_put_pair(slot, bit, at, static_cast<uint32_t>(count));
    }

    // The same with memory to be filled: zeros.
    void *tl_fill_array(uint32_t slot, uint32_t bit, size_t count, size_t bytes, uint32_t alignment) {
        uint32_t at = tl_outgrown(slot, bit, bytes, alignment);
        if (at == 0 && bytes != 0) at = this->arena_->zeroed(bytes, alignment);
        tl_put_pair(slot, bit, at, static_cast<uint32_t>(count));
        return this->arena_->at(at);
    }

    template <class T> void tl_add(uint32_t slot, uint32_t bit, T value) {
        tl_need();
        uint32_t at = tl_next(slot, bit, sizeof value, sizeof value);
        detail::store(this->arena_->at(at), value);
    }

    void tl_add_text(uint32_t slot, uint32_t bit, std::string_view value) {
        std::string kept;
        tl_keep(value, kept);
        tl_need();
        uint32_t at = value.empty() ? 0 : this->arena_->append(value.data(), value.size(), 1);
        uint32_t element = tl_next(slot, bit, 8, 4);
        detail::store<uint32_t>(this->arena_->at(element), at);
        detail::store<uint32_t>(this->arena_->at(element) + 4, static_cast<uint32_t>(value.size()));
    }

    // Text that lies in this message is kept apart for as long as that changes; numbers are.
    void tl_keep(std::string_view &value, std::string &kept) const {
        if (!is_ours(reinterpret_cast<const uint8_t *>(value.data()))) return;
        kept = value;
        value = kept;
    }
    template <class T> void tl_keep(T &, std::string &) const {}

    template <class T> void tl_set_at(uint32_t slot, uint32_t index, T value) {
        tl_need();
        detail::store(this->arena_->at(tl_offset(slot) + index * sizeof value), value);
    }

    void tl_set_text_at(uint32_t slot, uint32_t index, std::string_view value) {
        std::string kept(value);
        tl_need();
        this->arena_->trim();
        const uint8_t *before = this->arena_->at(tl_offset(slot) + 8 * index);
        uint32_t at = detail::load<uint32_t>(before), old_bytes = detail::load<uint32_t>(before + 4);
        if (old_bytes > 0) std::memset(this->arena_->at(at), 0, old_bytes);
        if (kept.empty()) {
            at = 0;
        } else if (kept.size() <= old_bytes) {
            std::memcpy(this->arena_->at(at), kept.data(), kept.size());
        } else {
            at = this->arena_->append(kept.data(), kept.size(), 1);
        }
        uint8_t *element = this->arena_->at(tl_offset(slot) + 8 * index);
        detail::store<uint32_t>(element, at);
        detail::store<uint32_t>(element + 4, static_cast<uint32_t>(kept.size()));
    }

    template <class T> T *tl_mutable(uint32_t slot, uint32_t bit) {
        tl_need();
        if (!this->tl_has(bit)) {
            uint32_t made = this->arena_->zeroed(T::kBlockBytes, 8);
            detail::store(tl_mark(bit) + slot, made);
        }
        return this->arena_->template part<T>(tl_offset(slot));
    }

    template <class T> T *tl_add_message(uint32_t slot, uint32_t bit) {
        tl_need();
        uint32_t made = this->arena_->zeroed(T::kBlockBytes, 8);
        uint32_t element = tl_next(slot, bit, 4, 4);
        detail::store(this->arena_->at(element), made);
        return this->arena_->template part<T>(made);
    }

    template <class T> T *tl_mutable_at(uint32_t slot, uint32_t index) {
        tl_need();
        return this->arena_->template part<T>(detail::load<uint32_t>(this->arena_->at(tl_offset(slot) + 4 * index)));
    }

    // Clears a field: what it had is left behind.
    void tl_clear(uint32_t bit) {
        if (!this->tl_has(bit)) return;
        tl_need();
        this->arena_->trim();
        tl_unmark(bit);
        this->arena_->leave();
    }

    // The same of a number, and of a list of numbers or the bytes of a string: they are zeroed.
    void tl_clear_number(uint32_t slot, uint32_t bit, uint32_t bytes) {
        if (!this->tl_has(bit)) return;
        tl_need();
        std::memset(this->arena_->at(this->at_) + slot, 0, bytes);
        tl_unmark(bit);
    }

    void tl_clear_array(uint32_t slot, uint32_t bit, uint32_t element_bytes) {
        if (!this->tl_has(bit)) return;
        tl_outgrown(slot, bit, 0, element_bytes);
        tl_put_pair(slot, bit, 0, 0);
        tl_unmark(bit);
    }

    // How many elements a list will have that has none: it gets its room at once.
    void tl_expect(uint32_t slot, uint32_t bit, size_t count, uint32_t element_bytes, uint32_t alignment) {
        if (count == 0 || this->tl_has(bit)) return;
        tl_need();
        this->arena_->expect(this->at_ + slot, static_cast<uint32_t>(count), element_bytes, alignment);
        tl_mark(bit);
    }

    // This is about to become what `from` is.
    template <class From> void tl_note(const From &from) {
        if (this->arena_ == nullptr || from.tl_block_of() == detail::kAbsent) return;
        this->arena_->note_move(static_cast<uint32_t>(from.tl_block_of() - from.tl_memory_of()), this->at_);
    }

    void tl_set_unknown(std::string_view wire) {
        if (wire.empty() && this->unknown_fields().empty()) return;
        std::string kept(wire);
        tl_need();
        if (std::string_view old = this->unknown_fields(); !old.empty()) {
            const uint8_t *data = reinterpret_cast<const uint8_t *>(old.data());
            std::memset(this->arena_->at(static_cast<uint32_t>(data - this->tl_bytes().data)), 0, old.size());
        }
        uint32_t at = 0;
        if (!kept.empty()) {
            at = this->arena_->take(4 + kept.size(), 4);
            detail::store<uint32_t>(this->arena_->at(at), static_cast<uint32_t>(kept.size()));
            std::memcpy(this->arena_->at(at) + 4, kept.data(), kept.size());
        }
        detail::store<uint32_t>(this->arena_->at(this->at_), at);
    }

    // A block of numbers as a whole; this has none yet.
    template <class From> void tl_copy_block(const From &from) {
        if (from.tl_block_of() == detail::kAbsent) return;
        tl_need();
        std::memcpy(this->arena_->at(this->at_) + 4, from.tl_block_of() + 4, M::kBlockBytes - 4);
    }

    // Makes a member of a oneof the only one that may be set; `bits` are those of all members.
    template <size_t N> void tl_switch(uint32_t slot, uint32_t slot_bytes, uint32_t member, const uint32_t (&bits)[N]) {
        tl_need();
        if (this->tl_has(member)) return;
        for (uint32_t bit : bits) tl_clear(bit);
        std::memset(this->arena_->at(this->at_) + slot, 0, slot_bytes);
    }

  private:
    void tl_merge_whole(const M &from) {
        if (this->arena_ == nullptr) return static_cast<M *>(this)->CopyFrom(from);
        std::string wire, more;
        M merged;
        if (!SerializeToString(&wire) || !from.SerializeToString(&more) || !merged.ParseFromString(wire + more)) {
            throw std::invalid_argument("a message that protobuf has no form for cannot be merged");
        }
        static_cast<M *>(this)->CopyFrom(merged);
    }

    bool is_root() const { return this->arena_ != nullptr && this->owns_; }

    // A whole message that has nothing.
    static std::string_view tl_empty() {
        struct Empty {
            alignas(8) uint8_t bytes[detail::kHeaderBytes + M::kBlockBytes] = {};
            Empty() { detail::write_header(bytes, sizeof bytes, M::kFingerprint); }
        };
        static const Empty empty;
        return {reinterpret_cast<const char *>(empty.bytes), sizeof empty.bytes};
    }

    // A whole message without what was left behind.
    std::unique_ptr<detail::Arena> tl_written_anew() const {
        Editor<M, Fields> anew;
        anew.tl_need();
        tl_write_to(anew, *this->arena_);
        anew.owns_ = false;
        return std::unique_ptr<detail::Arena>(std::exchange(anew.arena_, nullptr));
    }

    // Writes the message of `arena`, without what was left behind, to an empty one.
    static void tl_write_to(Editor &anew, detail::Arena &arena) {
        M whole;
        Editor &from = whole;
        from.arena_ = &arena;
        from.at_ = detail::kHeaderBytes;
        M to;
        Editor &into = to;
        into.arena_ = anew.arena_;
        into.at_ = detail::kHeaderBytes;
        to.tl_merge(whole);
    }

    static void tl_rewrite(detail::Arena &arena) {
        std::unordered_map<uint32_t, uint32_t> moves;
        Editor<M, Fields> anew;
        anew.tl_need();
        arena.begin_moves(*anew.arena_, moves);
        tl_write_to(anew, arena);
        arena.replace(*anew.arena_, moves);
    }

    // Zeroes what an array has, which is to have so many bytes now. The place it is in, if there is room for them.
    uint32_t tl_outgrown(uint32_t slot, uint32_t bit, size_t bytes, uint32_t element_bytes) {
        tl_need();
        if (!this->tl_has(bit)) return 0;
        this->arena_->trim();
        const uint8_t *block = this->arena_->at(this->at_);
        uint32_t old = detail::load<uint32_t>(block + slot), old_count = detail::load<uint32_t>(block + slot + 4);
        size_t old_bytes = size_t(old_count) * element_bytes;
        if (old_bytes > 0) std::memset(this->arena_->at(old), 0, old_bytes);
        return bytes > 0 && bytes <= old_bytes ? old : 0;
    }

    void tl_unmark(uint32_t bit) {
        uint8_t *word = this->arena_->at(this->at_) + detail::word_of(bit);
        detail::store<uint32_t>(word, detail::load<uint32_t>(word) & ~detail::mask_of(bit));
    }

    bool is_ours(const uint8_t *data) const { return this->arena_ != nullptr && this->arena_->holds(data); }

    uint8_t *tl_mark(uint32_t bit) {
        uint8_t *block = this->arena_->at(this->at_), *word = block + detail::word_of(bit);
        detail::store<uint32_t>(word, detail::load<uint32_t>(word) | detail::mask_of(bit));
        return block;
    }

    void tl_put_pair(uint32_t slot, uint32_t bit, uint32_t offset, uint32_t count) {
        tl_need();
        uint8_t *block = tl_mark(bit);
        detail::store<uint32_t>(block + slot, offset);
        detail::store<uint32_t>(block + slot + 4, count);
    }

    uint32_t tl_next(uint32_t slot, uint32_t bit, uint32_t element_bytes, uint32_t alignment) {
        bool is_present = this->tl_has(bit);
        tl_mark(bit);
        return this->arena_->next(this->at_ + slot, is_present, element_bytes, alignment);
    }

    uint32_t tl_offset(uint32_t slot) const { return detail::load<uint32_t>(this->tl_block() + slot); }
};

} // namespace trunkline::linear

namespace trunkline::detail {

// Linear messages are neither encoded nor decoded.
template <class M> struct Codec<M, std::void_t<decltype(M::kFingerprint)>> {
    static bool encode(const M &message, tl_channel channel, tl_call call, Outgoing &out) {
        message.tl_copy_out(channel, call, out);
        return true;
    }

    static bool encode(M &message, tl_channel channel, tl_call call, Outgoing &out) {
        return encode(static_cast<const M &>(message), channel, call, out);
    }

    static bool encode(M &&message, tl_channel channel, tl_call call, Outgoing &out) {
        message.tl_give(channel, call, out);
        return true;
    }

    static bool decode(Message message, M &out) { return out.tl_take(std::move(message)); }
    static M answer(const ServedCall &call) { return M(call); }
};

} // namespace trunkline::detail

#endif
