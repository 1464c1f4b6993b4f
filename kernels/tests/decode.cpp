// Checks and reads blocks: check_blocks, count_entries, decode_entries, hash_entries, place_entries, check_order,
// trim_runs, sum_input.

#include "../common/content.hpp"
#include "data.hpp"

namespace {

constexpr u32 INTERVAL = 2;

// Two intervals: keys ab, abc and b.
std::string short_block() {
  const std::string first = entry(0, internal_key("ab", 7), "one") + entry(2, "c" + internal_key("", 5), "");
  const std::string second = entry(0, internal_key("b", 3, TYPE_DELETION), "");
  return first + second + little(0, 4) + little(first.size(), 4) + little(2, 4);
}
std::string long_block() {
  return entry(0, internal_key("a key of twenty bytes", 0), "two") + little(0, 4) + little(1, 4);
}

BlockRef block(const ValueRef& payload, u64 sequence = STORED_SEQUENCE) {
  return {payload.at, 0, u32(payload.len), u32(payload.len), CODEC_NONE, 0, CHECKSUM_NONE, INTERVAL, sequence};
}

// Arguments for short_block and long_block.
struct Blocks {
  Arena arena;
  DecodeArgs args{};

  explicit Blocks(const std::vector<std::string>& payloads, u64 sequence = STORED_SEQUENCE) {
    std::vector<BlockRef> blocks;
    for (const std::string& payload : payloads) blocks.push_back(block(arena.add(payload), sequence));
    args.arena = arena.upload();
    args.blocks = memory(blocks);
    args.num_blocks = blocks.size();
    args.counts = room<u32>(blocks.size() + 1);
    args.starts = room<u32>(blocks.size() + 1);
    args.key_sums = room<u64>(blocks.size() + 1);
    args.key_starts = room<u64>(blocks.size() + 1);
    args.longest = zeros<u64>(1);
    args.keys = room<Key>(7);
    args.values = room<ValueRef>(7);
    args.errors = no_error();
    args.types = 1 << TYPE_VALUE | 1 << TYPE_DELETION;
  }
};

// A block of 1500 bytes with a trailer of this codec and checksum.
DecodeArgs sealed_blocks(const std::vector<BlockRef>& forms, const std::vector<u32>& sums, u8 codec) {
  std::string payload;
  for (u32 i = 0; i < 1500; ++i) payload += char(i * 7);
  Arena arena;
  std::vector<BlockRef> blocks = forms;
  for (u64 i = 0; i < blocks.size(); ++i) {
    blocks[i].at = arena.add(payload + char(codec) + little(sums[i], 4)).at;
    blocks[i].stored_size = 1500;
  }
  DecodeArgs args{};
  args.arena = arena.upload();
  args.blocks = memory(blocks);
  args.num_blocks = blocks.size();
  args.errors = no_error();
  return args;
}

}  // namespace

// The sums are those of xxHash 0.8 and of a bitwise CRC-32C.
TEST(check_blocks, sound_blocks_of_all_checksums_pass) {
  const auto form = [](u32 checksum, u32 base, u64 offset) {
    return BlockRef{0, offset, 0, 0, CODEC_IN_TRAILER, base, checksum, 0, 0};
  };
  const DecodeArgs args = sealed_blocks(
      {form(CHECKSUM_NONE, 0, 0), form(CHECKSUM_CRC32C, 0, 9), form(CHECKSUM_XXHASH, 0, 0),
       form(CHECKSUM_XXHASH64, 0, 0), form(CHECKSUM_XXH3, 0, 0), form(CHECKSUM_XXH3, 0x1234567, u64{5} << 32 | 0x89)},
      {0, 0xac0aedaa, 0x0dd64753, 0xefe3c3ca, 0x35b5539d, 0x36d89986}, CODEC_SNAPPY);
  RUN(check_blocks, &args);
  EQUAL(read(args.errors), NO_ERROR);
}

