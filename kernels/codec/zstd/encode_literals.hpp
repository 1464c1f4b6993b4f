// Literals of a ZSTD block (RFC 8878, 3.1.1.3.1): Huffman codes if they are shorter.
#pragma once

#include "encode_fse.hpp"
#include "tables.hpp"

namespace rockmill::ROCKMILL_TARGET {

struct HuffmanEncodeTables {
  u32 counts[HUFFMAN_SYMBOLS];
  // Count and symbol of those that occur, then in ascending order.
  u32 keys[HUFFMAN_SYMBOLS], sorted[HUFFMAN_SYMBOLS];
  // Nodes of the tree, then the next code of each weight.
  u32 nodes[HUFFMAN_SYMBOLS];
  // Code, and in the upper bits its length.
  u16 codes[HUFFMAN_SYMBOLS];
  u8 weights[HUFFMAN_SYMBOLS];
  // Number of codes of each length.
  u32 lengths[HUFFMAN_MAX_LOG + 1];
  u32 stream_at[5];
  u32 weight_occurring[HUFFMAN_MAX_LOG + 1];
  FseCounts weight_counts;
  u16 weight_states[u32{1} << HUFFMAN_WEIGHT_LOG];
  FseEncodeTable weight_table;
};

constexpr u32 HUFFMAN_CODE_BITS = 12;

// Computes the number of codes of each length for `m` symbols, at least 2; none is longer than HUFFMAN_MAX_LOG. `nodes`
// has the symbols' counts, ascending (after Moffat and Katajainen, "In-place calculation of minimum-redundancy codes").
// One thread.
ROCKMILL_HD void huffman_lengths(u32* nodes, u32 m, u32* lengths) {
  constexpr u32 NONE = ~u32{0};
  // Inner nodes take the places of leaves that are in the tree; once an inner node is in the tree itself, its place has
  // its parent's number.
  u32 root = 0, leaf = 0, root_count = NONE, leaf_count = nodes[0];
  ROCKMILL_NO_UNROLL
  for (u32 next = 0; next + 1 < m; ++next) {
    u32 sum = 0;
    for (u32 i = 0; i < 2; ++i) {
      if (root_count < leaf_count) {
        sum += root_count;
        nodes[root] = next;
        ++root;
        root_count = root < next ? nodes[root] : NONE;
      } else {
        sum += leaf_count;
        ++leaf;
        leaf_count = leaf < m ? nodes[leaf] : NONE;
      }
    }
    nodes[next] = sum;
    if (root == next) root_count = sum;
  }
  for (u32 i = 0; i <= HUFFMAN_MAX_LOG; ++i) lengths[i] = 0;
  u32 used = 0;
  const auto add = [&](u32 length, u32 count) {
    if (length > HUFFMAN_MAX_LOG) length = HUFFMAN_MAX_LOG;
    lengths[length] += count;
    used += count << (HUFFMAN_MAX_LOG - length);
  };
  // Depths of the inner nodes; the rest of each depth are leaves.
  nodes[m - 2] = 0;
  u32 depth = 0, places = 1, inner = 1;
  ROCKMILL_NO_UNROLL
  for (u32 next = m - 2; next-- > 0; ++inner) {
    nodes[next] = nodes[nodes[next]] + 1;
    if (nodes[next] == depth) continue;
    add(depth, places - inner);
    ++depth;
    places = 2 * inner;
    inner = 0;
  }
  add(depth, places - inner);
  add(depth + 1, 2 * inner);
  // Too many codes were shortened: one of them moves below the longest of the others, which becomes longer.
  for (; used > u32{1} << HUFFMAN_MAX_LOG; --used) {
    u32 other = HUFFMAN_MAX_LOG - 1;
    while (lengths[other] == 0) --other;
    --lengths[HUFFMAN_MAX_LOG];
    --lengths[other];
    lengths[other + 1] += 2;
  }
}

// Codes for t.counts; at least two symbols occur.
template <class G>
ROCKMILL_HD void build_huffman_codes(const G& g, HuffmanEncodeTables& t) {
  const u32 lower_lanes = (u32{1} << g.rank()) - 1;
  u32 m = 0;
  ROCKMILL_NO_UNROLL
  for (u32 chunk = 0; chunk < HUFFMAN_SYMBOLS; chunk += g.width) {
    const u32 symbol = chunk + g.rank(), count = t.counts[symbol];
    const u32 lanes = g.ballot(count > 0);
    if (count > 0) t.keys[m + count_bits(lanes & lower_lanes)] = count << 8 | symbol;
    m += count_bits(lanes);
  }
  g.sync();
  for (u32 i = g.rank(); i < m; i += g.width) {
    const u32 key = t.keys[i];
    u32 place = 0;
    for (u32 j = 0; j < m; ++j) place += t.keys[j] < key;
    t.sorted[place] = key;
    t.nodes[place] = key >> 8;
  }
  g.sync();
  if (g.rank() == 0) huffman_lengths(t.nodes, m, t.lengths);
  g.sync();
  u32 log = HUFFMAN_MAX_LOG;
  while (t.lengths[log] == 0) --log;
  for (u32 i = g.rank(); i < HUFFMAN_SYMBOLS; i += g.width) t.weights[i] = 0;
  g.sync();
  for (u32 i = g.rank(); i < m; i += g.width) {
    u32 length = log;
    for (u32 end = t.lengths[log]; i >= end; end += t.lengths[length]) --length;
    t.weights[t.sorted[i] & 0xff] = u8(log + 1 - length);
  }
  g.sync();
  // Codes ascend by weight, then by symbol.
  if (g.rank() == 0) {
    u32 cell = 0;
    for (u32 weight = 1; weight <= log; ++weight) {
      const u32 length = log + 1 - weight, here = t.lengths[length] << (weight - 1);
      t.nodes[weight] = cell >> (weight - 1);
      cell += here;
    }
  }
  g.sync();
  ROCKMILL_NO_UNROLL
  for (u32 chunk = 0; chunk < HUFFMAN_SYMBOLS; chunk += g.width) {
    const u32 symbol = chunk + g.rank(), weight = t.weights[symbol];
    const u32 peers = g.peers(weight);
    const u32 code = weight > 0 ? t.nodes[weight] + count_bits(peers & lower_lanes) : 0;
    g.sync();
    if (weight > 0) {
      t.codes[symbol] = u16(code | (log + 1 - weight) << HUFFMAN_CODE_BITS);
      if ((peers & lower_lanes) == 0) t.nodes[weight] += count_bits(peers);
    }
    g.sync();
  }
}

// Writes the weights of all symbols before `last`, the last one that occurs. Returns their number of bytes, or 0 if
// they cannot be written.
template <class G>
ROCKMILL_HD u32 write_huffman_weights(const G& g, HuffmanEncodeTables& t, u32 last, u8* to, u32 limit) {
  constexpr u32 MOST_PLAIN = 128, KINDS = HUFFMAN_MAX_LOG + 1;
  const u32 plain = last <= MOST_PLAIN ? 1 + (last + 1) / 2 : ~u32{0};
  u32 packed = ~u32{0};
  const u32 highest = count_values(g, last, t.weight_occurring, KINDS, [&](u32 i) { return u32(t.weights[i]); });
  if (t.weight_occurring[highest] < last) {
    const u32 log = fse_log_for(last, highest, HUFFMAN_WEIGHT_LOG);
    choose_fse_counts(g, t.weight_occurring, highest + 1, last, log, t.weight_counts.of);
    const u32 own_limit = g.rank() == 0 && limit > 0 ? limit - 1 : 0;
    const u32 head = write_fse_counts(t.weight_counts.of, log, to + 1, own_limit);
    g.sync();
    build_fse_encode_table(g, t.weight_counts, highest + 1, log, t.weight_states, t.weight_table);
    BitWriter out{to + 1 + head, own_limit > head ? own_limit - head : 0};
    // Two states alternate; that of the first weight is read first.
    u32 state = t.weight_table.last_state(t.weights[last - 1]), other = t.weight_table.last_state(t.weights[last - 2]);
    for (u32 i = last - 2; i-- > 0;) {
      u32 bits = 0, num_bits = 0;
      t.weight_table.encode(state, t.weights[i], bits, num_bits);
      out.put(bits, num_bits);
      const u32 next = state;
      state = other;
      other = next;
    }
    t.weight_table.flush(state, out);
    t.weight_table.flush(other, out);
    const u32 bytes = head + out.close();
    if (bytes < 128) packed = 1 + bytes;
    if (packed < plain && own_limit > 0) to[0] = u8(bytes);
    g.sync();
  }
  if (packed < plain) return packed;
  if (plain == ~u32{0}) return 0;
  for (u32 i = g.rank(); i < plain && i < limit; i += g.width)
    to[i] = u8(i == 0 ? 127 + last : t.weights[2 * i - 2] << 4 | (2 * i - 1 < last ? t.weights[2 * i - 1] : 0));
  g.sync();
  return plain;
}

enum ZstdLiterals : u32 { ZSTD_LITERALS_RAW = 0, ZSTD_LITERALS_RLE = 1, ZSTD_LITERALS_HUFFMAN = 2 };

// A header with the number of literals, for raw or repeated ones; returns its bytes.
template <class G>
ROCKMILL_HD u32 write_plain_literals_header(const G& g, ZstdLiterals kind, u32 n, u8* to, u32 limit) {
  const u32 form = n < 32 ? 0 : n < 4096 ? 1 : 3, bytes = form == 0 ? 1 : form == 1 ? 2 : 3;
  const u32 head = kind | form << 2 | n << (form == 0 ? 3 : 4);
  for (u32 i = g.rank(); i < bytes && i < limit; i += g.width) to[i] = u8(head >> 8 * i);
  return bytes;
}

// Writes Huffman codes; returns their number of bytes, or some number from `most` on if they are not shorter.
template <class G>
ROCKMILL_HD u32 write_huffman_literals(const G& g, const u8* literals, u32 n, u32 last, u32 most, u8* to, u32 limit,
                                       HuffmanEncodeTables& t) {
  constexpr u32 ONE_STREAM_BELOW = 256, JUMPS_BYTES = 6;
  build_huffman_codes(g, t);
  const u32 streams = n < ONE_STREAM_BELOW ? 1 : 4, part = (n + streams - 1) / streams;
  const u32 form = streams == 1 ? 0 : n < 1024 ? 1 : n < 16384 ? 2 : 3;
  const u32 head = form < 2 ? 3 : form + 2, size_bits = 4 * head - 2;
  u32 at = head;
  const u32 weights = write_huffman_weights(g, t, last, to + at, limit > at ? limit - at : 0);
  if (weights == 0) return most;
  at += weights;
  const u32 jumps = at;
  if (streams > 1) at += JUMPS_BYTES;
  for (u32 stream = 0; stream < streams; ++stream) {
    const u32 end = (stream + 1) * part < n ? (stream + 1) * part : n;
    u32 bits = 0;
    for (u32 i = stream * part + g.rank(); i < end; i += g.width) bits += t.codes[literals[i]] >> HUFFMAN_CODE_BITS;
    if (g.rank() == 0) t.stream_at[stream] = at;
    at += g.sum(bits) / 8 + 1;
  }
  if (g.rank() == 0) t.stream_at[streams] = at;
  g.sync();
  if (at >= most) return most;
  for (u32 stream = g.rank(); stream < streams; stream += g.width) {
    const u32 from = t.stream_at[stream];
    BitWriter out{to + from, limit > from ? limit - from : 0};
    const u32 first = stream * part;
    u32 left = ((stream + 1) * part < n ? (stream + 1) * part : n) - first;
    const auto put = [&](u32 code) {
      out.put(code & ((u32{1} << HUFFMAN_CODE_BITS) - 1), code >> HUFFMAN_CODE_BITS);
    };
    // Some at a time, so that they need not wait for each other.
    constexpr u32 STEP = 4;
    for (; left >= STEP; left -= STEP) {
      u32 codes[STEP];
      ROCKMILL_UNROLL
      for (u32 i = 0; i < STEP; ++i) codes[i] = t.codes[literals[first + left - 1 - i]];
      ROCKMILL_UNROLL
      for (u32 i = 0; i < STEP; ++i) put(codes[i]);
    }
    for (; left > 0; --left) put(t.codes[literals[first + left - 1]]);
    out.close();
  }
  if (g.rank() == 0) {
    const u64 sizes = ZSTD_LITERALS_HUFFMAN | form << 2 | u64{n} << 4 | u64{at - head} << (4 + size_bits);
    for (u32 i = 0; i < head && i < limit; ++i) to[i] = u8(sizes >> 8 * i);
    for (u32 i = 0; i < (streams > 1 ? JUMPS_BYTES : 0) && jumps + i < limit; ++i)
      to[jumps + i] = u8((t.stream_at[i / 2 + 1] - t.stream_at[i / 2]) >> i % 2 * 8);
  }
  return at;
}

// Writes the literals of a block, at most `limit` bytes; returns the number of bytes.
template <class G>
ROCKMILL_HD u32 encode_literals(const G& g, const u8* literals, u32 n, u8* to, u32 limit, HuffmanEncodeTables& t) {
  // The description of the codes would take more than they save.
  constexpr u32 FEW = 24;
  const u32 plain = n + (n < 32 ? 1 : n < 4096 ? 2 : 3);
  u32 last = 0;
  if (n > 0) {
    last = count_values(g, n, t.counts, HUFFMAN_SYMBOLS, [&](u32 i) { return u32(literals[i]); });
    if (t.counts[last] == n) {
      const u32 head = write_plain_literals_header(g, ZSTD_LITERALS_RLE, n, to, limit);
      if (g.rank() == 0 && head < limit) to[head] = u8(last);
      return head + 1;
    }
  }
  if (n > FEW) {
    const u32 bytes = write_huffman_literals(g, literals, n, last, plain, to, limit, t);
    if (bytes < plain) return bytes;
  }
  const u32 head = write_plain_literals_header(g, ZSTD_LITERALS_RAW, n, to, limit);
  if (plain <= limit) copy_apart(g, to + head, literals, n);
  return plain;
}

}  // namespace rockmill::ROCKMILL_TARGET
