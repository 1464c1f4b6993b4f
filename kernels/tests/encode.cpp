// Writes blocks, indexes and filters: compress_blocks, write_blocks, seal_blocks, measure_index, write_index,
// build_filter.

#include "data.hpp"

namespace {

LayoutArgs args_for(const std::vector<Key>& keys) {
  LayoutArgs args{};
  args.selected_rows = memory(keys);
  args.n = keys.size();
  args.key_bytes = {memory(std::string(ARENA_PADDING, 0)), nullptr};
  args.errors = no_error();
  return args;
}

OutBlock out_block(u64 at, u32 size, u32 first, u32 count, u32 codec = CODEC_NONE, u32 raw_size = 0) {
  return {at, 0, size, raw_size, codec, 0, first, count, 0};
}

// A block of one entry.
struct Single {
  std::string user, value;
  u64 sequence;

  std::string image() const { return entry(0, internal_key(user, sequence), value) + little(0, 4) + little(1, 4); }
};
// It becomes small, and it does not.
const Single REPEATING = {"key", std::string(100, 'a'), 5}, DIFFERENT = {"x", "0123456789", 5};

LayoutArgs raw_blocks(Codec codec, const std::vector<Single>& singles) {
  Arena arena;
  std::vector<Key> keys;
  std::vector<ValueRef> values;
  std::vector<u64> prefix = {0};
  std::vector<OutBlock> blocks;
  u64 end = ARENA_PADDING;
  for (const Single& single : singles) {
    const u32 number = u32(keys.size()), size = u32(single.image().size());
    keys.push_back(key(single.user, single.sequence, TYPE_VALUE, number));
    values.push_back(arena.add(single.value));
    prefix.push_back(prefix.back() + size - 8);
    blocks.push_back(out_block(end, size, number, 1, CODEC_NONE, size));
    end += size + TRAILER_BYTES;
  }
  LayoutArgs args = args_for(keys);
  args.values = memory(values);
  args.arena = arena.upload();
  args.layout = {4096, 1, 1, 0, CHECKSUM_NONE, -1};
  args.shared = args.prefix_lens = zeros<u32>(args.n);
  args.prefix = memory(prefix);
  args.num_blocks = args.n;
  args.blocks = memory(blocks);
  args.compression = {codec, 896};
  args.stored_sizes = room<u32>(args.n);
  args.codecs = room<u32>(args.n);
  args.raw_sums = room<u32>(args.n);
  args.raw = room<u8>(end + ARENA_PADDING);
  args.packed = room<u8>(end + ARENA_PADDING);
  return args;
}

// Compresses REPEATING and DIFFERENT.
void expect_packed(const LayoutArgs& args, const std::string& expected) {
  RUN(compress_blocks, &args);
  const u64 second = read(args.blocks + 1).at;
  EQUAL(read_bytes(args.raw + ARENA_PADDING, REPEATING.image().size()), REPEATING.image());
  EQUAL(read_bytes(args.raw + second, DIFFERENT.image().size()), DIFFERENT.image());
  EQUALS(args.stored_sizes, expected.size(), DIFFERENT.image().size());
  EQUALS(args.codecs, args.compression.codec, CODEC_NONE);
  EQUAL(read_bytes(args.packed + ARENA_PADDING, expected.size()), expected);
  // XXH3 of the images.
  EQUALS(args.raw_sums, 0x33e20048, 0x6334f670);
}

}  // namespace

// liblz4, snappy and libzstd make the image of REPEATING of these bytes.
TEST(compress_blocks, lz4_has_the_bytes_of_its_identity) {
  expect_packed(raw_blocks(CODEC_LZ4, {REPEATING, DIFFERENT}),
                from_hex("7a91000b646b657901050001001f61010050800000000001000000"));
}

TEST(compress_blocks, snappy_has_the_bytes_of_its_identity) {
  expect_packed(raw_blocks(CODEC_SNAPPY, {REPEATING, DIFFERENT}),
                from_hex("7a20000b646b657901050005010061fe01008a01001c0000000001000000"));
}