TEST(check_blocks, the_first_damaged_block_is_reported) {
  const BlockRef form{0, 0, 0, 0, CODEC_SNAPPY, 0, CHECKSUM_XXH3, 0, 0};
  const DecodeArgs args = sealed_blocks({form, form, form}, {0x35b5539d, 0x35b5539c, 0}, CODEC_SNAPPY);
  RUN(check_blocks, &args);
  EQUAL(read(args.errors), error_of(1, ERROR_CHECKSUM));
}

TEST(check_blocks, a_trailer_with_another_codec_is_an_error) {
  const BlockRef form{0, 0, 0, 0, CODEC_NONE, 0, CHECKSUM_XXH3, 0, 0};
  const DecodeArgs args = sealed_blocks({form}, {0x35b5539d}, CODEC_SNAPPY);
  RUN(check_blocks, &args);
  EQUAL(read(args.errors), error_of(0, ERROR_COMPRESSED));
}

TEST(count_entries, entries_and_bytes_of_keys_are_added_up) {
  const DecodeArgs args = Blocks({short_block(), long_block()}).args;
  RUN(count_entries, &args);
  EQUAL(read(args.errors), NO_ERROR);
  EQUALS(args.counts, 3, 1);
  EQUALS(args.starts, 0, 3, 4);
  EQUALS(args.key_sums, 10 + 11 + 9, 29);
  EQUALS(args.key_starts, 0, 30, 59);
  EQUAL(read(args.longest), 21);
}

TEST(count_entries, bad_frames_and_entries_are_reported) {
  const DecodeArgs frame = Blocks({short_block(), "abc"}).args;
  RUN(count_entries, &frame);
  EQUAL(read(frame.errors), error_of(1, ERROR_FRAME));
  const DecodeArgs end = Blocks({entry(0, internal_key("a", 1), "x").substr(0, 12) + little(0, 4) + little(1, 4)}).args;
  RUN(count_entries, &end);
  EQUAL(read(end.errors), error_of(0, ERROR_ENTRY));
  const DecodeArgs len = Blocks({entry(0, "1234567", "x") + little(0, 4) + little(1, 4)}).args;
  RUN(count_entries, &len);
  EQUAL(read(len.errors), error_of(0, ERROR_KEY_LENGTH));
}

TEST(decode_entries, short_keys_become_words) {
  Blocks blocks({short_block()});
  blocks.args.starts = memory<u32>({0, 3});
  RUN(decode_entries, &blocks.args);
  EQUAL(read(blocks.args.errors), NO_ERROR);
  EQUAL(show_keys(blocks.args.keys, 3), "ab@7.1#0 abc@5.1#1 b@3.0#2");
  const std::vector<ValueRef> values = read(blocks.args.values, 2);
  EQUAL(blocks.arena.bytes.substr(values[0].at, values[0].len), "one");
  EQUAL(values[1].len, 0);
}

TEST(decode_entries, keys_of_all_lengths_fit_into_their_words) {
  std::string entries;
  const u64 high = u64{1} << 48;
  for (const u32 len : {0, 1, 7, 8, 9, 15, 16})
    entries += entry(0, internal_key("abcdefghijklmnop"s.substr(0, len), len + high), "");
  Blocks blocks({entries + little(0, 4) + little(1, 4)});
  blocks.args.starts = memory<u32>({0, 7});
  RUN(decode_entries, &blocks.args);
  std::vector<Key> keys = read(blocks.args.keys, 7);
  for (Key& key : keys) key.tag -= high << 8;
  EQUAL(show_keys(memory(keys), 7), "@0.1#0 a@1.1#1 abcdefg@7.1#2 abcdefgh@8.1#3 abcdefghi@9.1#4 "
                                    "abcdefghijklmno@15.1#5 abcdefghijklmnop@16.1#6");
  // Zeros follow a short key.
  EQUAL(keys[0].hi | keys[0].lo | keys[1].lo, 0);
  EQUAL(keys[1].hi, u64{'a'} << 56);
  EQUAL(keys[4].lo, u64{'i'} << 56);
}

