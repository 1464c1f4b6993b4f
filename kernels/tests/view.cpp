// Puts rows into resident tables: measure_records, insert_records, count_unseen, erase_missing, rehash, measure_chunks,
// move_records.

#include "table.hpp"

namespace {

// A table with a, b and c.
const std::vector<std::string> OLD = {record("a", "same"), record("b", "two"), record("c", "3")};

struct Row {
  Key key;
  std::string value;
};
InsertArgs args_for(const std::vector<Row>& rows, const ResidentTable& base) {
  Arena arena;
  InsertArgs args{};
  std::vector<Key> keys;
  std::vector<ValueRef> values;
  for (const Row& row : rows) {
    keys.push_back(row.key);
    keys.back().entry = u32(values.size());
    values.push_back(arena.add(row.value));
  }
  args.arena = arena.upload();
  args.rows = memory(keys);
  args.n = rows.size();
  args.values = memory(values);
  args.sizes = room<u64>(args.n + 1);
  args.offsets = room<u64>(args.n + 1);
  args.base = base;
  args.seen = zeros<u64>(1);
  args.totals = zeros<InsertTotals>(1);
  return args;
}

}  // namespace

TEST(measure_records, rows_that_are_new_or_changed_get_a_record) {
  const InsertArgs args = args_for({{key("a", 9), "same"},
                                    {key("b", 9), "TWO"},
                                    {key("c", 9, TYPE_DELETION), ""},
                                    {key("d", 9), "17 bytes of value"},
                                    {key("e", 9, TYPE_MERGE), "unused"}},
                                   table_of(Records(OLD).slots));
  RUN(measure_records, &args);
  EQUALS(args.sizes, 0, 32, 0, 48, 16);
  EQUALS(args.offsets, 0, 0, 32, 32, 80, 96);
  EQUAL(read(args.seen), 1 | 2 | 4);
  EQUAL(read(args.totals).without, 2);
}

TEST(insert_records, records_take_the_slot_of_their_key_or_an_empty_one) {
  const Records old(OLD);
  InsertArgs args = args_for({{key("b", 9), "TWO"}, {key("c", 9, TYPE_MERGE), "unused"}, {key("dddddddddd", 9), "4"}},
                             table_of(old.slots));
  args.table = table_of(old.slots);
  args.offsets = memory<u64>({0, 32, 48, 96});
  args.records = room<u8>(96);
  RUN(insert_records, &args);
  EQUAL(read_bytes(args.records, 96), record("b", "TWO") + record_of_host("c") + record("dddddddddd", "4"));
  const u64 first = reinterpret_cast<u64>(args.records) / RECORD_UNIT;
  EQUALS(args.table.slots, old.slots[0], first, first + 2, first + 3, EMPTY_SLOT);
  const InsertTotals totals = read(args.totals);
  EQUAL(totals.needs_host_in, 1);
  EQUAL(totals.values_out, 2);
  EQUAL(totals.dead_bytes, 64);
  EQUAL(totals.left_over, 0);
}

TEST(insert_records, deleted_keys_leave_slots_that_are_taken_again) {
  const Records old({record_of_host("a"), record("b", "two")});
  InsertArgs args = args_for({{key("a", 9, TYPE_SINGLE_DELETION), ""}}, table_of(old.slots));
  args.table = table_of(old.slots);
  args.offsets = memory<u64>({0, 0});
  RUN(insert_records, &args);
  EQUALS(args.table.slots, GONE_ADDRESS, old.slots[1], EMPTY_SLOT);
  EQUAL(read(args.totals).gone, 1);
  EQUAL(read(args.totals).needs_host_out, 1);
  InsertArgs later = args_for({{key("z", 9), "26"}}, ResidentTable{});
  later.table = args.table;
  later.offsets = memory<u64>({0, 32});
  later.records = room<u8>(32);
  RUN(insert_records, &later);
  EQUALS(args.table.slots, reinterpret_cast<u64>(later.records) / RECORD_UNIT, old.slots[1], EMPTY_SLOT);
  EQUAL(read(later.totals).retaken, 1);
}

TEST(insert_records, a_key_goes_on_to_the_next_bucket_or_is_left_over) {
  const std::vector<u64> full(BUCKET_SLOTS, 99);
  InsertArgs args = args_for({{key("a", 9), "1"}}, ResidentTable{});
  std::vector<u64> slots = full;
  slots.push_back(98);
  args.table = table_of(slots);
  args.offsets = memory<u64>({0, 32});
  args.records = room<u8>(32);
  RUN(insert_records, &args);
  EQUALS(args.table.slots + BUCKET_SLOTS, 98, reinterpret_cast<u64>(args.records) / RECORD_UNIT, EMPTY_SLOT);
  args.table = table_of(full);
  RUN(insert_records, &args);
  EQUAL(read(args.totals).left_over, 1);
}

