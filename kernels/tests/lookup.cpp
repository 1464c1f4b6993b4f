// Looks keys up: look_up.

#include "../view/probe.hpp"
#include "table.hpp"

namespace {

constexpr u64 STRIDE = 8;

// Arguments for keys of any length, and rows of dots.
LookupArgs args_for(const ResidentTable& table, const std::vector<std::string>& keys) {
  std::vector<u64> offsets = {0};
  std::string bytes;
  for (const std::string& key : keys) offsets.push_back((bytes += key).size());
  LookupArgs args{};
  args.kv.table = table;
  args.keys = memory(bytes + std::string(ARENA_PADDING, 0));
  args.key_offsets = memory(offsets);
  args.key_bytes = bytes.size();
  args.n = keys.size();
  args.rows = memory(std::string(keys.size() * STRIDE, '.'));
  args.stride = STRIDE;
  args.statuses = room<u8>(args.n);
  args.sizes = room<u32>(args.n);
  args.found = room<u8>(args.n);
  return args;
}

ResidentTable small_table() {
  std::vector<u64> slots =
      Records({record("a", "one"), record("bb", "eight by"), record("c", "nine byte"), record_of_host("d")}).slots;
  slots.insert(slots.begin() + 1, GONE_ADDRESS);
  return table_of(slots);
}

}  // namespace

TEST(look_up, each_key_gets_its_value_its_size_and_a_status) {
  const LookupArgs args = args_for(small_table(), {"bb", "a", "b", "c", "d"});
  RUN(look_up, &args);
  EQUAL(read_bytes(args.rows, 4 * STRIDE), "eight byone.....................");
  EQUALS(args.statuses, KEY_FOUND, KEY_FOUND, KEY_NOT_FOUND, KEY_TOO_SMALL, KEY_NEEDS_HOST);
  EQUALS(args.sizes, 8, 3, 0, 9, 0);
  EQUALS(args.found, 1, 1, 0, 0, 0);
}

TEST(look_up, options_clear_rows_and_require_values_of_their_size) {
  LookupArgs args = args_for(small_table(), {"a", "b", "bb"});
  args.options = LOOKUP_CLEARS;
  args.default_row = memory("default.");
  RUN(look_up, &args);
  EQUAL(read_bytes(args.rows, 3 * STRIDE), "one\0\0\0\0\0default.eight by"s);
  args.options = LOOKUP_EXACT;
  args.unanswered = zeros<u32>(1);
  RUN(look_up, &args);
  EQUALS(args.statuses, KEY_TOO_SMALL, KEY_NOT_FOUND, KEY_FOUND);
  EQUAL(read(args.unanswered), KEY_TOO_SMALL);
}

TEST(look_up, keys_outside_the_table_need_the_host) {
  ResidentTable table = small_table();
  table.outside = ranges_of({"x", "y"});
  const LookupArgs args = args_for(table, {"w", "x", "xx", "y"});
  RUN(look_up, &args);
  EQUALS(args.statuses, KEY_NOT_FOUND, KEY_NEEDS_HOST, KEY_NEEDS_HOST, KEY_NOT_FOUND);
}

TEST(look_up, integers_become_keys_with_a_prefix) {
  LookupArgs args = args_for(table_of(Records({record("id\x00\x01"s, "one")}).slots), {""});
  args.form = {4, 1, 2, 0, 1, 2, {'i', 'd'}};
  args.keys = memory(little(1, 4) + little(u32(-1), 4) + little(1 << 16, 4));
  args.n = 3;
  args.rows = memory(std::string(3 * STRIDE, '.'));
  args.statuses = room<u8>(3);
  args.sizes = nullptr;
  args.found = nullptr;
  RUN(look_up, &args);
  EQUALS(args.statuses, KEY_FOUND, KEY_NOT_FOUND, KEY_NOT_FOUND);
  EQUAL(read_bytes(args.rows, 4), "one.");
}

// The hash is that of the seed. The bucket is full of other keys, so the slot is in the next one, the first.
TEST(look_up, a_key_is_found_by_its_hash_in_the_next_bucket) {
  constexpr u64 HASH_OF_C = 0xf387d5a6eac5cade;
  const Records records({record("c", "three"), record("a", "one")});
  std::vector<u64> slots = {HASH_OF_C << SLOT_ADDRESS_BITS | records.slots[0]};
  slots.resize(BUCKET_SLOTS, HASH_OF_C << SLOT_ADDRESS_BITS | records.slots[1]);
  slots.resize(2 * BUCKET_SLOTS, HASH_OF_C << SLOT_ADDRESS_BITS | records.slots[1]);
  const LookupArgs args = args_for(table_of(slots, ~u64{0}), {"c", "a"});
  RUN(look_up, &args);
  EQUALS(args.statuses, KEY_FOUND, KEY_NOT_FOUND);
  EQUAL(read_bytes(args.rows, 5), "three");
}

// A ring is there, but the table has all answers.
TEST(look_up, keys_that_did_not_change_are_answered_without_the_host) {
  LookupArgs args = args_for(small_table(), {"a", "b"});
  args.kv.ring.slots = 1;
  args.kv.ring.changed = {zeros<u64>(64), 63, zeros<u64>(1), SEED};
  RUN(look_up, &args);
  EQUALS(args.statuses, KEY_FOUND, KEY_NOT_FOUND);
  EQUAL(read_bytes(args.rows, 4), "one.");
}
