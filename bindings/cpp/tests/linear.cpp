// Examines classes over linear messages: the vectors of tests/data/linear, what is built, and calls of all four
// patterns with the daemon inside this process. linear VECTORS
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <new>
#include <_.linear.hpp>
#include <named.v1.linear.hpp>
#include <vectors.v1.linear.hpp>
#include <vectors.v2.linear.hpp>
#include <sys/wait.h>
#include <unistd.h>

using namespace vectors::v1;
using trunkline::Status;

#define CHECK(condition) check((condition), #condition, __LINE__)

static std::string now_examined;

static void check(bool holds, const char *condition, int line) {
    if (holds) return;
    std::fprintf(stderr, "line %d, %s: does not hold: %s\n", line, now_examined.c_str(), condition);
    std::exit(1);
}

// Bytes that the program has from `new` and has not given back.
static std::atomic<size_t> bytes_held{0};

void *operator new(size_t bytes) {
    auto *made = static_cast<size_t *>(std::malloc(bytes + 16));
    if (made == nullptr) throw std::bad_alloc();
    *made = bytes;
    bytes_held += bytes;
    return made + 2;
}
void operator delete(void *at) noexcept {
    if (at == nullptr) return;
    auto *made = static_cast<size_t *>(at) - 2;
    bytes_held -= *made;
    std::free(made);
}
void operator delete(void *at, size_t) noexcept { operator delete(at); }

static std::string unhex(const std::string &hex) {
    std::string out;
    for (size_t at = 0; at + 1 < hex.size(); at += 2) {
        out.push_back(static_cast<char>(std::stoi(hex.substr(at, 2), nullptr, 16)));
    }
    return out;
}

// Reads a message by every accessor and writes it by every accessor: what comes of it is the same in protobuf.
template <class M> static void vector_of(const std::string &linear, const std::string &protobuf, const std::string &also) {
    M read;
    CHECK(read.ParseFromLinear(linear));
    CHECK(read.linear_bytes() == linear);
    CHECK(read.SerializeAsString() == protobuf);
    M written;
    written.tl_merge(read);
    CHECK(written.SerializeAsString() == protobuf);
    M checked;
    CHECK(checked.ParseFromLinear(written.linear_bytes()));
    M parsed;
    CHECK(parsed.ParseFromString(protobuf));
    CHECK(parsed.SerializeAsString() == protobuf);
    CHECK(parsed.ParseFromString(also) && parsed.SerializeAsString() == protobuf);
    M copied(parsed), assigned;
    assigned = copied;
    CHECK(assigned.SerializeAsString() == protobuf);
    M merged, other;
    merged.MergeFrom(read);
    CHECK(merged.SerializeAsString() == protobuf && merged.ByteSizeLong() == protobuf.size());
    merged.Swap(&other);
    CHECK(merged.ByteSizeLong() == 0 && other.SerializeAsString() == protobuf);
    std::string room(protobuf.size(), ' ');
    int bytes = static_cast<int>(room.size());
    CHECK(other.SerializeToArray(&room[0], bytes) && room == protobuf);
    CHECK(bytes == 0 || !other.SerializeToArray(&room[0], bytes - 1));
    // What is cleared leaves nothing behind, and the memory can be used again.
    assigned.Clear();
    assigned.tl_merge(read);
    CHECK(assigned.SerializeAsString() == protobuf);
    for (size_t cut : {size_t(0), size_t(23), linear.size() - 1}) {
        M none;
        CHECK(!none.ParseFromLinear(std::string_view(linear).substr(0, cut)));
    }
}

static uint64_t fnv(std::string_view bytes) {
    uint64_t hash = 0xcbf29ce484222325;
    for (char byte : bytes) hash = (hash ^ static_cast<uint8_t>(byte)) * 0x100000001b3;
    return hash;
}

