// grpc::string_ref: text that belongs to somebody else.
#ifndef TRUNKLINE_GRPCPP_SUPPORT_STRING_REF_H
#define TRUNKLINE_GRPCPP_SUPPORT_STRING_REF_H

#include <algorithm>
#include <cstring>
#include <iterator>
#include <ostream>
#include <string>

namespace grpc {

class string_ref {
  public:
    typedef const char *const_iterator;
    typedef std::reverse_iterator<const_iterator> const_reverse_iterator;
    static constexpr size_t npos = size_t(-1);

    string_ref() = default;
    string_ref(const char *text) : data_(text), size_(std::strlen(text)) {}
    string_ref(const char *text, size_t size) : data_(text), size_(size) {}
    string_ref(const std::string &text) : data_(text.data()), size_(text.size()) {}
    string_ref &operator=(const string_ref &) = default;
    string_ref(const string_ref &) = default;

    const_iterator begin() const { return data_; }
    const_iterator end() const { return data_ + size_; }
    const_iterator cbegin() const { return begin(); }
    const_iterator cend() const { return end(); }
    const_reverse_iterator rbegin() const { return const_reverse_iterator(end()); }
    const_reverse_iterator rend() const { return const_reverse_iterator(begin()); }

    size_t size() const { return size_; }
    size_t length() const { return size_; }
    size_t max_size() const { return size_; }
    bool empty() const { return size_ == 0; }
    const char *data() const { return data_; }

    int compare(string_ref other) const {
        int order = std::char_traits<char>::compare(data_, other.data_, std::min(size_, other.size_));
        if (order != 0 || size_ == other.size_) return order;
        return size_ < other.size_ ? -1 : 1;
    }
    bool starts_with(string_ref other) const { return size_ >= other.size_ && substr(0, other.size_).compare(other) == 0; }
    bool ends_with(string_ref other) const {
        return size_ >= other.size_ && substr(size_ - other.size_).compare(other) == 0;
    }
    size_t find(string_ref other) const {
        auto at = std::search(begin(), end(), other.begin(), other.end());
        return at == end() && !other.empty() ? npos : static_cast<size_t>(at - begin());
    }
    size_t find(char wanted) const { return find(string_ref(&wanted, 1)); }
    string_ref substr(size_t from, size_t count = npos) const {
        from = std::min(from, size_);
        return string_ref(data_ + from, std::min(count, size_ - from));
    }

  private:
    const char *data_ = "";
    size_t size_ = 0;
};

inline bool operator==(string_ref a, string_ref b) { return a.compare(b) == 0; }
inline bool operator!=(string_ref a, string_ref b) { return a.compare(b) != 0; }
inline bool operator<(string_ref a, string_ref b) { return a.compare(b) < 0; }
inline bool operator>(string_ref a, string_ref b) { return a.compare(b) > 0; }
inline bool operator<=(string_ref a, string_ref b) { return a.compare(b) <= 0; }
inline bool operator>=(string_ref a, string_ref b) { return a.compare(b) >= 0; }
inline std::ostream &operator<<(std::ostream &out, const string_ref &text) {
    return out << std::string(text.begin(), text.end());
}

} // namespace grpc

#endif
