// The program of a scan, run for one row by one thread (rockmill_core::scan::Instruction documents each step).
#pragma once

#include "../common/exec.hpp"
#include "../common/key.hpp"
#include "number.hpp"
#include "pattern.hpp"

namespace rockmill::ROCKMILL_TARGET {

// The code of each step. The table in crates/core/src/scan/instructions.rs names those of instructions.
enum ScanCode : u32 {
  SCAN_KEY,
  SCAN_VALUE,
  SCAN_LENGTH,
  SCAN_LOAD,
  SCAN_SLICE,
  SCAN_PREFIXED,
  SCAN_AFTER_PREFIXED,
  SCAN_BIT,
  SCAN_DECIMAL,
  SCAN_DATE,
  SCAN_STRING,
  SCAN_STRING_SIZE,
  SCAN_TRIM_END,
  SCAN_TEXT,
  SCAN_SELECT,
  SCAN_COMPARE,
  SCAN_AND,
  SCAN_OR,
  SCAN_NOT,
  SCAN_IS_NULL,
  SCAN_LIKE,
  SCAN_ONE_OF,
  SCAN_ADD,
  SCAN_SUBTRACT,
  SCAN_MULTIPLY,
  SCAN_REQUIRE,
  SCAN_CHECK,
};

ROCKMILL_HD u128 compute(u32 code, i128 a, i128 b, bool& is_over) {
  if (code == SCAN_MULTIPLY) return multiply(a, b, is_over);
  const u128 result = code == SCAN_ADD ? u128(a) + u128(b) : u128(a) - u128(b);
  // The result has the wrong sign.
  const u128 signs = code == SCAN_ADD ? (u128(a) ^ result) & (u128(b) ^ result) : (u128(a) ^ u128(b)) & (u128(a) ^ result);
  is_over = signs >> 127 != 0;
  return result;
}

// A result: an integer, a boolean, or bytes (their start, their number, and the memory that contains them). The bytes
// of a string in groups begin at a distance behind its first byte; `high` also has the bytes of a group and the start
// of the first.
struct ScanValue {
  u64 low, high;
  u32 is_set;
  // Bytes of a string in its groups.
  u32 stored;

  ROCKMILL_HD i128 integer() const { return i128(u128(high) << 64 | low); }
  ROCKMILL_HD bool is(bool value) const { return is_set && low == value; }
  // An integer of 64 bits with its sign.
  ROCKMILL_HD bool is_short() const { return high == u64(i64(low) >> 63); }
  // Neither negative nor above `most`.
  ROCKMILL_HD bool is_up_to(u64 most) const { return is_set && high == 0 && low <= most; }
  ROCKMILL_HD u32 len() const { return u32(low >> 32); }
  ROCKMILL_HD u32 source() const { return u8(high); }
  ROCKMILL_HD u32 group() const { return u8(high >> 8); }
  ROCKMILL_HD u32 groups_at() const { return u32(high >> 32); }
  // Some of its bytes.
  ROCKMILL_HD ScanValue part(u64 start, u64 len) const { return {len << 32 | (u32(low) + start), high, 1, stored}; }
};

ROCKMILL_HD ScanValue null_value() { return {0, 0, 0, 0}; }
ROCKMILL_HD ScanValue of_boolean(bool value) { return {value, 0, 1, 0}; }
ROCKMILL_HD ScanValue of_integer(i128 value) { return {u64(value), u64(u128(value) >> 64), 1, 0}; }
ROCKMILL_HD ScanValue of_bytes(u64 start, u64 len, u64 source) { return {len << 32 | start, source, 1, 0}; }

enum ScanOutcome : u32 { ROW_IS_SELECTED, ROW_IS_NOT_WANTED, ROW_IS_OUT_OF_RANGE, ROW_IS_MALFORMED };

// The results of a row's steps.
struct ScanSlots {
  static constexpr u32 SLOT_WORDS = 3;
  ThreadWords words;

  ROCKMILL_HD ScanValue get(u32 slot) const {
    const u32 at = SLOT_WORDS * slot;
    const u64 last = words[at + 2];
    return {words[at], words[at + 1], u32(last), u32(last >> 32)};
  }
  ROCKMILL_HD void set(u32 slot, const ScanValue& value) const {
    const u32 at = SLOT_WORDS * slot;
    words[at] = value.low;
    words[at + 1] = value.high;
    words[at + 2] = u64(value.stored) << 32 | value.is_set;
  }
};

struct ScanProgram {
  const u8* arena;
  const Key* rows;
  KeyBytes key_bytes;
  const ValueRef* values;
  const ScanOp* ops;
  const ScanConstant* constants;
  const u8* literals;
};

// The program, and the results of a row's steps so far.
struct ScanOperands {
  const ScanProgram& program;
  ScanSlots slots;