// By the functions of some members, and the others where they lie.
template <class M>
static void large_of(int members, size_t linear_bytes, uint64_t linear, size_t protobuf_bytes, uint64_t protobuf) {
    M large;
    large.set_m1(7920);
    large.set_m128(13633);
    CHECK(large.m1() == 1 * 7919 % 100000 + 1 && large.m128() == 128 * 7919 % 100000 + 1);
    std::string whole(large.linear_bytes());
    // The slots lie in a row behind the presence words.
    size_t presence = 24 + 4, words = static_cast<size_t>(members + 31) / 32, slots = presence + 4 * words;
    for (int member = 1; member <= members; member++) {
        int32_t value = member * 7919 % 100000 + 1;
        std::memcpy(&whole[slots + 4 * static_cast<size_t>(member - 1)], &value, 4);
        whole[presence + static_cast<size_t>(member - 1) / 8] |= static_cast<char>(1 << (member - 1) % 8);
    }
    CHECK(whole.size() == linear_bytes && fnv(whole) == linear);
    M read, copied;
    CHECK(read.ParseFromLinear(whole));
    copied.tl_merge(read);
    CHECK(copied.m127() == 127 * 7919 % 100000 + 1);
    std::string encoded = copied.SerializeAsString();
    CHECK(encoded.size() == protobuf_bytes && fnv(encoded) == protobuf);
}

static void large(std::istream &in) {
    int members;
    size_t linear_bytes, protobuf_bytes;
    uint64_t linear, protobuf;
    in >> members >> linear_bytes >> std::hex >> linear >> std::dec >> protobuf_bytes >> std::hex >> protobuf >> std::dec;
    now_examined = "large " + std::to_string(members);
    if (members == 128) large_of<LargeData128>(members, linear_bytes, linear, protobuf_bytes, protobuf);
    if (members == 8192) large_of<LargeData8192>(members, linear_bytes, linear, protobuf_bytes, protobuf);
}

static int read_vectors(const char *path) {
    std::ifstream in(path);
    std::string word, type, linear, protobuf, also, json;
    int count = 0;
    while (in >> word) {
        if (word == "large") {
            large(in);
            count++;
            continue;
        }
        if (word != "case") {
            std::getline(in, json);
            continue;
        }
        in >> now_examined >> type >> word >> linear >> word >> protobuf >> word >> also >> word;
        std::getline(in, json);
        linear = unhex(linear);
        protobuf = protobuf == "-" ? "" : unhex(protobuf);
        also = also == "-" ? protobuf : unhex(also);
        using namespace vectors;
        if (type == "vectors.v1.Scalars") vector_of<v1::Scalars>(linear, protobuf, also);
        else if (type == "vectors.v1.Optionals") vector_of<v1::Optionals>(linear, protobuf, also);
        else if (type == "vectors.v1.Lists") vector_of<v1::Lists>(linear, protobuf, also);
        else if (type == "vectors.v1.Maps") vector_of<v1::Maps>(linear, protobuf, also);
        else if (type == "vectors.v1.Choice") vector_of<v1::Choice>(linear, protobuf, also);
        else if (type == "vectors.v1.Tree") vector_of<v1::Tree>(linear, protobuf, also);
        else if (type == "vectors.v1.Names") vector_of<v1::Names>(linear, protobuf, also);
        else if (type == "vectors.v1.Empty") vector_of<v1::Empty>(linear, protobuf, also);
        else if (type == "vectors.v2.Defaults") vector_of<v2::Defaults>(linear, protobuf, also);
        else if (type == "vectors.v2.Grouped") vector_of<v2::Grouped>(linear, protobuf, also);
        else CHECK(!"a type of the vectors has no class here");
        count++;
    }
    return count;
}

static void defaults() {
    now_examined = "defaults";
    vectors::v2::Defaults none;
    CHECK(none.answer() == 42 && none.negative() == -7 && none.huge() == UINT64_MAX && none.half() == 0.5f);
    CHECK(none.endless() > 1e308 && none.below() < -1e308 && none.yes() && none.least() == INT64_MIN);
    CHECK(none.text() == "say \"hi\"\n?\?/" && none.raw() == std::string_view("\0\377\"\\", 4));
    CHECK(none.mood() == vectors::v2::MOOD_GRUMPY && none.first() == vectors::v2::MOOD_CALM && !none.has_answer());
    none.set_answer(0);
    CHECK(none.has_answer() && none.answer() == 0);
    none.clear_answer();
    CHECK(!none.has_answer() && none.answer() == 42);
}

