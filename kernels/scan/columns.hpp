// From selected rows to columns in Arrow's layout.
#pragma once

#include "../common/bytes.hpp"
#include "../common/exec.hpp"
#include "../common/sums.hpp"
#include "program.hpp"

namespace rockmill::ROCKMILL_TARGET {

struct FilterRows {
  ScanProgram program;
  u32 num_ops;
  u32* keep;
  u64* malformed;
  u64* errors;

  ROCKMILL_HD void operator()(u64 i, const ThreadWords& words) const {
    ScanRow row(program, i, words);
    const ScanOutcome outcome = row.run(0, num_ops);
    keep[i] = outcome == ROW_IS_SELECTED;
    if (row.is_malformed) atomic_add(malformed, 1);
    if (outcome == ROW_IS_OUT_OF_RANGE) report(errors, i, ERROR_OUT_OF_RANGE);
    if (outcome == ROW_IS_MALFORMED) report(errors, i, ERROR_CHECK);
  }
};

struct GatherSelected {
  const u32* keep;
  const u32* places;
  u32* selected;

  ROCKMILL_HD void operator()(u64 i) const {
    if (keep[i]) selected[places[i]] = u32(i);
  }
};

// Bytes of a selected row in all columns.
struct MeasureSelected {
  ScanProgram program;
  u32 first_op, end_op;
  const u32* selected;
  const ScanColumn* columns;
  u32 num_columns;
  // Bytes of each row without those of byte columns; and whether there are byte columns.
  u32 row_bytes, has_bytes;
  u64* sizes;
  u64* errors;

  ROCKMILL_HD void operator()(u64 i, const ThreadWords& words) const {
    sizes[i] = row_bytes;
    if (!has_bytes) return;
    ScanRow row(program, selected[i], words);
    if (row.run(first_op, end_op) != ROW_IS_SELECTED) {
      report(errors, selected[i], ERROR_OUT_OF_RANGE);
      return;
    }
    for (u32 c = 0; c < num_columns; ++c) {
      if (columns[c].stored != STORED_BYTES) continue;
      const ScanValue value = row.operand(columns[c].operand);
      sizes[i] += value.is_set ? value.len() : 0;
    }
  }
};

// The ends of batches: behind their number in `cuts`, in order.
struct CutBatches {
  const u64* offsets;
  u64 n;
  u64 batch_rows, batch_bytes;
  u64* cuts;

  ROCKMILL_HD void operator()(u64) const {
    u64 batches = 0;
    for (u64 start = 0; start < n;) {
      u64 from = start + 1, to = n - start < batch_rows ? n : start + batch_rows;
      while (from < to) {
        const u64 middle = to - (to - from) / 2;
        if (offsets[middle] - offsets[start] <= batch_bytes) from = middle;
        else to = middle - 1;
      }
      cuts[++batches] = start = from;
    }
    cuts[0] = batches;
  }
};

// A selected row's values in all columns; for byte columns, their places.
struct FillColumns {
  ScanProgram program;
  u32 first_op, end_op;
  const u32* selected;
  u64 rows;
  const ScanColumn* columns;
  u32 num_columns;
  u8* out;
  u64* errors;

  ROCKMILL_HD void operator()(u64 i, const ThreadWords& words) const {
    ScanRow row(program, selected[i], words);
    if (row.run(first_op, end_op) != ROW_IS_SELECTED) report(errors, selected[i], ERROR_OUT_OF_RANGE);
    for (u32 c = 0; c < num_columns; ++c) {
      const ScanColumn column = columns[c];
      const ScanValue value = row.operand(column.operand);
      out[column.flags + i] = u8(value.is_set);
      u8* values = out + column.values;
      switch (column.stored) {
        case STORED_BOOLEAN: values[i] = u8(value.is(true)); break;
        case STORED_BYTES: {
          reinterpret_cast<ScanValue*>(values)[i] = value;
          u32* lens = reinterpret_cast<u32*>(out + column.lens);
          lens[i] = value.is_set ? value.len() : 0;
          if (i == 0) lens[rows] = 0;
          break;
        }
        default: store(values, i, column, value); break;
      }
    }
  }

