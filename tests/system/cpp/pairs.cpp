// C++'s part of the matrix of languages, over linear messages: pairs server | pairs client SIZES
//
// A client examines whoever serves, and says a line for each part. As tests/system/python/pairs.py.
#include <cstdio>
#include <cstdlib>
#include <probe.v1.linear.hpp>
#include <sstream>

using namespace probe::v1;
using trunkline::CallOptions;
using trunkline::first;
using trunkline::Status;

#define CHECK(condition) check((condition), #condition, __LINE__)

static void check(bool holds, const char *condition, int line) {
    if (holds) return;
    std::fprintf(stderr, "line %d: does not hold: %s\n", line, condition);
    std::exit(1);
}

static void say(const char *line) {
    std::puts(line);
    std::fflush(stdout);
}

class Server : public ProbeService {
    using Items = trunkline::ServedStream<Wanted, Item>;
    using Summed = trunkline::ServedStream<Item, Total>;
    using Taken = trunkline::ServedStream<Item, Item>;
    using Texts = trunkline::ServedStream<Text, Text>;

    Status Echo(const Text &request, Text &reply, trunkline::ServedCall &call) override {
        Status status;
        trunkline::Metadata said = call.metadata();
        if (auto ask = first(said, "ask")) {
            call.send_headers(trunkline::Metadata{{"answer", std::string(*ask)}});
            status.metadata().emplace_back("answer-bin", std::string(*ask));
        }
        reply.set_text(request.text());
        return status;
    }

    Status Do(const Order &request, Outcome &reply, trunkline::ServedCall &call) override {
        if (request.task_case() == Order::kFail) {
            auto fail = request.fail();
            return Status(fail.code(), std::string(fail.message()), std::string(fail.details()));
        }
        if (request.task_case() == Order::kHang) call.wait_over();
        reply.set_deadline_known(call.time_left().has_value());
        return Status();
    }

    Status Count(const Wanted &request, Items &out, trunkline::ServedCall &call) override {
        for (uint32_t number = 0; number < request.count(); number++) {
            Item item(call);
            item.set_number(number);
            std::memset(item.fill_body(request.bytes()), static_cast<int>(number % 256), request.bytes());
            if (!out.write(std::move(item))) break;
        }
        return Status();
    }

    Status Sum(Summed &in, Total &reply, trunkline::ServedCall &) override {
        while (auto item = in.read()) {
            reply.set_items(reply.items() + 1);
            reply.set_numbers(reply.numbers() + item->number());
            reply.set_bytes(reply.bytes() + item->body().size());
        }
        return Status();
    }

    Status Take(Taken &in, Item &reply, trunkline::ServedCall &) override {
        uint32_t read = 0, wanted = 1;
        size_t bytes = 0;
        while (read < wanted) {
            auto item = in.read();
            if (!item) break;
            if (read == 0) wanted = item->number();
            read++;
            bytes = item->body().size();
        }
        reply.set_number(read);
        std::memset(reply.fill_body(bytes), static_cast<int>(read % 256), bytes);
        return Status();
    }

    Status Chat(Texts &both, trunkline::ServedCall &) override {
        while (auto text = both.read()) {
            if (!both.write(std::move(*text))) break;
        }
        return Status();
    }
};

static void serve() {
    Server probe;
    trunkline::Server::Options options;
    options.threads = 16;
    std::vector<trunkline::Service> services;
    services.push_back(probe.service());
    auto server = trunkline::Server::start(options, std::move(services));
    CHECK(server.ok());
    say("ready");
    while (std::getchar() != EOF) {
    }
}

static CallOptions in_time() {
    CallOptions out;
    out.timeout = std::chrono::seconds(120);
    return out;
}

static void unary_and_sizes(const ProbeClient &probe, const std::string &sizes) {
    std::istringstream in(sizes);
    std::string word;
    while (std::getline(in, word, ',')) {
        size_t size = std::stoul(word);
        if (size <= 1 << 20) {
            Text text(probe.tl_channel_of());
            text.set_text(std::string(size, 'x'));
            auto reply = probe.Echo(std::move(text), in_time());
            CHECK(reply.ok() && reply->text() == std::string(size, 'x'));
        }
        Item item(probe.tl_channel_of());
        item.set_number(1);
        std::memset(item.fill_body(size), 1, size);
        auto taking = probe.Take(in_time());
        CHECK(taking.ok() && taking->write(std::move(item)).ok() && taking->done_writing().ok());
        auto back = taking->read();
        CHECK(back && back->body() == std::string(size, '\1') && taking->finish().ok());
    }
    say("passed unary_and_sizes");
}