static void building() {
    now_examined = "building";
    Choice choice;
    CHECK(choice.chosen_case() == Choice::CHOSEN_NOT_SET && !choice.has_choice() && choice.text().empty());
    choice.set_text("first");
    choice.mutable_choice()->mutable_choice()->set_number(7);
    CHECK(choice.chosen_case() == Choice::kChoice && choice.text().empty() && choice.choice().choice().number() == 7);
    choice.mutable_nested()->set_kind(Choice::Nested::KIND_LEAF);
    choice.set_small(-1);
    choice.set_large(1);
    CHECK(choice.chosen_case() == Choice::kNested && choice.small() == 0 && choice.large() == 1);
    CHECK(choice.nested().kind() == Choice_Nested_Kind_KIND_LEAF);

    Lists lists;
    // Lists that grow beside each other, beside messages with strings: each keeps what it has.
    for (int at = 0; at < 300; at++) {
        lists.add_int32s(at);
        lists.add_strings(std::string(static_cast<size_t>(at), 'x'));
        Scalars *scalars = lists.add_scalars();
        scalars->set_int32_value(at);
        scalars->set_string_value(std::to_string(at));
        lists.add_colors(COLOR_BELOW);
        lists.add_bools(at % 3 == 0);
    }
    lists.mutable_scalars(7)->set_string_value("a longer string than before");
    lists.set_int32s(8, -8);
    lists.set_strings(9, "nine");
    const double doubles[] = {1.5, 2.5};
    lists.assign_doubles(doubles, 2);
    lists.mutable_doubles()->Add(doubles, doubles + 2);
    uint64_t *filled = lists.fill_fixed64s(3);
    for (uint64_t at = 0; at < 3; at++) filled[at] = at;
    // From the message's own memory, which moves when it grows.
    for (int at = 0; at < 12; at++) lists.add_byte_strings(lists.strings(299));
    CHECK(lists.int32s_size() == 300 && lists.strings_size() == 300 && lists.scalars_size() == 300);
    for (int at = 0; at < 300; at++) {
        CHECK(lists.int32s(at) == (at == 8 ? -8 : at));
        CHECK(lists.strings(at) == (at == 9 ? "nine" : std::string(static_cast<size_t>(at), 'x')));
        CHECK(lists.scalars(at).int32_value() == at && lists.bools(at) == (at % 3 == 0));
        CHECK(lists.scalars(at).string_value() == (at == 7 ? "a longer string than before" : std::to_string(at)));
    }
    CHECK(lists.doubles_size() == 4 && lists.doubles().data()[3] == 2.5 && lists.fixed64s(2) == 2);
    CHECK(lists.byte_strings(11) == std::string(299, 'x'));
    Lists checked;
    CHECK(checked.ParseFromLinear(lists.linear_bytes()));
    CHECK(checked.SerializeAsString() == lists.SerializeAsString());

    Maps maps;
    maps.insert_strings("a", "b");
    maps.insert_strings("a", "c");
    maps.insert_numbers(-1, INT64_MIN);
    maps.insert_trees("t")->mutable_left()->set_label("leaf");
    CHECK(maps.strings_size() == 2 && maps.strings().at("a") == "c" && !maps.strings().contains("b"));
    CHECK(maps.numbers().at(-1) == INT64_MIN && maps.trees().at("t").left().label() == "leaf");
    for (auto [key, value] : maps.numbers()) CHECK(key == -1 && value == INT64_MIN);
    Maps other(maps);
    CHECK(other.SerializeAsString() == maps.SerializeAsString());

    // A part is assigned and copied as a whole message is.
    Tree tree;
    tree.mutable_left()->set_label("left");
    *tree.mutable_right() = tree.left();
    Tree part(tree.right());
    tree.mutable_right()->set_label("right");
    CHECK(part.label() == "left" && tree.right().label() == "right" && tree.left().label() == "left");
    std::vector<Tree> trees;
    for (int at = 0; at < 10; at++) trees.push_back(tree);
    CHECK(trees[9].right().label() == "right");
    tree = std::move(trees[3]);
    CHECK(tree.left().label() == "left");

    Names names;
    names.set_class_(1);
    names.set_has_self(2);
    names.set_self(3);
    CHECK(names.class_() == 1 && names.has_self() == 2 && names.has_self_() && names.self() == 3);
}

// What is not to leave the process.
static const std::string kSecret = "open sesame, open sesame";

template <class M> static void has_none(const M &message) {
    CHECK(message.linear_bytes().find(kSecret) == std::string_view::npos);
    M copied(message), assigned, checked;
    CHECK(copied.linear_bytes().find(kSecret) == std::string_view::npos);
    assigned.CopyFrom(copied);
    CHECK(assigned.linear_bytes().find(kSecret) == std::string_view::npos);
    CHECK(checked.ParseFromLinear(message.linear_bytes()));
    CHECK(checked.SerializeAsString() == message.SerializeAsString());
}