TEST(compress_blocks, zstd_has_the_bytes_of_its_identity) {
  const std::string packed = from_hex("7a28b52ffd207acd000070000b646b6579010500610100000003006b08008074057004");
  LayoutArgs args = raw_blocks(CODEC_ZSTD, {REPEATING, DIFFERENT});
  args.compress_scratch = room<u8>(2 * (REPEATING.image().size() + DIFFERENT.image().size()) + 64);
  expect_packed(args, packed);
  // The larger block is compressed by a group of the second run.
  args.compress_groups = 4;
  args.compress_group_bytes = (128 << 10) + 8;
  args.compress_usual = DIFFERENT.image().size();
  args.compress_scratch = room<u8>(args.compress_groups * args.compress_group_bytes + sizeof(u64));
  expect_packed(args, packed);
}

TEST(compress_blocks, long_literals_and_far_matches_of_lz4_have_more_bytes) {
  // No four bytes occur twice in the image, until the bytes from 10 to 49 do.
  std::string bytes;
  for (u32 i = 0; i < 256; ++i) bytes += char(i);
  const Single single = {"key", bytes + bytes.substr(10, 40), 0x90807060504030};
  const std::string image = single.image(), literals = image.substr(0, 4 + 11 + 256);
  LayoutArgs args = raw_blocks(CODEC_LZ4, {single});
  args.compression.max_bytes_per_kb = 1024;
  RUN(compress_blocks, &args);
  // 15 + 255 + 1 literals; a match from 246 bytes back of 4 + 15 + 21; the restarts.
  const std::string packed = varint(image.size()) + "\xff\xff\x01" + literals + "\xf6\x00\x15\x80"s + image.substr(311);
  EQUAL(read_bytes(args.packed + ARENA_PADDING, packed.size()), packed);
  EQUALS(args.stored_sizes, packed.size());
}

TEST(compress_blocks, blocks_that_shrink_too_little_stay_raw) {
  LayoutArgs args = raw_blocks(CODEC_LZ4, {REPEATING});
  // The packed block has 27 bytes of 122.
  args.compression.max_bytes_per_kb = 27 * 1024 / 122 + 1;
  RUN(compress_blocks, &args);
  EQUALS(args.stored_sizes, 27);
  args.compression.max_bytes_per_kb -= 1;
  RUN(compress_blocks, &args);
  EQUALS(args.stored_sizes, 122);
  EQUALS(args.codecs, CODEC_NONE);
}

TEST(write_blocks, entries_restarts_and_the_hash_index_follow_each_other) {
  Arena arena;
  LayoutArgs args = args_for({key("k1", 5, TYPE_VALUE, 2), key("k2", 5, TYPE_VALUE, 1), key("k3", 5, TYPE_VALUE, 0)});
  args.values = memory<ValueRef>({arena.add("three"), arena.add("two"), arena.add("one")});
  args.arena = arena.upload();
  args.layout = {4096, 2, 1, 1, CHECKSUM_NONE, 1.5};
  args.shared = memory<u32>({0, 1, 1});
  args.prefix = memory<u64>({100, 115, 130, 147});
  args.prefix_lens = memory<u32>({1});
  args.hash_buckets = memory<u32>({5});
  args.num_blocks = 1;
  args.blocks = memory<OutBlock>({out_block(7, 67, 0, 3)});
  u8* images = room<u8>(7 + 67 + TRAILER_BYTES);
  RUN(write_blocks, &args, images);
  const auto others = [](const std::string& last) { return last + internal_key("", 5); };
  const std::string image =
      "k" + entry(0, others("1"), "one") + entry(1, others("2"), "two") + entry(0, others("3"), "three") +
      // Restarts; buckets, of which k1 and k3 share the first; their number; the number of restarts.
      little(1, 4) + little(31, 4) + "\xfe\xff\x00\xff\xff"s + little(5, 2) + little(2 | u32{1} << 31, 4);
  EQUAL(read_bytes(images + 7, 67 + TRAILER_BYTES), image + std::string(TRAILER_BYTES, 0));
}

