// Finds the ends of files and blocks, and the places of blocks: split, measure_blocks, place_raw, sum_blocks,
// place_blocks, sum_file, most_deletions.

#include "../common/content.hpp"
#include "data.hpp"

namespace {

// Arguments of split for some keys, each with a value of 10 bytes. An entry has 22 bytes if its key has one byte, or
// shares all bytes of the user key except one: three lengths, 9 bytes of the key, the value.
LayoutArgs args_for(const std::vector<Key>& keys, u64 file_size) {
  constexpr u32 MAX_FILES = 8;
  LayoutArgs args{};
  args.selected_rows = memory(keys);
  args.n = keys.size();
  args.values = memory(std::vector<ValueRef>(args.n, {0, 10}));
  args.layout = {40, 2, 1, 0, CHECKSUM_NONE, -1};
  args.splitting.file_size = file_size;
  args.splitting.partition_bytes = NO_PARTITIONS;
  for (u32** numbers : {&args.shared, &args.sizes, &args.begins, &args.before, &args.block_starts})
    *numbers = room<u32>(args.n + 1);
  args.prefix = room<u64>(args.n + 1);
  args.max_files = args.max_cuts = MAX_FILES;
  args.cuts = room<FileCut>(MAX_FILES + 1);
  args.file_starts = room<u32>(MAX_FILES + 1);
  args.file_blocks = room<u32>(MAX_FILES + 1);
  args.num_files = room<u32>(1);
  args.errors = no_error();
  return args;
}
std::vector<Key> keys_of(const std::vector<std::string>& users) {
  std::vector<Key> keys;
  for (const std::string& user : users) keys.push_back(key(user, 5, TYPE_VALUE, u32(keys.size())));
  return keys;
}
const std::vector<std::string> USERS = {"k", "k1", "k2", "k3", "k4", "k5"};

std::string show_cuts(const LayoutArgs& args) {
  std::string shown;
  for (const FileCut& cut : read(args.cuts, read(args.cuts + args.max_cuts).selected_rows))
    shown += std::to_string(cut.selected_rows) +
             (cut.fragment == NO_FRAGMENT ? " " : "f" + std::to_string(cut.fragment) + " ");
  return shown;
}

}  // namespace

TEST(split, files_and_blocks_end_where_they_are_full) {
  LayoutArgs args = args_for(keys_of(USERS), 80);
  args.key_sums = room<u64>(args.n + 1);
  RUN(split, &args);
  EQUAL(read(args.errors), NO_ERROR);
  EQUALS(args.shared, 0, 1, 1, 1, 1, 1);
  EQUALS(args.prefix, 0, 22, 44, 66, 88, 110, 132);
  // Four entries have 88 bytes; a block ends beyond each 40 bytes of its file.
  EQUAL(read(args.num_files), 2);
  EQUALS(args.file_starts, 0, 4, 6);
  EQUAL(show_cuts(args), "0 4 ");
  EQUALS(args.begins, 1, 0, 1, 0, 1, 0);
  EQUALS(args.before, 0, 1, 1, 2, 2, 3, 3);
  EQUALS(args.block_starts, 0, 2, 4, 6);
  EQUALS(args.file_blocks, 0, 2, 3);
  EQUALS(args.key_sums, 0, 9, 19, 29, 39, 49, 59);
}

TEST(split, files_do_not_end_because_of_their_size_where_the_task_ends_soon) {
  LayoutArgs args = args_for(keys_of(USERS), 44);
  RUN(split, &args);
  EQUALS(args.file_starts, 0, 2, 4, 6);
  // A file that reaches its size before the tail ends there.
  for (const auto& [tail, is_cut] : {std::pair{"k30", false}, {"k41", true}}) {
    args.splitting.tail = user_key(tail);
    RUN(split, &args);
    if (is_cut) EQUALS(args.file_starts, 0, 2, 4, 6);
    else EQUALS(args.file_starts, 0, 2, 6);
  }
}

TEST(split, versions_of_a_key_stay_in_one_file) {
  const LayoutArgs args = args_for({key("a", 9), key("b", 9), key("b", 8), key("b", 7), key("c", 9)}, 22);
  RUN(split, &args);
  EQUALS(args.file_starts, 0, 1, 4, 5);
}

TEST(split, tombstones_and_prefixes_are_counted) {
  LayoutArgs args = args_for({key("a", 9, TYPE_DELETION), key("bbb", 9), key("c", 9, TYPE_SINGLE_DELETION)}, 1000);
  args.deletion_sums = room<u32>(args.n + 1);
  args.last_with_prefix = room<u32>(args.n);
  args.filter.prefix_kind = PREFIX_FIXED;
  args.filter.prefix_len = 3;
  RUN(split, &args);
  EQUALS(args.deletion_sums, 0, 1, 1, 2);
  EQUALS(args.last_with_prefix, 0, 2, 2);
}

