// Decompresses blocks of each codec: measure_raw, decompress.

#include "data.hpp"

namespace {

const std::string TEXT =
    "the quick brown fox jumps over the lazy dog and the quick brown cat naps on the mat; "
    "the quick brown fox jumps over the mat and the lazy cat, and the lazy dog naps on the fox";

// A frame of TEXT by libzstd 1.5.4 at level 3, with Huffman codes, sequences and a checksum.
const std::string ZSTD_TEXT = from_hex(
    "28b52ffd24aef5020042440f1690c539e0dbcdf25b916dffb7979648ee42363a6327722f55709f9b09374363ef83d02512151030d2b4de96"
    "98ec923067f4a52a36d9861ea7704ad37a0b005e30d8c1023592481460c262309c00a426fd942b5550533138b5b30c4606821c");

// Stored blocks and their contents. A size precedes the payload, except that Snappy has it inside.
struct Sample {
  Codec codec;
  std::string payload, content;
};
const std::vector<Sample> STORED = {
    {CODEC_NONE, "plain", "plain"},
    // Three literals; a copy of 8 bytes from 3 bytes back.
    {CODEC_SNAPPY, "\x0b\x08" "abc" "\x11\x03", "abcabcabcab"},
    // Three literals, a match of 9 bytes from 3 bytes back; five literals.
    {CODEC_LZ4, "\x11\x35" "abc" "\x03\x00" "\x50" "wxyz!"s, "abcabcabcabcwxyz!"},
    {CODEC_ZSTD, "\xae\x01" + ZSTD_TEXT, TEXT},
};

struct Blocks {
  std::vector<BlockRef> blocks;
  DecompressArgs args{};

  // With codecs and sizes only if they were measured.
  Blocks(const std::vector<Sample>& stored, bool is_measured) {
    Arena arena;
    std::vector<u64> offsets = {0};
    for (const Sample& block : stored) {
      const u64 at = arena.add(block.payload + char(block.codec) + "sums").at;
      blocks.push_back({at, 0, u32(block.payload.size()), is_measured ? u32(block.content.size()) : 0,
                        is_measured ? block.codec : CODEC_IN_TRAILER, 0, CHECKSUM_NONE, 1, STORED_SEQUENCE});
      offsets.push_back(offsets.back() + (block.content.size() + 15) / 16 * 16);
    }
    args.from = arena.upload();
    args.blocks = memory(blocks);
    args.num_blocks = blocks.size();
    args.sizes = room<u64>(blocks.size() + 1);
    args.offsets = is_measured ? memory(offsets) : room<u64>(blocks.size() + 1);
    args.to = room<u8>(offsets.back() + 2 * ARENA_PADDING);
    args.errors = no_error();
  }
};

}  // namespace

TEST(measure_raw, trailers_and_headers_tell_codecs_and_sizes) {
  const DecompressArgs args = Blocks(STORED, false).args;
  RUN(measure_raw, &args);
  EQUAL(read(args.errors), NO_ERROR);
  EQUALS(args.sizes, 16, 16, 32, 176);
  EQUALS(args.offsets, 0, 16, 32, 64, 240);
  for (u64 i = 0; i < STORED.size(); ++i) {
    const BlockRef block = read(args.blocks + i);
    EQUAL(block.codec, STORED[i].codec);
    EQUAL(block.raw_size, STORED[i].content.size());
  }
}

TEST(measure_raw, impossible_sizes_and_other_codecs_are_reported) {
  // No payload of 6 bytes can become 300 bytes of Snappy; one of 10 bytes can.
  const auto snappy = [](u64 bytes) { return Sample{CODEC_SNAPPY, "\xac\x02" + std::string(bytes, 'x'), ""}; };
  const DecompressArgs large = Blocks({snappy(10), snappy(6)}, false).args;
  RUN(measure_raw, &large);
  EQUAL(read(large.errors), error_of(1, ERROR_COMPRESSED));
  EQUALS(large.sizes, 304, 0);
  const DecompressArgs zlib = Blocks({{Codec(2), "zlib", ""}}, false).args;
  RUN(measure_raw, &zlib);
  EQUAL(read(zlib.errors), error_of(0, ERROR_COMPRESSED));
}

TEST(decompress, blocks_of_all_codecs_become_their_contents) {
  const DecompressArgs args = Blocks(STORED, true).args;
  RUN(decompress, &args);
  EQUAL(read(args.errors), NO_ERROR);
  const std::vector<u64> offsets = read(args.offsets, STORED.size() + 1);
  for (u64 i = 0; i < STORED.size(); ++i) {
    EQUAL(read(args.blocks + i).at, ARENA_PADDING + offsets[i]);
    // Zeros behind the content.
    std::string content = STORED[i].content;
    content.resize(offsets[i + 1] - offsets[i]);
    EQUAL(read_bytes(args.to + ARENA_PADDING + offsets[i], content.size()), content);
  }
}

TEST(decompress, a_damaged_block_is_reported_and_empty) {
  std::vector<Sample> stored = STORED;
  // Offset 0.
  stored[2].payload[5] = 0;
  // A byte of the checksum.
  stored[3].payload.back() ^= 1;
  const DecompressArgs args = Blocks(stored, true).args;
  RUN(decompress, &args);
  EQUAL(read(args.errors), error_of(2, ERROR_COMPRESSED));
  EQUAL(read(args.blocks + 1).raw_size, 11);
  EQUAL(read(args.blocks + 2).raw_size, 0);
  EQUAL(read(args.blocks + 3).raw_size, 0);
}