// What was cleared or replaced.
static void leaves_nothing_behind() {
    now_examined = "leaves nothing behind";
    for (int round = 0; round < 2; round++) {
        // The second time in a copy of what others wrote.
        auto with_secret = [round](auto set) {
            Tree tree;
            set(tree);
            CHECK(tree.linear_bytes().find(kSecret) != std::string_view::npos);
            Tree read;
            CHECK(read.ParseFromLinear(tree.linear_bytes()));
            return round == 0 ? tree : read;
        };
        auto labelled = [](Tree &tree) { tree.set_label(kSecret); };
        Tree tree = with_secret(labelled);
        tree.clear_label();
        has_none(tree);
        for (const std::string &other : {std::string(), std::string("s"), kSecret.substr(1), std::string(100, 'l')}) {
            tree = with_secret(labelled);
            tree.set_label(other);
            CHECK(tree.label() == other);
            has_none(tree);
        }
        tree = with_secret(labelled);
        std::memset(tree.fill_label(30), 'f', 30);
        CHECK(tree.label() == std::string(30, 'f'));
        has_none(tree);
        tree = with_secret([](Tree &of) { of.mutable_left()->mutable_right()->set_label(kSecret); });
        Tree same(tree);
        tree.clear_left();
        has_none(tree);
        same.mutable_left()->Clear();
        has_none(same);
        tree = with_secret([](Tree &of) { of.add_more()->set_label(kSecret); });
        tree.mutable_more(0)->CopyFrom(Tree());
        CHECK(tree.more_size() == 1);
        has_none(tree);
    }
    // Bytes that were asked for are good until the next change, and may be what changes it.
    Tree read;
    read.mutable_left()->set_label(kSecret);
    read.clear_left();
    read.set_label("label");
    std::string_view bytes = read.linear_bytes();
    const std::string kept(bytes);
    Tree also(read);
    CHECK(read.linear_bytes() == bytes && bytes == kept && also.label() == "label");
    read.set_label(bytes);
    CHECK(read.label() == kept);

    Choice choice;
    choice.mutable_choice()->set_text(kSecret);
    choice.set_text(kSecret);
    choice.set_number(7);
    has_none(choice);
    choice.set_text(kSecret);
    choice.clear_chosen();
    has_none(choice);
    Lists lists;
    lists.add_strings("first");
    lists.add_strings(kSecret);
    lists.set_strings(1, "second");
    has_none(lists);
    lists.set_strings(1, kSecret);
    lists.set_strings(1, kSecret.substr(1));
    has_none(lists);
    CHECK(lists.strings(0) == "first" && lists.strings(1) == kSecret.substr(1));
    lists.add_byte_strings(kSecret);
    lists.clear_byte_strings();
    lists.add_scalars()->set_string_value(kSecret);
    lists.clear_scalars();
    has_none(lists);
    double numbers[3];
    std::memcpy(numbers, kSecret.data(), sizeof numbers);
    lists.assign_doubles(numbers, 3);
    lists.add_doubles(1);
    lists.clear_doubles();
    has_none(lists);
    lists.assign_doubles(numbers, 3);
    lists.assign_doubles(numbers, 1);
    has_none(lists);
    Maps maps;
    maps.insert_strings(kSecret, kSecret);
    maps.clear_strings();
    has_none(maps);
    // Fields that it does not know, of a message that is another's now.
    Tree unknown, known;
    CHECK(unknown.ParseFromString(std::string("\xfa\x3f\x18") + kSecret) && !unknown.unknown_fields().empty());
    Tree around;
    around.mutable_left()->CopyFrom(unknown);
    CHECK(around.linear_bytes().find(kSecret) != std::string_view::npos);
    around.mutable_left()->CopyFrom(known);
    has_none(around);
}