static void metadata(const ProbeClient &probe) {
    CallOptions asking = in_time();
    asking.metadata = {{"ask", "what"}};
    Text text;
    text.set_text("m");
    auto call = trunkline::Stream<Text, Text>::open(probe.tl_channel_of(), "/probe.v1.Probe/Echo", text, asking);
    CHECK(call.ok());
    auto reply = call->read();
    CHECK(reply && reply->text() == "m" && first(call->headers(), "answer") == "what");
    Status status = call->finish();
    CHECK(status.ok() && first(status.metadata(), "answer-bin") == "what");
    say("passed metadata");
}

static void rich_errors(const ProbeClient &probe) {
    Order order;
    order.mutable_fail()->set_code(9);
    order.mutable_fail()->set_message("gr\303\266\303\237er");
    order.mutable_fail()->set_details("\x08\x09\x12\x01x");
    auto failed = probe.Do(order, in_time());
    CHECK(!failed.ok() && failed.status().code() == TL_FAILED_PRECONDITION);
    CHECK(failed.status().message() == "gr\303\266\303\237er" && failed.status().details() == "\x08\x09\x12\x01x");
    CHECK(failed.status().execution() == TL_EXECUTED);
    say("passed rich_errors");
}

static void deadlines(const ProbeClient &probe) {
    Order hang;
    hang.set_hang(true);
    CallOptions soon;
    soon.timeout = std::chrono::milliseconds(50);
    auto late = probe.Do(hang, soon);
    CHECK(!late.ok() && late.status().code() == TL_DEADLINE_EXCEEDED);
    auto told = probe.Do(Order(), in_time()), untold = probe.Do(Order());
    CHECK(told.ok() && told->deadline_known() && untold.ok() && !untold->deadline_known());
    say("passed deadlines");
}

static void cancellation(const ProbeClient &probe) {
    Order hang;
    hang.set_hang(true);
    auto call = trunkline::Stream<Order, Outcome>::open(probe.tl_channel_of(), "/probe.v1.Probe/Do", hang, in_time());
    CHECK(call.ok());
    call->cancel();
    CHECK(call->finish().code() == TL_CANCELLED);
    auto chat = probe.Chat(in_time());
    Text one;
    one.set_text("one");
    CHECK(chat.ok() && chat->write(one).ok());
    auto back = chat->read();
    CHECK(back && back->text() == "one");
    chat->cancel();
    CHECK(chat->finish().code() == TL_CANCELLED);
    say("passed cancellation");
}

static void streams(const ProbeClient &probe) {
    Wanted wanted;
    wanted.set_count(100);
    wanted.set_bytes(100);
    auto counting = probe.Count(wanted, in_time());
    CHECK(counting.ok());
    uint32_t number = 0;
    while (auto item = counting->read()) {
        CHECK(item->number() == number && item->body() == std::string(100, static_cast<char>(number)));
        number++;
    }
    CHECK(number == 100 && counting->finish().ok());
    auto summing = probe.Sum(in_time());
    CHECK(summing.ok());
    for (uint32_t at = 0; at < 50; at++) {
        Item item(probe.tl_channel_of());
        item.set_number(at);
        item.set_body(std::string(at, 'x'));
        CHECK(summing->write(std::move(item)).ok());
    }
    CHECK(summing->done_writing().ok());
    auto total = summing->read();
    CHECK(total && total->items() == 50 && total->numbers() == 1225 && total->bytes() == 1225);
    CHECK(summing->finish().ok());
    auto chat = probe.Chat(in_time());
    CHECK(chat.ok());
    for (int at = 0; at < 10; at++) {
        Text text;
        text.set_text(std::to_string(at));
        CHECK(chat->write(text).ok());
        auto back = chat->read();
        CHECK(back && back->text() == std::to_string(at));
    }
    CHECK(chat->done_writing().ok() && chat->finish().ok());
    say("passed streams");
}

int main(int argc, char **argv) {
    if (argc == 2 && std::string_view(argv[1]) == "server") {
        serve();
    } else if (argc == 3 && std::string_view(argv[1]) == "client") {
        say("ready");
        auto channel = trunkline::Channel::local();
        CHECK(channel.ok());
        ProbeClient probe(*channel);
        unary_and_sizes(probe, argv[2]);
        metadata(probe);
        rich_errors(probe);
        deadlines(probe);
        cancellation(probe);
        streams(probe);
    } else {
        return 2;
    }
    say("handles 0");
}
