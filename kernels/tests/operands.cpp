// Merges operands: measure_made, make_values, and retain behind them.

#include "../common/content.hpp"
#include "../read/operands.hpp"
#include "data.hpp"

namespace {

// Operands above a value; an operand alone; two operands of whose key there may be a value elsewhere. Rows with merged
// values are 0 and 4.
const std::vector<Key> KEYS = {key("a", 9, TYPE_MERGE, 0), key("a", 8, TYPE_MERGE, 1), key("a", 7, TYPE_VALUE, 2),
                               key("b", 6, TYPE_MERGE, 3), key("c", 5, TYPE_MERGE, 4), key("c", 4, TYPE_MERGE, 5)};
constexpr u32 TWO_ABOVE_VALUE = 2 << 2 | 1, TWO_TO_ONE = 2 << 2 | 2;

u64 hash_of(const std::string& key, const std::string& value) {
  return kv_hash(rapidhash(reinterpret_cast<const u8*>(key.data()), key.size()),
                 rapidhash(reinterpret_cast<const u8*>(value.data()), value.size()));
}

// Arguments for these values, behind which the arena has room for merged ones.
RetainArgs args_for(MergeFunction function, const std::vector<std::string>& values, u64 room_bytes = 0,
                    const std::string& merged = "") {
  Arena arena;
  std::vector<ValueRef> places;
  std::vector<u64> hashes;
  for (u64 i = 0; i < KEYS.size(); ++i) {
    places.push_back(arena.add(values[i]));
    hashes.push_back(hash_of(std::string(1, char(KEYS[i].hi >> 56)), values[i]));
  }
  RetainArgs args{};
  args.made_at = arena.add(merged + std::string(room_bytes, '?')).at;
  args.arena = arena.upload();
  args.keys = memory(KEYS);
  args.n = KEYS.size();
  args.values = memory(places);
  args.hashes = memory(hashes);
  args.merging = {function, 1, memory("; "), 2, 1000, 24};
  args.made = room<u32>(args.n);
  args.made_offsets = room<u64>(args.n + 1);
  args.heads = room<u32>(args.n);
  args.has_older = zeros<u8>(args.n);
  give_room(args);
  return args;
}

// The same after measure_made.
RetainArgs measured(RetainArgs args, const std::vector<u64>& offsets) {
  args.made = memory<u32>({TWO_ABOVE_VALUE, 0, 0, 0, TWO_TO_ONE, 0});
  args.made_offsets = memory(offsets);
  args.keep = memory<u32>({1, 0, 0, 1, 1, 0});
  return args;
}

std::string made(MergeFunction function, const std::vector<std::string>& values, const std::vector<u64>& offsets) {
  const RetainArgs args = measured(args_for(function, values, offsets.back()), offsets);
  RUN(make_values, &args);
  return read_bytes(args.arena + args.made_at, offsets.back());
}

}  // namespace

TEST(measure_made, a_stripe_of_operands_becomes_one_row) {
  const RetainArgs args = args_for(MERGE_APPEND, {"new", "or", "base", "alone", "5", "4"});
  RUN(measure_made, &args);
  EQUAL(read(args.errors), NO_ERROR);
  EQUALS(args.made, TWO_ABOVE_VALUE, 0, 0, 0, TWO_TO_ONE, 0);
  EQUALS(args.made_offsets, 0, 13, 13, 13, 13, 17, 17);
  EQUALS(args.keep, 1, 0, 0, 1, 1, 0);
  const RetainTotals totals = read(args.totals);
  EQUAL(totals.made, 2);
  EQUAL(totals.kept, 1);
  EQUAL(totals.consumed, 5);
  EQUAL(totals.dropped, 0);
}

TEST(measure_made, operands_need_a_base_unless_they_merge_without_one) {
  RetainArgs args = args_for(MERGE_ADD, {"", "", "", "", "", ""});
  args.merging.partial = 0;
  RUN(measure_made, &args);
  EQUALS(args.made, TWO_ABOVE_VALUE, 0, 0, 0, 0, 0);
  EQUALS(args.made_offsets, 0, 8, 8, 8, 8, 8, 8);
  EQUALS(args.keep, 1, 0, 0, 1, 1, 1);
}

