// Keys, values and blocks for the tests.
#pragma once

#include "test.hpp"

// A number of up to 8 bytes in little-endian order.
inline std::string little(u64 number, u32 bytes) {
  std::string out;
  for (u32 i = 0; i < bytes; ++i) out += char(number >> 8 * i);
  return out;
}
inline std::string from_hex(const std::string& digits) {
  std::string out;
  for (u64 i = 0; i < digits.size(); i += 2) out += char(std::stoul(digits.substr(i, 2), nullptr, 16));
  return out;
}
inline std::string internal_key(const std::string& user, u64 sequence, u64 type = TYPE_VALUE) {
  return user + little(sequence << 8 | type, TAG_BYTES);
}
inline std::string varint(u64 number) {
  return number < 0x80 ? little(number, 1) : little(number | 0x80, 1) + varint(number >> 7);
}
// An entry as a data block has it: bytes that its key shares with the previous one, the others, its value.
inline std::string entry(u32 shared, const std::string& others, const std::string& value) {
  return varint(shared) + varint(others.size()) + varint(value.size()) + others + value;
}

inline u64 word_at(const std::string& bytes, u32 from) {
  u64 word = 0;
  for (u32 i = from; i < from + 8; ++i) word = word << 8 | (i < bytes.size() ? u8(bytes[i]) : 0);
  return word;
}
inline Key key(const std::string& user, u64 sequence, u64 type = TYPE_VALUE, u32 entry = 0) {
  return {word_at(user, 0), word_at(user, 8), sequence << 8 | type, entry, u32(user.size())};
}
inline UserKey user_key(const std::string& user) {
  return {word_at(user, 0), word_at(user, 8), nullptr, u32(user.size()), 1};
}
// Such as "a@9.1#0 b@8.1#1": the first 16 bytes of each user key, sequence number, type, entry.
inline std::string show_keys(const Key* from, u64 n) {
  std::string shown;
  for (const Key& key : read(from, n)) {
    const std::string words = little(__builtin_bswap64(key.hi), 8) + little(__builtin_bswap64(key.lo), 8);
    shown += (shown.empty() ? "" : " ") + words.substr(0, key.len) + "@" + std::to_string(key.tag >> 8) + "." +
             std::to_string(key.tag & 0xff) + "#" + std::to_string(key.entry);
  }
  return shown;
}

// Bytes of blocks and values, with padding around them.
struct Arena {
  std::string bytes = std::string(ARENA_PADDING, '\xee');

  ValueRef add(const std::string& more) {
    const ValueRef place{bytes.size(), more.size()};
    bytes += more;
    return place;
  }
  u8* upload() const { return memory(bytes + std::string(ARENA_PADDING, '\xee')); }
};

inline u64* no_error() { return memory<u64>({NO_ERROR}); }
inline u64 error_of(u64 at, ErrorCode code) { return at << 8 | code; }

// Room for the part of args.n keys that a stage selects.
template <class Args>
void give_room(Args& args) {
  args.keep = room<u32>(args.n);
  args.places = room<u32>(args.n);
  args.selected_rows = room<Key>(args.n);
  args.totals = zeros<RetainTotals>(1);
  args.errors = no_error();
}
