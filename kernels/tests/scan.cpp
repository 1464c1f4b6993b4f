// Runs the program of a scan: scan_filter, scan_measure, scan_fill, scan_copy, scan_hash.

#include "../scan/program.hpp"
#include "data.hpp"

namespace {

// Rows have a number of four bytes and a text; the third is too short. Entries are in the opposite order.
struct Row {
  std::string key, value;
};
const std::vector<Row> ROWS = {{"r0", little(5, 4) + "x"}, {"r1", little(12, 4) + "yy"}, {"r2", "abc"},
                               {"r3", little(300, 4)},     {"r4", little(70000, 4) + "zzz"}};

enum Slot : u32 { VALUE, NUMBER, TEST_RESULT, LENGTH, TEXT_LENGTH, TEXT, KEY, IS_SMALL, HALF };
constexpr u32 ZERO = 0 | SCAN_CONSTANT, TEN = 1 | SCAN_CONSTANT, FOUR = 2 | SCAN_CONSTANT;
constexpr u32 LESS = 1, GREATER = 4;

constexpr u32 load_of(u32 bytes) { return NUMBER_UNSIGNED << 16 | bytes; }

// Selects rows with a number above 10. The output is their number, text and key, whether the number is below 300, and
// the first two bytes of the text as a number.
const std::vector<ScanOp> OPS = {
    {SCAN_VALUE, VALUE, 0, 0, 0, 0},
    {SCAN_LOAD, NUMBER, VALUE, ZERO, 0, load_of(4)},
    {SCAN_COMPARE, TEST_RESULT, NUMBER, TEN, 0, KIND_INTEGER << 8 | GREATER},
    {SCAN_REQUIRE, 0, TEST_RESULT, 0, 0, 0},
    // The output.
    {SCAN_VALUE, VALUE, 0, 0, 0, 0},
    {SCAN_LOAD, NUMBER, VALUE, ZERO, 0, load_of(4)},
    {SCAN_LENGTH, LENGTH, VALUE, 0, 0, 0},
    {SCAN_SUBTRACT, TEXT_LENGTH, LENGTH, FOUR, 0, RANGE_EXACT << 8},
    {SCAN_SLICE, TEXT, VALUE, FOUR, TEXT_LENGTH, 0},
    {SCAN_KEY, KEY, 0, 0, 0, 0},
    {SCAN_COMPARE, IS_SMALL, NUMBER, 3 | SCAN_CONSTANT, 0, KIND_INTEGER << 8 | LESS},
    {SCAN_LOAD, HALF, TEXT, ZERO, 0, load_of(2)},
};
constexpr u32 NUM_FILTER = 4;
constexpr u64 NUM_SELECTED = 3;

// Where the parts of column c begin in the memory of a batch.
constexpr u64 COLUMN_BYTES = 192;
ScanColumn column(u64 c, u32 operand, u32 stored, u32 bytes) {
  const u64 at = c * COLUMN_BYTES;
  return {operand, stored, bytes, 0, at, at + 8, at + 16, at + 96, at + 128, at + 160};
}
const std::vector<ScanColumn> COLUMNS = {column(0, NUMBER, STORED_INTEGER, 4), column(1, TEXT, STORED_BYTES, 0),
                                         column(2, KEY, STORED_BYTES, 0), column(3, IS_SMALL, STORED_BOOLEAN, 0),
                                         column(4, HALF, STORED_INTEGER, 2)};

ScanArgs args_for(const std::vector<ScanOp>& ops, u32 num_filter) {
  Arena arena;
  std::vector<Key> rows;
  std::vector<ValueRef> values(ROWS.size());
  for (const Row& row : ROWS) {
    rows.push_back(key(row.key, 1, TYPE_VALUE, u32(ROWS.size() - 1 - rows.size())));
    values[rows.back().entry] = arena.add(row.value);
  }
  ScanArgs args{};
  args.arena = arena.upload();
  args.rows = memory(rows);
  args.n = rows.size();
  args.values = memory(values);
  args.ops = memory(ops);
  args.constants = memory<ScanConstant>({{0, 0, 1, 0}, {10, 0, 1, 0}, {4, 0, 1, 0}, {300, 0, 1, 0}});
  args.num_filter = num_filter;
  args.num_ops = u32(ops.size());
  args.num_slots = HALF + 1;
  args.columns = memory(COLUMNS);
  args.num_columns = u32(COLUMNS.size());
  args.keep = room<u32>(args.n + 1);
  args.places = room<u32>(args.n + 1);
  args.selected = memory<u32>({1, 3, 4, 99, 99, 99});
  args.num_selected = NUM_SELECTED;
  args.sizes = zeros<u64>(args.n + 1);
  args.offsets = room<u64>(args.n + 1);
  args.errors = no_error();
  return args;
}

}  // namespace