  ROCKMILL_HD ScanValue operand(u32 of) const {
    if ((of & SCAN_CONSTANT) == 0) return slots.get(of);
    const ScanConstant& constant = program.constants[of & ~SCAN_CONSTANT];
    return {constant.low, constant.high, constant.is_set, 0};
  }
};

// The bytes of a row, and the steps that take long.
struct ScanBytes : ScanOperands {
  ByteSpan key, value;
  // The bytes of a key that fits into its words.
  u64 short_key[WORD_KEY_BYTES / 8];

  ROCKMILL_HD ScanBytes(const ScanOperands& operands, const Key& record, const ValueRef& place) : ScanOperands(operands) {
    value = {place_in(program.arena, place.at), place.len};
    key = {reinterpret_cast<const u8*>(short_key), record.len};
    if (record.len > WORD_KEY_BYTES) {
      key.at = program.key_bytes.of(record);
    } else {
      short_key[0] = byte_swap(record.hi);
      short_key[1] = byte_swap(record.lo);
    }
  }
  ScanBytes(const ScanBytes&) = delete;

  ROCKMILL_HD ByteSpan bytes(const ScanValue& of) const {
    const u32 from = of.source();
    const u8* source = from == SOURCE_KEY ? key.at : from == SOURCE_VALUE ? value.at : program.literals;
    if (of.group() == 0) return {source + u32(of.low), of.len()};
    return {source + of.groups_at(), of.len(), of.group(), u32(of.low), of.stored};
  }

  // Order of two values of a kind.
  ROCKMILL_HD int compare(const ScanValue& a, const ScanValue& b, u32 kind) const {
    if (kind == KIND_BYTES) return compare_bytes(bytes(a), bytes(b));
    const i128 x = a.integer(), y = b.integer();
    return x < y ? -1 : x > y;
  }

  ROCKMILL_HD bool is_one_of(const ScanValue& of, const ScanOp& op) const {
    u32 from = op.b, to = op.b + op.c;
    while (from < to) {
      const u32 middle = from + (to - from) / 2;
      const int order = compare(operand(middle | SCAN_CONSTANT), of, op.detail);
      if (order == 0) return true;
      if (order < 0) from = middle + 1;
      else to = middle;
    }
    return false;
  }

  ROCKMILL_HD bool is_like(const ByteSpan& of, const ScanOp& op) const {
    const ScanConstant* constants = program.constants + op.b;
    const u8* literals = program.literals;
    const auto bytes_of = [literals](const ScanConstant& c) { return ByteSpan{literals + u32(c.low), c.low >> 32}; };
    if (op.detail == PATTERN_PARTS)
      return matches_parts(of, op.c, [constants](u32 i) -> const ScanConstant& { return constants[i]; }, bytes_of);
    const ByteSpan own = bytes_of(constants[0]);
    if (op.detail == PATTERN_PREFIX) return starts_with(of, own);
    if (op.detail == PATTERN_CONTAINS) return contains(of, own);
    return own.len <= of.len && starts_with(of.from(of.len - own.len), own);
  }

  // A length at an offset within bytes, and the number of bytes that it takes itself: 0 if there is none.
  static ROCKMILL_HD u64 prefix(const ByteSpan& of, u64 at, u32 detail, u32& size) {
    constexpr u32 MAX_BYTES = 10;
    const u8* from = of.at + at;
    const u64 left = of.len - at;
    const u32 bytes = detail & 0xff;
    size = 0;
    if (bytes != 0) {
      if (left < bytes) return 0;
      size = bytes;
      return u64(load_number(from, bytes, detail >> 8 & 0xff, NUMBER_UNSIGNED));
    }
    u64 length = 0;
    for (u32 i = 0; i < MAX_BYTES && i < left; ++i) {
      const u8 byte = from[i];
      // The last of 10 bytes has room for one bit.
      if (i == MAX_BYTES - 1 && byte > 1) return 0;
      length |= u64(byte & 0x7f) << (7 * i);
      if ((byte & 0x80) == 0) {
        size = i + 1;
        return length;
      }
    }
    return 0;
  }

