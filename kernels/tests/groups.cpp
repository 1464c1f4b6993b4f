// Groups rows and adds up their aggregates: scan_group, scan_take_groups.

#include "../scan/program.hpp"
#include "data.hpp"

namespace {

enum Slot : u32 { VALUE, KEY, NUMBER };
constexpr u32 ZERO = 0 | SCAN_CONSTANT, ONE = 1 | SCAN_CONSTANT;
constexpr u64 NO_ROW = ~u64{0}, SIGN = u64{1} << 63;
constexpr u64 NUM_SLOTS = 8;

// Rows whose value is a key of one byte, and a signed number.
struct Groups {
  ScanArgs args{};
  ScanGroups groups{};

  Groups(const std::vector<std::string>& rows, u32 number_bytes, u32 needed) {
    Arena arena;
    std::vector<Key> keys;
    std::vector<ValueRef> values;
    std::vector<u32> selected;
    for (const std::string& row : rows) {
      keys.push_back(key("r", 1, TYPE_VALUE, u32(values.size())));
      selected.push_back(u32(values.size()));
      values.push_back(arena.add(row));
    }
    args.arena = arena.upload();
    args.rows = memory(keys);
    args.n = args.num_selected = rows.size();
    args.values = memory(values);
    args.ops = memory<ScanOp>({{SCAN_VALUE, VALUE, 0, 0, 0, 0},
                               {SCAN_LOAD, KEY, VALUE, ZERO, 0, NUMBER_UNSIGNED << 16 | 1},
                               {SCAN_LOAD, NUMBER, VALUE, ONE, 0, NUMBER_SIGNED << 16 | number_bytes}});
    args.num_ops = 3;
    args.num_slots = NUMBER + 1;
    args.constants = memory<ScanConstant>({{0, 0, 1, 0}, {1, 0, 1, 0}});
    args.selected = memory(selected);
    args.errors = no_error();
    groups.keys = memory<ScanGroupKey>({{KEY, STORED_INTEGER, 1, 0}});
    groups.arguments = memory<ScanArgument>({{NUMBER, needed, 1, 0}});
    groups.num_keys = groups.num_arguments = 1;
    groups.has_wide = needed & NEEDED_WIDE ? 1 : 0;
    const u32 words = groups.has_wide ? 2 : 1;
    groups.num_words = 2 + (needed & NEEDED_SUM ? SCAN_SUM_WORDS : 0) + (needed & NEEDED_LEAST ? words : 0) +
                       (needed & NEEDED_GREATEST ? words : 0);
    groups.num_slots = NUM_SLOTS;
    groups.most = NUM_SLOTS;
    groups.found = zeros<u64>(1);
    groups.table = zeros<u64>(NUM_SLOTS * SCAN_KEY_WORDS);
    groups.firsts = memory(std::vector<u64>(NUM_SLOTS, NO_ROW));
    groups.words = zeros<u64>(NUM_SLOTS * groups.num_words);
  }

  // The words of the group whose first row is this one.
  const u64* words_of(u64 row) const {
    const std::vector<u64> firsts = read(groups.firsts, NUM_SLOTS);
    for (u64 slot = 0; slot < NUM_SLOTS; ++slot)
      if (firsts[slot] == row) return groups.words + slot * groups.num_words;
    fail(__FILE__, __LINE__, "no group begins with row " + std::to_string(row));
  }
};

std::string row(char key, i64 number) { return key + little(u64(number), 4); }

}  // namespace

TEST(scan_group, a_group_has_counts_sums_and_extremes) {
  // The last row has neither key nor number.
  const Groups of({row('a', 10), row('b', -7), row('a', -3), row('a', 1 << 20), ""}, 4,
                  NEEDED_SUM | NEEDED_LEAST | NEEDED_GREATEST);
  RUN(scan_group, &of.args, &of.groups);
  EQUAL(read(of.args.errors), NO_ERROR);
  EQUAL(read(of.groups.found), 3);
  constexpr u64 ONES = 0xffffffff;
  // Rows; numbers; the sums of their 32-bit parts, and the negative ones; the least and the greatest.
  EQUALS(of.words_of(0), 3, 3, 10 + (ONES - 2) + (1 << 20), ONES, ONES, ONES, 1, ~(u64(-3) ^ SIGN), (1 << 20) ^ SIGN);
  EQUALS(of.words_of(1), 1, 1, ONES - 6, ONES, ONES, ONES, 1, ~(u64(-7) ^ SIGN), u64(-7) ^ SIGN);
  EQUALS(of.words_of(4), 1, 0, 0, 0, 0, 0, 0, 0, 0);
}

TEST(scan_group, wide_numbers_have_extremes_of_two_words) {
  const auto wide = [](u64 high, u64 low) { return "k" + little(low, 8) + little(high, 8); };
  const Groups of({wide(5, 9), wide(5, 8), wide(6, 2), wide(6, 3), wide(5, ~u64{0})}, 16,
                  NEEDED_LEAST | NEEDED_GREATEST | NEEDED_WIDE);
  RUN(scan_group, &of.args, &of.groups);
  EQUALS(of.words_of(0), 5, 5, ~(5 ^ SIGN), ~u64{8}, 6 ^ SIGN, 3);
}

TEST(scan_group, text_is_a_key_with_its_length) {
  Groups of({row('a', 1), row('b', 2), row('a', 1)}, 4, 0);
  of.groups.keys = memory<ScanGroupKey>({{VALUE, STORED_BYTES, 0, 0}});
  RUN(scan_group, &of.args, &of.groups);
  EQUAL(read(of.groups.found), 2);
  EQUALS(of.words_of(0), 2, 2);
  EQUALS(of.words_of(1), 1, 1);
  // One word of all 7 bytes, and 2 more than their number: 1 for a key, 5 bytes, those bytes.
  const std::vector<u64> firsts = read(of.groups.firsts, NUM_SLOTS);
  for (u64 slot = 0; slot < NUM_SLOTS; ++slot)
    if (firsts[slot] == 0) EQUALS(of.groups.table + slot * SCAN_KEY_WORDS, 0x09'00'00'00'01'61'05'01, 0);
}

TEST(scan_group, too_many_groups_are_noticed) {
  std::vector<std::string> rows;
  for (char key = 'a'; key < 'a' + 9; ++key) rows.push_back(row(key, 0));
  const Groups of(rows, 4, 0);
  RUN(scan_group, &of.args, &of.groups);
  EQUAL(read(of.groups.found) > of.groups.most, true);
}

TEST(scan_take_groups, words_of_slots_are_contiguous) {
  ScanGroups groups{};
  groups.num_words = 2;
  groups.words = memory<u64>({10, 11, 20, 21, 30, 31});
  u64* out = room<u64>(4);
  RUN(scan_take_groups, &groups, memory<u32>({2, 0}), 2, out);
  EQUALS(out, 30, 31, 10, 11);
}