// A message that is used again and again, and pointers into it.
static void does_not_grow() {
    now_examined = "does not grow";
    Tree tree;
    Tree *left = tree.mutable_left(), *first = tree.add_more();
    for (int round = 0; round < 10000; round++) {
        tree.set_label(round % 2 == 0 ? "9" : "10");
        left->set_label(std::string(static_cast<size_t>(round % 7), 'l'));
        tree.clear_right();
        tree.mutable_right()->mutable_left()->set_label("right");
        first->clear_more();
        for (int at = 0; at < round % 5; at++) first->add_more()->set_label("more");
        CHECK(tree.mutable_left() == left && tree.mutable_more(0) == first);
        CHECK(tree.left().label().size() == static_cast<size_t>(round % 7) && tree.right().left().label() == "right");
        CHECK(tree.more(0).more_size() == round % 5);
    }
    CHECK(tree.linear_bytes().size() < 10000 && first->more_size() == 4 && first->more(3).label() == "more");
    // 3 GiB in all: more than a message may have.
    Lists lists;
    const std::string large(1 << 20, 'x');
    for (int round = 0; round < 3000; round++) {
        lists.clear_strings();
        lists.add_strings(large);
    }
    CHECK(lists.strings(0) == large && lists.linear_bytes().size() < large.size() + 1000);

    auto held_by = [](auto act) {
        Tree message;
        message.mutable_left()->set_label("left");
        for (int at = 0; at < 100; at++) message.add_more();
        size_t before = 0;
        for (int round = 0; round < 2000; round++) {
            if (round == 100) before = bytes_held;
            act(message);
        }
        CHECK(bytes_held <= before + 10000);
    };
    held_by([](Tree &message) {
        Tree *one = message.mutable_left(), *other = message.mutable_right();
        CHECK(message.mutable_left() == one && message.mutable_right() == other);
    });
    held_by([](Tree &message) {
        message.Clear();
        for (int at = 0; at < 100; at++) message.add_more()->set_label("again");
        CHECK(message.more(99).label() == "again");
    });
    held_by([](Tree &message) {
        for (int at = message.more_size(); at-- > 0;) message.mutable_more(at)->set_label("each");
    });
    held_by([](Tree &message) {
        message.clear_more();
        for (int at = 0; at < 100; at++) message.add_more()->set_label("again");
        CHECK(message.more(99).label() == "again");
    });
}

// Of a checked message parts may overlap: changing one does not change where the others lie.
static void parts_overlap() {
    now_examined = "parts overlap";
    Tree tree;
    tree.set_label(std::string(200, 'a'));
    tree.mutable_left()->set_label(std::string(48, 'b'));
    std::string whole(tree.linear_bytes());
    auto pair_of = [&whole](const std::string &text) {
        uint32_t pair[2] = {static_cast<uint32_t>(whole.find(text)), static_cast<uint32_t>(text.size())};
        return whole.find(std::string(reinterpret_cast<const char *>(pair), 8));
    };
    size_t label = pair_of(std::string(200, 'a')), left = pair_of(std::string(48, 'b'));
    CHECK(label != std::string::npos && left != std::string::npos);
    const uint32_t none[2] = {0, 0}, root[2] = {24, Tree::kBlockBytes};
    std::memcpy(&whole[label], none, 8);
    std::memcpy(&whole[left], root, 8);
    Tree read;
    CHECK(read.ParseFromLinear(whole) && read.left().label().size() == Tree::kBlockBytes);
    read.mutable_left()->set_label(std::string(Tree::kBlockBytes, 'A'));
    read.set_label("root");
    read.add_more()->set_label("more");
    CHECK(read.left().label() == std::string(Tree::kBlockBytes, 'A') && read.label() == "root");
    Tree checked;
    CHECK(checked.ParseFromLinear(read.linear_bytes()) && checked.more(0).label() == "more");
}

class Exam : public ExamService {
    using Parts = trunkline::ServedStream<Lists, Scalars>;
    using Joined = trunkline::ServedStream<Scalars, Lists>;
    using Trees = trunkline::ServedStream<Tree, Tree>;

    Status Turn(const Choice &request, Lists &reply, trunkline::ServedCall &) override {
        CHECK(request.linear_bytes().find(kSecret) == std::string_view::npos);
        if (request.chosen_case() != Choice::kText) return Status(TL_INVALID_ARGUMENT, "no text");
        for (int at = 0; at < request.before(); at++) reply.add_strings(request.text());
        return Status();
    }

    Status Split(const Lists &request, Parts &out, trunkline::ServedCall &call) override {
        for (int32_t number : request.int32s()) {
            Scalars each(call);
            each.set_int32_value(number);
            if (!out.write(std::move(each))) break;
        }
        return Status();
    }