TEST(count_unseen, keys_of_the_base_without_a_bit_are_counted) {
  const InsertArgs args =
      args_for({{key("a", 9), ""}, {key("b", 9), ""}, {key("z", 9), ""}}, table_of(Records(OLD).slots));
  RUN(count_unseen, &args);
  EQUAL(read(args.totals).unseen, 2);
  InsertArgs seen = args;
  seen.seen = memory<u64>({2});
  seen.totals = zeros<InsertTotals>(1);
  RUN(count_unseen, &seen);
  EQUAL(read(seen.totals).unseen, 1);
}

TEST(erase_missing, unseen_keys_of_the_ranges_are_removed) {
  const Records records({record("a", "1"), record("b", "2"), record("bb", "3"), record("c", "4"), record_of_host("e")});
  SlotsArgs args{};
  args.base = table_of(records.slots);
  args.table = table_of(records.slots);
  args.seen = memory<u64>({2});
  args.ranges = ranges_of({"b", "c", "d"});
  args.totals = zeros<InsertTotals>(1);
  RUN(erase_missing, &args);
  EQUALS(args.table.slots, records.slots[0], records.slots[1], GONE_ADDRESS, records.slots[3], GONE_ADDRESS,
         EMPTY_SLOT);
  const InsertTotals totals = read(args.totals);
  EQUAL(totals.gone, 2);
  EQUAL(totals.values_out, 1);
  EQUAL(totals.needs_host_out, 1);
  EQUAL(totals.dead_bytes, 48);
}

// The hashes are those of the seed; their upper bits choose the bucket.
TEST(rehash, records_move_to_the_buckets_of_their_hashes) {
  constexpr u64 HASH_OF_A = 0x472ced2600761c6b, HASH_OF_C = 0xf387d5a6eac5cade;
  const Records records({record("a", "1"), record("c", "2")});
  SlotsArgs args{};
  args.base = table_of({GONE_ADDRESS, records.slots[1], records.slots[0]});
  args.table = table_of(std::vector<u64>(2 * BUCKET_SLOTS), ~u64{0});
  args.totals = zeros<InsertTotals>(1);
  RUN(rehash, &args);
  EQUALS(args.table.slots, HASH_OF_A << SLOT_ADDRESS_BITS | records.slots[0], EMPTY_SLOT);
  EQUALS(args.table.slots + BUCKET_SLOTS, HASH_OF_C << SLOT_ADDRESS_BITS | records.slots[1], EMPTY_SLOT);
  EQUAL(read(args.totals).left_over, 0);
}

TEST(measure_chunks, bytes_of_live_records_are_added_up_by_chunk) {
  const Records records({record("a", "1"), record("b", "17 bytes of value"), record("c", ""), record_of_host("d")});
  SlotsArgs args{};
  // The record of c is not live.
  args.table = table_of({records.slots[3], GONE_ADDRESS, records.slots[0], records.slots[1]});
  const u64 second = reinterpret_cast<u64>(records.bytes) + 32;
  args.chunks = memory<RecordChunk>({{second - 32, 1000, 0}, {second, 0, 0}});
  args.num_chunks = 2;
  RUN(measure_chunks, &args);
  EQUAL(read(args.chunks).live_bytes, 1000 + 32);
  EQUAL(read(args.chunks + 1).live_bytes, 48 + 16);
}

TEST(move_records, records_of_marked_chunks_move) {
  constexpr u64 UPPER = u64{5} << SLOT_ADDRESS_BITS;
  const Records records({record("a", "1"), record("b", "17 bytes of value")});
  SlotsArgs args{};
  args.table = table_of({records.slots[0], UPPER | records.slots[1]});
  const u64 first = reinterpret_cast<u64>(records.bytes);
  args.chunks = memory<RecordChunk>({{first, 0, 0}, {first + 32, 0, 1}});
  args.num_chunks = 2;
  args.records = room<u8>(64 + 48);
  args.cursor = memory<u64>({64});
  RUN(move_records, &args);
  EQUAL(read(args.cursor), 64 + 48);
  EQUAL(read_bytes(args.records + 64, 48), record("b", "17 bytes of value"));
  EQUALS(args.table.slots, records.slots[0], UPPER | (reinterpret_cast<u64>(args.records) + 64) / RECORD_UNIT,
         EMPTY_SLOT);
}