TEST(split, files_end_at_grandparents_that_would_be_too_much) {
  LayoutArgs args = args_for(keys_of(USERS), 1000);
  args.splitting.grandparents =
      memory<KeySpan>({{user_key("k1"), user_key("k2"), 100}, {user_key("k3"), user_key("k4"), 100}});
  args.splitting.num_grandparents = 2;
  args.splitting.max_compaction_bytes = 265;
  args.grandparent_places = room<u64>(4);
  RUN(split, &args);
  EQUALS(args.grandparent_places, 1, 3, 3, 5);
  // Before k3, both grandparents overlap a file of 66 bytes.
  EQUALS(args.file_starts, 0, 3, 6);
  // Behind k4, they overlap one of 110 bytes.
  args.splitting.max_compaction_bytes = 266;
  RUN(split, &args);
  EQUALS(args.file_starts, 0, 5, 6);
}

TEST(split, partitions_and_range_tombstones_begin_files) {
  LayoutArgs args = args_for(keys_of({"a1", "a2", "b1"}), 1000);
  args.splitting.partition_bytes = 1;
  args.fragments = memory<Fragment>({{user_key("a3"), user_key("a4"), 0, 1}, {user_key("c"), user_key("d"), 1, 2}});
  args.num_fragments = 2;
  args.fragment_places = room<u64>(2);
  RUN(split, &args);
  EQUALS(args.fragment_places, 2, 3);
  // The last file has a range tombstone alone.
  EQUAL(show_cuts(args), "0 2 3f1 ");
  EQUALS(args.file_starts, 0, 2, 3);
}

TEST(split, too_many_files_are_reported) {
  LayoutArgs args = args_for(keys_of(USERS), 1);
  args.max_files = 5;
  RUN(split, &args);
  EQUAL(read(args.errors), error_of(5, ERROR_TOO_MANY_FILES));
}

TEST(measure_blocks, sizes_have_entries_restarts_and_the_hash_index) {
  LayoutArgs args = args_for(keys_of({"k1", "k2", "k3", "k4"}), 0);
  // Restarts after two entries, the common prefix stored once, 1.5 buckets an entry.
  args.layout = {40, 2, 1, 1, CHECKSUM_NONE, 1.5};
  args.num_blocks = 2;
  args.block_starts = memory<u32>({0, 3, 4});
  args.begins = memory<u32>({1, 0, 0, 1, 0});
  args.before = memory<u32>({0, 1, 1, 1, 2});
  args.shared = memory<u32>({0, 1, 1, 1, 0});
  args.prefix_lens = room<u32>(2);
  args.hash_buckets = room<u32>(2);
  args.raw_sizes = room<u32>(2);
  RUN(measure_blocks, &args);
  EQUAL(read(args.errors), NO_ERROR);
  EQUALS(args.prefix_lens, 1, 2);
  EQUALS(args.sizes, 22, 22, 22, 21);
  EQUALS(args.prefix, 0, 22, 44, 66, 87);
  EQUALS(args.hash_buckets, 5, 1);
  EQUALS(args.raw_sizes, 1 + 66 + 2 * 4 + 5 + 2 + 4, 2 + 21 + 4 + 1 + 2 + 4);
}

TEST(place_raw, raw_images_are_contiguous_with_trailers) {
  LayoutArgs args{};
  args.num_blocks = 2;
  args.raw_sizes = memory<u32>({10, 20});
  args.block_starts = memory<u32>({0, 3, 4});
  args.block_sizes = room<u32>(3);
  args.raw_offsets = room<u64>(3);
  args.blocks = room<OutBlock>(2);
  RUN(place_raw, &args);
  EQUALS(args.raw_offsets, 0, 15, 40);
  const OutBlock block = read(args.blocks + 1);
  EQUAL(block.at, ARENA_PADDING + 15);
  EQUAL(block.size, 20);
  EQUAL(block.raw_size, 20);
  EQUAL(block.first, 3);
  EQUAL(block.count, 1);
}

TEST(sum_blocks, blocks_of_all_files_are_contiguous) {
  LayoutArgs args{};
  args.num_blocks = 3;
  args.max_files = 3;
  args.num_files = memory<u32>({2});
  args.file_blocks = memory<u32>({0, 2, 3, 99});
  args.raw_sizes = memory<u32>({10, 20, 30});
  args.stored_sizes = memory<u32>({5, 20, 7});
  args.block_sizes = room<u32>(4);
  args.block_offsets = room<u64>(4);
  args.file_offsets = room<u64>(4);
  RUN(sum_blocks, &args);
  EQUALS(args.block_sizes, 15, 25, 35);
  EQUALS(args.block_offsets, 0, 15, 40, 75);
  EQUALS(args.file_offsets, 0, 40, 75);
  // With compression.
  args.raw_offsets = memory<u64>({0, 15, 40, 75});
  RUN(sum_blocks, &args);
  EQUALS(args.block_offsets, 0, 10, 35, 47);
}