TEST(decode_entries, keys_of_a_wide_task_are_stored_in_full) {
  Blocks blocks({short_block(), long_block()});
  blocks.args.starts = memory<u32>({0, 3, 4});
  blocks.args.key_starts = memory<u64>({0, 30, 59});
  blocks.args.key_bytes = room<u8>(59);
  blocks.args.key_at = room<u64>(4);
  RUN(decode_entries, &blocks.args);
  EQUAL(read(blocks.args.errors), NO_ERROR);
  EQUAL(show_keys(blocks.args.keys, 4), "ab@7.1#0 abc@5.1#1 b@3.0#2 a key of twenty @0.1#3");
  EQUALS(blocks.args.key_at, 0, 10, 21, 30);
  EQUAL(read_bytes(blocks.args.key_bytes, 59), internal_key("ab", 7) + internal_key("abc", 5) +
                                                   internal_key("b", 3, TYPE_DELETION) +
                                                   internal_key("a key of twenty bytes", 0));
}

TEST(decode_entries, a_file_may_have_one_sequence_number_for_all) {
  Blocks zero({entry(0, internal_key("ab", 0), "one") + little(0, 4) + little(1, 4)}, 77);
  zero.args.starts = memory<u32>({0, 1});
  RUN(decode_entries, &zero.args);
  EQUAL(read(zero.args.errors), NO_ERROR);
  EQUAL(show_keys(zero.args.keys, 1), "ab@77.1#0");
  Blocks stored({entry(0, internal_key("ab", 1), "one") + little(0, 4) + little(1, 4)}, 77);
  stored.args.starts = memory<u32>({0, 1});
  RUN(decode_entries, &stored.args);
  EQUAL(read(stored.args.errors), error_of(0, ERROR_SEQUENCE));
}

TEST(decode_entries, other_types_are_reported) {
  Blocks blocks({short_block()});
  blocks.args.starts = memory<u32>({0, 3});
  blocks.args.types = 1 << TYPE_VALUE;
  RUN(decode_entries, &blocks.args);
  EQUAL(read(blocks.args.errors), error_of(0, ERROR_VALUE_TYPE));
}

// The hashes are those of a plain rapidhash V3 micro without its last step.
TEST(hash_entries, keys_and_values_of_all_lengths_are_hashed) {
  Arena arena;
  DecodeArgs args{};
  args.values = memory<ValueRef>({arena.add("value"), arena.add(""), arena.add("a value of more than sixteen bytes")});
  args.arena = arena.upload();
  args.keys = memory<Key>(
      {key("abcdefgh", 1, TYPE_VALUE, 0), key("a key of twenty byte", 2, TYPE_VALUE, 1), key("k", 3, TYPE_VALUE, 2)});
  args.key_bytes = memory("a key of twenty byte" + std::string(TAG_BYTES + ARENA_PADDING, 0));
  args.key_at = memory<u64>({0, 0, 0});
  args.hashes = room<u64>(3);
  RUN(hash_entries, &args, 3);
  EQUALS(args.hashes, 0x9eb3c516f6355cc5, 0x1e2539e9ee5c6f91, 0x51e4ed8728dafbfb);
}

TEST(place_entries, numbers_and_places_change_by_constants_that_may_be_negative) {
  PlaceArgs args{};
  args.keys = memory<Key>({key("a", 9, TYPE_VALUE, 7), key("b", 8, TYPE_VALUE, 8)});
  args.values = memory<ValueRef>({{100, 3}, {200, 4}});
  args.hashes = memory<u64>({11, 12});
  args.n = 2;
  args.to_keys = room<Key>(2);
  args.to_values = room<ValueRef>(2);
  args.to_hashes = room<u64>(2);
  args.entry_shift = -u64{7};
  args.value_shift = -u64{50};
  RUN(place_entries, &args, 1);
  EQUAL(show_keys(args.to_keys, 2), "a@9.1#0 b@8.1#1");
  const std::vector<ValueRef> values = read(args.to_values, 2);
  EQUAL(values[0].at, 50);
  EQUAL(values[1].at, 150);
  EQUAL(values[1].len, 4);
  EQUALS(args.to_hashes, 11, 12);
  args.key_at = memory<u64>({20, 40});
  args.to_key_at = room<u64>(2);
  args.key_shift = -u64{30};
  RUN(place_entries, &args, 1);
  EQUALS(args.to_key_at, u64(-10), 10);
}