  // The bytes behind the last of several lengths: each lies behind the bytes of the previous one.
  static ROCKMILL_HD ScanValue prefixed(const ByteSpan& of, const ScanValue& first, u32 count, u32 detail) {
    if (!first.is_up_to(of.len)) return null_value();
    u64 begin = first.low, len = 0;
    for (u32 i = 0; i < count; ++i) {
      u32 size;
      const u64 at = begin + len;
      len = prefix(of, at, detail, size);
      if (size == 0 || len > of.len - at - size) return null_value();
      begin = at + size;
    }
    return of_bytes(begin, len, 0);
  }

  // rockmill_core::scan::PackedDecimal.
  static ROCKMILL_HD ScanValue decimal(const ByteSpan& of, const ScanValue& at, u32 precision, u32 scale) {
    constexpr u32 GROUP_DIGITS = 9;
    if (!at.is_up_to(of.len)) return null_value();
    u64 place = at.low;
    const u8 first = u8(of.get(place)), mask = first & 0x80 ? 0 : 0xff;
    u128 number = 0;
    for (u32 part = 0; part < 2; ++part) {
      u32 left = part == 0 ? precision - scale : scale;
      while (left > 0) {
        u32 digits = left < GROUP_DIGITS ? left : GROUP_DIGITS;
        if (part == 0 && left % GROUP_DIGITS != 0) digits = left % GROUP_DIGITS;
        u32 group = 0, limit = 1;
        for (u32 i = 0; i < (digits + 1) / 2 - (digits == GROUP_DIGITS); ++i, ++place) {
          if (place >= of.len) return null_value();
          const u32 inverted = place == at.low ? 0x80 : 0;
          group = group << 8 | (of.at[place] ^ mask ^ inverted);
        }
        for (u32 i = 0; i < digits; ++i) limit *= 10;
        if (group >= limit) return null_value();
        number = number * limit + group;
        left -= digits;
      }
    }
    return of_integer(mask ? -i128(number) : i128(number));
  }

  // rockmill_core::scan::Calendar.
  static ROCKMILL_HD ScanValue date(i128 of, bool has_time) {
    constexpr i64 DAY_SECONDS = 24 * 60 * 60;
    if (of < 0 || of >> (has_time ? 40 : 24) != 0) return null_value();
    const u64 time = has_time ? u64(of) & 0x1ffff : 0, months = u64(of) >> 22;
    const u64 day_of = has_time ? u64(of) >> 17 : u64(of), day = day_of & 31;
    const u64 year = has_time ? months / 13 : day_of >> 9, month = has_time ? months % 13 : day_of >> 5 & 15;
    if (month < 1 || month > 12) return null_value();
    const bool is_leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    const u64 days = month == 2 ? 28 + is_leap : 30 + ((month + (month > 7)) & 1);
    const u64 hour = time >> 12, minute = time >> 6 & 63, second = time & 63;
    if (day < 1 || day > days || hour > 23 || minute > 59 || second > 59) return null_value();
    // Years begin in March, so that the leap day is the last day.
    const u64 shifted = year + 400 - (month < 3), of_march = (month + 9) % 12;
    const i64 count = i64(365 * shifted + shifted / 4 - shifted / 100 + shifted / 400 + (153 * of_march + 2) / 5 + day - 1);
    const i64 since_1970 = count - (719468 + 146097);
    return of_integer(has_time ? since_1970 * DAY_SECONDS + i64(hour * 3600 + minute * 60 + second) : since_1970);
  }

  // rockmill_core::scan::StringGroups: bytes of all groups; `padded` is 0, or the bytes of a padded group.
  static ROCKMILL_HD ScanValue string_size(const ByteSpan& of, const ScanValue& at, u32 padded) {
    if (!at.is_up_to(of.len)) return null_value();
    const u64 bytes = padded ? padded : 8;
    for (u64 end = at.low + bytes; end < of.len; end += bytes + 1) {
      const u8 marker = of.at[end];
      if (padded ? marker == 2 : marker <= 8) return of_integer(i128(end + 1 - at.low));
      if (padded ? marker != 1 && marker != 3 : marker != 9) return null_value();
    }
    return null_value();
  }

  // rockmill_core::scan::StringGroups: the string, with the number of spaces in `spaces`.
  ROCKMILL_HD ScanValue string(const ScanValue& from, const ScanValue& at, const ScanValue& spaces, u32 padded) const {
    constexpr i128 MAX_SPACES = 1 << 16, SPACES_OFFSET = 8;
    const ByteSpan of = bytes(from);
    const ScanValue size = string_size(of, at, padded);
    if (!size.is_set || !spaces.is_set || spaces.integer() >= MAX_SPACES) return null_value();
    const u64 group = padded ? padded : 8;
    u64 stored = size.low / (group + 1) * group;
    // The last marker of a string that is not padded is the number of its last group's bytes.
    if (!padded) stored -= group - of.at[at.low + size.low - 1];
    if (spaces.integer() < SPACES_OFFSET - i128(stored)) return null_value();
    const u64 len = u64(i128(stored) + spaces.integer() - SPACES_OFFSET);
    return {len << 32, (u32(from.low) + at.low) << 32 | group << 8 | from.source(), 1, u32(stored)};
  }