TEST(place_blocks, blocks_know_their_file_and_place) {
  LayoutArgs args{};
  args.selected_rows = memory(keys_of(USERS));
  args.key_bytes = {memory(std::string(ARENA_PADDING, 0)), nullptr};
  args.num_blocks = 3;
  args.block_starts = memory<u32>({0, 2, 4, 6});
  args.block_offsets = memory<u64>({0, 15, 40, 75});
  args.file_starts = memory<u32>({0, 4, 6});
  args.file_offsets = memory<u64>({0, 40, 75});
  args.places = memory<FileOffsets>({{1000, 1900, 0}, {2000, 2900, 30}});
  args.key_sums = memory<u64>({0, 9, 19, 29, 39, 49, 59});
  args.raw_sizes = memory<u32>({10, 25, 30});
  args.codecs = memory<u32>({CODEC_NONE, CODEC_LZ4, CODEC_NONE});
  args.blocks = room<OutBlock>(3);
  args.edges = room<u8>(50);
  RUN(place_blocks, &args, 2);
  const OutBlock second = read(args.blocks + 1), third = read(args.blocks + 2);
  EQUAL(second.at, 1015);
  EQUAL(second.file_offset, 15);
  EQUAL(second.size, 20);
  EQUAL(second.raw_size, 25);
  EQUAL(second.codec, CODEC_LZ4);
  EQUAL(second.file, 0);
  EQUAL(second.first, 2);
  EQUAL(second.count, 2);
  EQUAL(second.key_start, 19);
  EQUAL(third.at, 2000);
  EQUAL(third.file_offset, 0);
  EQUAL(third.file, 1);
  EQUAL(read_bytes(args.edges, 19), internal_key("k", 5) + internal_key("k3", 5));
  EQUAL(read_bytes(args.edges + 30, 20), internal_key("k4", 5) + internal_key("k5", 5));
}

TEST(sum_file, entries_of_a_file_are_added_up) {
  LayoutArgs args = args_for({key("before", 99), key("aa", 9, TYPE_VALUE, 3), key("ab", 4, TYPE_DELETION, 2),
                              key("ab", 3, TYPE_MERGE, 1), key("behind", 1)},
                             0);
  args.hashes = memory<u64>({0, 101, 102, 103, 0});
  args.values = memory<ValueRef>({{0, 99}, {0, 1}, {0, 2}, {0, 4}, {0, 99}});
  args.filter = {FILTER_FAST_LOCAL, 1, PREFIX_FIXED, 0, 1};
  FileTotals* totals = memory<FileTotals>({{0, 0, 0, 0, 0, 0, MAX_SEQUENCE, 0, 0}});
  RUN(sum_file, &args, 1, 3, totals);
  const FileTotals found = read(totals);
  const u64 hashes[] = {entry_hash(103, 9 << 8 | 1), entry_hash(102, 4 << 8), entry_hash(101, 3 << 8 | 2)};
  EQUAL(found.rows_hash, hashes[0] + hashes[1] + hashes[2]);
  EQUAL(found.content_hash, placed_hash(hashes[0], 0) + placed_hash(hashes[1], 1) + placed_hash(hashes[2], 2));
  EQUAL(found.deletions, 1);
  EQUAL(found.merge_operands, 1);
  EQUAL(found.key_bytes, 30);
  EQUAL(found.value_bytes, 4 + 2 + 1);
  EQUAL(found.smallest_seqno, 3);
  EQUAL(found.largest_seqno, 9);
  // The prefix a, and two keys.
  EQUAL(found.filter_entries, 3);
}

TEST(most_deletions, the_window_has_128_buckets) {
  // 100 other entries and 200 tombstones, behind a tombstone of another file.
  std::vector<u32> sums = {0, 1};
  for (u32 i = 0; i < 300; ++i) sums.push_back(sums.back() + (i >= 100));
  LayoutArgs args{};
  args.deletion_sums = memory(sums);
  const auto most = [&](u64 bucket_size) {
    u64* found = zeros<u64>(1);
    RUN(most_deletions, &args, 1, 300, bucket_size, found);
    return read(found);
  };
  EQUAL(most(1), 128);
  // A window has 256 entries; then all. The last bucket is not full.
  EQUAL(most(2), 200);
  EQUAL(most(7), 200);
}
