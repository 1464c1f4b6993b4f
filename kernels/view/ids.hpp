// Keys of integers: a prefix, and the bytes of the integer.
#pragma once

#include "../common/bytes.hpp"

namespace rockmill::ROCKMILL_TARGET {

// Room for the longest of these keys, in whole words.
constexpr u32 ID_KEY_ROOM = 64;
static_assert(MAX_ID_PREFIX + sizeof(u64) <= ID_KEY_ROOM, "the longest key has room");

// Writes the key of the integer at `id`, and returns its bytes: 0 if the form does not have this integer, such as a
// negative one for keys without a sign.
ROCKMILL_HD u32 key_of_id(const IdForm& form, const u8* id, u64 (&words)[ID_KEY_ROOM / sizeof(u64)]) {
  u64 value = 0;
  switch (form.id_bytes) {
    case 1: value = id[0]; break;
    case 2: value = u64(id[0]) | u64(id[1]) << 8; break;
    case 4: value = load32(id); break;
    default: value = load64(id);
  }
  const u32 id_bits = 8 * u32(form.id_bytes);
  const bool is_negative = form.is_id_signed != 0 && (value >> (id_bits - 1) & 1) != 0;
  if (is_negative && form.is_key_signed == 0) return 0;
  if (is_negative && id_bits < 64) value |= ~u64{0} << id_bits;
  // Bits of a number that the key has, without its sign.
  const u32 bits = 8 * u32(form.key_bytes) - u32(form.is_key_signed != 0);
  if (bits < 64 && (is_negative ? ~value : value) >> bits != 0) return 0;
  if (form.is_big_endian != 0) value = byte_swap(value) >> (64 - 8 * u32(form.key_bytes));
  if (form.prefix_bytes == 0) {
    words[0] = value;
    return form.key_bytes;
  }
  u8* key = reinterpret_cast<u8*>(words);
  for (u32 i = 0; i < form.prefix_bytes; ++i) key[i] = form.prefix[i];
  for (u32 i = 0; i < form.key_bytes; ++i) key[form.prefix_bytes + i] = u8(value >> 8 * i);
  return u32(form.prefix_bytes) + form.key_bytes;
}

}  // namespace rockmill::ROCKMILL_TARGET