    Status Join(Joined &in, Lists &reply, trunkline::ServedCall &) override {
        while (auto each = in.read()) reply.add_strings(each->string_value());
        return Status();
    }

    Status Echo(Trees &both, trunkline::ServedCall &) override {
        while (auto tree = both.read()) {
            // What was received becomes the program's own when it is changed.
            tree->set_label(std::string(tree->label()) + "!");
            both.write(std::move(*tree));
        }
        return Status();
    }
};

// One part of a message copied to another part of it, more than its memory has room for.
static void copies_within() {
    now_examined = "copies within a message";
    const std::string text(100, 't');
    auto fill = [&text](Tree *of) {
        of->set_label(text);
        for (int at = 0; at < 100; at++) of->add_more()->set_label(text + std::to_string(at));
    };
    auto is_filled = [&text](const auto &of) {
        CHECK(of.label() == text && of.more_size() == 100);
        for (int at = 0; at < 100; at++) CHECK(of.more(at).label() == text + std::to_string(at));
    };
    Tree tree;
    fill(tree.add_more());
    for (int round = 0; round < 3; round++) tree.add_more()->CopyFrom(*tree.mutable_more(round));
    for (int round = 3; round < 6; round++) tree.add_more()->CopyFrom(tree.more(round));
    *tree.add_more() = *tree.mutable_more(6);
    for (int at = 0; at < 8; at++) is_filled(tree.more(at));
    // The whole into a part, and a part over the whole.
    Tree whole;
    fill(&whole);
    *whole.add_more() = whole;
    CHECK(whole.more_size() == 101);
    whole.CopyFrom(whole.more(100));
    CHECK(whole.label() == text && whole.more_size() == 101 && whole.more(100).label().empty());
    whole.mutable_more(100)->CopyFrom(tree.more(7));
    whole = *whole.mutable_more(100);
    is_filled(whole);

    Lists lists;
    for (int at = 0; at < 100; at++) lists.add_strings(text + std::to_string(at));
    lists.add_scalars()->set_string_value(lists.strings(0));
    for (int at = 0; at < 40; at++) lists.add_scalars()->CopyFrom(lists.scalars(at));
    CHECK(lists.scalars(40).string_value() == text + "0");

    Maps maps;
    maps.insert_strings(text, text);
    for (int at = 0; at < 100; at++) maps.insert_strings(maps.strings()[at].first, maps.strings()[at].second);
    CHECK(maps.strings_size() == 101 && maps.strings()[100] == (std::pair<std::string_view, std::string_view>(text, text)));
}

// A text of a oneof is set to one that lies in the message itself, which that may write anew.
static void texts_within(ExamClient *client) {
    now_examined = "texts within a message";
    const std::string text(100, 't');
    Choice made;
    made.set_text(text);
    std::string linear(made.linear_bytes());
    auto is_set = [&](Choice &of) {
        of.set_text(of.text().substr(1));
        CHECK(of.text() == text.substr(1));
        of.set_text(of.text());
        CHECK(of.text() == text.substr(1));
        // From another member, with so much left behind that this is written anew.
        of.mutable_choice()->set_text(text);
        for (int round = 0; round < 200; round++) {
            of.set_text(of.choice().text());
            CHECK(of.text() == text);
            of.mutable_choice()->set_text(text);
        }
    };
    Choice read;
    CHECK(read.ParseFromLinear(linear));
    is_set(read);
    is_set(made);
    if (client == nullptr) return;
    Choice built(client->tl_channel_of());
    built.set_text(text);
    is_set(built);
}

// What protobuf tells apart and C++ would not.
static void names() {
    now_examined = "names";
    named::v1::JobClient message;
    message.set_kind(3);
    message.set_one(4);
    message.clear_kind();
    CHECK(message.kind() == 0 && message.one() == 4);
    message.clear_kind_();
    CHECK(message.one() == 0);
    static_assert(std::is_class_v<named::v1::JobClient_> && std::is_class_v<named::v1::JobService_>);
}

