// The numbers of launches, which are measured on GPUs. They change how long a stage takes, and never its results.
#pragma once

#include "types.hpp"

namespace rockmill::ROCKMILL_TARGET {

// Threads of a block.
constexpr u32 THREADS = 256;
// Blocks of a grid for each multiprocessor: enough waves that no processor waits for the last ones. Beyond that, threads
// process several items each.
constexpr u32 BLOCKS_PER_PROCESSOR = 32;
// The same where all threads add up sums: as many as run at once, because each adds its sums to the same words at its end.
constexpr u32 SUMMING_BLOCKS_PER_PROCESSOR = 8;

// Warps of a block whose warps have shared memory. Such blocks are small, because room for less than a whole block is
// wasted.
constexpr u32 WARPS_WITH_SHARED = 2;
// Number of such blocks for which a multiprocessor has registers: half the warps that it can run.
constexpr u32 BLOCKS_WITH_SHARED = 16;

// Lanes that decompress an LZ4 or Snappy block together. Most sequences are shorter than a warp is wide.
constexpr u32 DECOMPRESS_LANES = 8;

// Lanes for a row of a view, and for a key: four read a bucket, 16 bytes each.
constexpr u32 VIEW_LANES = 4;
// Bytes of a row of answers from which on a key has twice the lanes: long values keep more lanes busy than a bucket does.
constexpr u64 LONG_ROW = 1024;

}  // namespace rockmill::ROCKMILL_TARGET