  ROCKMILL_HD static void store(u8* values, u64 i, const ScanColumn& column, const ScanValue& value) {
    i128 integer = value.is_set ? value.integer() : 0;
    if (column.stored == STORED_FLOAT) integer = exchange_float(sign_extend(u128(integer), column.bytes), column.bytes);
    switch (column.bytes) {
      case 1: values[i] = u8(integer); break;
      case 2: reinterpret_cast<u16*>(values)[i] = u16(integer); break;
      case 4: reinterpret_cast<u32*>(values)[i] = u32(integer); break;
      case 8: reinterpret_cast<u64*>(values)[i] = u64(integer); break;
      default:
        reinterpret_cast<u64*>(values)[2 * i] = u64(integer);
        reinterpret_cast<u64*>(values)[2 * i + 1] = u64(u128(integer) >> 64);
    }
  }
};

// Eight flags to a byte: validity, and booleans.
struct PackBits {
  u64 rows;
  const ScanColumn* columns;
  u8* out;

  ROCKMILL_HD u8 pack(const u8* flags, u64 i) const {
    u32 bits = 0;
    for (u64 k = 0; k < 8 && 8 * i + k < rows; ++k) bits |= u32(flags[8 * i + k] != 0) << k;
    return u8(bits);
  }

  ROCKMILL_HD void operator()(u64 item) const {
    const u64 bytes = (rows + 7) / 8, i = item % bytes;
    const ScanColumn& column = columns[item / bytes];
    out[column.validity + i] = pack(out + column.flags, i);
    if (column.stored == STORED_BOOLEAN) out[column.packed + i] = pack(out + column.values, i);
  }
};

// The bytes of a row's cell in a byte column.
struct CopyCells {
  ScanProgram program;
  const u32* selected;
  u64 rows;
  const ScanColumn* columns;
  u8* out;

  template <class G>
  ROCKMILL_HD void operator()(const G& g, u64 item) const {
    const ScanColumn& column = columns[item / rows];
    if (column.stored != STORED_BYTES) return;
    const u64 i = item % rows;
    const ScanValue value = reinterpret_cast<const ScanValue*>(out + column.values)[i];
    if (!value.is_set) return;
    u8* to = out + column.data + reinterpret_cast<const u32*>(out + column.packed)[i];
    if (value.high == SOURCE_VALUE) {
      const Key key = program.rows[selected[i]];
      copy_bytes(g, to, place_in(program.arena, program.values[key.entry].at) + u32(value.low), value.len());
    } else {
      const ScanRow row(program, selected[i], {});
      const ScanBytes all = row.bytes();
      const ByteSpan from = all.bytes(value);
      for (u64 k = g.rank(); k < from.len; k += g.width) to[k] = from[k];
    }
  }
};

// Hashes words, each mixed with its position, for comparison with those that arrive, or with those that were stored. It takes
// up to MOST parts at a time, which fit among the parameters of a kernel.
struct HashWords {
  static constexpr u32 MOST = 64;
  HashPart parts[MOST];
  ScanTotals* totals;

  ROCKMILL_HD u64 items(u32 k) const { return (parts[k].len + 7) / 8; }
  ROCKMILL_HD ScanTotals* out(u32 k) const { return totals + parts[k].total; }

  ROCKMILL_HD void operator()(u32 k, u64 i, ScanSums& sums) const {
    const HashPart& part = parts[k];
    const u8* at = part.bytes + 8 * i;
    u64 word = 0;
    if (8 * i + 8 <= part.len && reinterpret_cast<u64>(at) % 8 == 0) word = load64(at);
    else
      for (u64 b = 0; b < 8 && 8 * i + b < part.len; ++b) word |= u64(at[b]) << 8 * b;
    sums.hash += placed_hash(word, part.position + i);
  }
};

}  // namespace rockmill::ROCKMILL_TARGET