// What protobuf's classes have besides accessors.
static void as_protobuf() {
    now_examined = "merging, required fields and names of enums";
    Tree one, other;
    one.set_label("one");
    one.mutable_left()->set_label("left");
    other.mutable_left()->mutable_right()->set_label("right");
    other.add_more()->set_label("more");
    Tree holds;
    holds.mutable_left()->CopyFrom(other);
    one.MergeFrom(other);
    one.MergeFrom(holds.left());
    CHECK(one.label() == "one" && one.left().label() == "left" && one.left().right().label() == "right");
    CHECK(one.more_size() == 2 && one.more(1).label() == "more");
    // Of a part, from a part, and of itself.
    other.mutable_left()->MergeFrom(one.left());
    CHECK(other.left().label() == "left" && other.mutable_left()->ByteSizeLong() == one.mutable_left()->ByteSizeLong());
    one.mutable_left()->Swap(other.mutable_left()->mutable_right());
    CHECK(one.left().label() == "right" && other.left().right().label() == "left");
    other.MergeFrom(other);
    CHECK(other.more_size() == 2);
    // What is 0 replaces nothing.
    Scalars zero, five;
    zero.set_int32_value(0);
    five.set_int32_value(5);
    five.MergeFrom(zero);
    CHECK(five.int32_value() == 5);
    Choice text, number;
    text.set_text("text");
    number.mutable_choice()->set_text("within");
    text.MergeFrom(number);
    CHECK(text.text().empty() && text.choice().text() == "within");

    vectors::v2::Defaults required;
    CHECK(!required.IsInitialized() && one.IsInitialized());
    required.set_id(1);
    CHECK(required.IsInitialized());
    vectors::v2::Grouped grouped;
    CHECK(grouped.IsInitialized());
    grouped.add_many();
    CHECK(!grouped.IsInitialized());
    grouped.mutable_many(0)->set_b("b");
    CHECK(grouped.IsInitialized());
    grouped.mutable_single()->mutable_again()->add_many();
    CHECK(!grouped.IsInitialized() && !grouped.single().again().IsInitialized());

    Color color = COLOR_UNSPECIFIED;
    CHECK(Color_Name(COLOR_RED) == "COLOR_RED" && Color_Name(-1) == "COLOR_BELOW" && Color_Name(99).empty());
    CHECK(Color_IsValid(-1) && !Color_IsValid(99));
    CHECK(Color_Parse("COLOR_GREEN", &color) && color == COLOR_GREEN && !Color_Parse("GREEN", &color));
    Choice::Nested::Kind kind = Choice::Nested::KIND_UNSPECIFIED;
    CHECK(Choice::Nested::Kind_Parse("KIND_LEAF", &kind) && kind == Choice::Nested::KIND_LEAF);
    CHECK(Choice_Nested_Kind_Name(kind) == "KIND_LEAF" && Choice::Nested::Kind_IsValid(kind));
}

// A child has what its parent held: received, and being built where it would have been sent from.
static void forked_child(ExamClient &client) {
    now_examined = "forked child";
    for (size_t bytes : {10, 3000000}) {
        const std::string text(bytes, 'z');
        Choice request(client.tl_channel_of());
        request.set_before(2);
        request.set_text(text);
        auto received = client.Turn(request);
        auto also = client.Turn(request);
        Lists changed;
        changed.CopyFrom(*received);
        Choice built(client.tl_channel_of());
        built.set_text(text);
        CHECK(received.ok() && also.ok());
        pid_t child = fork();
        CHECK(child >= 0);
        if (child == 0) {
            CHECK(received->strings(1) == text && changed.strings(1) == text && built.text() == text);
            // Also once it is the child's own, and has grown.
            for (int round = 0; round < 10; round++) also->add_strings(text);
            CHECK(also->strings(0) == text && also->strings(11) == text && received->strings_size() == 2);
            built.set_before(2);
            built.set_text(text + text);
            CHECK(built.text() == text + text);
            Choice copy;
            CHECK(copy.ParseFromString(built.SerializeAsString()) && copy.text() == text + text);
            // It is sent, though nobody in the child serves.
            for (Choice *each : {&copy, &built}) {
                auto failed = client.Turn(std::move(*each));
                CHECK(!failed && failed.status().code() == TL_UNAVAILABLE);
            }
            { auto gone = std::move(received); }
            _exit(0);
        }
        int status = -1;
        CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0);
        CHECK(received->strings(1) == text && client.Turn(std::move(built)).ok());
    }
}