TEST(check_order, an_entry_that_does_not_ascend_is_reported) {
  DecodeArgs args{};
  args.errors = no_error();
  args.keys = memory<Key>({key("z", 1, TYPE_VALUE, 0), key("a", 9, TYPE_VALUE, 1), key("a", 8, TYPE_VALUE, 2),
                           key("b", 8, TYPE_VALUE, 3), key("a", 7, TYPE_VALUE, 4)});
  RUN(check_order, &args, 1, 4);
  EQUAL(read(args.errors), NO_ERROR);
  RUN(check_order, &args, 1, 5);
  EQUAL(read(args.errors), error_of(4, ERROR_ORDER));
  args.errors = no_error();
  args.keys = memory<Key>({key("a", 8, TYPE_VALUE, 0), key("a", 8, TYPE_VALUE, 1)});
  RUN(check_order, &args, 0, 2);
  EQUAL(read(args.errors), error_of(1, ERROR_ORDER));
}

TEST(trim_runs, runs_keep_the_keys_from_begin_to_before_end) {
  DecodeArgs args{};
  args.keys = memory<Key>({key("a", 9), key("b", 9), key("d", 9), key("b", 8), key("b", 7), key("c", 9)});
  const u32* starts = memory<u32>({0, 3, 6});
  u32* trimmed = room<u32>(6);
  const UserKey begin = user_key("b"), end = user_key("c"), none{};
  RUN(trim_runs, &args, starts, 2, &begin, &end, trimmed);
  EQUALS(trimmed, 1, 2, 3, 5, 0, 0);
  RUN(trim_runs, &args, starts, 2, &none, &none, trimmed);
  EQUALS(trimmed, 0, 3, 3, 6, 0, 0);
}

TEST(trim_runs, a_run_whose_keys_lie_behind_those_before_follows) {
  DecodeArgs args{};
  args.keys = memory<Key>({key("a", 9), key("b", 9), key("b", 8), key("c", 9), key("c", 10)});
  const u32* starts = memory<u32>({0, 2, 3, 4, 5});
  u32* trimmed = room<u32>(12);
  const UserKey begin = user_key("b"), end = user_key("c"), none{};
  RUN(trim_runs, &args, starts, 4, &none, &none, trimmed);
  EQUALS(trimmed, 0, 2, 2, 3, 3, 4, 4, 5, 0, 1, 1, 0);
  // An empty run neither follows nor is followed.
  RUN(trim_runs, &args, starts, 4, &begin, &end, trimmed);
  EQUALS(trimmed, 1, 2, 2, 3, 3, 3, 4, 4, 0, 1, 0, 0);
}

TEST(sum_input, each_kind_of_entry_is_counted) {
  DecodeArgs args{};
  args.keys =
      memory<Key>({key("before", 9), key("a", 9), key("bb", 8, TYPE_DELETION), key("c", 7, TYPE_SINGLE_DELETION),
                   key("d", 6, TYPE_MERGE), key("e", 5, TYPE_DELETION_WITH_TIMESTAMP), key("behind", 9)});
  args.values = memory<ValueRef>({{0, 99}, {0, 10}, {0, 0}, {0, 0}, {0, 7}, {0, 1}, {0, 99}});
  args.hashes = memory<u64>({99, 1, 2, 3, 4, 5, 99});
  InputTotals* totals = zeros<InputTotals>(1);
  RUN(sum_input, &args, 1, 6, totals);
  const InputTotals found = read(totals);
  EQUAL(found.tombstones, 3);
  EQUAL(found.single_deletes, 1);
  EQUAL(found.operands, 1);
  EQUAL(found.key_bytes, 6 + 5 * TAG_BYTES);
  EQUAL(found.value_bytes, 18);
  EQUAL(found.hash, entry_hash(1, 9 << 8 | 1) + entry_hash(2, 8 << 8) + entry_hash(3, 7 << 8 | 7) +
                        entry_hash(4, 6 << 8 | 2) + entry_hash(5, 5 << 8 | 0x14));
}