  // The result of a step; null if its first operand is.
  ROCKMILL_HD ScanValue step(const ScanOp& op, bool& is_over) const {
    const ScanValue a = operand(op.a);
    if (!a.is_set) return null_value();
    switch (op.code) {
      case SCAN_LOAD: {
        const ScanValue at = operand(op.b);
        const u32 bytes = op.detail & 0xff;
        if (!at.is_up_to(a.len()) || a.len() - at.low < bytes) return null_value();
        const u8* from = this->bytes(a).at + at.low;
        return of_integer(load_number(from, bytes, op.detail >> 8 & 0xff, op.detail >> 16));
      }
      case SCAN_PREFIXED: {
        const ScanValue found = prefixed(bytes(a), operand(op.b), 1, op.detail);
        return found.is_set ? a.part(u32(found.low), found.len()) : found;
      }
      case SCAN_AFTER_PREFIXED: {
        const ScanValue last = prefixed(bytes(a), operand(op.b), op.c, op.detail);
        return last.is_set ? of_integer(u64(u32(last.low)) + last.len()) : last;
      }
      case SCAN_BIT: {
        const ScanValue at = operand(op.b);
        if (!at.is_up_to(~u64{0}) || at.low / 8 >= a.len()) return null_value();
        return of_boolean(bytes(a).at[at.low / 8] >> (at.low % 8) & 1);
      }
      case SCAN_DECIMAL: return decimal(bytes(a), operand(op.b), op.detail >> 8, op.detail & 0xff);
      case SCAN_DATE: return date(a.integer(), op.detail != 0);
      case SCAN_STRING_SIZE: return string_size(bytes(a), operand(op.b), op.detail);
      case SCAN_STRING: return string(a, operand(op.b), operand(op.c), op.detail);
      case SCAN_TRIM_END: {
        const ByteSpan of = bytes(a);
        u64 len = of.len;
        while (len > 0 && of[len - 1] == ' ') --len;
        return a.part(0, len);
      }
      case SCAN_TEXT: return is_text(bytes(a)) ? a : null_value();
      case SCAN_COMPARE: {
        const ScanValue b = operand(op.b);
        if (!b.is_set) return null_value();
        // A bit for each of less, equal, greater.
        return of_boolean(op.detail & 1 << (compare(a, b, op.detail >> 8) + 1));
      }
      case SCAN_LIKE: return of_boolean(is_like(bytes(a), op));
      case SCAN_ONE_OF: return of_boolean(is_one_of(a, op));
      default: {
        const ScanValue b = operand(op.b);
        if (!b.is_set) return null_value();
        const u128 integer = compute(op.code, a.integer(), b.integer(), is_over);
        is_over &= op.detail >> 8 == RANGE_EXACT;
        return of_integer(wrap(integer, op.detail >> 8, op.detail & 0xff));
      }
    }
  }
};

struct LongStep {
  ScanValue value;
  bool is_over;
};

// A step that takes long. It is a function of its own, so that the others need few registers.
ROCKMILL_NO_INLINE LongStep long_step(const ScanProgram* program, ThreadWords words, Key record, ValueRef value, ScanOp op) {
  const ScanBytes bytes({*program, {words}}, record, value);
  LongStep result{{}, false};
  result.value = bytes.step(op, result.is_over);
  return result;
}

// A row, and the results of the steps so far.
struct ScanRow : ScanOperands {
  Key record;
  ValueRef value;
  // Whether a counted check fails.
  bool is_malformed = false;

  ROCKMILL_HD ScanRow(const ScanProgram& program, u64 i, const ThreadWords& words)
      : ScanOperands{program, {words}}, record(program.rows[i]), value(program.values[record.entry]) {}

  ROCKMILL_HD ScanBytes bytes() const { return {*this, record, value}; }