TEST(scan_filter, rows_that_meet_the_condition_are_selected) {
  ScanArgs args = args_for(OPS, NUM_FILTER);
  args.selected = room<u32>(args.n);
  RUN(scan_filter, &args);
  EQUAL(read(args.errors), NO_ERROR);
  EQUALS(args.keep, 0, 1, 0, 1, 1);
  EQUALS(args.places, 0, 0, 1, 1, 2, 3);
  EQUALS(args.selected, 1, 3, 4);
}

TEST(scan_filter, failed_checks_and_numbers_out_of_range_are_reported) {
  const std::vector<ScanOp> load(OPS.begin(), OPS.begin() + 3);
  const auto run = [&](const ScanOp& last) {
    std::vector<ScanOp> ops = load;
    ops.push_back(last);
    const ScanArgs args = args_for(ops, 4);
    RUN(scan_filter, &args);
    return std::make_pair(read(args.errors), read(args.sizes));
  };
  // The comparison is false in row 0 and null in row 2.
  EQUAL(run({SCAN_CHECK, 0, TEST_RESULT, 0, 0, 0}).first, error_of(0, ERROR_CHECK));
  EQUAL(run({SCAN_CHECK, 0, TEST_RESULT, 0, 0, 1}).first, NO_ERROR);
  EQUAL(run({SCAN_CHECK, 0, TEST_RESULT, 0, 0, 1}).second, 2);
  // The constant is 2^127 - 12, and the first number above 11 is that of row 1.
  ScanArgs args = args_for({load[0], load[1], {SCAN_ADD, TEST_RESULT, NUMBER, TEN, 0, RANGE_EXACT << 8}}, 3);
  args.constants = memory<ScanConstant>({{0, 0, 1, 0}, {~u64{0} - 11, ~u64{0} >> 1, 1, 0}});
  RUN(scan_filter, &args);
  EQUAL(read(args.errors), error_of(1, ERROR_OUT_OF_RANGE));
}

TEST(scan_measure, batches_end_at_their_most_rows_or_bytes) {
  ScanArgs args = args_for(OPS, NUM_FILTER);
  args.row_bytes = 5;
  args.has_bytes = 1;
  args.batch_rows = 2;
  args.batch_bytes = 1000;
  RUN(scan_measure, &args);
  EQUALS(args.offsets, 0, 5 + 2 + 2, 9 + 5 + 0 + 2, 16 + 5 + 3 + 2);
  EQUALS(args.sizes, 2, 2, 3);
  // The first two rows have 16 bytes.
  args.batch_rows = 100;
  args.batch_bytes = 16;
  RUN(scan_measure, &args);
  EQUALS(args.sizes, 2, 2, 3);
  args.batch_bytes = 15;
  RUN(scan_measure, &args);
  EQUALS(args.sizes, 3, 1, 2, 3);
  EQUAL(read(args.errors), NO_ERROR);
}

