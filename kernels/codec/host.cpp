// The codecs on the host. crates/codec/src/ffi.rs mirrors these functions.

#include <memory>

#include "lz4.hpp"
#include "snappy.hpp"
#include "zstd.hpp"
#include "zstd_encode.hpp"

using namespace rockmill::host_target;

extern "C" {

u32 rockmill_lz4_encode(const u8* src, u32 n, u8* dst, u32 capacity) {
  MatchTable table;
  return lz4_encode(SingleThread{}, src, n, dst, capacity, table);
}

u32 rockmill_snappy_encode(const u8* src, u32 n, u8* dst, u32 capacity) {
  MatchTable table;
  return snappy_encode(SingleThread{}, src, n, dst, capacity, table);
}

u32 rockmill_zstd_encode(const u8* src, u32 n, u8* dst, u32 capacity) {
  ZstdEncodeTables tables;
  const std::unique_ptr<u64[]> scratch(new u64[zstd_scratch_bytes(n) / sizeof(u64)]);
  return zstd_encode(SingleThread{}, src, n, dst, capacity, tables, reinterpret_cast<u8*>(scratch.get()));
}

u32 rockmill_lz4_decode(const u8* src, u32 n, u8* dst, u32 m) { return lz4_decode(SingleThread{}, src, n, dst, m); }

u32 rockmill_snappy_decode(const u8* src, u32 n, u8* dst, u32 m) { return snappy_decode(SingleThread{}, src, n, dst, m); }

u32 rockmill_zstd_decode(const u8* src, u32 n, u8* dst, u32 m) {
  ZstdTables tables;
  return zstd_decode(SingleThread{}, src, n, dst, m, tables);
}

}  // extern "C"