  // A number of up to eight bytes of the value or of a short key; false if it is another number.
  ROCKMILL_HD bool load(const ScanOp& op, ScanValue& result) const {
    const ScanValue a = operand(op.a), at = operand(op.b);
    const u32 bytes = op.detail & 0xff, format = op.detail >> 16, from = a.source();
    const bool is_near = from == SOURCE_VALUE || (from == SOURCE_KEY && record.len <= WORD_KEY_BYTES);
    if (bytes > 8 || format == NUMBER_FLOAT || a.group() != 0 || !is_near) return false;
    result = null_value();
    if (!a.is_set || !at.is_up_to(a.len()) || a.len() - at.low < bytes) return true;
    const u64 place = u32(a.low) + at.low;
    const u32 above = 64 - 8 * bytes;
    // Little-endian.
    u64 number;
    if (from == SOURCE_VALUE) number = load_bytes(place_in(program.arena, value.at) + place, bytes);
    else number = byte_swap(u64((u128(record.hi) << 64 | record.lo) << 8 * place >> 64)) & ~u64{0} >> above;
    if (op.detail >> 8 & 0xff) number = byte_swap(number) >> above;
    if (format == NUMBER_SIGNED_INVERTED) number ^= u64{1} << (8 * bytes - 1);
    result = {number, 0, 1, 0};
    if (format == NUMBER_UNSIGNED) return true;
    const i64 integer = i64(number << above) >> above;
    result = of_integer(integer);
    return true;
  }

  // The result of a step that does not decide over the row.
  ROCKMILL_HD ScanValue result(const ScanOp& op, bool& is_over) const {
    const auto join = [&](bool deciding) {
      const ScanValue a = operand(op.a), b = operand(op.b);
      if (a.is(deciding) || b.is(deciding)) return of_boolean(deciding);
      return a.is_set && b.is_set ? of_boolean(!deciding) : null_value();
    };
    switch (op.code) {
      case SCAN_KEY: return of_bytes(0, record.len, SOURCE_KEY);
      case SCAN_VALUE: return of_bytes(0, value.len, SOURCE_VALUE);
      case SCAN_AND: return join(false);
      case SCAN_OR: return join(true);
      case SCAN_IS_NULL: return of_boolean(!operand(op.a).is_set);
      case SCAN_SELECT: return operand(operand(op.a).is(true) ? op.b : op.c);
      case SCAN_NOT: {
        const ScanValue a = operand(op.a);
        return a.is_set ? of_boolean(!a.low) : null_value();
      }
      case SCAN_LENGTH: {
        const ScanValue a = operand(op.a);
        return a.is_set ? of_integer(a.len()) : null_value();
      }
      case SCAN_SLICE: {
        const ScanValue a = operand(op.a), at = operand(op.b), len = operand(op.c);
        if (!a.is_set || !at.is_up_to(a.len()) || !len.is_up_to(a.len() - at.low)) return null_value();
        return a.part(at.low, len.low);
      }
      case SCAN_LOAD: {
        ScanValue number;
        if (load(op, number)) return number;
        break;
      }
      case SCAN_COMPARE: {
        if (op.detail >> 8 == KIND_BYTES) break;
        const ScanValue a = operand(op.a), b = operand(op.b);
        if (!a.is_set || !b.is_set) return null_value();
        const i128 x = a.integer(), y = b.integer();
        return of_boolean(op.detail & (x < y ? 1 : x == y ? 2 : 4));
      }
      case SCAN_ADD:
      case SCAN_SUBTRACT:
      case SCAN_MULTIPLY: {
        const ScanValue a = operand(op.a), b = operand(op.b);
        if (!a.is_set || !b.is_set) return null_value();
        if (op.detail >> 8 != RANGE_EXACT || !a.is_short() || !b.is_short()) break;
        // The result has at most 127 bits.
        const i128 x = i64(a.low), y = i64(b.low);
        return of_integer(op.code == SCAN_ADD ? x + y : op.code == SCAN_SUBTRACT ? x - y : x * y);
      }
      default: break;
    }
    const LongStep step = long_step(&program, slots.words, record, value, op);
    is_over = step.is_over;
    return step.value;
  }

  ROCKMILL_HD ScanOutcome run(u32 first, u32 end) {
    for (u32 i = first; i < end; ++i) {
      const ScanOp op = program.ops[i];
      if (op.code == SCAN_REQUIRE) {
        if (!operand(op.a).is(true)) return ROW_IS_NOT_WANTED;
        continue;
      }
      if (op.code == SCAN_CHECK) {
        if (operand(op.a).is(true)) continue;
        if (!op.detail) return ROW_IS_MALFORMED;
        is_malformed = true;
        continue;
      }
      bool is_over = false;
      slots.set(op.to, result(op, is_over));
      if (is_over) return ROW_IS_OUT_OF_RANGE;
    }
    return ROW_IS_SELECTED;
  }
};

}  // namespace rockmill::ROCKMILL_TARGET
