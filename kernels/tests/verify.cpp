// Reads finished files back: decode_images, verify_file.

#include "../common/content.hpp"
#include "data.hpp"

namespace {

// Two blocks of one file. With a hash index, k1 and k2 have the last of three buckets.
std::string first_block(const std::string& buckets = "") {
  const std::string entries = entry(0, internal_key("k1", 9), "one") + entry(1, internal_key("2", 8), "two");
  const std::string index = buckets.empty() ? "" : buckets + little(buckets.size(), 2);
  return entries + little(0, 4) + index + little(1 | u64(!buckets.empty()) << 31, 4);
}
const std::string SECOND_BLOCK = entry(0, internal_key("k4", 7), "four") + little(0, 4) + little(1, 4);

// Arguments for an image of some payloads.
VerifyArgs args_for(const std::vector<std::string>& payloads, u32 first_count = 2) {
  Arena image;
  std::vector<OutBlock> blocks;
  for (const std::string& payload : payloads) {
    const u32 first = blocks.empty() ? 0 : first_count, count = blocks.empty() ? first_count : 1;
    const u64 at = image.add(payload + "trail").at;
    blocks.push_back(
        {at, at - ARENA_PADDING, u32(payload.size()), u32(payload.size()), CODEC_NONE, 0, first, count, 0});
  }
  VerifyArgs args{};
  args.blocks = memory(blocks);
  args.num_blocks = payloads.size();
  args.num_entries = first_count + 1;
  args.num_files = 1;
  args.file_starts = memory<u32>({0, 3});
  args.file_blocks = memory<u32>({0, 2});
  args.indexes = zeros<FileIndex>(1);
  args.layout = {4096, 2, 1, 0, CHECKSUM_XXH3, -1};
  args.index = {5, 2, SHORTEN_SEPARATORS, 0};
  args.bases = memory<u32>({77});
  args.refs = room<BlockRef>(2);
  args.found = zeros<FoundFile>(1);
  args.images = image.upload();
  DecodeArgs& decode = args.decode;
  decode.arena = args.images;
  decode.blocks = args.refs;
  decode.num_blocks = args.num_blocks;
  decode.counts = room<u32>(3);
  decode.starts = room<u32>(3);
  decode.key_sums = room<u64>(3);
  decode.key_starts = room<u64>(3);
  decode.longest = zeros<u64>(1);
  decode.keys = zeros<Key>(4);
  decode.values = zeros<ValueRef>(4);
  decode.hashes = room<u64>(4);
  decode.errors = no_error();
  decode.types = 1 << TYPE_VALUE;
  return args;
}

u64 errors_of(const VerifyArgs& args) {
  RUN(decode_images, &args);
  return read(args.decode.errors);
}

}  // namespace

// The hashes are those of rockmill_core, computed from its formulas: the separators are k3 and k4.
TEST(decode_images, entries_separators_and_edges_are_found) {
  VerifyArgs args = args_for({first_block(), SECOND_BLOCK});
  EQUAL(errors_of(args), NO_ERROR);
  EQUAL(show_keys(args.decode.keys, 3), "k1@9.1#0 k2@8.1#1 k4@7.1#2");
  EQUALS(args.decode.hashes, 0x8f5642eb21f42581, 0x2e712e28ffeb445f, 0x02536e183ba8192b);
  const BlockRef second = read(args.refs + 1);
  EQUAL(second.at, ARENA_PADDING + 39 + 5);
  EQUAL(second.checksum, CHECKSUM_XXH3);
  EQUAL(second.checksum_base, 77);
  const FoundFile found = read(args.found);
  EQUAL(found.index_hash, 0x0d7a0e0ac99cf2cc);
  EQUAL(found.tags_hash, 0);
  EQUAL(found.edges_hash, 0xe457ae9b061731a4);
  // An index that has sequence numbers.
  FileIndex index{};
  index.internal_keys = 1;
  args.indexes = memory<FileIndex>({index});
  EQUAL(errors_of(args), NO_ERROR);
  EQUAL(read(args.found).tags_hash, 0x348c46c652515b27);
}

TEST(decode_images, compressed_blocks_are_decompressed_first) {
  VerifyArgs args = args_for({first_block(), SECOND_BLOCK});
  // Literals alone, as LZ4: the size, the number of literals, 39 = 15 + 24.
  const std::string packed = "\x27\xf0\x18" + first_block();
  std::vector<OutBlock> blocks = read(args.blocks, 2);
  Arena image;
  blocks[0].at = image.add(packed + "trail").at;
  blocks[0].size = u32(packed.size());
  blocks[0].codec = CODEC_LZ4;
  blocks[1].at = image.add(SECOND_BLOCK + "trail").at;
  args.blocks = memory(blocks);
  args.images = image.upload();
  args.raw_offsets = memory<u64>({0, 48, 80});
  args.packed = room<u8>(80 + 2 * ARENA_PADDING);
  args.decode.arena = args.packed;
  EQUAL(errors_of(args), NO_ERROR);
  EQUAL(show_keys(args.decode.keys, 3), "k1@9.1#0 k2@8.1#1 k4@7.1#2");
}

