// What protobuf's compiler makes of greeter.proto, as far as generated stubs need it: classes with these two methods.
#pragma once

#include <string>

namespace greeter::v1 {

class HelloRequest {
  public:
    const std::string &name() const { return text_; }
    void set_name(std::string name) { text_ = std::move(name); }

    // Field 1, of up to 127 bytes.
    bool SerializeToString(std::string *out) const {
        if (text_.size() > 127) return false;
        *out = text_.empty() ? "" : std::string("\x0a") + static_cast<char>(text_.size()) + text_;
        return true;
    }

    bool ParseFromArray(const void *data, int size) {
        const char *bytes = static_cast<const char *>(data);
        text_.clear();
        if (size == 0) return true;
        if (size < 2 || bytes[0] != 0x0a || bytes[1] != size - 2) return false;
        text_.assign(bytes + 2, static_cast<size_t>(size) - 2);
        return true;
    }

  protected:
    std::string text_;
};

class HelloReply : public HelloRequest {
  public:
    const std::string &message() const { return text_; }
    void set_message(std::string message) { text_ = std::move(message); }
};

} // namespace greeter::v1
