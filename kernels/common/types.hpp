// Words, and the records that the host and the kernels share. crates/cuda/src/ffi.rs mirrors the
// records; the table of functions hands their sizes over to be compared.
#pragma once

#include <cstdint>
#include <cstring>

// The same code is compiled for a GPU and for the host, and both may be linked into one program, so each
// has its own namespace.
#if defined(__CUDACC__)
#define ROCKMILL_TARGET cuda_target
#define ROCKMILL_HD __host__ __device__ __forceinline__
#define ROCKMILL_UNROLL _Pragma("unroll")
#else
#define ROCKMILL_TARGET host_target
#define ROCKMILL_HD inline
#define ROCKMILL_UNROLL
#endif

namespace rockmill::ROCKMILL_TARGET {

using u8 = std::uint8_t;
using u32 = std::uint32_t;
using u64 = std::uint64_t;

// Bytes that may be read in front of and behind any block or value without looking at its bounds.
constexpr u64 ARENA_PADDING = 64;
constexpr u32 TAG_BYTES = 8;
constexpr u32 TRAILER_BYTES = 5;

// An uncompressed block in an arena: `size` bytes of payload at `at`, and a trailer.
struct BlockRef {
  u64 at;
  u64 file_offset;
  u32 size;
  u32 checksum_base;
};

// An internal key: the user key, of 4 to 16 bytes, as two big-endian words, zero padded; the tag; where its
// value is found. All user keys of a slice have one length.
struct Key {
  u64 hi;
  u64 lo;
  u64 tag;
  // Position of the entry in the order in which it was decoded.
  u32 entry;
  u32 unused;
};

// Where a value lies in the arena.
struct ValueRef {
  u64 at;
  u64 len;
};

// A finished data block of an output file.
struct OutBlock {
  // In the image buffer.
  u64 at;
  u64 file_offset;
  u32 size;
  u32 file;
  u32 first;
  u32 count;
  Key first_key;
  Key last_key;
};

// A user key as a bound; `len` is its length before padding.
struct Bound {
  u64 hi;
  u64 lo;
  u32 len;
  u32 present;
};

// A range of user keys, both ends inclusive, of the files beneath the output level.
struct KeySpan {
  u64 first_hi, first_lo;
  u64 last_hi, last_lo;
};

// What decides which entries survive.
struct RetainRules {
  const u64* snapshots;
  u64 num_snapshots;
  u64 earliest;
  // Files beneath, level by level, ascending in each; level i ends at level_ends[i].
  const KeySpan* beneath;
  const u32* level_ends;
  u32 num_levels;
  u32 bottommost;
  // Whether anything may lie beneath.
  u32 beneath_unknown;
  u32 unused;
};

// Sums over the entries of a slice as they were decoded.
struct InputTotals {
  u64 hash;
  u64 tombstones, value_bytes;
};

// Sums over the entries of a slice once they are merged.
struct RetainTotals {
  u64 hash_kept, hash_dropped;
  u64 replaced, tombstones_dropped, kept;
  // Sum of the kept entries' kv_hash, for comparison with what goes into files.
  u64 kv_kept;
};

// Sums over the entries of one output file.
struct FileTotals {
  u64 content_hash;
  // Sum of kv_hash.
  u64 kv_hash;
  u64 deletions, value_bytes;
  u64 smallest_seqno, largest_seqno;
  u64 filter_entries;
};

// How entries become data blocks.
struct Layout {
  u64 block_size;
  // A file ends before the first new user key at which its encoded entries reach so many bytes.
  u64 file_size;
  u32 restart_interval;
  u32 key_bytes;
  u32 delta_keys;
  u32 unused;
};

// The smallest (block << 8 | code) of all errors; NO_ERROR if there was none.
constexpr u64 NO_ERROR = ~u64{0};
enum ErrorCode : u32 {
  ERROR_CHECKSUM = 1,
  ERROR_COMPRESSED = 2,
  ERROR_FRAME = 3,
  ERROR_ENTRY = 4,
  ERROR_KEY_LENGTH = 5,
  ERROR_VALUE_TYPE = 6,
  ERROR_ORDER = 7,
  ERROR_LAYOUT = 8,
  ERROR_TOO_MANY_FILES = 9,
};

constexpr u64 TYPE_DELETION = 0;
constexpr u64 TYPE_VALUE = 1;
constexpr u64 MAX_SEQUENCE = (u64{1} << 56) - 1;

}  // namespace rockmill::ROCKMILL_TARGET