TEST(decode_images, hash_indexes_must_lead_to_all_keys) {
  const auto errors = [](const std::string& buckets, u32 num_buckets) {
    VerifyArgs args = args_for({first_block(buckets), SECOND_BLOCK});
    args.hash_buckets = memory<u32>({num_buckets, 0});
    return errors_of(args);
  };
  EQUAL(errors("\xff\xff\x00"s, 3), NO_ERROR);
  EQUAL(errors("\xff\xff\xfe", 3), NO_ERROR);
  EQUAL(errors("\xff\xff\x01", 3), error_of(0, ERROR_LAYOUT));
  EQUAL(errors("\xff\xff\x00"s, 5), error_of(0, ERROR_LAYOUT));
}

TEST(decode_images, other_counts_orders_and_flags_are_reported) {
  EQUAL(errors_of(args_for({first_block(), SECOND_BLOCK}, 3)), error_of(0, ERROR_ENTRY));
  EQUAL(errors_of(args_for({first_block("\xff\xff\x00"s), SECOND_BLOCK})), error_of(0, ERROR_LAYOUT));
  const std::string below = entry(0, internal_key("k2", 7), "four") + little(0, 4) + little(1, 4);
  EQUAL(errors_of(args_for({first_block(), below})), error_of(0, ERROR_LAYOUT));
}

namespace {

// Keys of a file behind another one's, and their bits in a filter of two lines with three probes (encode.cpp).
VerifyArgs file_args(const std::vector<Key>& keys) {
  VerifyArgs args{};
  args.filter = {FILTER_FAST_LOCAL, 1, PREFIX_NONE, 0, 0};
  args.decode.keys = memory(keys);
  args.decode.values = memory<ValueRef>({{0, 99}, {0, 10}, {0, 11}, {0, 12}});
  args.decode.hashes = memory<u64>({100, 101, 102, 103});
  args.decode.errors = no_error();
  return args;
}
std::vector<u32> lines_of_keys() {
  std::vector<u32> lines(32);
  lines[21] = 0x80000000, lines[26] = 0x20000080, lines[27] = 0x1000, lines[28] = 0x80, lines[30] = 0x440,
  lines[31] = 0x201000;
  return lines;
}
const std::vector<Key> KEYS = {key("other", 9), key("k", 9), key("k1", 7), key("k2", 8, TYPE_DELETION)};

}  // namespace

TEST(verify_file, entries_of_a_sound_file_are_added_up) {
  const VerifyArgs args = file_args(KEYS);
  FileTotals* totals = memory<FileTotals>({{0, 0, 0, 0, 0, 0, MAX_SEQUENCE, 0, 0}});
  RUN(verify_file, &args, 1, 3, reinterpret_cast<const u8*>(memory(lines_of_keys())), 2, 3, totals);
  EQUAL(read(args.decode.errors), NO_ERROR);
  const FileTotals found = read(totals);
  const u64 hashes[] = {entry_hash(101, 9 << 8 | 1), entry_hash(102, 7 << 8 | 1), entry_hash(103, 8 << 8)};
  EQUAL(found.content_hash, placed_hash(hashes[0], 0) + placed_hash(hashes[1], 1) + placed_hash(hashes[2], 2));
  EQUAL(found.deletions, 1);
  EQUAL(found.key_bytes, 5 + 24);
  EQUAL(found.value_bytes, 10 + 11 + 12);
  EQUAL(found.smallest_seqno, 7);
  EQUAL(found.largest_seqno, 9);
}

TEST(verify_file, keys_without_their_bits_or_order_are_reported) {
  const auto errors = [](const std::vector<Key>& keys, const std::vector<u32>& lines, u32 num_lines) {
    const VerifyArgs args = file_args(keys);
    RUN(verify_file, &args, 1, 3, reinterpret_cast<const u8*>(memory(lines)), num_lines, 3, zeros<FileTotals>(1));
    return read(args.decode.errors);
  };
  std::vector<u32> lines = lines_of_keys();
  // A bit of k2.
  lines[21] = 0;
  EQUAL(errors(KEYS, lines, 2), error_of(3, ERROR_LAYOUT));
  // Without a filter.
  EQUAL(errors(KEYS, lines, 0), NO_ERROR);
  EQUAL(errors({KEYS[0], KEYS[1], KEYS[3], KEYS[2]}, lines_of_keys(), 2), error_of(3, ERROR_ORDER));
}