TEST(write_blocks, with_compression_payloads_are_gathered) {
  LayoutArgs args{};
  args.num_blocks = 2;
  args.blocks = memory<OutBlock>({out_block(0, 3, 0, 0, CODEC_LZ4), out_block(8, 6, 0, 0)});
  args.raw_offsets = memory<u64>({0, 10, 21});
  args.raw = memory(std::string(ARENA_PADDING, '.') + "raw block1" + "raw 22" + std::string(ARENA_PADDING, '.'));
  args.packed = memory(std::string(ARENA_PADDING, '.') + "lz4.......zstd.." + std::string(ARENA_PADDING, '.'));
  u8* images = room<u8>(8 + 6 + TRAILER_BYTES);
  RUN(write_blocks, &args, images);
  EQUAL(read_bytes(images, 19), "lz4\0\0\0\0\0raw 22\0\0\0\0\0"s);
}

// The sums are those of check_blocks.
TEST(seal_blocks, trailers_have_codec_and_checksum) {
  std::string payload;
  for (u32 i = 0; i < 1500; ++i) payload += char(i * 7);
  OutBlock first = out_block(0, 1500, 0, 0, CODEC_SNAPPY), second = out_block(1505, 1500, 0, 0, CODEC_SNAPPY);
  second.file = 1;
  second.file_offset = u64{5} << 32 | 0x89;
  u8* images = memory(payload + "....." + payload + ".....");
  RUN(seal_blocks, memory<OutBlock>({first, second}), 2, memory<u32>({0, 0x1234567}), CHECKSUM_XXH3, images);
  EQUAL(read_bytes(images + 1500, TRAILER_BYTES), "\x01" + little(0x35b5539d, 4));
  EQUAL(read_bytes(images + 3005, TRAILER_BYTES), "\x01" + little(0x36d89986, 4));
}

namespace {

// Blocks of 10, 20 and 30 bytes, the first two in one file.
LayoutArgs index_args(const std::vector<Key>& keys) {
  LayoutArgs args = args_for(keys);
  args.index = {5, 2, SHORTEN_SEPARATORS, 0};
  args.num_blocks = 3;
  args.max_files = 2;
  args.num_files = memory<u32>({2});
  args.block_starts = memory<u32>({0, 2, 4, 5});
  args.block_offsets = memory<u64>({0, 15, 40, 75});
  args.file_starts = memory<u32>({0, 4, 5});
  args.file_blocks = memory<u32>({0, 2, 3});
  args.file_offsets = memory<u64>({0, 40, 75});
  args.index_sizes = room<u32>(4);
  args.index_sums = room<u64>(4);
  args.indexes = room<FileIndex>(2);
  return args;
}
const std::vector<Key> KEYS = {key("k", 9), key("kb", 9), key("kd", 3), key("kf", 9), key("km", 9)};
// The second block begins with the last key of the first.
const std::vector<Key> KEYS_ON = {key("k", 9), key("kb", 9), key("kb", 3), key("kf", 9), key("km", 9)};

}  // namespace

TEST(measure_index, files_know_the_sizes_of_their_parts) {
  const LayoutArgs args = index_args(KEYS);
  RUN(measure_index, &args);
  EQUAL(read(args.errors), NO_ERROR);
  EQUALS(args.index_sizes, 6, 4, 6);
  EQUALS(args.index_sums, 0, 6, 10, 16);
  const FileIndex first = read(args.indexes), second = read(args.indexes + 1);
  EQUAL(first.data_size, 40);
  EQUAL(first.raw_size, 30);
  EQUAL(first.size, 10 + 4 + 4);
  EQUAL(first.prefix_len, 0);
  EQUAL(first.internal_keys, 0);
  EQUAL(first.smallest_len, 1);
  EQUAL(first.largest_len, 2);
  // A hash of the fields above.
  EQUAL(first.check, 0x2d0adaffa98759b3);
  EQUAL(second.size, 6 + 4 + 4);
  EQUAL(second.check, 0xe6871ba86752715c);
}

TEST(measure_index, a_key_in_two_blocks_needs_its_sequence_number) {
  const LayoutArgs args = index_args(KEYS_ON);
  RUN(measure_index, &args);
  EQUALS(args.index_sizes, 14, 12, 6);
  EQUAL(read(args.indexes).internal_keys, 1);
  EQUAL(read(args.indexes + 1).internal_keys, 0);
}

