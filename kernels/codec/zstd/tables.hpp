// The scratch memory of ZSTD's decoder.
#pragma once

#include "fse.hpp"

namespace rockmill::ROCKMILL_TARGET {

constexpr u32 HUFFMAN_MAX_LOG = 11, HUFFMAN_SYMBOLS = 256, HUFFMAN_WEIGHT_LOG = 6;

enum ZstdField : u32 { ZSTD_LITERALS = 0, ZSTD_OFFSETS = 1, ZSTD_MATCHES = 2, ZSTD_FIELDS = 3 };
constexpr u32 ZSTD_OFFSET_LOG = 8;

// Sequences that are decoded before they are executed.
struct ZstdBatch {
  static constexpr u32 SIZE = 32;
  // Where sequence i begins in the output, and which of the block's literals is its first; and the ends of the last.
  u32 output[SIZE + 1], literal[SIZE + 1];
  u32 offset[SIZE];
};

// How a table of sequences was given last.
struct ZstdDescription {
  // As the frame says it; ZSTD_REPEAT if there was none.
  u32 mode;
  // Position of the description in the frame.
  u32 at;
};

// Tables of one group, in shared memory on the device. They are small: a block's literals come before its sequences,
// and a table that a later block uses again is built again from its description.
struct ZstdTables {
  union {
    struct {
      // Symbol, and above it how many bits it takes, by the next bits of a stream. Before it is built, the FSE table of
      // the weights.
      alignas(8) u16 huffman[u32{1} << HUFFMAN_MAX_LOG];
      union {
        FseCounts weight_counts;
        struct {
          u8 weights[HUFFMAN_SYMBOLS];
          // First cell of each weight.
          u16 cells[HUFFMAN_MAX_LOG + 1];
        };
      };
    };
    struct {
      // One behind the other, by ZstdField.
      u16 states[ZSTD_FIELDS][u32{1} << FSE_MAX_LOG];
      union {
        FseCounts counts;
        ZstdBatch batch;
      };
    };
  };
  // All lanes read these in one load of 16 bytes. `fields` lies apart, because the first lane writes to it meanwhile.
  u32 logs[ZSTD_FIELDS];
  u32 huffman_at;
  ZstdDescription fields[ZSTD_FIELDS];
};

}  // namespace rockmill::ROCKMILL_TARGET