TEST(scan_fill, values_become_columns_of_arrow) {
  ScanArgs args = args_for(OPS, NUM_FILTER);
  args.out = room<u8>(COLUMNS.size() * COLUMN_BYTES);
  RUN(scan_fill, &args, COLUMNS.data(), 0, NUM_SELECTED);
  EQUAL(read(args.errors), NO_ERROR);
  const auto numbers = [&](u64 at) { return reinterpret_cast<const u32*>(args.out + at); };
  EQUALS(numbers(COLUMNS[0].values), 12, 300, 70000);
  EQUALS(numbers(COLUMNS[1].lens), 2, 0, 3, 0);
  EQUALS(numbers(COLUMNS[1].packed), 0, 2, 2, 5);
  EQUALS(numbers(COLUMNS[2].packed), 0, 2, 4, 6);
  EQUALS(args.out + COLUMNS[3].packed, 1);
  EQUALS(reinterpret_cast<const u16*>(args.out + COLUMNS[4].values), 'y' << 8 | 'y', 0, 'z' << 8 | 'z');
  EQUALS(args.out + COLUMNS[4].flags, 1, 0, 1);
  EQUALS(args.out + COLUMNS[4].validity, 1 | 4);
  EQUALS(args.out + COLUMNS[0].validity, 1 | 2 | 4);
  const std::vector<ScanValue> texts = read(reinterpret_cast<const ScanValue*>(args.out + COLUMNS[1].values), 3);
  EQUAL(u32(texts[2].low), 4);
  EQUAL(texts[2].len(), 3);
  EQUAL(texts[2].source(), SOURCE_VALUE);
}

TEST(scan_fill, a_batch_begins_at_its_first_row) {
  ScanArgs args = args_for(OPS, NUM_FILTER);
  args.out = room<u8>(COLUMNS.size() * COLUMN_BYTES);
  RUN(scan_fill, &args, COLUMNS.data(), 1, 2);
  EQUALS(reinterpret_cast<const u32*>(args.out + COLUMNS[0].values), 300, 70000);
  EQUALS(args.out + COLUMNS[3].packed, 0);
}

TEST(scan_copy, cells_are_contiguous_in_byte_columns) {
  ScanArgs args = args_for(OPS, NUM_FILTER);
  // Values of column 1, keys of column 2; the second cell of column 1 is null.
  std::vector<u8> out(COLUMNS.size() * COLUMN_BYTES, '.');
  const auto put = [&](u64 at, const auto& values) { std::memcpy(out.data() + at, values, sizeof values); };
  const ScanValue texts[] = {of_bytes(4, 2, SOURCE_VALUE), null_value(), of_bytes(5, 2, SOURCE_VALUE)};
  const ScanValue keys[] = {of_bytes(0, 2, SOURCE_KEY), of_bytes(1, 1, SOURCE_KEY), of_bytes(0, 2, SOURCE_KEY)};
  const u32 text_offsets[] = {0, 2, 2, 4}, key_offsets[] = {0, 2, 3, 5};
  put(COLUMNS[1].values, texts);
  put(COLUMNS[1].packed, text_offsets);
  put(COLUMNS[2].values, keys);
  put(COLUMNS[2].packed, key_offsets);
  args.out = memory(out);
  RUN(scan_copy, &args, 0, NUM_SELECTED);
  EQUAL(read_bytes(args.out + COLUMNS[1].data, 5), "yyzz.");
  EQUAL(read_bytes(args.out + COLUMNS[2].data, 6), "r13r4.");
}

// The hash is the sum of rockmill_core::placed_hash of two words, at positions 3 and 4.
TEST(scan_hash, words_are_hashed_with_their_positions) {
  ScanTotals* totals = zeros<ScanTotals>(1);
  const HashPart part{memory("0123456789"), 10, 3, 0};
  RUN(scan_hash, &part, 1, totals);
  EQUAL(read(totals).hash, 0x018c2804cb2b9290);
}

TEST(scan_hash, parts_are_added_to_their_totals) {
  constexpr u64 PARTS = 150;
  const u8* bytes = memory("0123456789");
  std::vector<HashPart> parts;
  for (u64 k = 0; k < PARTS; ++k) parts.push_back({bytes, k % 3 == 2 ? u64{0} : 10, 3, k % 2});
  ScanTotals* totals = zeros<ScanTotals>(2);
  RUN(scan_hash, parts.data(), PARTS, totals);
  const u64 one = 0x018c2804cb2b9290;
  EQUALS(reinterpret_cast<const u64*>(totals), 50 * one, 50 * one);
}