TEST(measure_index, a_common_prefix_and_raw_sizes_count) {
  LayoutArgs args = index_args(KEYS);
  args.index.common_prefix = 1;
  args.raw_offsets = memory<u64>({0, 100, 250, 400});
  RUN(measure_index, &args);
  EQUALS(args.index_sizes, 5, 4, 4);
  EQUAL(read(args.indexes).prefix_len, 1);
  EQUAL(read(args.indexes).raw_size, 240);
  EQUAL(read(args.indexes).size, 1 + 9 + 4 + 4);
}

TEST(write_index, separators_and_places_of_blocks_become_entries) {
  LayoutArgs args = index_args(KEYS);
  args.indexes = memory<FileIndex>({{40, 30, 18, 0, 0, 1, 2, 0}, {35, 30, 14, 0, 0, 2, 2, 0}});
  args.index_sums = memory<u64>({0, 6, 10, 16});
  args.places = memory<FileOffsets>({{0, 3, 0}, {0, 30, 0}});
  u8* images = room<u8>(49);
  RUN(write_index, &args, images);
  // A separator, offset and size; a separator that shares a byte, and twice the difference of sizes; the restart.
  const std::string restart = little(0, 4) + little(1, 4) + std::string(TRAILER_BYTES, 0);
  EQUAL(read_bytes(images + 3, 23), "\x00\x02kc\x00\x0a"s + "\x01\x01" + "f\x14" + restart);
  EQUAL(read_bytes(images + 30, 19), "\x00\x02km\x00\x1e"s + restart);
}

TEST(write_index, separators_have_sequence_numbers_if_files_need_them) {
  LayoutArgs args = index_args(KEYS_ON);
  args.indexes = memory<FileIndex>({{40, 30, 34, 0, 1, 1, 2, 0}, {35, 30, 14, 0, 0, 2, 2, 0}});
  args.index_sums = memory<u64>({0, 14, 26, 32});
  args.places = memory<FileOffsets>({{0, 0, 0}, {0, 50, 0}});
  u8* images = room<u8>(69);
  RUN(write_index, &args, images);
  EQUAL(read_bytes(images, 26),
        "\x00\x0a"s + internal_key("kb", 9) + "\x00\x0a\x01\x09"s + internal_key("f", 9) + "\x14");
}

namespace {

// Words of the filter that are not 0, such as "21:80000000 ".
std::string filter_of(const FilterRules& rules, u32 lines, u32 probes) {
  LayoutArgs args = args_for({key("of another file", 9), key("k", 9), key("k1", 9), key("k2", 9)});
  args.filter = rules;
  const FilterArgs filter{1, 3, lines, probes, zeros<u32>(16 * lines)};
  RUN(build_filter, &args, &filter);
  EQUAL(read(args.errors), NO_ERROR);
  std::string shown;
  u32 at = 0;
  for (const u32 word : read(filter.lines, 16 * lines)) {
    char text[24];
    std::snprintf(text, sizeof text, "%u:%x ", at++, word);
    if (word != 0) shown += text;
  }
  return shown;
}

}  // namespace

// The bits were computed from the hashes of util/xxph3.h and util/hash.cc.
TEST(build_filter, each_key_sets_its_bits) {
  EQUAL(filter_of({FILTER_FAST_LOCAL, 1, PREFIX_NONE, 0, 0}, 2, 3),
        "21:80000000 26:20000080 27:1000 28:80 30:440 31:201000 ");
  EQUAL(filter_of({FILTER_LEGACY, 1, PREFIX_NONE, 0, 0}, 3, 2), "9:400 13:90000000 14:8 22:8000000 25:40000 ");
}

TEST(build_filter, prefixes_are_those_of_the_file) {
  EQUAL(filter_of({FILTER_FAST_LOCAL, 0, PREFIX_CAPPED, 0, 2}, 2, 3),
        "21:80000000 26:20000080 27:1000 28:80 30:440 31:201000 ");
  EQUAL(filter_of({FILTER_FAST_LOCAL, 0, PREFIX_CAPPED, 0, 1}, 2, 3), "26:20000000 27:1000 28:80 ");
}
