// Integers of 128 bits for the instructions of a scan (crates/core/src/scan/cell.rs has the same on the host).
#pragma once

#include "../common/bytes.hpp"

namespace rockmill::ROCKMILL_TARGET {

__extension__ typedef __int128 i128;
__extension__ typedef unsigned __int128 u128;

ROCKMILL_HD i128 sign_extend(u128 integer, u32 bytes) {
  const u32 above = 128 - 8 * bytes;
  return i128(integer << above) >> above;
}

// Inverts the lower bits of a negative integer of `bytes` bytes: converts the bits of a float into an integer, and
// back.
ROCKMILL_HD i128 exchange_float(i128 integer, u32 bytes) {
  return integer < 0 ? integer ^ i128(~u128{0} >> (129 - 8 * bytes)) : integer;
}

// One to sixteen bytes as they are.
ROCKMILL_HD u128 load_raw(const u8* at, u32 bytes, bool is_big_endian) {
  const u32 head = bytes < 8 ? bytes : 8, tail = bytes - head;
  const u64 first = load_bytes(at, head);
  if (!is_big_endian) return first | (tail ? u128(load_bytes(at + head, tail)) << 64 : 0);
  const u64 upper = byte_swap(first) >> (64 - 8 * head);
  if (tail == 0) return upper;
  return u128(upper) << 8 * tail | byte_swap(load_bytes(at + head, tail)) >> (64 - 8 * tail);
}

ROCKMILL_HD i128 load_number(const u8* at, u32 bytes, bool is_big_endian, u32 format) {
  const u128 raw = load_raw(at, bytes, is_big_endian);
  switch (format) {
    case NUMBER_UNSIGNED: return i128(raw);
    case NUMBER_SIGNED: return sign_extend(raw, bytes);
    case NUMBER_SIGNED_INVERTED: return sign_extend(raw ^ u128{1} << (8 * bytes - 1), bytes);
    default: return exchange_float(sign_extend(raw, bytes), bytes);
  }
}

ROCKMILL_HD i128 wrap(u128 integer, u32 range, u32 bytes) {
  switch (range) {
    case RANGE_SIGNED: return sign_extend(integer, bytes);
    case RANGE_UNSIGNED: return i128(integer & ~u128{0} >> (128 - 8 * bytes));
    default: return i128(integer);
  }
}

// The lowest 128 bits of a product; `is_over` if it has more.
ROCKMILL_HD u128 multiply(i128 a, i128 b, bool& is_over) {
  const bool is_negative = (a < 0) != (b < 0);
  const u128 x = a < 0 ? -u128(a) : u128(a), y = b < 0 ? -u128(b) : u128(b);
  const u64 x_high = u64(x >> 64), y_high = u64(y >> 64);
  const u128 cross = x_high != 0 ? u128(x_high) * u64(y) : u128(y_high) * u64(x);
  const u128 low = u128(u64(x)) * u64(y);
  const u128 product = low + (cross << 64);
  const u128 most = (u128{1} << 127) - !is_negative;
  is_over = (x_high != 0 && y_high != 0) || cross >> 64 != 0 || product < low || product > most;
  return u128(a) * u128(b);
}

}  // namespace rockmill::ROCKMILL_TARGET