static void calls(size_t threads) {
    now_examined = "calls";
    Exam exam;
    trunkline::Server::Options options;
    options.daemon = TL_EMBEDDED;
    options.threads = threads;
    std::vector<trunkline::Service> services;
    services.push_back(exam.service());
    auto server = trunkline::Server::start(options, std::move(services));
    CHECK(server.ok());
    trunkline::Channel::Options where;
    where.daemon = TL_EMBEDDED;
    trunkline::Channel channel = trunkline::Channel::make(where).value();
    ExamClient client(channel);
    // The first is built before there is a session, the others where they are sent from; a large one grows.
    for (size_t bytes : {0, 1, 5000, 3000000, 1}) {
        Choice request(client.tl_channel_of());
        request.set_before(bytes > 100000 ? 2 : 20);
        std::memset(request.fill_text(bytes), 'y', bytes);
        auto reply = client.Turn(std::move(request));
        CHECK(reply.ok());
        CHECK(reply->strings_size() == (bytes > 100000 ? 2 : 20) && reply->strings(1) == std::string(bytes, 'y'));
        CHECK(request.before() == 0);
    }
    Choice again(client.tl_channel_of());
    again.set_text(kSecret);
    again.set_before(1);
    again.mutable_choice()->set_text(kSecret);
    again.set_text("again");
    for (int round = 0; round < 3; round++) CHECK(client.Turn(again)->strings(0) == "again");
    Choice moved(again);
    moved.mutable_choice()->set_text(kSecret);
    moved.set_text("moved");
    CHECK(client.Turn(std::move(moved))->strings(0) == "moved");
    auto refused = client.Turn(Choice());
    CHECK(!refused && refused.status().code() == TL_INVALID_ARGUMENT && refused.status().message() == "no text");
    Choice not_utf8(client.tl_channel_of());
    not_utf8.set_text("\xff");
    auto broken = client.Turn(std::move(not_utf8));
    CHECK(!broken && broken.status().execution() == TL_NOT_EXECUTED);

    // What was built for calls whose metadata are refused is given back, as the count of handles shows.
    trunkline::CallOptions unsendable;
    unsendable.metadata = {{"no key", "x"}};
    Choice built(client.tl_channel_of());
    built.set_text("built");
    CHECK(client.Turn(std::move(built), unsendable).status().code() == TL_INVALID_ARGUMENT);
    Lists unsent(client.tl_channel_of());
    unsent.add_int32s(1);
    CHECK(client.Split(std::move(unsent), unsendable).status().code() == TL_INVALID_ARGUMENT);

    Lists numbers(client.tl_channel_of());
    for (int at = 0; at < 50; at++) numbers.add_int32s(at);
    auto parts = client.Split(numbers);
    int at = 0;
    while (auto part = parts->read()) CHECK(part->int32_value() == at++);
    CHECK(at == 50 && parts->finish().ok());

    auto join = client.Join();
    for (const char *text : {"a", "", "c"}) {
        Scalars each(client.tl_channel_of());
        each.set_string_value(text);
        CHECK(join->write(std::move(each)).ok());
    }
    CHECK(join->done_writing().ok());
    auto joined = join->read();
    CHECK(joined && joined->strings_size() == 3 && joined->strings(2) == "c" && join->finish().ok());

    auto echo = client.Echo();
    for (int round = 0; round < 20; round++) {
        Tree tree;
        tree.set_label(std::to_string(round));
        tree.add_more()->set_label("more");
        CHECK(echo->write(tree).ok());
        auto back = echo->read();
        CHECK(back && back->label() == std::to_string(round) + "!" && back->more(0).label() == "more");
    }
    CHECK(echo->done_writing().ok() && echo->finish().ok());

    forked_child(client);
    texts_within(&client);

    // The same service by protobuf: the daemon converts.
    std::string wire = again.SerializeAsString();
    auto plain = channel.unary("/vectors.v1.Exam/Turn", wire);
    Lists parsed;
    CHECK(plain.ok() && parsed.ParseFromString(plain->bytes()) && parsed.strings(0) == "again");
}

int main(int argc, char **argv) {
    if (argc != 2) return 2;
    std::printf("vectors %d\n", read_vectors(argv[1]));
    defaults();
    building();
    copies_within();
    texts_within(nullptr);
    as_protobuf();
    leaves_nothing_behind();
    does_not_grow();
    parts_overlap();
    names();
    calls(1);
    calls(0);
    // The schemas of three packages.
    std::printf("handles %d\n", static_cast<int>(tl_handles_open()));
}