TEST(measure_made, stripes_beyond_the_limit_and_other_types_are_reported) {
  RetainArgs args = args_for(MERGE_APPEND, {"new", "or", "base", "alone", "5", "4"});
  // Three parts with an overhead of 26 bytes each, and 9 bytes of values.
  args.merging.max_bytes = 3 * 26 + 9;
  RUN(measure_made, &args);
  EQUAL(read(args.errors), NO_ERROR);
  args.merging.max_bytes -= 1;
  RUN(measure_made, &args);
  EQUAL(read(args.errors), error_of(0, ERROR_MERGED_BYTES));
  args = args_for(MERGE_APPEND, {"new", "or", "base", "alone", "5", "4"});
  args.keys = memory<Key>({key("a", 9, TYPE_MERGE), key("a", 8, TYPE_SINGLE_DELETION)});
  args.n = 2;
  RUN(measure_made, &args);
  EQUAL(read(args.errors), error_of(0, ERROR_MERGED_TYPE));
}

TEST(make_values, append_begins_with_the_oldest) {
  EQUAL(made(MERGE_APPEND, {"new", "or", "base", "alone", "5", "4"}, {0, 13, 13, 13, 13, 17, 17}), "base; or; new4; 5");
}

TEST(make_values, add_ignores_values_of_other_sizes) {
  EQUAL(made(MERGE_ADD, {little(5, 8), "1234", little(1000, 8), "", little(~u64{0}, 8), little(3, 8)},
             {0, 8, 8, 8, 8, 16, 16}),
        little(1005, 8) + little(2, 8));
}

TEST(make_values, xor_is_as_long_as_the_longest) {
  EQUAL(made(MERGE_XOR, {"\x01\x02", "\x10", "\x04\x04\x04", "", "aa", "ab"}, {0, 3, 3, 3, 3, 5, 5}),
        "\x15\x06\x04\x00\x03"s);
}

TEST(retain, merged_values_replace_those_of_the_newest_operands) {
  const std::vector<u64> offsets = {0, 13, 13, 13, 13, 17, 17};
  RetainArgs args =
      measured(args_for(MERGE_APPEND, {"new", "or", "base", "alone", "5", "4"}, 0, "base; or; new4; 5"), offsets);
  RUN(retain, &args);
  EQUAL(read(args.errors), NO_ERROR);
  EQUAL(show_keys(args.selected_rows, 3), "a@9.1#0 b@6.2#3 c@5.2#4");
  const std::vector<ValueRef> values = read(args.values, 5);
  EQUAL(values[0].at, args.made_at);
  EQUAL(values[0].len, 13);
  EQUAL(values[4].at, args.made_at + 13);
  EQUAL(values[4].len, 4);
  EQUAL(read(args.hashes), hash_of("a", "base; or; new"));
  EQUAL(read(args.totals).rows_hash, entry_hash(hash_of("a", "base; or; new"), 9 << 8 | TYPE_VALUE) +
                                         entry_hash(hash_of("c", "4; 5"), 5 << 8 | TYPE_MERGE));
}

TEST(retain, a_merged_value_that_is_not_that_of_its_operands_is_reported) {
  const auto errors = [](MergeFunction function, const std::vector<std::string>& values, const std::string& merged) {
    const u64 end = merged.size();
    const RetainArgs args = measured(args_for(function, values, 0, merged), {0, end, end, end, end, end, end});
    RUN(retain, &args);
    return read(args.errors);
  };
  const std::vector<std::string> numbers = {little(5, 8), little(6, 8), little(7, 8), "", "", ""};
  const u64 wrong = error_of(0, ERROR_MADE);
  // Row 0 is right, and row 4 has no bytes.
  EQUAL(errors(MERGE_ADD, numbers, little(18, 8)), error_of(4, ERROR_MADE));
  EQUAL(errors(MERGE_ADD, numbers, little(19, 8)), wrong);
  EQUAL(errors(MERGE_XOR, numbers, little(5, 8)), wrong);
  EQUAL(errors(MERGE_APPEND, {"new", "or", "base", "", "", ""}, "base; or;new;"), wrong);
}

TEST(retain, max_and_put_refer_to_the_value_of_an_entry) {
  const std::vector<u64> none(KEYS.size() + 1, 0);
  const RetainArgs max = measured(args_for(MERGE_MAX, {"b", "ba", "az", "", "c", "d"}), none);
  const std::vector<ValueRef> before = read(max.values, 6);
  RUN(retain, &max);
  EQUAL(read(max.errors), NO_ERROR);
  EQUAL(read(max.values).at, before[1].at);
  EQUAL(read(max.hashes), hash_of("a", "ba"));
  EQUAL(read(max.values + 4).at, before[5].at);
  const RetainArgs put = measured(args_for(MERGE_PUT, {"b", "ba", "az", "", "c", "d"}), none);
  RUN(retain, &put);
  EQUAL(read(put.values).at, before[0].at);
  EQUAL(show_keys(put.selected_rows, 3), "a@9.1#0 b@6.2#3 c@5.2#4");
}
